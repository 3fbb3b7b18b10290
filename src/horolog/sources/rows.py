"""Decoded tables converted to exactly the columns and types that Spark asks for.

`pyspark` refuses a table whose schema differs from the query's in anything, so this
builds exactly that. Topic and partition are the same on every row; their columns are
made once and cut to length.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.record.row_buffers import arrow_of
from horolog.record.timestamps import NO_TIMESTAMP, TimeRange
from horolog.sources import clocks, columns
from horolog.storage.names import TopicPartition

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    columns.TYPES[columns.HEADERS]: pa.list_(pa.field("element", _HEADER)),
}
_TYPES = {name: _ARROW_TYPES[kind] for name, kind in columns.TYPES.items()}
# What has to be decoded for a column, and what is in a decoded table as Spark wants it.
_DECODED = {
    columns.KEY: "key",
    columns.VALUE: "value",
    columns.OFFSET: "offset",
    columns.TIMESTAMP: "timestamp_ms",
    columns.TIMESTAMP_TYPE: "timestamp_type",
    columns.HEADERS: "headers",
    columns.TIMESTAMP_MS: "timestamp_ms",
    columns.PRODUCER_ID: "producer_id",
    columns.PRODUCER_EPOCH: "producer_epoch",
    columns.SEQUENCE: "sequence",
    columns.APPEND_TIME: clocks.APPEND,
    columns.APPEND_TIME_MS: clocks.APPEND,
    columns.CREATE_TIME: clocks.CREATE,
    columns.CREATE_TIME_MS: clocks.CREATE,
    columns.SEEN_TIME: clocks.SEEN,
    columns.SEEN_TIME_MS: clocks.SEEN,
    columns.LATE_BY_MS: "timestamp_ms",
}
TIMES = "timestamp_ms"
"""Decoded column of the records' times."""

NO_TIME = -(1 << 63)
"""Stands for no time in comparisons: less than all others."""

_COUNTED = "offset"  # decoded where a query wants no column of the records themselves
_FEW_ROWS = 4096


def decoded_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to decode for these columns of a query."""
    decoded = dict.fromkeys(_DECODED[name] for name in names if name in _DECODED)
    return tuple(decoded) or (_COUNTED,)


class RowShaper:
    """Converter of decoded tables to the rows of one query, one partition at a time."""

    def __init__(self, names: Sequence[str], nullable: Sequence[bool]) -> None:
        self._names = tuple(names)
        fields = zip(names, nullable, strict=True)
        self.schema = pa.schema([pa.field(name, _TYPES[name], may) for name, may in fields])
        self._partition: TopicPartition | None = None
        self._largest_ms = NO_TIME
        self._complete_ms: int | None = None
        self._constants: dict[str, pa.Array] = {}

    def begin(
        self,
        partition: TopicPartition,
        largest_ms: int | None = None,
        complete_ms: int | None = None,
    ) -> None:
        """Set the partition of the tables that follow.

        Args:
            largest_ms: the largest time before them.
            complete_ms: behind the rows of their micro-batch none comes that is earlier.
        """
        self._largest_ms = NO_TIME if largest_ms is None else largest_ms
        if (partition, complete_ms) != (self._partition, self._complete_ms):
            self._partition, self._complete_ms = partition, complete_ms
            self._make_constants(_FEW_ROWS)

    def shape(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a decoded table."""
        rows = table.num_rows
        if rows > len(self._constants[columns.PARTITION]):
            self._make_constants(2 * rows)
        arrays = [self._column(name, table, rows) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, table: pa.RecordBatch, rows: int) -> pa.Array:
        match name:
            case columns.TOPIC | columns.PARTITION | columns.COMPLETE_UNTIL:
                return self._constants[name].slice(0, rows)
            case columns.TIMESTAMP | columns.CREATE_TIME:
                return shown_times(table.column(_DECODED[name]))
            case columns.APPEND_TIME | columns.SEEN_TIME:
                return shown_times(table.column(_DECODED[name]).fill_null(NO_TIMESTAMP))
            case columns.LATE_BY_MS:
                return self.late_by(table.column(TIMES))
            case columns.HEADERS:
                return _null_where_empty(table.column("headers"))
            case _:
                return table.column(_DECODED[name])

    def late_by(self, times_ms: pa.Array) -> pa.Array:
        """Return how much earlier each time is than the largest before it; null without a time."""
        values: npt.NDArray[np.int64] = times_ms.to_numpy(zero_copy_only=False)
        has_none = values == NO_TIMESTAMP
        by, self._largest_ms = late_by(values, ~has_none, self._largest_ms)
        return pa.array(by, mask=has_none if has_none.any() else None)

    def _make_constants(self, rows: int) -> None:
        assert self._partition is not None
        topic, partition = self._partition
        name = topic.encode()
        ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(name))
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(name * rows)]
        complete_ms = NO_TIME if self._complete_ms is None else self._complete_ms
        self._constants = {
            columns.COMPLETE_UNTIL: shown_times(
                arrow_of(np.full(rows, complete_ms, np.int64), pa.int64())
            ),
            columns.TOPIC: pa.Array.from_buffers(pa.string(), rows, buffers),
            columns.PARTITION: arrow_of(np.full(rows, partition, np.int32), pa.int32()),
        }


