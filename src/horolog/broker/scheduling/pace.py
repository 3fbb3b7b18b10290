"""Limits the bytes per second of several threads together."""

import threading
import time
from collections.abc import Callable
from typing import Final

_LONGEST_WAIT_S: Final = 0.2  # until the rate is asked again
_SHORTEST_WAIT_S: Final = 0.001


class ThreadPace:
    """Rate limit that threads share. Each thread waits until the others' excess is worked off."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._owed = 0.0  # bytes
        self._at = monotonic()

    def wait(self, size: int, rate: Callable[[], float], stop: threading.Event) -> None:
        """Count bytes, and wait until they fit the rate or the event is set.

        Args:
            size: bytes that were read or written.
            rate: returns the bytes per second; called again while this waits.
        """
        while not stop.is_set():
            left_s = self._left_s(size, rate())
            size = 0
            if left_s < _SHORTEST_WAIT_S:
                return
            stop.wait(min(left_s, _LONGEST_WAIT_S))

    def _left_s(self, size: int, rate: float) -> float:
        with self._lock:
            now = self._monotonic()
            self._owed = max(0.0, self._owed - (now - self._at) * rate) + size
            self._at = now
            return self._owed / rate if rate > 0 else _LONGEST_WAIT_S
