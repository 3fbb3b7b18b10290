"""Conversion of Spark's pushed filters to a narrower read.

For each column that can narrow a read there is a function, which knows what each of
Spark's filters leaves of the column; `_LEAVES` is the one place that names them.

A filter is *handled* when the rows read satisfy it exactly; every other one goes back
to Spark, which then applies it again. A filter that is not handled may still narrow
the read, never too far.

Times are compared in milliseconds; literals come in microseconds. Rows whose
`timestamp` is null (see `columns`) satisfy no filter on it. Of these, times out of
range are outside every interval here; -1 does not, so an interval of `timestamp`
that holds -1 is applied by Spark again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """A filter whose literal Python cannot represent: a time outside the years 1 to 9999 in UTC.

    It narrows nothing, and Spark applies it.
    """


def pass_over_unheld(deserializer: ModuleType) -> None:
    """Let PySpark's module that deserializes filters return an `Unheld` where it would fail.

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
    """Values of a column that a filter leaves (None: all), and True if they satisfy it exactly."""

    narrowing: Narrowing | None
    is_exact: bool = True


class Numeric:
    """Narrows a column of whole numbers, which are never null here, by Spark's filters.

    Args:
        picks: whether a read picks single numbers, and not only a range of them.
    """

    shown = EVERYTHING
    """Numbers that are not null in this column."""

    def __init__(self, *, picks: bool = False) -> None:
        self._picks = picks

    def literal(self, value: object) -> Interval | None:
        """Return the literal's floor and ceiling; None if the column cannot be compared with it."""
        if isinstance(value, int) and not isinstance(value, bool):
            return Interval(value, value)
        return None

    def __call__(self, condition: Filter) -> Left | None:
        """Return the values that a filter leaves; None if it is not understood."""
        match condition:
            case IsNotNull():
                return self._left(EVERYTHING)
            case In(value=values):
                return self._one_of(_not_null(values))
        literal = self.literal(getattr(condition, "value", None))
        if literal is None:
            return None
        floor, ceiling = literal
        match condition:
            case EqualTo() | EqualNullSafe():
                return self._left(literal if floor == ceiling else NOTHING)
            case GreaterThan():
                return self._left(Interval(first=floor + 1))
            case GreaterThanOrEqual():
                return self._left(Interval(first=ceiling))
            case LessThan():
                return self._left(Interval(last=ceiling - 1))
            case LessThanOrEqual():
                return self._left(Interval(last=floor))
            case _:
                return None

    def _one_of(self, values: Sequence[object]) -> Left | None:
        """Return the numbers themselves, or the range around them."""
        found = [literal for value in values if (literal := self.literal(value)) is not None]
        if len(found) < len(values):
            return None
        numbers = frozenset(floor for floor, ceiling in found if floor == ceiling)
        if self._picks:
            return Left(Numbers(self.shown, numbers))
        around = Interval(min(numbers), max(numbers)) if numbers else NOTHING
        return Left(Numbers(around & self.shown), is_exact=False)

    def _left(self, interval: Interval) -> Left:
        return Left(Numbers(interval & self.shown))


class Moments(Numeric):
    """Narrows a column of times, in milliseconds; null where Spark could not show them."""

    shown = _SHOWN_TIMES

    def literal(self, value: object) -> Interval | None:
        """Return a time's milliseconds, rounded both ways; None for a time without a zone."""
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        microseconds = (value - _EPOCH) // _MICROSECOND
        return Interval(microseconds // 1000, -(-microseconds // 1000))


def names_left(condition: Filter) -> Left | None:
    """Return the names that a filter leaves of a column that is never null."""
    match condition:
        case In(value=values):
            return _test("is", _not_null(values))
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return _test("is", [value])
        case StringStartsWith(value=value):
            return _test("starts", [value])
        case StringEndsWith(value=value):
            return _test("ends", [value])
        case StringContains(value=value):
            return _test("contains", [value])
        case _:
            return never_null(condition)


def never_null(condition: Filter) -> Left | None:
    """Return that `IsNotNull` leaves all of a column that every record has."""
    return Left(None) if isinstance(condition, IsNotNull) else None


_LEAVES: Mapping[str, Callable[[Filter], Left | None]] = {
    columns.TIMESTAMP: Moments(),
    columns.TIMESTAMP_MS: Numeric(),
    columns.APPEND_TIME: Moments(),
    columns.APPEND_TIME_MS: Numeric(),
    columns.OFFSET: Numeric(),
    columns.PARTITION: Numeric(picks=True),
    columns.TOPIC: names_left,
    columns.TIMESTAMP_TYPE: never_null,
}


def absorb(filters: Sequence[Filter]) -> tuple[RowFilter, list[Filter]]:
    """Return a read narrowed by the pushed filters, and the filters that Spark must apply."""
    left: list[Filter] = []
    handled: dict[str, list[Filter]] = defaultdict(list)
    row_filter = RowFilter()
    for condition in filters:
        column = _column(condition)
        left_by = _LEAVES.get(column)
        leaves = None if left_by is None else left_by(condition)
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
    return row_filter, left


def _column(condition: Filter) -> str:
    """Return the column of a filter; empty for a field within one."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _not_null(values: Iterable[object]) -> list[object]:
    """Return the values of an `in` without nulls, which match nothing."""
    return [value for value in values if value is not None]


def _test(how: str, words: Sequence[object]) -> Left | None:
    named = tuple(word for word in words if isinstance(word, str))
    return Left(Names(((NameTest(how, named),),))) if len(named) == len(words) else None
