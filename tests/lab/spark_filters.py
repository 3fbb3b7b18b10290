"""Filters as Spark pushes them to a reader: random ones, and which rows satisfy them."""

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from horolog.sources import columns

COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda row, value: row == value,
    GreaterThan: lambda row, value: row > value,
    GreaterThanOrEqual: lambda row, value: row >= value,
    LessThan: lambda row, value: row < value,
    LessThanOrEqual: lambda row, value: row <= value,
    StringStartsWith: lambda row, value: row.startswith(value),
    StringEndsWith: lambda row, value: row.endswith(value),
    StringContains: lambda row, value: value in row,
}
OF_APPENDS = (columns.APPEND_TIME, columns.APPEND_TIME_MS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def shown(timestamp_ms: int | None) -> datetime | None:
    """The column `timestamp` of a record with this time."""
    if timestamp_ms is None or timestamp_ms == -1:
        return None
    if not columns.FIRST_TIMESTAMP_MS <= timestamp_ms <= columns.LAST_TIMESTAMP_MS:
        return None
    return _EPOCH + timedelta(milliseconds=timestamp_ms)


def attribute_of(condition: Filter) -> str:
    """The column that a filter is on."""
    if isinstance(condition, Not):
        return attribute_of(condition.child)
    name: str
    (name,) = condition.attribute  # type: ignore[attr-defined]  # all others have one
    return name


def satisfies(row: Mapping[str, Any], condition: Filter) -> bool:
    """Whether Spark keeps the row: the condition is true, neither false nor null."""
    return _value_of(row, condition) is True


def _value_of(row: Mapping[str, Any], condition: Filter) -> bool | None:
    if isinstance(condition, Not):
        value = _value_of(row, condition.child)
        return None if value is None else not value
    found = row[attribute_of(condition)]
    match condition:
        case IsNull():
            return found is None
        case IsNotNull():
            return found is not None
        case EqualNullSafe(value=value):
            return bool(found == value)
        case In(value=values):
            if found is None:
                return None
            return True if found in values else None if None in values else False
        case _:
            value = condition.value  # type: ignore[attr-defined]  # of comparisons
            return None if None in (found, value) else COMPARISONS[type(condition)](found, value)


def some_filters(rng: random.Random, rows: Sequence[Mapping[str, Any]]) -> tuple[Filter, ...]:
    """Up to three filters near the values of these rows; mostly none."""
    return tuple(_filter(rng, rows) for _ in range(rng.choice((0, 0, 1, 2, 3))))


def _filter(rng: random.Random, rows: Sequence[Mapping[str, Any]]) -> Filter:
    name = rng.choice([*rows[0]])

    def near() -> Any:
        value = rng.choice(rows)[name]
        if isinstance(value, datetime):
            return value + timedelta(microseconds=rng.choice((0, 0, 1, -1, 1000)))
        if isinstance(value, int):
            return max(-(1 << 63), min(value + rng.choice((0, 0, 1, -1)), (1 << 63) - 1))
        return value

    kinds: list[Callable[[], Filter]] = [
        lambda: rng.choice((IsNull, IsNotNull))((name,)),
        lambda: EqualNullSafe((name,), near()),
        lambda: In((name,), tuple(near() for _ in range(rng.randrange(1, 4)))),
        lambda: Not(In((name,), tuple(near() for _ in range(rng.randrange(1, 4))))),
        lambda: Not(EqualTo((name,), near())),
    ]
    value = near()  # of a comparison
    if value is not None:
        ordered = [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
        kinds += 2 * [lambda kind=kind: kind((name,), value) for kind in ordered]
    if isinstance(value, str):
        words = (StringStartsWith, StringEndsWith, StringContains)
        kinds += [lambda kind=kind: kind((name,), value) for kind in words]  # type: ignore[misc]
    return rng.choice(kinds)()
