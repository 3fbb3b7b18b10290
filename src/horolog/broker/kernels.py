"""A broker's kernels: loaded beside its first requests, and their compiler out of memory again.

Linking the kernels runs LLVM, and leaves some 50 MB of its code resident that nobody needs
any more: as much as all the rest of an idle broker's code. Those pages are as in the file, so
they can be let go; whoever runs them again (the compiler, for another kernel) finds them there.
"""

import mmap
import threading
from pathlib import Path
from typing import Final

from horolog.record.scan import load_kernels

_MAPS: Final = Path("/proc/self/maps")
_COMPILER: Final = "/libllvmlite."
_CODE: Final = "r-xp"  # never written to, nor changed when it was linked


def load_in_background() -> None:
    """Begin to load the kernels; plain Python serves meanwhile."""
    threading.Thread(target=_load, name="load kernels", daemon=True).start()


def _load() -> None:
    load_kernels()
    let_go_of_compiler()


def let_go_of_compiler() -> int:
    """Take the compiler's code out of memory until somebody runs it; how many bytes it spans."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return 0  # not on Linux
    import ctypes  # noqa: PLC0415 - 5 ms that a start need not wait for

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    spanned = 0
    for line in lines:
        addresses, rights, *_, path = line.split(maxsplit=5)
        if rights == _CODE and _COMPILER in path:
            start, end = (int(address, 16) for address in addresses.split("-"))
            if madvise(start, end - start, mmap.MADV_DONTNEED) == 0:
                spanned += end - start
    return spanned
