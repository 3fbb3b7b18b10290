"""When records are due."""

from horolog.clock import Clock
from horolog.jobs.replaying.merging import BEFORE_ALL


class Pace:
    """When records are due: their first one now, the others after their recorded intervals."""

    def __init__(self, clock: Clock, speed: float | None, max_gap_ms: int | None = None) -> None:
        """At a speed.

        Args:
            clock: the time that passes.
            speed: intervals are divided by it; None for no waiting.
            max_gap_ms: longer intervals without any record are cut to this, as recorded.
        """
        self._clock = clock
        self._speed = speed
        self._max_gap_ms = max_gap_ms
        self._origin_ms: int | None = None
        self._last_ms = 0
        self._started_ms = clock.monotonic_ms()
        self._started_at_ms = clock.now_ms()

    def wait_ms(self, ms: int) -> int:
        """How long until a record of this time is due; 0 or less if it is."""
        if self._speed is None or ms == BEFORE_ALL:
            return 0
        return self._after_ms(ms) - (self._clock.monotonic_ms() - self._started_ms)

    def now_for(self, ms: int) -> int:
        """The wall clock's time at which it is due, or now if nothing is waited for."""
        if self._speed is None or ms == BEFORE_ALL:
            return self._clock.now_ms()
        return self._started_at_ms + self._after_ms(ms)

    def _after_ms(self, ms: int) -> int:
        if self._origin_ms is None:
            self._origin_ms = self._last_ms = ms
        gap = ms - self._last_ms
        if self._max_gap_ms is not None and gap > self._max_gap_ms:
            self._origin_ms += gap - self._max_gap_ms
        self._last_ms = max(self._last_ms, ms)
        assert self._speed is not None
        return round((ms - self._origin_ms) / self._speed)
