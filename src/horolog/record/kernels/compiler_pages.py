"""Keeps the code of numba's compiler out of memory while kernels are loaded, and afterwards.

Linking kernels runs LLVM and leaves some 50 MB of its code resident: as much as the rest of an idle
broker. These pages are unmodified, so they can be dropped; if the compiler runs again, the kernel
reads them from the file. They are also dropped while it runs, because each part of it is needed for
a moment only, and nothing else makes a process as large.
"""

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PAUSE_S: Final = 0.02  # LLVM needs some 10 MB of its code meanwhile
_MAPS: Final = Path("/proc/self/maps")
_COMPILER: Final = "/libllvmlite."
_CODE: Final = "r-xp"  # not writable, so unmodified


@contextmanager
def letting_go_of_compiler() -> Iterator[None]:
    """Drop the compiler's code pages again and again within the block, and after it."""
    over = threading.Event()

    def let_go() -> None:
        code: list[tuple[int, int]] = []
        while not over.wait(_PAUSE_S):
            code = code or _code_of_compiler()  # it is loaded once
            _drop(code)

    thread = threading.Thread(target=let_go, name="let go of compiler")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        let_go_of_compiler()


def let_go_of_compiler() -> int:
    """Drop the compiler's code pages from memory; return their size in bytes."""
    return _drop(_code_of_compiler())


def _code_of_compiler() -> list[tuple[int, int]]:
    """Return the addresses of the compiler's code, starts and ends; none where it is not loaded."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return []  # not on Linux
    found = []
    for line in lines:
        addresses, rights, *_, path = line.split(maxsplit=5)
        if rights == _CODE and _COMPILER in path:
            start, _, end = addresses.partition("-")
            found.append((int(start, 16), int(end, 16)))
    return found


def _drop(pages: list[tuple[int, int]]) -> int:
    """Drop unmodified pages of files from memory; return their size in bytes."""
    if not pages:
        return 0
    import ctypes  # noqa: PLC0415 - 5 ms that a start need not wait for

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(
        end - start for start, end in pages if madvise(start, end - start, mmap.MADV_DONTNEED) == 0
    )
