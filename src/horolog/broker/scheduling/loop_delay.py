"""Measures how late timers of the event loop are: every response waits as long as they do.

A timer runs ten times a second. What it is late by is what a request that came at its time had to
wait for other work on the loop, or for the processor.
"""

import asyncio
from bisect import bisect_left
from time import perf_counter
from typing import Final

INTERVAL_SECONDS: Final = 0.1
BOUNDS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000)
"""Upper bounds of the buckets; one more bucket has the rest."""


class LoopDelay:
    """Delays of a timer on the event loop, by buckets. For its thread only."""

    def __init__(self) -> None:
        """Begin to measure."""
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._begin()

    def close(self) -> None:
        """Stop measuring."""
        self._timer.cancel()

    def _begin(self) -> None:
        self._due = perf_counter() + INTERVAL_SECONDS
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def _tick(self) -> None:
        delay_ms = 1000 * (perf_counter() - self._due)
        self.counts[bisect_left(BOUNDS_MS, delay_ms)] += 1
        self._begin()
