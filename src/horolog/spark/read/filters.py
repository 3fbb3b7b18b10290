"""Spark's pushed filters as what a read has to look at: `absorb`.

For each column that can narrow a read there is a visitor, which knows what each of
Spark's filters leaves of the column; `_VISITORS` is the one place that names them.

A filter is *handled* when the rows read satisfy it exactly; every other one goes back
to Spark, which then applies it again. A filter that is not handled may still narrow
the read, never too far.

Times are compared in milliseconds; literals come in microseconds. Rows whose
`timestamp` is null (see `columns`) satisfy no filter on it. Of these, times out of
range are outside every interval here; -1 does not, so an interval of `timestamp`
that holds -1 is applied by Spark again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from types import ModuleType
from typing import Any, NamedTuple

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

from horolog.sources import columns
from horolog.sources.row_filter import (
    EVERYTHING,
    NOTHING,
    Interval,
    Names,
    NameTest,
    Narrowing,
    Numbers,
    RowFilter,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SHOWN_TIMES = Interval(columns.FIRST_TIMESTAMP_MS, columns.LAST_TIMESTAMP_MS)


class Unheld(Filter):
    """A filter whose literal Python cannot hold: a moment outside of the years 1 to 9999 in UTC.

    It narrows nothing, and Spark applies it.
    """


def pass_over_unheld(deserializer: ModuleType) -> None:
    """Let PySpark's module that deserializes pushed filters make an `Unheld`, where it would fail.

    '9999-12-31 23:59:59' in New York is such a moment, and '0001-01-01' in Berlin.
    """
    plain = deserializer.deserializeFilter
    if hasattr(plain, "__wrapped__"):
        return

    @wraps(plain)
    def deserialize(condition: dict[str, Any]) -> Filter:
        try:
            found: Filter = plain(condition)
        except (OverflowError, ValueError):
            return Unheld()
        return found

    deserializer.deserializeFilter = deserialize  # type: ignore[attr-defined]  # of PySpark


class Left(NamedTuple):
    """What one filter leaves of a column (None: all of it), and whether all that satisfies it."""

    narrowing: Narrowing | None
    is_exact: bool = True


class FilterVisitor:
    """What each of Spark's filters leaves of one column; None where a filter says nothing."""

    def visit(self, condition: Filter) -> Left | None:
        """What this filter leaves."""
        match condition:
            case IsNotNull():
                return self.not_null()
            case In(value=values):
                return self.one_of([value for value in values if value is not None])
            case EqualTo(value=value) | EqualNullSafe(value=value):
                return self.equal_to(value)
            case GreaterThan(value=value):
                return self.greater_than(value)
            case GreaterThanOrEqual(value=value):
                return self.at_least(value)
            case LessThan(value=value):
                return self.less_than(value)
            case LessThanOrEqual(value=value):
                return self.at_most(value)
            case StringStartsWith(value=value):
                return self.named("starts", value)
            case StringEndsWith(value=value):
                return self.named("ends", value)
            case StringContains(value=value):
                return self.named("contains", value)
            case _:
                return None

    def not_null(self) -> Left | None:
        """`is not null`; columns that a record always has satisfy it, and it leaves all."""
        return None

    def one_of(self, values: Sequence[object]) -> Left | None:
        """`in`; nulls, which match nothing, are left out of `values`."""
        return None

    def equal_to(self, value: object) -> Left | None:
        """`=` and `<=>`."""
        return None

    def greater_than(self, value: object) -> Left | None:
        """`>`."""
        return None

    def at_least(self, value: object) -> Left | None:
        """`>=`."""
        return None

    def less_than(self, value: object) -> Left | None:
        """`<`."""
        return None

    def at_most(self, value: object) -> Left | None:
        """`<=`."""
        return None

    def named(self, how: str, value: object) -> Left | None:
        """`like 'a%'`, `'%a'`, `'%a%'`; `how` is as in `NameTest`."""
        return None


