"""Making many files last at once.

Synced one after the other, each file waits for a commit of the file system's journal: four
files for each of 3,500 partitions take minutes. So many are handed to the file system as a
whole, with one commit for all of them (`syncfs`). That waits for what other processes have
written there too; hence a few are synced one by one, side by side.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from horolog.errors import StorageFailed
from horolog.storage.files import Files

MANY: Final = 64
_SIDE_BY_SIDE = 16  # waiting costs nothing, and a commit takes along all who wait for it
_TELLS_OF_ERRORS = (5, 8)  # no Linux before this does


def sync_all(files: Files, paths: Iterable[str], fd: int) -> dict[str, StorageFailed]:
    """Wait until the disk has these files and directories; those that it refused, and why.

    Args:
        files: the way to the disk.
        paths: of the files and directories.
        fd: of any file on the same file system that is open since before they were written:
            only so long does the system remember for it that a write has failed.
    """
    names = list(dict.fromkeys(paths))
    if len(names) >= MANY and _sync_as_a_whole(files, names, fd):
        return {}

    def sync(path: str) -> StorageFailed | None:
        try:
            files.sync_path(path)
        except StorageFailed as error:
            return error
        return None

    if len(names) == 1:
        outcomes = [sync(names[0])]
    else:
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            outcomes = list(pool.map(sync, names))
    return {path: error for path, error in zip(names, outcomes, strict=True) if error is not None}


def _sync_as_a_whole(files: Files, paths: Sequence[str], fd: int) -> bool:
    """Whether all of these are on one file system, and it took everything."""
    syncfs = system_call()
    if syncfs is None:
        return False
    try:
        device = os.fstat(fd).st_dev
        if any(os.stat(path).st_dev != device for path in paths):
            return False
    except OSError:
        return False  # one of them is gone: whoever syncs it says so
    return files.sync_file_system(fd, syncfs)


@cache
def system_call() -> Callable[[int], int] | None:
    """`syncfs(fd)`, which returns 0 if all went well; None where none tells of errors."""
    if sys.platform != "linux":
        return None
    major, minor, *_ = (*os.uname().release.split("."), "", "")
    if not (major.isdecimal() and minor.isdecimal()):
        return None
    if (int(major), int(minor)) < _TELLS_OF_ERRORS:
        return None
    import ctypes  # noqa: PLC0415 - 5 ms that a start need not wait for

    syncfs: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "syncfs", None)
    return syncfs
