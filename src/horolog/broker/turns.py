"""Time slices for long requests on the event loop, so that short ones run between them.

A handler with much work calls `await request.checkpoint()` in its loops, as in trio: other requests
run there, and the work is cancelled if its client has disconnected. In one iteration of the event
loop one long request gets one slice, however many there are.
"""

import asyncio
from collections import deque
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

from horolog.network.peer import Peer

SLICE_SECONDS: Final = 0.005


class ClientGone(Exception):
    """The client has disconnected, so the work is cancelled.

    Not a HorologError, so that handlers do not report it for one topic or partition.
    """


class HandlerTurns:
    """The FIFO queue of slices on one event loop. For its thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Return in a later iteration of the loop, as the only waiter in that iteration."""
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._admit_one)
        await turn

    def _admit_one(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():
            turn.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._admit_one)
        else:
            self._is_scheduled = False


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, HandlerTurns] = WeakKeyDictionary()


def _turns_here() -> HandlerTurns:
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = HandlerTurns(loop)
    return turns


async def next_turn() -> None:
    """Return in a later iteration of the loop, as the only long request that goes on in it.

    For a request that has waited for a thread: what the thread does for others during a slice ends
    in one iteration, which would otherwise have a slice of each.
    """
    await _turns_here().next()


class TimeSlice:
    """The time slices of one task, for a client or for the broker itself."""

    __slots__ = ("_peer", "_turns", "_until", "is_long")

    def __init__(self, peer: Peer | None = None) -> None:
        self._turns = _turns_here()
        self._peer = peer
        self._until = perf_counter() + SLICE_SECONDS
        self.is_long = False
        """Whether the task needed more than one slice."""

    async def checkpoint(self) -> None:
        """Yield to other requests if the slice is used up.

        Raises:
            ClientGone: the client has disconnected.
        """
        peer = self._peer
        if peer is not None and peer.is_gone:
            raise ClientGone
        await self.pause()
        if peer is not None and peer.is_gone:
            raise ClientGone

    async def pause(self) -> None:
        """As `checkpoint`, but never cancelled."""
        if perf_counter() >= self._until:
            self.is_long = True
            await self._turns.next()
            self._until = perf_counter() + SLICE_SECONDS
