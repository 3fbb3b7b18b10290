"""Loads the kernels of a broker in the background."""

import gc
import logging

from horolog.record.kernels.loading import begin_loading, compiles_at_each_start
from horolog.record.scan import load_kernels

_LOG = logging.getLogger(__name__)


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
    if (warning := compiles_at_each_start()) is not None:
        _LOG.warning("%s", warning)


def _load_for_good() -> None:
    gc.disable()  # imports leave no garbage worth a pause
    try:
        _load()
        gc.freeze()
    finally:
        gc.enable()
