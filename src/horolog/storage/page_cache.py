"""Reads and sends from the page cache alone, without waiting for the disk.

Linux reports it in two ways: `preadv2` with RWF_NOWAIT reads what is cached and fails otherwise;
`cachestat` (Linux 6.5) counts the cached pages of a stretch without reading them. Where the
kernel or the file system does not report it, everything counts as not cached.
"""

import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

CAN_TELL: Final = hasattr(os, "RWF_NOWAIT")

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_CACHESTAT = 451  # the same number on every architecture
_RANGE = struct.Struct("=QQ")
_COUNTS = struct.Struct("=5Q")


def read_cached(fd: int, size: int, position: int) -> bytearray | None:
    """Read `size` bytes at `position` if the page cache has all of them, otherwise return None.

    None after any error too: a read that may wait for the disk says what is wrong.
    """
    if not CAN_TELL:
        return None
    data = bytearray(size)
    try:
        count = os.preadv(fd, [data], position, _NOWAIT)
    except OSError:
        return None
    return data if count == size else None


def will_need(fd: int, size: int, position: int) -> None:
    """Ask the system to read a stretch into the page cache."""
    if sys.platform == "linux":
        with suppress(OSError):  # the reads themselves say what is wrong
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)


def is_cached(fd: int, size: int, position: int) -> bool:
    """Return True if the page cache has all `size` bytes at `position` (1 or more)."""
    count = page_counter()
    if count is None:
        return False
    pages = (position + size - 1) // _PAGE_BYTES - position // _PAGE_BYTES + 1
    return count(fd, position, size) >= pages


@cache
def page_counter() -> Callable[[int, int, int], int] | None:
    """Return a function that counts the cached pages of a stretch; None without `cachestat`."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - 5 ms that a start need not wait for

    system_call = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    if system_call is None:
        return None
    system_call.restype = ctypes.c_long
    system_call.argtypes = (
        *(ctypes.c_long, ctypes.c_uint),
        *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint),
    )

    def count(fd: int, position: int, size: int) -> int:
        counts = ctypes.create_string_buffer(_COUNTS.size)
        if system_call(_CACHESTAT, fd, _RANGE.pack(position, size), counts, 0):
            return -1
        return int(_COUNTS.unpack(counts)[0])

    with open(os.__file__, "rb") as probe:  # an older kernel, or a sandbox, refuses any file
        is_served = count(probe.fileno(), 0, 1) >= 0
    return count if is_served else None
