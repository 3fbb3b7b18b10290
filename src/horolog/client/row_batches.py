"""Rows of Arrow data by partition, and the results of their batches.

This module imports pyarrow.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog.client.arrow_rows import row_bytes
from horolog.client.records import Produced
from horolog.errors import RecordError, RecordsRejected
from horolog.offsets import TopicPartition
from horolog.record.column_writer import PickedRows
from horolog.record.partitioning import partitions_of_keys
from horolog.record.row_columns import RowColumns
from horolog.record.timestamps import TimestampType

_INT16_MAX: Final = (1 << 15) - 1

METADATA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp_type", pa.string()),
    ]
)
"""Columns that `Producer.send` returns for each record: Java's RecordMetadata, as columns."""


class PartitionRows(NamedTuple):
    """Rows of one partition; `start` is their position in the sorted chunk."""

    rows: Sequence[PickedRows]
    start: int


class Batch(NamedTuple):
    """Batch, and the rows of the sorted chunk that it contains."""

    data: bytes | memoryview
    start: int
    rows: int
    sequence: int  # before anything was taken out of the partition
    numbers: npt.NDArray[np.int64] | None = None  # of its rows, where it was repaired


class Chunk:
    """Part of the rows of a `send`, with their order and their results."""

    def __init__(
        self, topic: str, pieces: Sequence[pa.RecordBatch], first_row: int, *, noted: bool
    ) -> None:
        self.topic = topic
        self.pieces = pieces
        self.first_row = first_row
        self.num_rows = sum(piece.num_rows for piece in pieces)
        self._order: npt.NDArray[np.intp] | None = None
        count = self.num_rows if noted else 0
        self._offsets = np.full(count, -1, np.int64)
        self._partitions = np.zeros(count, np.int32)
        self._times = np.empty(0, np.int64)
        self._types = np.full(count, -1, np.int8)
        if noted:
            self._times = np.concatenate(
                [piece.column("timestamp_ms").to_numpy() for piece in pieces]
            )

    def column(self, name: str) -> pa.Array | None:
        """Return a column of all rows; None if there is no column of this name."""
        if name not in self.pieces[0].schema.names:
            return None
        return pa.concat_arrays([piece.column(name) for piece in self.pieces])

    def by_partition(self, chosen: npt.NDArray[np.int32] | int) -> dict[int, PartitionRows]:
        """Return the rows by partition, in their order. The chunk drops its own reference."""
        pieces, self.pieces = [RowColumns(piece) for piece in self.pieces], []
        if isinstance(chosen, int):
            return {chosen: PartitionRows([PickedRows(piece) for piece in pieces], 0)}
        if chosen.max() <= _INT16_MAX:
            chosen = chosen.astype(np.int16)  # sorted by its digits, in less time
        self._order = np.argsort(chosen, kind="stable")
        ordered = chosen[self._order]
        starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
        stops = [*starts[1:].tolist(), len(ordered)]
        ends = np.cumsum([len(piece) for piece in pieces])
        return {
            int(ordered[start]): PartitionRows(
                _picked(pieces, ends, self._order[start:stop]), start
            )
            for start, stop in zip(starts.tolist(), stops, strict=True)
        }

    def note(self, partition: int, batch: Batch, produced: Produced) -> None:
        """Note the result of a batch."""
        if not len(self._offsets):
            return
        where: Any = slice(batch.start, batch.start + batch.rows)
        if self._order is not None:
            where = self._order[where]
        self._partitions[where] = partition
        if produced.base_offset is not None:
            self._offsets[where] = np.arange(
                produced.base_offset, produced.base_offset + batch.rows
            )
        if produced.timestamp_type is not None:
            self._types[where] = produced.timestamp_type
        if produced.log_append_time_ms is not None:
            self._times[where] = produced.log_append_time_ms

    def metadata(self) -> pa.RecordBatch:
        """Return the results of all rows, with the columns of `METADATA`."""
        offsets = pa.array(self._offsets, mask=self._offsets < 0)
        names = pa.array([kind.kafka_name for kind in TimestampType])
        types = names.take(pa.array(self._types, mask=self._types < 0))
        columns = [pa.array(self._partitions), offsets, pa.array(self._times), types]
        return pa.RecordBatch.from_arrays(columns, schema=METADATA)

    def numbers(self, batch: Batch) -> npt.NDArray[np.int64]:
        """Return the row numbers of a batch in the data of `send`."""
        if batch.numbers is not None:
            return batch.numbers
        rows = np.arange(batch.start, batch.start + batch.rows)
        return self.first_row + (rows if self._order is None else self._order[rows])

    def with_rows(
        self, refusal: RecordsRejected, sending: Mapping[TopicPartition, Batch]
    ) -> RecordsRejected:
        """Return the error with row numbers of the data of `send`."""
        partition = refused_partition(refusal, sending)
        if partition is None:
            return refusal
        named = sending[partition]
        numbers = self.numbers(named)
        rows = [
            RecordError(int(numbers[error.batch_index]), error.message)
            for error in refusal.errors
            if 0 <= error.batch_index < named.rows
        ]
        summary = "; ".join(f"row {row.batch_index}: {row.message}" for row in rows[:3])
        return RecordsRejected(
            refusal.code, f"{refusal} ({summary})" if summary else str(refusal), rows
        )


