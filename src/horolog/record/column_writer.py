"""Arrow tables to record batches: the way back of `horolog.record.columns`."""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog.buffers import Buffer
from horolog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    next_sequence,
    pack_header,
)
from horolog.record.compression import Codec, compress
from horolog.record.kernels import column_twins, layout
from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.record.timestamps import NO_TIMESTAMP

BATCH_BYTES = 512 << 10
"""Uncompressed size that batches are filled to: half of what brokers take by default."""

_NO_DELTAS = np.empty(0, np.int64)
_MAX_RECORD_BYTES = (1 << 31) - 1 - HEADER_SIZE


def encode(
    table: pa.Table | pa.RecordBatch,
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    batch_bytes: int = BATCH_BYTES,
    level: int | None = None,
) -> bytes:
    """The rows of a table as v2 batches, with consecutive offsets from `base_offset` on.

    Takes the columns `value` and `timestamp_ms`, and where they are there `key` and
    `headers`; others are left alone. A null timestamp is written as -1. Batches are
    filled up to `batch_bytes` before compression; a larger record has one to itself.

    Raises:
        ValueError: a column is missing or has a type that is no bytes, or a header is null.
    """
    batches = encode_batches(
        table, codec=codec, base_offset=base_offset, batch_bytes=batch_bytes, level=level
    )
    return b"".join(batches)


def encode_batches(
    table: pa.Table | pa.RecordBatch,
    *,
    codec: Codec = Codec.NONE,
    base_offset: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    level: int | None = None,
    producer: tuple[int, int] = (-1, -1),
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> Iterator[bytes]:
    """As `encode`, batch by batch; without `base_offset` each begins at 0, as producers send it.

    An idempotent `producer` gives its id and epoch, and the sequence of its first record; a
    transactional one says so.
    """
    offset, sequence = base_offset, base_sequence
    attributes = codec | TRANSACTIONAL_BIT if is_transactional else int(codec)
    for rows in _record_batches(table):
        writer = _Writer(rows, batch_bytes)
        while (records := writer.next_records()) is not None:
            payload: Buffer = records.payload
            if codec is not Codec.NONE:
                payload = compress(codec, payload, level)
            yield _batch(records, payload, attributes, offset or 0, producer, sequence)
            if offset is not None:
                offset += records.rows
            if sequence >= 0:
                sequence = next_sequence(sequence, records.rows)


def encode_records(
    rows: pa.RecordBatch,
    deltas: npt.NDArray[np.int64],
    batches: Iterable[tuple[int, int]],
) -> Iterator[memoryview]:
    """The records of batches whose rows follow each other, as format v2 has them, uncompressed.

    Args:
        rows: with the columns that `encode` takes; the times are those in the records' bytes.
        deltas: of each row its offset less its batch's base offset.
        batches: of each how many of the rows, and its base timestamp.

    Raises:
        ValueError: as `encode`; or the records are larger than a batch can be.
    """
    writer = _Writer(rows, BATCH_BYTES, np.ascontiguousarray(deltas))
    end = 0
    for count, base_timestamp in batches:
        end += count
        yield writer.records_before(end, base_timestamp)


class _Records(NamedTuple):
    """What goes into one batch."""

    payload: memoryview
    rows: int
    base_timestamp: int
    max_timestamp: int


def _batch(
    records: _Records,
    payload: Buffer,
    attributes: int,
    base_offset: int,
    producer: tuple[int, int],
    base_sequence: int,
) -> bytes:
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records.rows - 1,
        base_timestamp=records.base_timestamp,
        max_timestamp=records.max_timestamp,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=base_sequence,
        records_count=records.rows,
    )
    return b"".join((pack_header(header, payload), payload))


