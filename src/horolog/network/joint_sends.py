"""Sends small responses of one iteration of the event loop together, at its end.

A response wakes its client, which takes the kernel longer than the rest of sending it. A client
that has many connections, or one of several on another processor, is asleep again before the next
request is answered. Where requests have arrived at once, it is woken once for all of them; and what
is sent one after the other finds the kernel's code in the processor's caches.
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
