"""Which rows a read gives by their own time, whatever their offset, and when a stream ends.

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
from horolog.sources import columns
from horolog.sources.option_values import is_relative, moment
from horolog.sources.wanted import EVERYTHING, Interval, Numbers, Wanted

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
    """The moments that a read was given; the names of the fields are short for the options'."""

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
    def interval_ms(self) -> Interval:
        """The times of the rows of a read, in milliseconds."""
        return self._since(self.from_)

    @property
    def backfill_interval_ms(self) -> Interval:
        """The same for rows that the log held when the query first started."""
        return self._since(self.from_, self.backfill)

    def check_batch(self) -> None:
        """Refuse what only streams have.

        Raises:
            Misconfigured: a moment of a stream was given.
        """
        for name, given in ((BACKFILL, self.backfill), (STOP, self.stop)):
            if given is not None:
                instead = FROM if name == BACKFILL else "endingTimestamp"
                raise Misconfigured(f"{name} is for streams; a batch has {instead}")

    # Relative moments stay what they were when the query first started.

    def relative_ms(self) -> dict[str, int]:
        """The relative moments, by option."""
        return {
            name: given.timestamp_ms
            for name, given in zip(OPTIONS, self._all(), strict=True)
            if given is not None and given.is_relative
        }

    def pinned(self, relative_ms: Mapping[str, int]) -> "RowTimes":
        """With the relative moments that a checkpoint holds instead of today's."""
        changed = {
            each.name: GivenMoment(relative_ms[name], is_relative=True)
            for name, each, given in zip(OPTIONS, fields(self), self._all(), strict=True)
            if given is not None and given.is_relative and name in relative_ms
        }
        return replace(self, **changed)

    def _since(self, *starts: GivenMoment | None) -> Interval:
        given = [each.timestamp_ms for each in starts if each is not None]
        first = max(given, default=EVERYTHING.first)
        if given and first == EVERYTHING.first:
            first -= 1  # not everything: a record without a timestamp is in no range
        last = EVERYTHING.last if self.to is None else self.to.timestamp_ms - 1
        return Interval(first, last)

    def _all(self) -> tuple[GivenMoment | None, ...]:
        return self.from_, self.to, self.backfill, self.stop


ANY_TIME = RowTimes()


class AppendTimeRange(NamedTuple):
    """The rows of a read by when they were appended; those of unknown times only without one.

    fromAppendTime, toAppendTime   rows that were appended in [from, to)
    """

    interval_ms: Interval | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "AppendTimeRange":
        """Read the options, `given` by lower-case name.

        Raises:
            Misconfigured: a value that is no moment, or a range that ends before it starts.
        """
        first, end = (
            moment(given, name) if name.lower() in given else None for name in APPEND_TIME_OPTIONS
        )
        if first is None and end is None:
            return cls()
        if first is not None and end is not None and first > end:
            raise Misconfigured(f"fromAppendTime ({first}) is after toAppendTime ({end})")
        return cls(
            Interval(
                EVERYTHING.first if first is None else first,
                EVERYTHING.last if end is None else end - 1,
            )
        )

    def narrow(self, wanted: Wanted) -> Wanted:
        """What is wanted, of these append times alone."""
        if self.interval_ms is None:
            return wanted
        return wanted & Wanted({columns.APPEND_TIME_MS: Numbers(self.interval_ms)})


ANY_APPEND_TIME = AppendTimeRange()


def narrowed(wanted: Wanted, times_ms: Interval) -> Wanted:
    """What is wanted, of these times alone."""
    if times_ms == EVERYTHING:
        return wanted
    return wanted & Wanted({columns.TIMESTAMP_MS: Numbers(times_ms)})


def wanted_in(times: TimeRange) -> Wanted:
    """What has to be looked at for the records of a range of time."""
    if times.is_everything:
        return Wanted()
    column = columns.TIMESTAMP_MS
    if times.clock is RecordClock.APPEND:
        column = columns.APPEND_TIME_MS
    return Wanted({column: Numbers(Interval(times.first_ms, times.last_ms))})