def _record_batches(table: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    missing = {"value", "timestamp_ms"} - set(table.schema.names)
    if missing:
        raise ValueError(f"To write records, a table needs {sorted(missing)}")
    if isinstance(table, pa.RecordBatch):
        yield table
    else:
        yield from table.to_batches()


class _Writer:
    """The rows of one table, written as records of one batch after another."""

    def __init__(
        self, rows: pa.RecordBatch, batch_bytes: int, deltas: npt.NDArray[np.int64] = _NO_DELTAS
    ) -> None:
        self._times = _times(rows.column("timestamp_ms"))
        self._columns = (
            deltas,
            *_bytes_column(rows, "key"),
            *_bytes_column(rows, "value"),
            *_header_columns(rows),
        )
        self._state = array("q", bytes(8 * layout.SCATTER_STATE_SIZE))
        self._state[layout.END_ROW] = len(self._times)
        self._out = np.empty(max(batch_bytes - HEADER_SIZE, 1), np.uint8)

    def next_records(self) -> _Records | None:
        """The records of the next batch; None after the last. Valid until the next call."""
        state = self._state
        first = state[layout.ROW]
        if first == len(self._times):
            return None
        state[layout.FIRST_ROW] = first
        state[layout.BASE_TIMESTAMP] = self._times[first]
        state[layout.MAX_TIMESTAMP] = NO_TIMESTAMP
        state[layout.SCATTER_TIMED] = state[layout.FILLED] = 0
        if self._scatter(self._out) == layout.FULL and state[layout.ROW] == first:
            if state[layout.RECORD_BYTES] > _MAX_RECORD_BYTES:
                raise ValueError(
                    f"Row {first} makes a record of {state[layout.RECORD_BYTES]} bytes, more than "
                    "a batch can hold"
                )
            out = np.empty(state[layout.RECORD_BYTES], np.uint8)
            self._scatter(out)
        else:
            out = self._out
        return _Records(
            payload=out.data[: state[layout.FILLED]],
            rows=state[layout.ROW] - first,
            base_timestamp=state[layout.BASE_TIMESTAMP],
            max_timestamp=state[layout.MAX_TIMESTAMP],
        )

    def records_before(self, row: int, base_timestamp: int) -> memoryview:
        """The records of the rows up to before this one. Valid until the next call."""
        state = self._state
        state[layout.END_ROW] = row
        state[layout.BASE_TIMESTAMP] = base_timestamp
        state[layout.FILLED] = 0
        while self._scatter(self._out) == layout.FULL:
            filled = state[layout.FILLED]
            least = filled + state[layout.RECORD_BYTES]
            if least > _MAX_RECORD_BYTES:
                raise ValueError(f"Rows up to {row} make records of more than a batch can hold")
            larger = np.empty(min(max(2 * len(self._out), least), _MAX_RECORD_BYTES), np.uint8)
            larger[:filled] = self._out[:filled]
            self._out = larger
        return self._out.data[: state[layout.FILLED]]

    def _scatter(self, out: npt.NDArray[np.uint8]) -> int:
        inputs = (self._times, *self._columns)
        kernels = COLUMN_KERNELS.module
        if kernels is None:
            status = column_twins.scatter(
                out.data, self._state, *(column.data for column in inputs)
            )
            COLUMN_KERNELS.note_work(self._state[layout.FILLED])
            return status
        return int(kernels.scatter(out, np.frombuffer(self._state, np.int64), *inputs))


def _times(column: pa.Array) -> npt.NDArray[np.int64]:
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise ValueError(f"Column timestamp_ms of type {column.type} is no integer of milliseconds")
    times: npt.NDArray[np.int64] = pc.fill_null(_cast(column, pa.int64()), NO_TIMESTAMP).to_numpy()
    return times


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ValueError(f"A column of type {column.type} cannot be written: {error}") from None


def _bytes_column(rows: pa.RecordBatch, name: str) -> tuple[Any, Any, Any]:
    if name not in rows.schema.names:
        return _parts(pa.nulls(rows.num_rows, pa.large_binary()))
    return _parts(_cast(rows.column(name), pa.large_binary()))


def _parts(column: pa.Array) -> tuple[Any, Any, Any]:
    """Ends, data and validity (empty where nothing is null) of a large binary column."""
    _, ends, data = column.buffers()
    stop = column.offset + len(column) + 1
    ends_array = np.zeros(1, np.int64)
    if ends is not None and len(column):
        ends_array = np.frombuffer(ends, np.int64, stop)[column.offset :]
    data_array = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    valid = np.empty(0, np.uint8)
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False).view(np.uint8)
    return ends_array, data_array, valid


def _no_headers(count: int) -> tuple[Any, ...]:
    nothing = _parts(pa.nulls(0, pa.large_binary()))
    return np.zeros(count + 1, np.int64), *nothing[:2], *nothing


def _header_columns(rows: pa.RecordBatch) -> tuple[Any, ...]:
    if "headers" not in rows.schema.names:
        return _no_headers(rows.num_rows)
    column = rows.column("headers")
    names: set[str] = set()
    if pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
        names = {field.name for field in column.type.value_type}
    if not {"key", "value"} <= names:
        raise ValueError(f"Headers of type {column.type} are no list of structs of key and value")
    flat = column.flatten()  # of the rows in this slice, without those that are null
    if not len(flat):
        return _no_headers(rows.num_rows)
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    keys, values = (pc.struct_field(flat, name) for name in ("key", "value"))
    if flat.null_count or keys.null_count:
        raise ValueError("A header or its key is null")
    key_parts = _parts(_cast(keys, pa.large_binary()))
    return ends, *key_parts[:2], *_parts(_cast(values, pa.large_binary()))
