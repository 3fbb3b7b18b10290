"""Threads that decode and encode.

One runs at a time, for a slice of time.

Two threads that run at once only wait for each other's GIL, and the event loop waits for both. So
a job has its own thread, but runs only in its turn. At a checkpoint after a slice of time it hands
the turn over. A short job therefore waits for a slice of each other job, however long those take.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

from horolog.broker.scheduling.fair_pool import FairPool
from horolog.broker.scheduling.turns import ClientGone
from horolog.network.peer import Peer
from horolog.network.turns import SLICE_SECONDS

T = TypeVar("T")

Checkpoint: TypeAlias = Callable[[], None]
"""Function that a job calls between its steps. Other jobs run there; ClientGone ends the job."""


def no_checkpoint() -> None:
    """Do nothing: the checkpoint of work that takes less than a time slice."""


THREADS: Final = 64
"""Most jobs that share the time. Later jobs wait until one of them ends."""


class CodecThreads:
    """Codec threads of a dispatcher. `run` and `close` are for the event loop."""

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = FairPool(threads, "horolog-codec")
        self._lock = Lock()
        self._is_taken = False
        self._waiting: deque[Lock] = deque()  # one for each thread, released at its turn
        self._is_closing = False

    async def run(self, peer: Peer, call: Callable[[Checkpoint], T]) -> T:
        """Run a call in a thread, and return its result or raise its error.

        Raises:
            ClientGone: the client has disconnected, or the broker stops.
        """
        return await self._pool.run(peer, partial(self._in_turn, peer, call))

    def close(self) -> None:
        """End all jobs at their next checkpoint."""
        self._is_closing = True
        self._pool.shutdown()

    def _in_turn(self, peer: Peer, call: Callable[[Checkpoint], T]) -> T:
        until = 0.0

        def check() -> None:
            if peer.is_gone or self._is_closing:
                raise ClientGone

        def checkpoint() -> None:
            nonlocal until
            check()
            if perf_counter() >= until:
                if self._waiting:
                    self._give()
                    self._take()
                check()
                until = perf_counter() + SLICE_SECONDS

        check()
        self._take()
        try:
            check()
            until = perf_counter() + SLICE_SECONDS
            return call(checkpoint)
        finally:
            self._give()

    def _take(self) -> None:
        """Wait until no other thread runs."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return
            turn = Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def _give(self) -> None:
        """Let the next waiting thread run, if any."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False
