"""Polls the sockets for a moment before the event loop sleeps, while requests follow responses.

A client that waits for each response sends its next request some 50 µs after it. An event loop
that sleeps meanwhile pays for a processor that has to be woken, and for caches that have lost the
broker's code: together more than the request. So while requests follow responses so soon, the loop
polls its sockets for a moment (`horolog.busy.poll.us`) before it sleeps, as Linux does for halted
virtual machines.

What this may cost is bounded: it begins after several responses in turn were followed so soon, ends
with the first that is not, and rests where other processes need the processor. Idle connections,
large requests, several at once and requests in flight do not poll.
"""

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

BEGIN_AFTER: Final = 8
"""Responses in a row that must be followed soon before the loop polls."""
REST: Final = 100
"""Responses before the loop polls again after it lost the processor."""
LEAST_PROCESSORS: Final = 2
BEHIND_SECONDS: Final = 20e-6
"""Longest time between a response and the receipt of a request that was already waiting."""
QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""File with a container's processor limit (Linux control groups, version 2)."""


class BusyPolling:
    """Busy polling on one event loop.

    For its thread only.

    `seconds` is how long the loop polls after a response; with 0 it never does. `now` counts
    seconds.
    """

    __slots__ = (
        "_answered_at",
        "_looked_at",
        "_loop",
        "_now",
        "_score",
        "_seconds",
        "is_behind",
        "is_polling",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._now = now
        self._score = 0  # responses in turn that were followed soon; below 0 while it rests
        self._answered_at = 0.0  # of the last response; 0.0 once a request has followed
        self._looked_at = 0.0
        self.is_polling = False
        self.is_behind = False
        """True if the latest bytes had arrived before the last response was made."""

    def received(self) -> None:
        """Note that bytes have arrived from a client."""
        if not self._answered_at:
            self.is_behind = False
            return
        now = self._looked_at = self._now()
        after = now - self._answered_at
        self.is_behind = after < BEHIND_SECONDS
        # To wake up takes about as long as it is worth to poll.
        soon = self._seconds if self.is_polling else 2 * self._seconds
        if after > soon:
            self._score = min(self._score, 0)
        elif not self.is_behind:
            self._score = min(self._score + 1, BEGIN_AFTER)
        elif self._score > 0:  # a loop that sleeps finds more requests, and joins the responses
            self._score -= 1
        self._answered_at = 0.0

    def answered(self) -> None:
        """Note that a client has no unanswered request, and start to poll if that is worth it."""
        self._answered_at = self._looked_at = self._now()
        if self._score >= BEGIN_AFTER and not self.is_polling:
            self.is_polling = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Keep the event loop awake for one more iteration, unless the time for polling is over."""
        now = self._now()
        if now - self._looked_at > self._seconds:
            self._score = -REST  # an iteration takes a few µs, unless others work
        elif self._answered_at and now - self._answered_at > self._seconds:
            self._score = 0
        self._looked_at = now
        self.is_polling = self._answered_at > 0.0 and self._score >= BEGIN_AFTER
        if self.is_polling:
            self._loop.call_soon(self._poll)


def worth_polling_s(asked_us: int) -> float:
    """Return how long to poll, in seconds; 0 with fewer than two processors.

    On a single one a client would not get it before the broker sleeps, and a broker whose
    processor time is limited has none to spare.
    """
    if hasattr(os, "sched_getaffinity"):
        processors = float(len(os.sched_getaffinity(0)))
    else:
        processors = float(os.cpu_count() or 1)
    return asked_us / 1e6 if min(processors, _granted(QUOTA)) >= LEAST_PROCESSORS else 0.0


def _granted(quota: Path) -> float:
    """Return how many processors the container may use, from its quota per period."""
    try:
        granted, _, period = quota.read_text().strip().partition(" ")
        return math.inf if granted == "max" else int(granted) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # there is no such limit
        return math.inf
