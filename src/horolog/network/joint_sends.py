"""Sends small responses of one iteration of the event loop together, at its end.

Waking the client takes the kernel longer than the rest of sending a response. A client with many
connections is asleep again before the next request is answered. If requests arrived together, the
client is woken once for all responses. Sending them in a row also finds the kernel's code in the
processor's caches.
"""

import asyncio
from collections.abc import Callable
from typing import Final

MOST: Final = 16
"""Most responses that wait, about half a millisecond for the first."""


class JointSends:
    """Responses that wait on one event loop. For its thread only."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Call `send` at the end of this iteration, or once there are many."""
        waiting = self._waiting
        if not waiting:
            self._loop.call_soon(self.flush)
        waiting.append(send)
        if len(waiting) == MOST:
            self.flush()

    def flush(self) -> None:
        """Send the waiting responses now."""
        waiting, self._waiting = self._waiting, []
        for send in waiting:
            send()
