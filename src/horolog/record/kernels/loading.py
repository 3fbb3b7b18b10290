"""When kernels are loaded: on request, once, and if wished in the background."""

import atexit
import functools
import importlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from horolog.extras import is_installed
from horolog.record.kernels.compiler_pages import letting_go_of_compiler
from horolog.record.kernels.machine import plain

REPLAY_WORTH_KERNELS: Final = 16 << 20
"""Bytes of a coordinator's records: to decode them all takes longer than to load the kernels."""

_WORTH_LOADING_BYTES = 1 << 20  # what plain Python goes through in the time that loading takes

WITHOUT_NUMBA: Final = (
    "numba is not installed, so work on records is slower. CPU time: 4 ms instead of 0.1 for a "
    "request of 1,000 records, 1 ms instead of 0.04 for an offset by time, 21 us instead of 0.4 "
    "for compacting a record. To speed it up: pip install 'horolog[fast]'"
)
"""A line for users with the cost, measured by `bench.without_numba`."""

# numba fills its registries while it loads, and reads the directory of its cache from a global:
# only one thread may load, whichever kernels.
_loading = threading.Lock()
_leaving = threading.Event()
_not_kept_in: list[tuple[str, ...]] = []


def note_not_kept(places: Iterable[str]) -> None:
    """Note that none of these directories takes compiled kernels."""
    _not_kept_in[:] = [tuple(places)]


def compiles_at_each_start() -> str | None:
    """Return a line for users if this process could not keep what it compiled; None otherwise."""
    if not _not_kept_in:
        return None
    return (
        "the kernels are compiled at each start, in 17 s of CPU, because no directory takes "
        f"them: {', '.join(_not_kept_in[0]) or 'there is none'}. Set XDG_CACHE_HOME to a "
        "directory that can be written, or to one where another start has kept those of this "
        "processor"
    )


class LoadingStopped(Exception):
    """Raised in place of loading a further kernel when the process exits."""


def begin_loading(load: Callable[[], object], name: str) -> threading.Thread:
    """Load kernels in a thread that ends before the process does.

    The interpreter stops daemon threads wherever they are when it exits. Within LLVM that is a
    crash.
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
    """Stop the loading at exit, before the next kernel.

    Raises:
        LoadingStopped: the process exits.
    """
    if _leaving.is_set() and threading.current_thread() is not threading.main_thread():
        raise LoadingStopped


class Kernels:
    """The kernels of a module of text: plain Python until they are loaded, and without numba."""

    def __init__(self, text_name: str) -> None:
        self.text_name = text_name
        self._starting = threading.Lock()  # never held while it loads: an event loop asks for it
        self._thread: threading.Thread | None = None
        self._work_bytes = 0
        self.is_loaded = False
        """True once they are compiled."""
        self.run: Any = PlainKernels(text_name)
        """The kernels by name, as they run now. They take buffers of any type."""

    def load(self) -> None:
        """Compile kernels that no cache contains; return when all are ready."""
        with _loading:
            if self.is_loaded or not is_numba_installed():
                return
            with letting_go_of_compiler():
                from horolog.record.kernels import compiled  # noqa: PLC0415 - a second, in a thread

                self.run = compiled.functions_of(importlib.import_module(self.text_name))
            self.is_loaded = True

    def load_in_background(self) -> threading.Thread:
        """Load in a thread, which is started once, and return the thread."""
        with self._starting:
            if self._thread is None:
                self._thread = begin_loading(self.load, f"load {self.text_name}")
            return self._thread

    def note_work(self, size: int) -> None:
        """Count bytes that plain Python has processed; begin to load once there were enough.

        The call does not wait for the load.
        """
        if self.is_loaded:
            return
        self._work_bytes += size
        if self._work_bytes >= _WORTH_LOADING_BYTES:
            self.load_in_background()

    def load_for(self, size: int) -> None:
        """Count bytes that will be processed, and wait for kernels that are being loaded."""
        self.note_work(size)
        if self._thread is not None:
            self._thread.join()

    @property
    def is_loading(self) -> bool:
        """True while the kernels are being loaded in the background."""
        return self._thread is not None and self._thread.is_alive()


class PlainKernels:
    """The kernels of a module of text as plain Python, imported at the first call."""

    def __init__(self, text_name: str) -> None:
        self._text_name = text_name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = plain(getattr(importlib.import_module(self._text_name), name))
        setattr(self, name, function)
        return function


@functools.cache
def is_numba_installed() -> bool:
    """Return True if kernels can be compiled (`horolog[fast]`)."""
    return is_installed("numba")


SCAN_KERNELS: Final = Kernels("horolog.record.kernels.scan_kernels")
BLOCK_KERNELS: Final = Kernels("horolog.record.kernels.block_kernels")
COLUMN_KERNELS: Final = Kernels("horolog.record.kernels.column_kernels")
MESSAGE_KERNELS: Final = Kernels("horolog.record.kernels.message_kernels")
PLAIN_KERNELS: Final = Kernels("horolog.record.kernels.plain_kernels")
JOIN_KERNELS: Final = Kernels("horolog.record.kernels.join_kernels")
CLEANING_KERNELS: Final = Kernels("horolog.record.kernels.cleaning_kernels")


def load_all() -> None:
    """Load all kernels, so that processes that start together need not compile the same."""
    for value in tuple(globals().values()):
        if isinstance(value, Kernels):
            value.load()
