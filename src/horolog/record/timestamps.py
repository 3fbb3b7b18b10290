"""The meaning of a record's timestamp (KIP-32)."""

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

NO_TIMESTAMP: Final = -1
"""The timestamp of a record that has none."""
UNWRITABLE: Final = (
    "1969-12-31T23:59:59.999Z is -1 ms, which Kafka's formats take for no timestamp: shift it by a "
    "millisecond"
)
"""Reason for refusing a moment that would be written as no time."""
NO_TIMESTAMP_TYPE: Final = -1
"""The type of the timestamps of format v0, which has none (Kafka's NoTimestampType)."""


class TimestampType(IntEnum):
    """Clock of a record's timestamp; the numbers are those of attribute bit 3."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        """Value of `message.timestamp.type`."""
        return "LogAppendTime" if self else "CreateTime"


# To be compared with where each batch passes: to look a member up in its enumeration takes longer
# in Python 3.11 than most of what is done with it.
CREATE_TIME: Final = TimestampType.CREATE_TIME
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class RecordClock(StrEnum):
    """Clock by which records are found."""

    CREATE = "create"
    """Its producer's, as the record carries it."""
    APPEND = "append"
    """Its broker's, when it was appended."""


class TimeRange(NamedTuple):
    """Times from `first_ms` to `last_ms`, both included, by one of the two clocks."""

    first_ms: int = -(1 << 63)
    last_ms: int = (1 << 63) - 1
    of_append: bool = False
    """True if the times are append times, otherwise they are the records' timestamps."""
    with_untimed: bool = False
    """True if records without a time by this clock are included."""

    @classmethod
    def between(
        cls, from_ms: int | None, to_ms: int | None, clock: RecordClock = RecordClock.CREATE
    ) -> "TimeRange":
        """Return the times from `from_ms` to before `to_ms`, None without a limit."""
        everything = EVER_APPENDED if clock is RecordClock.APPEND else ALL_TIMES
        if from_ms is None and to_ms is None:
            return everything
        first_ms = everything.first_ms if from_ms is None else from_ms
        last_ms = everything.last_ms if to_ms is None else to_ms - 1
        return cls(first_ms, last_ms, everything.of_append)

    def __and__(self, other: "TimeRange") -> "TimeRange":
        """Return the times in both ranges, which are of the same clock."""
        return TimeRange(
            max(self.first_ms, other.first_ms),
            min(self.last_ms, other.last_ms),
            self.of_append,
            self.with_untimed and other.with_untimed,
        )

    @property
    def clock(self) -> RecordClock:
        """Clock of the times."""
        return RecordClock.APPEND if self.of_append else RecordClock.CREATE

    @property
    def from_ms(self) -> int | None:
        """First time; None without a limit."""
        return None if self.first_ms == ALL_TIMES.first_ms else self.first_ms

    @property
    def to_ms(self) -> int | None:
        """Time after the last one; None without a limit."""
        return None if self.last_ms == ALL_TIMES.last_ms else self.last_ms + 1

    @property
    def is_everything(self) -> bool:
        """True if all records are in the range."""
        return self in (ALL_TIMES, EVER_APPENDED)

    @property
    def is_empty(self) -> bool:
        """True if no record can be in the range."""
        return self.first_ms > self.last_ms and not self.with_untimed

    def leaves_out_untimed(self, clock: RecordClock) -> bool:
        """Return True if no record in the range lacks a time by a clock."""
        return self.clock is clock and not self.with_untimed

    def holds(self, ms: int | None) -> bool:
        """Return True if a record of this time is in the range; None and -1 are no time."""
        if ms is None or ms == NO_TIMESTAMP:
            return self.with_untimed
        return self.first_ms <= ms <= self.last_ms


ALL_TIMES: Final = TimeRange(with_untimed=True)
EVER_APPENDED: Final = TimeRange(of_append=True, with_untimed=True)
"""All append times, and records without one."""


class AppendTimeStretch(NamedTuple):
    """Records with one append time, from `offset` up to the next stretch."""

    offset: int
    ms: int | None
    """Milliseconds since the epoch; None where it is not known."""
    is_seen: bool = False
    """`ms` is when a follower saw them in a log whose leader gives no append times: they were
    appended no later. Given only to callers that ask for it; to others it is unknown."""

    @property
    def known_ms(self) -> int | None:
        """Append time; None where it is unknown."""
        return None if self.is_seen else self.ms

    @property
    def seen_ms(self) -> int | None:
        """Time when a follower saw the records, if their append time is unknown."""
        return self.ms if self.is_seen else None