def refused_partition(
    refusal: RecordsRejected, batches: Mapping[TopicPartition, Batch]
) -> TopicPartition | None:
    """Return the partition whose batch was refused, or None."""
    said = str(refusal)
    return next((tp for tp in batches if said.startswith(f"produce to {tp[0]}-{tp[1]}:")), None)


def choose_partitions(
    chunk: Chunk, partitions: Sequence[int], turn: int, batch_bytes: int
) -> tuple[npt.NDArray[np.int32] | int, int]:
    """Return the partition of each row or of all rows, and the next turn of rows without a key."""
    count = len(partitions)
    given = chunk.column("partition")
    if given is None and count == 1:
        return partitions[0], turn
    chosen = np.zeros(chunk.num_rows, np.int32)
    numbers = np.array(partitions, np.int32)
    open_rows = np.arange(chunk.num_rows)
    if given is not None:
        given = given.cast(pa.int32())
        chosen = pc.fill_null(given, -1).to_numpy(zero_copy_only=False).astype(np.int32)
        wrong = ~np.isin(chosen, numbers) & pc.is_valid(given).to_numpy(zero_copy_only=False)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"Row {chunk.first_row + row} names partition {chosen[row]}; there are {count}"
            )
        open_rows = np.flatnonzero(pc.is_null(given).to_numpy(zero_copy_only=False))
    if not len(open_rows):
        return chosen, turn
    keyless = open_rows
    if (keys := chunk.column("key")) is not None:
        keys = keys.cast(pa.large_binary())
        has_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
        keyed, keyless = open_rows[has_key[open_rows]], open_rows[~has_key[open_rows]]
        if len(keyed):
            ends, data = _parts(keys)
            of_keys = partitions_of_keys(ends, data, count)
            chosen[keyed] = numbers[of_keys[keyed]]
    if len(keyless):
        total = sum(int(row_bytes(piece).sum()) for piece in chunk.pieces)
        run = max(1, batch_bytes * chunk.num_rows // total)
        turns = turn + np.arange(len(keyless)) // run
        chosen[keyless] = numbers[turns % count]
        turn = int(turns[-1]) + 1
    return chosen, turn


def _picked(
    pieces: Sequence[RowColumns], ends: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> list[PickedRows]:
    """Return the rows with ascending numbers, which continue over pieces up to `ends`."""
    cuts = [0, *np.searchsorted(numbers, ends).tolist()]
    begins = [0, *ends[:-1].tolist()]
    return [
        PickedRows(piece, numbers[start:stop] - begin)
        for piece, begin, (start, stop) in zip(pieces, begins, pairwise(cuts), strict=True)
        if start < stop
    ]


def _parts(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, ends, data = column.buffers()
    taken = np.frombuffer(ends, np.int64, column.offset + len(column) + 1)[column.offset :]
    return taken, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
