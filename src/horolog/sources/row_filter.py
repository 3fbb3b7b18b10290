"""Rows that a read takes, column by column, as values that planners and tasks share.

`filters` makes them of the filters that Spark pushes down. They are joined by "and"
within a query (`&`) and by "or" across queries (`hull`), and can be JSON (`json_text.read_as`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from horolog.record.timestamps import EVER_APPENDED, NO_TIMESTAMP, TimeRange
from horolog.sources import columns

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1

_Bound = Annotated[int, range(_INT64_MIN - 1, _INT64_MAX + 2)]
"""A number of 64 bits, or the one beyond either end."""


class Interval(NamedTuple):
    """Whole numbers from `first` to `last`, both included; empty when first > last."""

    first: _Bound = _INT64_MIN
    last: _Bound = _INT64_MAX

    def __and__(self, other: "Interval") -> "Interval":
        return Interval(max(self.first, other.first), min(self.last, other.last))

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.first <= number <= self.last

    @property
    def is_empty(self) -> bool:
        """True if the interval contains no number."""
        return self.first > self.last


EVERYTHING = Interval()
NOTHING = Interval(0, -1)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers of an interval, and of a list if one is given."""

    interval: Interval = EVERYTHING
    listed: frozenset[int] | None = None

    def __and__(self, other: "Narrowing") -> "Numbers":
        assert isinstance(other, Numbers)
        lists = [numbers for numbers in (self.listed, other.listed) if numbers is not None]
        listed = frozenset.intersection(*lists) if lists else None
        return Numbers(self.interval & other.interval, listed)

    def __contains__(self, number: object) -> bool:
        return number in self.interval and (self.listed is None or number in self.listed)

    @property
    def is_empty(self) -> bool:
        """True if no number is left."""
        return self.interval.is_empty or self.listed == frozenset()

    def hull(self, other: "Narrowing") -> "Numbers":
        """Return numbers that contain both, and perhaps more."""
        assert isinstance(other, Numbers)
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        one, two = self.interval, other.interval
        listed = None
        if self.listed is not None and other.listed is not None:
            listed = self.listed | other.listed
        return Numbers(Interval(min(one.first, two.first), max(one.last, two.last)), listed)


@dataclass(frozen=True, slots=True)
class NameTest:
    """A condition on a name: it "is", "starts", "ends" or "contains" one of the words."""

    how: str
    words: tuple[str, ...]

    def __call__(self, name: str) -> bool:
        """Return True if the name satisfies the condition."""
        match self.how:
            case "is":
                return name in self.words
            case "starts":
                return name.startswith(self.words)
            case "ends":
                return name.endswith(self.words)
            case _:
                return any(word in name for word in self.words)


@dataclass(frozen=True, slots=True)
class Names:
    """Names that satisfy all tests of at least one row of tests."""

    rows: tuple[tuple[NameTest, ...], ...]

    def __and__(self, other: "Narrowing") -> "Names":
        assert isinstance(other, Names)
        return Names(tuple((*mine, *theirs) for mine in self.rows for theirs in other.rows))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(all(test(name) for test in row) for row in self.rows)

    def hull(self, other: "Narrowing") -> "Names":
        """Return the names of either."""
        assert isinstance(other, Names)
        return Names(tuple(dict.fromkeys((*self.rows, *other.rows))))


Narrowing = Numbers | Names
_ANY = Numbers()
_OF_APPENDS = (columns.APPEND_TIME, columns.APPEND_TIME_MS)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Rows that a read takes; columns that are not listed are not limited."""

    of: Mapping[str, Narrowing] = field(default_factory=dict)

    def __and__(self, other: "RowFilter") -> "RowFilter":
        of = dict(self.of)
        for name, narrowing in other.of.items():
            of[name] = of[name] & narrowing if name in of else narrowing
        return RowFilter(of)

    def within(self, times: TimeRange) -> "RowFilter":
        """Return the filter limited to these times, which may keep records without a time."""
        if times.is_everything:
            return self
        name = columns.APPEND_TIME_MS if times.of_append else columns.TIMESTAMP_MS
        return self & RowFilter({name: Numbers(Interval(times.first_ms, times.last_ms))})

    def of_partitions(self) -> "RowFilter":
        """Return the filter of whole partitions: all others are left out."""
        kept = (columns.TOPIC, columns.PARTITION)
        return RowFilter({name: self.of[name] for name in kept if name in self.of})

    def hull(self, other: "RowFilter") -> "RowFilter":
        """Return a filter that takes the rows of either, and perhaps more."""
        shared = self.of.keys() & other.of.keys()
        return RowFilter({name: self.of[name].hull(other.of[name]) for name in sorted(shared)})

    # What planners and tasks ask.

    def takes(self, topic: str, partition: int) -> bool:
        """Return True if the filter takes records of a partition."""
        if self.append_times.is_empty or self.times.is_empty:
            return False
        if self._numbers(columns.OFFSET).is_empty:
            return False
        names = self.of.get(columns.TOPIC)
        return partition in self._numbers(columns.PARTITION) and (names is None or topic in names)

    @property
    def offsets(self) -> Interval:
        """Smallest interval with all offsets that the filter takes."""
        return self._numbers(columns.OFFSET).interval

    @property
    def times(self) -> TimeRange:
        """Smallest range with all times that the filter takes."""
        shown, exact = self._numbers(columns.TIMESTAMP), self._numbers(columns.TIMESTAMP_MS)
        both = shown.interval & exact.interval
        return TimeRange(both.first, both.last, with_untimed=NO_TIMESTAMP in both)

    @property
    def append_times(self) -> TimeRange:
        """Smallest range with all append times that the filter takes."""
        asked = [self._numbers(name).interval for name in _OF_APPENDS if name in self.of]
        if not asked:
            return EVER_APPENDED
        first, last = (
            max(interval.first for interval in asked),
            min(interval.last for interval in asked),
        )
        return TimeRange(first, last, of_append=True)

    @property
    def from_ms(self) -> int | None:
        """Earliest time that the filter takes; None without a limit.

        None, too, when it takes -1: a batch of earlier times may hold a record of -1,
        which its header's largest timestamp does not count.
        """
        return None if self.times.with_untimed else self.times.from_ms

    @property
    def to_ms(self) -> int | None:
        """First time that the filter no longer takes; None without a limit."""
        return self.times.to_ms

    @property
    def windows(self) -> tuple[TimeRange, ...]:
        """Limited ranges of either clock; a block outside one of them has no row of the filter."""
        return tuple(
            window for window in (self.times, self.append_times) if not window.is_everything
        )

    def _numbers(self, name: str) -> Numbers:
        narrowing = self.of.get(name, _ANY)
        assert isinstance(narrowing, Numbers)
        return narrowing
