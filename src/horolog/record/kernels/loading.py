"""When kernels are loaded: on request, once, and if wished in the background."""

import atexit
import importlib
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Final

REPLAY_WORTH_KERNELS: Final = 16 << 20
"""Bytes of a coordinator's records: to decode them all takes longer than to load the kernels."""

_WORTH_LOADING_BYTES = 1 << 20  # what twins go through in the time that loading takes


_leaving = threading.Event()


class LoadingStopped(Exception):
    """The process exits: no further kernel is loaded."""


def begin_loading(load: Callable[[], object], name: str) -> threading.Thread:
    """Load kernels in a thread, which ends before the process does.

    The interpreter stops daemon threads where they are when it exits. Within LLVM that is a crash.
    """

    def run() -> None:
        try:
            load()
        except LoadingStopped:
            return

    thread = threading.Thread(target=run, name=name, daemon=True)
    atexit.register(_end, thread)
    thread.start()
    return thread


def _end(thread: threading.Thread) -> None:
    _leaving.set()
    thread.join()


def check_loading() -> None:
    """End the loading at exit, before the next kernel.

    Raises:
        LoadingStopped: the process exits.
    """
    if _leaving.is_set() and threading.current_thread() is not threading.main_thread():
        raise LoadingStopped


class LazyKernels:
    """A module of kernels that loads in the background."""

    def __init__(self, module_name: str) -> None:
        self._module_name = module_name
        self._loading = threading.Lock()
        self._starting = threading.Lock()  # never held while it loads: an event loop asks for it
        self._thread: threading.Thread | None = None
        self._work_bytes = 0
        self.module: ModuleType | None = None
        """None until it is loaded; twins serve meanwhile."""

    def load(self) -> None:
        """Import the module, compiling what no cache holds; returns when it is ready."""
        with self._loading:
            if self.module is None:
                self.module = importlib.import_module(self._module_name)

    def load_in_background(self) -> threading.Thread:
        """Begin to load, unless that has begun; the thread that does it may be joined."""
        with self._starting:
            if self._thread is None:
                self._thread = begin_loading(self.load, f"load {self._module_name}")
            return self._thread

    def note_work(self, size: int) -> None:
        """Count what twins had to do; begin to load once there has been enough of it.

        Does not wait, also while the kernels are loaded.
        """
        self._work_bytes += size
        if self._work_bytes >= _WORTH_LOADING_BYTES:
            self.load_in_background()


SCAN_KERNELS: Final = LazyKernels("horolog.record.kernels.scan_kernels")
BLOCK_KERNELS: Final = LazyKernels("horolog.record.kernels.block_kernels")
COLUMN_KERNELS: Final = LazyKernels("horolog.record.kernels.column_kernels")
MESSAGE_KERNELS: Final = LazyKernels("horolog.record.kernels.message_kernels")
PLAIN_KERNELS: Final = LazyKernels("horolog.record.kernels.plain_kernels")
JOIN_KERNELS: Final = LazyKernels("horolog.record.kernels.join_kernels")
CLEANING_KERNELS: Final = LazyKernels("horolog.record.kernels.cleaning_kernels")
