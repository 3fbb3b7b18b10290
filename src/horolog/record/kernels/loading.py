"""When kernels are loaded: on request, once, and if wished in the background."""

import importlib
import threading
from types import ModuleType
from typing import Final

REPLAY_WORTH_KERNELS: Final = 16 << 20
"""Bytes of a coordinator's records: to decode them all takes longer than to load the kernels."""

_WORTH_LOADING_BYTES = 1 << 20  # what twins go through in the time that loading takes


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
                name = f"load {self._module_name}"
                self._thread = threading.Thread(target=self.load, name=name, daemon=True)
                self._thread.start()
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
