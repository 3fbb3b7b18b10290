"""Closes stalled clients that hold memory or files while others wait for them.

A client may be slow as long as no other connection needs its memory. Once a connection waits for
memory, or the budget is exceeded, or responses cannot get a file, all clients must make progress:
requests must arrive and responses must be read fast enough to complete in a minute. Others are
closed, the largest first, until enough is released.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from horolog.network.budget import ByteBudget
from horolog.network.connection import Progress, ServerConnection
from horolog.network.reply import FileSlots

_LOG = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
# Counted in ticks, so that a pause of this process does not look like stalled clients.
WINDOW_TICKS: Final = 6
LEAST_BYTES_A_SECOND: Final = 8 * 1024
DONE_WITHIN_SECONDS: Final = 60


def demanded(progress: Progress) -> float:
    """Return how many bytes must be transferred within a window."""
    return (
        max(progress.total / DONE_WITHIN_SECONDS, LEAST_BYTES_A_SECOND)
        * WINDOW_TICKS
        * TICK_SECONDS
    )


class StallWatch:
    """Watches all connections while memory or files are short. On the event loop only."""

    def __init__(
        self,
        budget: Callable[[], ByteBudget],
        slots: FileSlots,
        connections: Callable[[], Iterable[ServerConnection]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._budget = budget
        self._slots = slots
        self._connections = connections
        self._seen: dict[tuple[ServerConnection, str], deque[Progress]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        """Watch until the shortage ends."""
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def start_from_thread(self) -> None:
        """Start watching; may be called from any thread."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self.start)

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer = None
        budget = self._budget()
        if not (budget.is_under_pressure or self._slots.is_exhausted):
            self._seen.clear()
            return
        stalled = sorted(self._stalled(), key=lambda it: it[1].held, reverse=True)
        missing = budget.missing
        for connection, progress in stalled:
            if missing > 0:
                missing -= progress.held
            elif not (self._slots.is_exhausted and connection.holds_files):
                continue
            kind, _ = progress.what
            _LOG.warning(
                "closing the connection of %s, which stalls: it holds %d bytes of %s and moves "
                "fewer than %d in %g seconds while others wait for memory",
                connection.peer.host,
                progress.held,
                "a request that is not whole" if kind == "request" else "answers it does not read",
                demanded(progress),
                WINDOW_TICKS * TICK_SECONDS,
            )
            connection.close()
        self.start()

    def _stalled(self) -> list[tuple[ServerConnection, Progress]]:
        seen, self._seen = self._seen, {}
        stalled = []
        for connection in self._connections():
            for progress in (connection.receiving, connection.sending):
                if progress is None:
                    continue
                kind, _ = progress.what
                before = seen.get((connection, kind))
                if before is None or before[-1].what != progress.what:
                    before = deque(maxlen=WINDOW_TICKS)
                self._seen[connection, kind] = before
                if len(before) == WINDOW_TICKS and progress.moved - before[0].moved < demanded(
                    progress
                ):
                    stalled.append((connection, progress))
                before.append(progress)
        return stalled