class Numeric(FilterVisitor):
    """A column of whole numbers; here they are never null, and a literal is one, too.

    Args:
        picks: whether a read picks single numbers, and not only a range of them.
    """

    shown = EVERYTHING
    """The numbers that are not null in this column."""

    def __init__(self, *, picks: bool = False) -> None:
        self._picks = picks

    def literal(self, value: object) -> Interval | None:
        """The literal's floor and ceiling; None for what the column cannot be compared with."""
        if isinstance(value, int) and not isinstance(value, bool):
            return Interval(value, value)
        return None

    def not_null(self) -> Left | None:
        """All numbers that are shown."""
        return self._left(EVERYTHING)

    def one_of(self, values: Sequence[object]) -> Left | None:
        """The numbers themselves, or the range that they are in."""
        found = [literal for value in values if (literal := self.literal(value)) is not None]
        if len(found) < len(values):
            return None
        numbers = frozenset(floor for floor, ceiling in found if floor == ceiling)
        if self._picks:
            return Left(Numbers(self.shown, numbers))
        around = Interval(min(numbers), max(numbers)) if numbers else NOTHING
        return Left(Numbers(around & self.shown), is_exact=False)

    def equal_to(self, value: object) -> Left | None:
        """This number alone, if the literal is whole."""
        literal = self.literal(value)
        if literal is None:
            return None
        return self._left(literal if literal.first == literal.last else NOTHING)

    def greater_than(self, value: object) -> Left | None:
        """From the next number on."""
        literal = self.literal(value)
        return None if literal is None else self._left(Interval(first=literal.first + 1))

    def at_least(self, value: object) -> Left | None:
        """From this number on."""
        literal = self.literal(value)
        return None if literal is None else self._left(Interval(first=literal.last))

    def less_than(self, value: object) -> Left | None:
        """Up to the number before."""
        literal = self.literal(value)
        return None if literal is None else self._left(Interval(last=literal.last - 1))

    def at_most(self, value: object) -> Left | None:
        """Up to this number."""
        literal = self.literal(value)
        return None if literal is None else self._left(Interval(last=literal.first))

    def _left(self, interval: Interval) -> Left:
        return Left(Numbers(interval & self.shown))


class Moments(Numeric):
    """`timestamp`, in milliseconds; null where Spark could not show it (see `columns`)."""

    shown = _SHOWN_TIMES

    def literal(self, value: object) -> Interval | None:
        """A moment's milliseconds, rounded both ways; None for one without a zone."""
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        microseconds = (value - _EPOCH) // _MICROSECOND
        return Interval(microseconds // 1000, -(-microseconds // 1000))


class Words(FilterVisitor):
    """A column of names, none of which is null."""

    def not_null(self) -> Left | None:
        """Every record satisfies it."""
        return Left(None)

    def one_of(self, values: Sequence[object]) -> Left | None:
        """These names."""
        return _test("is", values)

    def equal_to(self, value: object) -> Left | None:
        """This name."""
        return _test("is", [value])

    def named(self, how: str, value: object) -> Left | None:
        """Names that start or end with a word, or contain it."""
        return _test(how, [value])


class NeverNull(FilterVisitor):
    """A column that every record has, and that narrows nothing."""

    def not_null(self) -> Left | None:
        """Every record satisfies it."""
        return Left(None)


_VISITORS: Mapping[str, FilterVisitor] = {
    columns.TIMESTAMP: Moments(),
    columns.TIMESTAMP_MS: Numeric(),
    columns.APPEND_TIME: Moments(),
    columns.APPEND_TIME_MS: Numeric(),
    columns.OFFSET: Numeric(),
    columns.PARTITION: Numeric(picks=True),
    columns.TOPIC: Words(),
    columns.TIMESTAMP_TYPE: NeverNull(),
}


class Absorbed(NamedTuple):
    """What the filters narrow a read to, and which of them Spark has to apply itself."""

    row_filter: RowFilter
    left: list[Filter]


def absorb(filters: Sequence[Filter]) -> Absorbed:
    """Take what can be taken from the pushed filters."""
    left: list[Filter] = []
    handled: dict[str, list[Filter]] = defaultdict(list)
    row_filter = RowFilter()
    for condition in filters:
        column = _column(condition)
        visitor = _VISITORS.get(column)
        leaves = None if visitor is None else visitor.visit(condition)
        if leaves is not None and leaves.narrowing is not None:
            row_filter &= RowFilter({column: leaves.narrowing})
        if leaves is not None and leaves.is_exact:
            handled[column].append(condition)
        else:
            left.append(condition)
    times = row_filter.times
    if times.with_untimed:
        # Records of -1 are read, and `timestamp` shows them as null.
        left += handled[columns.TIMESTAMP]
        if times.from_ms is not None:
            left += handled[columns.TIMESTAMP_MS]
    return Absorbed(row_filter, left)


def _column(condition: Filter) -> str:
    """The column that a filter is on; empty for a field within one."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _test(how: str, words: Sequence[object]) -> Left | None:
    named = tuple(word for word in words if isinstance(word, str))
    return Left(Names(((NameTest(how, named),),))) if len(named) == len(words) else None
