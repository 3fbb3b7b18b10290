"""Loads the kernels in the background, then releases LLVM's pages.

Linking the kernels runs LLVM and leaves some 50 MB of its code resident: as much as the rest of an
idle broker. These pages are unmodified, so they can be dropped; if the compiler runs again, the
kernel reads them from the file.
"""

import gc
import logging
import mmap
from pathlib import Path
from typing import Final

from horolog.record.kernels.loading import begin_loading, compiles_at_each_start
from horolog.record.scan import load_kernels

_LOG = logging.getLogger(__name__)

_MAPS: Final = Path("/proc/self/maps")
_COMPILER: Final = "/libllvmlite."
_CODE: Final = "r-xp"  # not writable, so unmodified


def load_in_background(*, owns_process: bool = False) -> None:
    """Start loading the kernels. Until then they run as plain Python.

    Where the broker owns the process, the compiler's modules are excluded from garbage collection.
    They are most of the process's objects, and each full collection that looks at them stops
    every thread for a tenth of a second.
    """
    load = _load_for_good if owns_process else _load
    begin_loading(load, "load kernels")


def _load() -> None:
    load_kernels()
    let_go_of_compiler()
    if (warning := compiles_at_each_start()) is not None:
        _LOG.warning("%s", warning)


def _load_for_good() -> None:
    gc.disable()  # imports leave no garbage worth a pause
    try:
        _load()
        gc.freeze()
    finally:
        gc.enable()


def let_go_of_compiler() -> int:
    """Drop the compiler's code pages from memory; return their size in bytes."""
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