def late_by(
    times_ms: npt.NDArray[np.int64], counts: npt.NDArray[np.bool_], largest_ms: int = NO_TIME
) -> tuple[npt.NDArray[np.int64], int]:
    """Return how far each time is before the largest earlier one, and the largest of all.

    Args:
        times_ms: in the order of the log.
        counts: which of them can be the largest; the others are compared with it all the same.
        largest_ms: the largest time before these.

    Returns:
        Milliseconds, 0 where a time is not late, at most the largest number of 64 bits.
    """
    largest = np.maximum.accumulate(
        np.concatenate(([np.int64(largest_ms)], np.where(counts, times_ms, NO_TIME)))
    )
    before = largest[:-1]
    # As unsigned: of times at both ends of 64 bits the difference is larger than that.
    by = np.where(
        before > times_ms, before.view(np.uint64) - times_ms.view(np.uint64), np.uint64(0)
    )
    return np.minimum(by, np.uint64(np.iinfo(np.int64).max)).astype(np.int64), int(largest[-1])


def in_times(times_ms: npt.NDArray[np.int64], times: TimeRange) -> npt.NDArray[np.bool_]:
    """Mark the times in a range; -1, which is no time, is in none."""
    taken: npt.NDArray[np.bool_] = times_ms != NO_TIMESTAMP
    taken &= (times_ms >= times.first_ms) & (times_ms <= times.last_ms)
    return taken


def with_times_in(table: pa.RecordBatch, times: TimeRange) -> pa.RecordBatch:
    """Return the rows of a decoded table whose times are in a range."""
    taken = in_times(table.column(TIMES).to_numpy(zero_copy_only=False), times)
    return table if taken.all() else table.filter(pa.array(taken))


def shown_times(times_ms: pa.Array) -> pa.Array:
    """Convert milliseconds to Spark's timestamps; null outside the range that Spark shows."""
    # `to_numpy` would import pandas. No time of a record is null here.
    values = np.frombuffer(times_ms.buffers()[1], np.int64)
    values = values[times_ms.offset : times_ms.offset + len(times_ms)]
    hidden = (
        (values < columns.FIRST_TIMESTAMP_MS)
        | (values > columns.LAST_TIMESTAMP_MS)
        | (values == NO_TIMESTAMP)
    )
    # A time that wraps around here is one of the hidden ones.
    microseconds = pa.py_buffer(values * np.int64(1000))
    validity = pa.py_buffer(np.packbits(~hidden, bitorder="little")) if hidden.any() else None
    return pa.Array.from_buffers(_TYPES[columns.TIMESTAMP], len(values), [validity, microseconds])


def _null_where_empty(headers: pa.Array) -> pa.Array:
    """Replace empty headers by null, as Spark's Kafka source does."""
    lengths = headers.value_lengths().to_numpy(zero_copy_only=False)
    empty = lengths == 0
    if not empty.any():
        return headers
    validity = pa.py_buffer(np.packbits(~empty, bitorder="little"))
    ends = headers.buffers()[1]
    return pa.Array.from_buffers(
        headers.type, len(headers), [validity, ends], children=[headers.values]
    )
