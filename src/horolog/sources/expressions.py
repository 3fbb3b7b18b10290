"""The rows that an expression of Arrow can be true for, as a `RowFilter`. Imports pyarrow.

An expression cannot be taken apart, but pyarrow can say of it whether any row with given values may
satisfy it, as it does to skip files of a dataset. So the smallest and the largest value of a column
that may satisfy it are found by bisection. The filter holds all rows of the expression, and perhaps
more: whoever reads by it applies the expression as well.
"""

from collections.abc import Callable, Collection
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from horolog.record.timestamps import NO_TIMESTAMP
from horolog.sources import columns
from horolog.sources.row_filter import NOTHING, Interval, Narrowing, Numbers, RowFilter

__all__ = ["APPEND_TIME", "SCHEMA", "fields_in", "narrowed"]

APPEND_TIME: Final = "append_time"

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        ("timestamp", _TIME),
        (APPEND_TIME, _TIME),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
    ]
)
"""Columns of a topic; a record without a time, or with an unknown append time, has null."""

_INT64: Final = Interval(-(1 << 63), (1 << 63) - 1)
_MS: Final = Interval(-((1 << 63) // 1000), ((1 << 63) - 1) // 1000)
_TIMES: Final = (("timestamp", columns.TIMESTAMP_MS), (APPEND_TIME, columns.APPEND_TIME_MS))


def narrowed(
    expression: pc.Expression, partitions: Collection[int], *, by_append_time: bool = True
) -> RowFilter:
    """Return a filter that takes all rows for which an expression over `SCHEMA` can be true.

    Args:
        partitions: the numbers of the partitions that there are.
        by_append_time: False if the log keeps no append times, and none is to be asked for.
    """
    may = _oracle(expression)
    of: dict[str, Narrowing] = {}
    for name, its in _TIMES if by_append_time else _TIMES[:1]:
        interval = _hull(may, name, _MS, _microseconds)
        if may(pc.field(name).is_null()):
            if its == columns.APPEND_TIME_MS:
                continue  # a range of append times has none that is unknown
            interval = _with(interval, NO_TIMESTAMP)
        if interval != _MS:
            of[its] = Numbers(_opened(interval))
    offsets = _hull(may, "offset", _INT64, _whole)
    if offsets != _INT64:
        of[columns.OFFSET] = Numbers(offsets)
    listed = frozenset(
        number
        for number in partitions
        if may(pc.field("partition") == pa.scalar(number, pa.int32()))
    )
    if len(listed) < len(partitions):
        of[columns.PARTITION] = Numbers(listed=listed)
    return RowFilter(of)


def fields_in(expression: pc.Expression) -> frozenset[str]:
    """Return the columns of `SCHEMA` that an expression names."""
    return frozenset(name for name in SCHEMA.names if not _binds_without(expression, name))


def _binds_without(expression: pc.Expression, name: str) -> bool:
    others = pa.schema([field for field in SCHEMA if field.name != name])
    try:
        ds.Scanner.from_batches(iter(()), schema=others, filter=expression)
    except pa.ArrowInvalid:
        return False
    return True


def _oracle(expression: pc.Expression) -> Callable[[pc.Expression], bool]:
    """Return a function: may a row for which this is true satisfy the expression?"""
    file_format, file_system = ds.IpcFileFormat(), LocalFileSystem()

    def may(known: pc.Expression) -> bool:
        fragment = file_format.make_fragment("", file_system, partition_expression=known)
        dataset = ds.FileSystemDataset([fragment], SCHEMA, file_format, file_system)
        return next(iter(dataset.get_fragments(expression)), None) is not None

    return may


def _hull(
    may: Callable[[pc.Expression], bool],
    name: str,
    all_values: Interval,
    scalar: Callable[[int, bool], pa.Scalar],
) -> Interval:
    """Return the smallest interval outside of which no value of a column can satisfy."""
    column, (least, most) = pc.field(name), all_values
    if not may((column >= scalar(least, False)) & (column <= scalar(most, True))):
        return NOTHING
    first, last = least, most
    low, high = least, most
    while low < high:  # is nothing up to the middle? then it begins after that
        middle = (low + high) // 2
        if may(column <= scalar(middle, True)):
            high = middle
        else:
            low = first = middle + 1
    low, high = first, most
    while low < high:
        middle = (low + high + 1) // 2
        if may(column >= scalar(middle, False)):
            low = middle
        else:
            high = last = middle - 1
    return Interval(first, last)


def _opened(interval: Interval) -> Interval:
    """Return an interval of milliseconds that also has those beyond what microseconds can say."""
    return Interval(
        _INT64.first if interval.first == _MS.first else interval.first,
        _INT64.last if interval.last == _MS.last else interval.last,
    )


def _with(interval: Interval, number: int) -> Interval:
    """Return the smallest interval that also has this number."""
    if interval.is_empty:
        return Interval(number, number)
    return Interval(min(interval.first, number), max(interval.last, number))


def _microseconds(ms: int, is_last: bool) -> pa.Scalar:
    """Return the first or last microsecond of a millisecond."""
    return pa.scalar(min(ms * 1000 + (999 if is_last else 0), _INT64.last), _TIME)


def _whole(number: int, _is_last: bool) -> pa.Scalar:
    return pa.scalar(number, pa.int64())
