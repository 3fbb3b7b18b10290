"""Arrow tables to record batches: the way back of `horolog.record.columns`."""

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    new_head,
    next_sequence,
)
from horolog.record.compression import Codec, compress
from horolog.record.kernels.column_kernels import (
    BASE_TIMESTAMP,
    END_ROW,
    FILLED,
    FIRST_ROW,
    MAX_TIMESTAMP,
    RECORD_BYTES,
    ROW,
    SCATTER_STATE_SIZE,
    SCATTER_TIMED,
)
from horolog.record.kernels.layout import FULL
from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.record.row_columns import RowColumns, require_columns
from horolog.record.timestamps import NO_TIMESTAMP

BATCH_BYTES = 512 << 10
"""Uncompressed size that batches are filled to: half of what brokers take by default."""

_NONE = np.empty(0, np.int64)
_MAX_RECORD_BYTES = (1 << 31) - 1 - HEADER_SIZE


def encode_batches(
    table: pa.Table | pa.RecordBatch,
    *,
    codec: Codec = Codec.NONE,
    base_offset: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    level: int | None = None,
) -> Iterator[bytes]:
    """Yield the rows of a table as v2 batches, with consecutive offsets from `base_offset` on.

    Without a base offset each batch begins at 0, as producers send it. The columns are `value` and
    `timestamp_ms`, and optionally `key` and `headers`; others are ignored. A null timestamp is
    written as -1. Batches are filled up to `batch_bytes` before compression; a larger record has a
    batch of its own.

    Raises:
        ValueError: a column is missing or its type is not binary, or a header is null.
    """
    require_columns(table.schema)
    offset = base_offset
    for rows in [table] if isinstance(table, pa.RecordBatch) else table.to_batches():
        pieces = [PickedRows(RowColumns(rows))]
        for batch in encode_picked(
            pieces, codec=codec, base_offset=offset, batch_bytes=batch_bytes, level=level
        ):
            yield bytes(batch.data)
            if offset is not None:
                offset += batch.rows


class PickedRows(NamedTuple):
    """Rows of a record batch, by their numbers and in that order; all rows without numbers."""

    columns: RowColumns
    numbers: npt.NDArray[np.int64] = _NONE

    @property
    def length(self) -> int:
        """Number of rows."""
        return len(self.numbers) or len(self.columns)


class EncodedBatch(NamedTuple):
    """A batch and its number of records."""

    data: bytes | memoryview
    rows: int


