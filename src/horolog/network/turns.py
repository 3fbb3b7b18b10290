"""How much is received and started before the event loop serves other connections.

A client may send thousands of small requests at once, and many clients may send a large one each.
In one iteration of the event loop each connection that is called may start one quick request, and
all of them together start and receive as much more as fits a slice. The others continue in turn,
in the next iteration.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

SLICE_SECONDS: Final = 0.005


class ConnectionTurns:
    """The connections of one event loop that have more requests to start. For its thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._until = 0.0
        self._is_scheduled = False

    @property
    def is_contended(self) -> bool:
        """Whether a connection waits for its turn."""
        return bool(self._waiting)

    def is_over(self) -> bool:
        """Whether the slice of this iteration is used up; it starts with the first call."""
        if not self._is_scheduled:
            self._start_slice()
            return False
        return perf_counter() >= self._until

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call back in a later iteration, in order; to be called when `is_over`."""
        self._waiting.append(go_on)

    def _start_slice(self) -> None:
        self._is_scheduled = True
        self._until = perf_counter() + SLICE_SECONDS
        self._loop.call_soon(self._end_slice)

    def _end_slice(self) -> None:
        self._is_scheduled = False
        if not self._waiting:
            return
        self._start_slice()
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if self.is_over():
                break
