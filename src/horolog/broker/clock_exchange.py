"""Clocks of append times of horolog's brokers in one cluster: each rises to those it hears of.

Each fetch of a replica carries the clock of the broker that sends it, and so does the answer. It is
the broker's clock, never the last append time of a partition, which may be of another clock. So an
in-sync replica that becomes leader gives no append time before one that a consumer has seen, and
the clocks of brokers that replicate each other's partitions do not drift apart.

A clock that is ahead of this machine's by more than `horolog.timestamp.warn.ahead.ms` is ignored:
one wrong machine moves no other.
"""

import logging
from typing import Final

from horolog.broker.settings import LiveSettings
from horolog.clock import Clock, format_duration
from horolog.storage.logs.stamp_clock import StampClock

__all__ = ["ClockExchange"]

_LOG = logging.getLogger(__name__)

_WARN_EVERY_MS: Final = 60_000


class ClockExchange:
    """The clock of append times of this broker, and what others say of theirs.

    For the event loop's thread only.
    """

    def __init__(self, stamps: StampClock, clock: Clock, live: LiveSettings) -> None:
        self._stamps = stamps
        self._clock = clock
        self._live = live
        self._warn_at_ms = 0

    def tell(self) -> int:
        """Raise the clock to the broker's clock, and return it for another broker, in ms."""
        return self._stamps.rise(self._clock.now_ms())

    def hear(self, clock_ms: int, who: str) -> None:
        """Raise the clock to another broker's, unless that is too far ahead."""
        if clock_ms <= self._stamps.last_ms:
            return
        ahead_ms = clock_ms - self._clock.now_ms()
        if ahead_ms <= self._live.config.horolog_timestamp_warn_ahead_ms:
            self._stamps.rise(clock_ms)
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._warn_at_ms:
            self._warn_at_ms = now_ms + _WARN_EVERY_MS
            _LOG.warning(
                "append times of %s are %s ahead of the clock of this broker, which does not "
                "follow them: one of the two clocks is wrong (docs/append-times.md)",
                who,
                format_duration(ahead_ms),
            )
