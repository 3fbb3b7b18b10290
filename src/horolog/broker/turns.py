"""Long requests take turns on the event loop, a slice each, so that short ones pass between them.

A handler that may have much to do calls `await request.checkpoint()` in its loops, as trio's code
does: it is where others get their turn, and where the work stops if its client has gone. In one
iteration of the event loop one long request gets one slice, however many there are.
"""

import asyncio
from collections import deque
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

from horolog.network.peer import Peer

SLICE_SECONDS: Final = 0.005


class ClientGone(Exception):  # noqa: N818 - errors are named by what happened
    """The client has disconnected: nobody waits for the answer.

    Not a HorologError, so that no handler takes it for the error of one topic or partition.
    """


class Turns:
    """Who waits for a slice on one event loop, in the order of asking. For its thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Return in a later iteration of the loop, alone of all that wait here."""
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


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def _turns_here() -> Turns:
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns(loop)
    return turns


class Slice:
    """The slices of one long work, for a client or for the broker itself."""

    __slots__ = ("_peer", "_turns", "_until", "is_long")

    def __init__(self, peer: Peer | None = None) -> None:
        self._turns = _turns_here()
        self._peer = peer
        self._until = perf_counter() + SLICE_SECONDS
        self.is_long = False
        """Whether one slice was not enough."""

    async def checkpoint(self) -> None:
        """Let others have their turn if this one is over.

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
        """As `checkpoint`, for work that has to be finished whoever waits for it."""
        if perf_counter() >= self._until:
            self.is_long = True
            await self._turns.next()
            self._until = perf_counter() + SLICE_SECONDS
