"""Time slices on the event loop, and the queue of calls that wait for the next one.

All connections share one queue, as one client may send thousands of small requests at once, and
many clients one each. In an iteration of the event loop connections start requests and receive
large ones for a slice. Then each connection may start one quick request for a little longer. The
others continue in turn, in later iterations. Long requests have a queue of their own
(`broker/scheduling/turns.py`), which makes one call in an iteration.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

SLICE_SECONDS: Final = 0.005
QUICK_SECONDS: Final = 0.005
"""Time after a slice in which quick requests may still start."""


class Turns:
    """Queue of calls on one event loop.

    An iteration makes those that fit its time slice, or one.

    For its thread only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, slice_seconds: float | None = None) -> None:
        self._loop = loop
        self._slice_seconds = slice_seconds
        self.waiting: deque[Callable[[], None]] = deque()
        """Calls that wait for their turn."""
        self._until = 0.0
        self._is_scheduled = False

    def is_over(self) -> bool:
        """True if the slice of this iteration is used up. The first call starts a slice."""
        if not self._is_scheduled:
            self._start_slice()
            return False
        return perf_counter() >= self._until

    def is_over_for_quick(self) -> bool:
        """True if no connection may start its first, quick request in this iteration any more.

        No slice starts for one that comes soon after the last slice: to end it takes an iteration.
        """
        now = perf_counter()
        if self._is_scheduled:
            return now >= self._until + QUICK_SECONDS
        if now >= self._until:
            self._start_slice()
        return False

    def wait(self, go_on: Callable[[], None]) -> None:
        """Make a call in a later iteration, in order."""
        self.waiting.append(go_on)
        if not self._is_scheduled:
            self._start_slice()

    def _start_slice(self) -> None:
        self._is_scheduled = True
        seconds = SLICE_SECONDS if self._slice_seconds is None else self._slice_seconds
        self._until = perf_counter() + seconds
        self._loop.call_soon(self._end_slice)

    def _end_slice(self) -> None:
        self._is_scheduled = False
        if not self.waiting:
            return
        self._start_slice()
        for _ in range(len(self.waiting)):
            self.waiting.popleft()()
            if self.is_over():
                break
