"""Clocks: record time (wall clock) and monotonic time, both in milliseconds.

Only this module reads the system's clocks. Record time (`now_ms`) is the wall clock, used for
append times, timestamp bounds, rolling, retention and the expiry of offsets and producers. An
operator or NTP may set it forward or back at any time. Delays within the process
(`file.delete.delay.ms`) use `monotonic_ms`, which cannot be set. Network timeouts use the event
loop's time and depend on neither.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol, TypeAlias

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

Moment: TypeAlias = int | str | datetime
"""Milliseconds since 1970, ISO 8601 text with a zone (`2026-11-20T09:00Z`), an aware datetime."""
Duration: TypeAlias = int | str | timedelta
"""Milliseconds, text such as `8d`, `90m`, `1h30m`, `-250ms`, or a timedelta."""

_UNITS_MS = {
    "ms": 1,
    "s": SECOND_MS,
    "m": MINUTE_MS,
    "h": HOUR_MS,
    "d": DAY_MS,
    "w": 7 * DAY_MS,
}
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d|w)")
_PARTS = re.compile(rf"([+-]?)((?:{_PART.pattern})+)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_LONGEST_MS = 1 << 62  # from the present it leads to a time in 64 bits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Clock(Protocol):
    """Record time and monotonic time."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch; may jump in either direction."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary origin; never decreases and never jumps."""
        ...


class SystemClock:
    """The machine's wall clock and its monotonic clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000  # noqa: TID251 - this is the one place

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary origin."""
        return time.monotonic_ns() // 1_000_000


_MACHINE = SystemClock()


class _State(NamedTuple):
    """A frozen clock's time, or a running clock's difference from the system's clock."""

    wall_ms: int
    monotonic_ms: int
    is_frozen: bool
    returns: int = 0
    """How often the clock was moved back, steps not counted."""


class ManualClock:
    """A clock for tests: frozen, or running from the time it was set to.

        ManualClock("2020-01-01T00:00Z")   # frozen at that time until moved
        ManualClock.following()            # the system's time until moved

    A move forward also advances `monotonic_ms`. A move back changes only the wall clock, and so
    does `step` in both directions.

    Thread-safe.
    """

    def __init__(self, now: Moment = 1_700_000_000_000) -> None:
        self._turning = threading.Lock()
        self._state = _State(moment_ms(now), 0, is_frozen=True)  # replaced, never changed
        self._passed_ms = 0  # by moves
        self._watchers: tuple[Callable[[], None], ...] = ()

    @classmethod
    def following(cls) -> "ManualClock":
        """Return a clock that follows the system's clock until it is moved."""
        clock = cls()
        clock.follow()
        return clock

    def __repr__(self) -> str:
        return f"<ManualClock {'at' if self.is_frozen else 'running at'} {self.now_ms()} ms>"

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        state = self._state
        return state.wall_ms if state.is_frozen else state.wall_ms + _MACHINE.now_ms()

    def monotonic_ms(self) -> int:
        """Return elapsed milliseconds since an arbitrary origin."""
        state = self._state
        if state.is_frozen:
            return state.monotonic_ms
        return state.monotonic_ms + _MACHINE.monotonic_ms()

    @property
    def is_frozen(self) -> bool:
        """True if time only changes by calls."""
        return self._state.is_frozen

    @property
    def returns(self) -> int:
        """How often a test went back in time: by `set`, `advance` and the like, not by `step`."""
        return self._state.returns

    def advance(self, by: Duration) -> int:
        """Move by a duration, back if negative; return the time. A running clock keeps running."""
        by_ms = duration_ms(by)
        with self._moving():
            self._put(self.now_ms() + by_ms, frozen=self.is_frozen)
        return self.now_ms()

    def step(self, by: Duration) -> int:
        """Step the wall clock by a duration without changing `monotonic_ms`; return the new time.

        This is what NTP or an operator does to a machine's clock.
        """
        by_ms = duration_ms(by)
        with self._moving():
            self._put(self.now_ms() + by_ms, frozen=self.is_frozen, passes=False)
        return self.now_ms()

    def set(self, to: Moment) -> int:
        """Set the time; return it. A running clock keeps running from there."""
        to_ms = moment_ms(to)
        with self._moving():
            self._put(to_ms, frozen=self.is_frozen)
        return self.now_ms()

    def freeze(self, at: Moment | None = None) -> int:
        """Freeze the clock, now or at a given time; return the frozen time."""
        at_ms = None if at is None else moment_ms(at)
        with self._moving():
            self._put(self.now_ms() if at_ms is None else at_ms, frozen=True)
        return self.now_ms()

    def run(self) -> int:
        """Run from the current time at the speed of the system's clock; return the time."""
        with self._moving():
            self._put(self.now_ms(), frozen=False)
        return self.now_ms()

    def follow(self) -> int:
        """Follow the system's clock; return the time."""
        with self._moving():
            self._put(_MACHINE.now_ms(), frozen=False)
            self._state = self._state._replace(wall_ms=0)  # exactly
        return self.now_ms()

    def watch(self, on_moved: Callable[[], None]) -> None:
        """Call `on_moved` after each move but a step, in the thread that moves the clock.

        The move returns after `on_moved` has returned.
        """
        with self._turning:
            self._watchers = (*self._watchers, on_moved)

    def unwatch(self, on_moved: Callable[[], None]) -> None:
        """Stop calling `on_moved`."""
        with self._turning:
            self._watchers = tuple(watcher for watcher in self._watchers if watcher != on_moved)

    @contextmanager
    def _moving(self) -> Iterator[None]:
        with self._turning:
            before = self._passed_ms, self.returns
            yield
            has_moved, watchers = (self._passed_ms, self.returns) != before, self._watchers
        if has_moved:
            for on_moved in watchers:
                on_moved()

    def _put(self, now_ms: int, *, frozen: bool, passes: bool = True) -> None:
        """Set the wall clock; with `passes`, a move forward also advances `monotonic_ms`."""
        _check_range(now_ms)
        moved_ms = now_ms - self.now_ms() if passes else 0
        passed_ms, returns = max(0, moved_ms), self.returns + (moved_ms < 0)
        monotonic_ms = self.monotonic_ms() + passed_ms
        self._passed_ms += passed_ms
        if not frozen:
            now_ms -= _MACHINE.now_ms()
            monotonic_ms -= _MACHINE.monotonic_ms()
        self._state = _State(now_ms, monotonic_ms, frozen, returns)


