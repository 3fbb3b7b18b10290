"""Time slices for long requests on the event loop, so that short ones run between them.

A handler with much work calls `await request.checkpoint()` in its loops, as in trio: other requests
run there, and the work is cancelled if its client has disconnected. In one iteration of the event
loop one long request gets one slice, however many there are.
"""

import asyncio
from time import perf_counter
from weakref import WeakKeyDictionary

from horolog.network.peer import Peer
from horolog.network.turns import SLICE_SECONDS, Turns


class ClientGone(Exception):
    """Raised in the work for a client that has disconnected.

    Not a HorologError, so that handlers do not report it for one topic or partition.
    """


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


async def next_turn() -> None:
    """Return in a later iteration of the loop; one long request at a time continues in each.

    For a request that has waited for a thread: what the thread does for others during a slice ends
    in one iteration, which would otherwise have a slice of each.
    """
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns(loop, slice_seconds=0)
    turn = loop.create_future()
    turns.wait(lambda: None if turn.done() else turn.set_result(None))
    await turn


class TimeSlice:
    """Time slices of one task, for a client or for the broker itself."""

    __slots__ = ("_peer", "_until", "is_long")

    def __init__(self, peer: Peer | None = None) -> None:
        self._peer = peer
        self._until = perf_counter() + SLICE_SECONDS
        self.is_long = False
        """True if the task needed more than one slice."""

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
        """Yield like `checkpoint`, but never be cancelled."""
        if perf_counter() >= self._until:
            self.is_long = True
            await next_turn()
            self._until = perf_counter() + SLICE_SECONDS
