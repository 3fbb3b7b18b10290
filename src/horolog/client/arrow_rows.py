"""Arrow data as rows of records: allowed columns, times and sizes.

This module imports pyarrow.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog.record.timestamps import NO_TIMESTAMP, UNWRITABLE

APART_BYTES: Final = 512 << 10  # beyond, to copy rows takes longer than to look at columns
_OVERHEAD_BYTES: Final = 8  # about, of a record or a header in addition to its bytes
_TAKEN: Final = frozenset({"key", "value", "headers", "partition", "timestamp", "timestamp_ms"})
_IGNORED: Final = frozenset({"topic", "offset", "timestamp_type", "timestampType"})
_INDEX: Final = re.compile(r"__index_level_\d+__")  # pandas' row labels, as pyarrow calls them


def reader_of(data: Any) -> pa.RecordBatchReader:
    """Return a reader of a table, a record batch, columns by name, or an exporter of a stream.

    Raises:
        ValueError: the object is of another type, or columns differ in length.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if isinstance(data, Mapping):
        return pa.table(dict(data)).to_reader()
    raise ValueError(
        f"{type(data).__name__} is no Arrow data: give a table, columns by name, or an object that "
        "exports a stream"
    )


def check_columns(schema: pa.Schema) -> None:
    """Check that records can be made from these columns.

    Raises:
        ValueError: `value` is missing, a column is unknown, or there are two of times.
    """
    names = set(schema.names)
    if "value" not in names:
        raise ValueError(f"To write records, a table needs the column value; it has {schema.names}")
    unknown = {name for name in names - _TAKEN - _IGNORED if not _INDEX.fullmatch(name)}
    if unknown:
        raise ValueError(
            f"No record has the columns {sorted(unknown)}; written are {sorted(_TAKEN)}"
        )
    if {"timestamp", "timestamp_ms"} <= names:
        raise ValueError("Give timestamp or timestamp_ms: each says which time records have")


def chunks_of(reader: pa.RecordBatchReader, target: int) -> Iterator[Sequence[pa.RecordBatch]]:
    """Yield groups of record batches of about `target` bytes each."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        if not batch.num_rows:
            continue
        rows = max(1, batch.num_rows * target // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            gathered.append(piece)
            size += piece.nbytes
            if size >= target:
                yield few_of(gathered)
                gathered, size = [], 0
    if gathered:
        yield few_of(gathered)


def few_of(batches: list[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Return the same rows, with small record batches joined into one."""
    size = sum(batch.nbytes for batch in batches)
    return batches if size >= APART_BYTES * len(batches) else [one_of(batches)]


def written_columns(chunk: pa.RecordBatch, now_ms: Callable[[], int]) -> pa.RecordBatch:
    """Return the columns to write.

    The clock replaces null times.

    Raises:
        ValueError: the times are of a type that cannot be written, or a moment is that which
            Kafka's formats take for no timestamp.
    """
    columns = {
        name: chunk.column(name)
        for name in ("key", "value", "headers", "partition")
        if name in chunk.schema.names
    }
    if "timestamp_ms" in chunk.schema.names:
        times = chunk.column("timestamp_ms")
        if not pa.types.is_integer(times.type) and not pa.types.is_null(times.type):
            raise ValueError(f"Column timestamp_ms of type {times.type} is no integer")
        times = times.cast(pa.int64())
    elif "timestamp" in chunk.schema.names:
        times = chunk.column("timestamp")
        if pa.types.is_timestamp(times.type) and times.type.tz is None:
            raise ValueError(
                f"Column timestamp of type {times.type} has no zone, and is no moment: give it "
                "one, as UTC, or write milliseconds in column timestamp_ms"
            )
        times = milliseconds(times)
        if pc.any(pc.equal(times, NO_TIMESTAMP)).as_py():
            raise ValueError(
                f"Column timestamp: {UNWRITABLE}, or write -1 in column timestamp_ms (in Spark "
                "timestampMs) for none"
            )
    else:
        times = pa.nulls(chunk.num_rows, pa.int64())
    if times.null_count:
        times = pc.fill_null(times, now_ms())
    return pa.RecordBatch.from_pydict({**columns, "timestamp_ms": times})


def milliseconds(times: pa.Array) -> pa.Array:
    """Return timestamps as milliseconds since the epoch, floored, also before 1970."""
    if not pa.types.is_timestamp(times.type):
        raise ValueError(f"Column timestamp of type {times.type} is no timestamp")
    unit = times.type.unit
    numbers = times.cast(pa.int64())
    if unit == "s":
        return pc.multiply_checked(numbers, 1000)
    if unit == "ms":
        return numbers
    divisor = 1000 if unit == "us" else 1_000_000
    quotient = pc.divide(numbers, divisor)  # towards zero
    is_above = pc.greater(pc.multiply(quotient, divisor), numbers)
    return pc.if_else(is_above, pc.subtract(quotient, 1), quotient)


def row_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the approximate size of each row; it does not depend on Arrow's representation.

    Raises:
        ValueError: a column is of a type that cannot be written.
    """
    sizes = np.full(rows.num_rows, _OVERHEAD_BYTES, np.int64)
    for name in ("key", "value"):
        if name in rows.schema.names:
            sizes += _lengths(rows.column(name))
    if "headers" in rows.schema.names and pa.types.is_list(rows.column("headers").type):
        headers = rows.column("headers")
        flat = headers.flatten()
        if pa.types.is_struct(flat.type):
            each = sum(_lengths(part) + _OVERHEAD_BYTES for part in flat.flatten())
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(each)])
            counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
            stops = np.cumsum(counts)
            sizes += ends[stops] - ends[stops - counts]
    return sizes


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.binary_length(as_binary(column))
    counts: npt.NDArray[np.int64] = pc.fill_null(lengths, 0).to_numpy().astype(np.int64)
    return counts


def as_binary(column: pa.Array) -> pa.Array:
    """Return a column of strings or bytes as large binary.

    Raises:
        ValueError: the column is of a type that cannot be written.
    """
    try:
        return column.cast(pa.large_binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ValueError(f"A column of type {column.type} cannot be written: {error}") from None


def one_of(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return several record batches as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
