"""A session of Spark that starts when a job first needs it."""

import signal
import threading
from collections.abc import Callable
from typing import Any


class LazySession:
    """Stands for a session: what a job refuses beforehand takes no time to start one.

    Attributes:
        started: The session, once something was asked of it.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self.started: Any = None
        self._start = start

    def __getattr__(self, name: str) -> Any:
        if self.started is None:
            before = signal.getsignal(signal.SIGINT)
            self.started = self._start()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, before)  # Spark has set a handler of its own
        return getattr(self.started, name)