def encode_picked(
    pieces: Sequence[PickedRows],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    level: int | None = None,
    producer: tuple[int, int] = (-1, -1),
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> Iterator[EncodedBatch]:
    """Yield rows of several record batches as v2 batches, which may contain rows of more than one.

    A row is copied once, to its place in a batch without a codec.

    Args:
        is_transactional: whether the batches are part of a transaction of `producer`.
    """
    offset, sequence = base_offset, base_sequence
    attributes = codec | TRANSACTIONAL_BIT if is_transactional else int(codec)
    writer = _Writer(pieces, batch_bytes)
    while (records := writer.next_records()) is not None:
        out, payload = records.out, records.out[HEADER_SIZE:]
        if codec is not Codec.NONE:
            payload = memoryview(compress(codec, payload, level))
        rows, *times = records[1:]
        covered = attributes, rows - 1, *times, *producer, sequence, rows
        length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
        header = new_head(offset or 0, length, -1, covered, payload)
        data: bytes | memoryview
        if codec is not Codec.NONE:
            data = b"".join((header, payload))
        else:
            out[:HEADER_SIZE] = header
            data = writer.take_out(out)
        yield EncodedBatch(data, rows)
        if offset is not None:
            offset += rows
        if sequence >= 0:
            sequence = next_sequence(sequence, rows)


class RecordsEncoder:
    """Encoder of the records of many batches at once, uncompressed, in format v2."""

    def __init__(self) -> None:
        self._out = np.empty(BATCH_BYTES, np.uint8)

    def encode(
        self,
        rows: pa.RecordBatch,
        deltas: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        base_timestamps: npt.NDArray[np.int64],
    ) -> tuple[memoryview, list[int]]:
        """Encode the records of successive batches.

        Args:
            rows: rows with the columns of `encode_batches`; times are those in the records' bytes.
            deltas: distance of each row's offset from the base offset of its batch.
            counts: number of rows of each batch.
            base_timestamps: base timestamp of each batch.

        Returns:
            The records of all batches, valid until the next call, and the end of each batch.

        Raises:
            ValueError: as `encode_batches`; or the records of a batch exceed the size of a batch.
        """
        columns = RowColumns(rows)
        # Counted from base times of its own, a record's bytes do not depend on the batch.
        times = columns.times - np.repeat(base_timestamps, counts)
        ends = np.zeros(len(times) + 1, np.int64)
        inputs = (ends[1:], _NONE, np.ascontiguousarray(deltas), times, columns.others)
        state = _new_state()
        state[END_ROW] = len(times)
        while _scatter(self._out, state, inputs) == FULL:
            out, filled = self._out, state[FILLED]
            self._out = np.empty(max(2 * len(out), filled + state[RECORD_BYTES]), np.uint8)
            self._out[:filled] = out[:filled]
        ends = ends[np.cumsum(counts)]
        sizes = np.diff(ends, prepend=0)
        if len(sizes) and sizes.max() > _MAX_RECORD_BYTES:
            raise ValueError(f"{counts[sizes.argmax()]} rows make more bytes than a batch can hold")
        return self._out.data[: state[FILLED]], ends.tolist()


class _Records(NamedTuple):
    """Records of one batch; `out` has room for the header before them."""

    out: memoryview
    rows: int
    base_timestamp: int
    max_timestamp: int


class _Writer:
    """Writer of rows of several record batches as records of one batch after another."""

    def __init__(self, pieces: Sequence[PickedRows], batch_bytes: int) -> None:
        self._pieces = deque(piece for piece in pieces if piece.length)
        self._state = _new_state()
        self._state[END_ROW] = self._pieces[0].length if self._pieces else 0
        self._size = max(batch_bytes, HEADER_SIZE + 1)
        self._out: npt.NDArray[np.uint8] | None = None

    def next_records(self) -> _Records | None:
        """Return the records of the next batch; None after the last.

        Valid until the next call, unless `take_out` is called first.
        """
        if not self._pieces:
            return None
        state = self._state
        columns, numbers = self._pieces[0]
        first = state[ROW]
        first_row = int(numbers[first]) if len(numbers) else first
        state[FIRST_ROW] = first
        state[BASE_TIMESTAMP] = columns.times[first_row]
        state[MAX_TIMESTAMP] = NO_TIMESTAMP
        state[SCATTER_TIMED] = 0
        state[FILLED] = HEADER_SIZE
        if self._out is None:
            self._out = np.empty(self._size, np.uint8)
        out = self._out
        count = self._write(out)
        if not count:
            if state[RECORD_BYTES] > _MAX_RECORD_BYTES:
                raise ValueError(
                    f"Row {first_row} makes a record of {state[RECORD_BYTES]} bytes, more "
                    "than a batch can hold"
                )
            out = np.empty(HEADER_SIZE + state[RECORD_BYTES], np.uint8)
            count = self._write(out)
        return _Records(
            out=out.data[: state[FILLED]],
            rows=count,
            base_timestamp=state[BASE_TIMESTAMP],
            max_timestamp=state[MAX_TIMESTAMP],
        )

    def take_out(self, out: memoryview) -> bytes | memoryview:
        """Return the bytes of `_Records.out` to be kept: a copy where they fill little of it."""
        if 2 * len(out) < self._size:
            return bytes(out)
        self._out = None
        return out

    def _write(self, out: npt.NDArray[np.uint8]) -> int:
        """Write records until room or rows run out; return how many the batch has then."""
        state, pieces = self._state, self._pieces
        while True:
            columns, numbers = pieces[0]
            status = _scatter(out, state, (_NONE, numbers, _NONE, columns.times, columns.others))
            count: int = state[ROW] - state[FIRST_ROW]
            if status == FULL:
                return count
            pieces.popleft()
            if not pieces:
                return count
            state[FIRST_ROW] = -count  # so that offset deltas continue
            state[ROW] = 0
            state[END_ROW] = pieces[0].length


def _new_state() -> "array[int]":
    return array("q", bytes(8 * SCATTER_STATE_SIZE))


def _scatter(out: npt.NDArray[np.uint8], state: "array[int]", inputs: tuple[Any, ...]) -> int:
    status = int(COLUMN_KERNELS.run.scatter(out, state, *inputs))
    COLUMN_KERNELS.note_work(state[FILLED])
    return status
