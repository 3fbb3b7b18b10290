"""Options that filter rows by time, and the one that ends a stream at a moment.

    fromTimestamp, toTimestamp   rows with a time in [from, to), late ones included
    backfillFromTimestamp        of a stream: of what the log holds when the query first starts,
                                 the rows at or after this moment
    stopAtTimestamp              of a stream: where the log ends when the broker's clock passes
                                 this moment, the stream ends

Records without a timestamp (-1) have no time, and are in no range.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from horolog.errors import Misconfigured
from horolog.record.timestamps import RecordClock, TimeRange
from horolog.sources.option_values import is_relative, moment

FROM = "fromTimestamp"
TO = "toTimestamp"
BACKFILL = "backfillFromTimestamp"
STOP = "stopAtTimestamp"
APPEND_TIME_OPTIONS = ("fromAppendTime", "toAppendTime")
OPTIONS = (FROM, TO, BACKFILL, STOP)


class GivenMoment(NamedTuple):
    """A moment in milliseconds; a relative one (`-3d`) counts from the query's first start."""

    timestamp_ms: int
    is_relative: bool = False


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Moments of a read; fields are named after the options."""

    from_: GivenMoment | None = None
    to: GivenMoment | None = None
    backfill: GivenMoment | None = None
    stop: GivenMoment | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "RowTimes":
        """Read the options, `given` by lower-case name.

        Raises:
            Misconfigured: a value that is no moment, or a range that ends before it starts.
        """
        found = [
            GivenMoment(moment(given, name), is_relative(given, name))
            if name.lower() in given
            else None
            for name in OPTIONS
        ]
        times = cls(*found)
        if times.from_ and times.to and times.from_.timestamp_ms > times.to.timestamp_ms:
            raise Misconfigured(
                f"{FROM} ({times.from_.timestamp_ms}) is after {TO} ({times.to.timestamp_ms})"
            )
        return times

    @property
    def range(self) -> TimeRange:
        """Times of the rows of a read."""
        return self._since(self.from_)

    @property
    def backfill_range(self) -> TimeRange:
        """Times of rows that the log held when the query first started."""
        return self._since(self.from_, self.backfill)

    def check_batch(self) -> None:
        """Refuse moments that only streams take.

        Raises:
            Misconfigured: a moment of a stream was given.
        """
        for name, given in ((BACKFILL, self.backfill), (STOP, self.stop)):
            if given is not None:
                instead = FROM if name == BACKFILL else "endingTimestamp"
                raise Misconfigured(f"{name} is for streams; a batch has {instead}")

    # Relative moments stay what they were when the query first started.

    def relative_ms(self) -> dict[str, int]:
        """Return the relative moments, by option."""
        return {
            name: given.timestamp_ms
            for name, given in zip(OPTIONS, self._all(), strict=True)
            if given is not None and given.is_relative
        }

    def pinned(self, relative_ms: Mapping[str, int]) -> "RowTimes":
        """Return the moments with the relative ones of a checkpoint in place of today's."""
        changed = {
            moment_field.name: GivenMoment(relative_ms[name], is_relative=True)
            for name, moment_field, given in zip(OPTIONS, fields(self), self._all(), strict=True)
            if given is not None and given.is_relative and name in relative_ms
        }
        return replace(self, **changed)

    def _since(self, *starts: GivenMoment | None) -> TimeRange:
        first_ms = max((start.timestamp_ms for start in starts if start is not None), default=None)
        return TimeRange.between(first_ms, None if self.to is None else self.to.timestamp_ms)

    def _all(self) -> tuple[GivenMoment | None, ...]:
        return self.from_, self.to, self.backfill, self.stop


ANY_TIME = RowTimes()


def append_times_of(given: Mapping[str, str]) -> TimeRange:
    """Return the range of append times that `fromAppendTime` and `toAppendTime` give.

    fromAppendTime, toAppendTime   rows that were appended in [from, to)

    Args:
        given: all options, by lower-case name.

    Raises:
        Misconfigured: a value that is no moment, or a range that ends before it starts.
    """
    first, end = (
        moment(given, name) if name.lower() in given else None for name in APPEND_TIME_OPTIONS
    )
    if first is not None and end is not None and first > end:
        raise Misconfigured(f"fromAppendTime ({first}) is after toAppendTime ({end})")
    return TimeRange.between(first, end, RecordClock.APPEND)