def moment_ms(moment: Moment, *, rounds_up: bool = False) -> int:
    """Return milliseconds since the epoch, rounded down unless `rounds_up` is set.

    The bounds of a range [from, to) round up.

    Raises:
        ValueError: the text is not a time, or has no zone; the message shows the format.
        TypeError: neither a number, text nor a datetime.
    """
    if isinstance(moment, str):
        if _NUMBER.fullmatch(moment.strip()):
            return _check_range(int(moment))
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise ValueError(
                f"{moment} is not a time: write it as 2026-11-20T09:00:00Z, or as milliseconds "
                "since 1970"
            ) from None
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment.isoformat()} has no zone: add Z for UTC, or +01:00")
        return -((_EPOCH - moment) // _MS) if rounds_up else (moment - _EPOCH) // _MS
    return _check_range(_whole(moment, "a moment is milliseconds since 1970, a text or a datetime"))


def duration_ms(duration: Duration) -> int:
    """Return a duration in milliseconds.

    Raises:
        ValueError: the text is not a duration; the message shows the format.
        TypeError: neither a number, text nor a timedelta.
    """
    if isinstance(duration, timedelta):
        return duration // _MS
    if not isinstance(duration, str):
        return _whole(duration, "a duration is milliseconds, a text or a timedelta")
    text = duration.strip()
    if _NUMBER.fullmatch(text):
        return int(text)
    match = _PARTS.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{duration} is not a duration: write it as 8d, 90m, 1h30m or -250ms (w, d, h, m, s, "
            "ms), or as milliseconds"
        )
    parts_ms = sum(
        int(count.lstrip("0")[:20] or 0) * _UNITS_MS[unit]
        for count, unit in _PART.findall(match[2])
    )
    if parts_ms > _LONGEST_MS:
        raise ValueError(f"{duration:.40} is beyond what a time in 64 bits can be away")
    return -parts_ms if match[1] == "-" else parts_ms


def format_duration(ms: int) -> str:
    """Format a duration in the largest unit that gives at least 2: `99 days`."""
    for unit, unit_ms in (("days", DAY_MS), ("hours", HOUR_MS), ("minutes", MINUTE_MS)):
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {unit}"
    return f"{ms // SECOND_MS} seconds"


def _whole(value: int, complaint: str) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{complaint}, not {value!r}")
    return value


def _check_range(now_ms: int) -> int:
    """Refuse a time that does not fit a record's 64 bits."""
    if not -(1 << 63) <= now_ms < 1 << 63:
        raise ValueError(f"{now_ms} ms is beyond 64 bits")
    return now_ms
