"""Spark's pushed filters as what a read has to look at: times, offsets, partitions, topics.

A filter is *handled* when the rows read satisfy it exactly; every other one goes back
to Spark, which then applies it again. A filter that is not handled may still narrow
the read, never too far.

Times are compared in milliseconds; literals come in microseconds. Rows whose
`timestamp` is null (see `columns`) satisfy no filter on it. Of these, times out of
range lie outside every interval here; -1 does not, so an interval of `timestamp`
that holds -1 is applied by Spark again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from horolog.record.timestamps import NO_TIMESTAMP
from horolog.spark import columns

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Interval(NamedTuple):
    """Whole numbers from `first` to `last`, both included; empty when first > last."""

    first: int = _INT64_MIN
    last: int = _INT64_MAX

    def __and__(self, other: "Interval") -> "Interval":
        return Interval(max(self.first, other.first), min(self.last, other.last))

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.first <= number <= self.last

    @property
    def is_empty(self) -> bool:
        """Holds no number at all."""
        return self.first > self.last


EVERYTHING = Interval()
NOTHING = Interval(0, -1)
_SHOWN_TIMES = Interval(columns.FIRST_TIMESTAMP_MS, columns.LAST_TIMESTAMP_MS)


@dataclass(frozen=True, slots=True)
class TopicTest:
    """A condition on a topic's name: "is", "starts", "ends" or "contains" one of the words."""

    kind: str
    words: tuple[str, ...]

    def __call__(self, topic: str) -> bool:
        """Whether the topic satisfies it."""
        match self.kind:
            case "is":
                return topic in self.words
            case "starts":
                return topic.startswith(self.words)
            case "ends":
                return topic.endswith(self.words)
            case _:
                return any(word in topic for word in self.words)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a read has to look at; all of it must hold."""

    times_ms: Interval = EVERYTHING
    offsets: Interval = EVERYTHING
    partitions: Interval = EVERYTHING
    partition_set: frozenset[int] | None = None
    topics: tuple[TopicTest, ...] = field(default=())

    def takes(self, topic: str, partition: int) -> bool:
        """Whether records of this partition can be wanted."""
        if self.times_ms.is_empty or self.offsets.is_empty or partition not in self.partitions:
            return False
        if self.partition_set is not None and partition not in self.partition_set:
            return False
        return all(test(topic) for test in self.topics)

    @property
    def from_ms(self) -> int | None:
        """The earliest wanted time, None if there is none.

        None, too, when -1 is wanted: a batch of earlier times may hold a record of -1,
        which its header's largest timestamp does not count.
        """
        first = self.times_ms.first
        is_open = first == _INT64_MIN or NO_TIMESTAMP in self.times_ms
        return None if is_open else first

    @property
    def to_ms(self) -> int | None:
        """The first time that is no longer wanted, None if there is none."""
        return None if self.times_ms.last == _INT64_MAX else self.times_ms.last + 1


class Absorbed(NamedTuple):
    """What the filters narrow a read to, and which of them Spark has to apply itself."""

    wanted: Wanted
    left: list[Filter]


def absorb(filters: Sequence[Filter]) -> Absorbed:
    """Take what can be taken from the pushed filters."""
    left: list[Filter] = []
    on_timestamp: list[Filter] = []
    on_timestamp_ms: list[Filter] = []
    shown, exact, offsets, partitions = EVERYTHING, EVERYTHING, EVERYTHING, EVERYTHING
    partition_set: frozenset[int] | None = None
    topics: list[TopicTest] = []
    for condition in filters:
        handled = False
        match _column(condition):
            case columns.TIMESTAMP:
                if (interval := _time_interval(condition)) is not None:
                    shown &= interval & _SHOWN_TIMES
                    handled = not isinstance(condition, In)
                    on_timestamp += [condition] * handled
            case columns.TIMESTAMP_MS:
                if (interval := _interval(condition)) is not None:
                    exact &= interval
                    handled = not isinstance(condition, In)
                    on_timestamp_ms += [condition] * handled
            case columns.OFFSET:
                if (interval := _interval(condition)) is not None:
                    offsets &= interval
                    handled = not isinstance(condition, In)
            case columns.PARTITION:
                if isinstance(condition, In) and (numbers := _whole(condition.value)) is not None:
                    listed = frozenset(numbers)
                    partition_set = listed if partition_set is None else partition_set & listed
                    handled = True
                elif (interval := _interval(condition)) is not None:
                    partitions &= interval
                    handled = not isinstance(condition, In)
            case columns.TOPIC:
                if (test := _topic_test(condition)) is not None:
                    topics.append(test)
                    handled = True
        # None of these is ever null.
        if isinstance(condition, IsNotNull) and _column(condition) in _NEVER_NULL:
            handled = True
        if not handled:
            left.append(condition)
    times = shown & exact
    wanted = Wanted(times, offsets, partitions, partition_set, tuple(topics))
    if NO_TIMESTAMP in times and not times.is_empty:
        left += on_timestamp
        if wanted.from_ms is None and times.first != _INT64_MIN:
            left += on_timestamp_ms
    return Absorbed(wanted, left)


_NEVER_NULL = (
    columns.TOPIC,
    columns.PARTITION,
    columns.OFFSET,
    columns.TIMESTAMP_TYPE,
    columns.TIMESTAMP_MS,
)


def _column(condition: Filter) -> str | None:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0] if len(path) == 1 else None


def _interval(condition: Filter) -> Interval | None:
    """The whole numbers that satisfy the condition, or a superset of them for `In`."""
    match condition:
        case In(value=values):
            numbers = _whole(values)
            return None if numbers is None else _hull(numbers)
        case (
            EqualTo(value=value)
            | EqualNullSafe(value=value)
            | GreaterThan(value=value)
            | GreaterThanOrEqual(value=value)
            | LessThan(value=value)
            | LessThanOrEqual(value=value)
        ) if _is_whole(value):
            return _compared(condition, value, value)
        case _:
            return None


def _time_interval(condition: Filter) -> Interval | None:
    """As `_interval`, in milliseconds, for literals of microseconds."""
    match condition:
        case IsNotNull():
            return _SHOWN_TIMES
        case In(value=values):
            moments = [_microseconds(value) for value in values if value is not None]
            known = [moment for moment in moments if moment is not None]
            if len(known) < len(moments):
                return None
            return _hull([moment // 1000 for moment in known if moment % 1000 == 0])
        case (
            EqualTo(value=value)
            | EqualNullSafe(value=value)
            | GreaterThan(value=value)
            | GreaterThanOrEqual(value=value)
            | LessThan(value=value)
            | LessThanOrEqual(value=value)
        ):
            moment = _microseconds(value)
            if moment is None:
                return None
            return _compared(condition, moment // 1000, -(-moment // 1000))
        case _:
            return None


def _compared(condition: Filter, floor: int, ceiling: int) -> Interval:
    """Numbers that compare so with a value between `floor` and `ceiling` (equal if whole)."""
    match condition:
        case GreaterThan():
            return Interval(first=floor + 1)
        case GreaterThanOrEqual():
            return Interval(first=ceiling)
        case LessThan():
            return Interval(last=ceiling - 1)
        case LessThanOrEqual():
            return Interval(last=floor)
        case _:
            return Interval(floor, floor) if floor == ceiling else NOTHING


def _hull(numbers: Sequence[int]) -> Interval:
    return Interval(min(numbers), max(numbers)) if numbers else NOTHING


def _topic_test(condition: Filter) -> TopicTest | None:
    match condition:
        case EqualTo(value=str(word)) | EqualNullSafe(value=str(word)):
            return TopicTest("is", (word,))
        case In(value=words):
            named = tuple(word for word in words if word is not None)
            return TopicTest("is", named) if all(isinstance(word, str) for word in named) else None
        case StringStartsWith(value=str(word)):
            return TopicTest("starts", (word,))
        case StringEndsWith(value=str(word)):
            return TopicTest("ends", (word,))
        case StringContains(value=str(word)):
            return TopicTest("contains", (word,))
        case _:
            return None


def _whole(values: Iterable[object]) -> list[int] | None:
    """The numbers of an `In`, whose nulls match nothing; None if one is no whole number."""
    numbers = [value for value in values if value is not None]
    whole = [value for value in numbers if isinstance(value, int) and _is_whole(value)]
    return whole if len(whole) == len(numbers) else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _microseconds(value: object) -> int | None:
    """Microseconds since the epoch of a moment with a zone; None for anything else."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
