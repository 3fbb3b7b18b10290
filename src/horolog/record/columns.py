"""Record batches to Arrow tables and back: the log as columns.

    key binary, value binary, offset int64, timestamp_ms int64, timestamp_type int32
    headers list<struct<key: string, value: binary>>          (only when asked for)
    producer_id int64, producer_epoch int32, sequence int32   (only when asked for)

All fields are nullable and the types plain (32-bit ends), as Spark wants them. A
table never exceeds `max_bytes`, unless a single record does; a large batch is
spread over several tables and never decompressed as a whole.

Nothing else here imports pyarrow, but for what serves this module: `row_buffers`, where
tables grow, and `column_writer`, the way back.
"""

from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    iter_headers,
    parse_header,
    verify_crc,
)
from horolog.record.batch_producers import TYPES as OF_PRODUCERS
from horolog.record.column_writer import encode, encode_batches
from horolog.record.compression import Codec, decompress_chunks
from horolog.record.kernels import layout
from horolog.record.old_format.reading import OpenedBatch, open_message, open_run
from horolog.record.row_buffers import EVERYTHING, INT64_MAX, INT64_MIN, RowBuffers, RowRange
from horolog.record.scan import scan_batch
from horolog.record.timestamps import CREATE_TIME, TimestampType
from horolog.record.transactions import AbortedTransactions

__all__ = [
    "DEFAULT_COLUMNS",
    "DecodeStatistics",
    "batch_schema",
    "decode",
    "encode",
    "encode_batches",
]

DEFAULT_COLUMNS = ("key", "value", "offset", "timestamp_ms", "timestamp_type")
MAX_TABLE_BYTES = 8 << 20
MAX_BATCH_BYTES = 1 << 30

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.int32(),
    **OF_PRODUCERS,
}
_PLAN_BYTES = 512 << 10  # little enough to be in the cache still after the CRCs
_MAX_MARKER_BYTES = 1 << 20


def batch_schema(columns: Sequence[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """The schema of what `decode` yields for these columns, in this order."""
    if not columns:
        raise ValueError("A table needs at least one column to have rows")
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ValueError(f"No such columns: {unknown}; there are {list(_TYPES)}")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


@dataclass
class DecodeStatistics:
    """What `decode` did, counted as it goes."""

    batches: int = 0
    """Whole batches met."""
    batches_skipped: int = 0
    """Of these, passed by on the word of their header: nothing decompressed."""
    bytes_decoded: int = 0
    """Bytes of records gone through, decompressed."""
    rows: int = 0
    next_offset: int | None = None
    """The offset after the last whole batch, also when none of its records was wanted."""


def decode(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    max_bytes: int = MAX_TABLE_BYTES,
    skip_control: bool = True,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crcs: bool = True,
    as_created: bool = False,
    statistics: DecodeStatistics | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of all whole batches in `buffer`, in offset order, as tables of at least a row.

    Exact to the record: offsets from `start_offset` to before `end_offset`, timestamps
    from `from_ms` to before `to_ms` (compared as plain numbers, -1 included). Only
    `columns` are copied. A batch that its header rules out is not even decompressed.

    `aborted` are the (producer id, first offset) pairs of a read-committed fetch: the
    records of those transactions are left out.

    With `as_created` records have the times that their bytes hold, also in batches of v2 and
    compressed messages of v1 that are stamped with an append time: that is their create time,
    unless they were packed anew.

    Raises:
        CorruptBatch: a batch breaks the format, or its CRC (unless not `check_crcs`).
        RequestRefused: one batch decompresses to more than `max_batch_bytes`.
    """
    schema = batch_schema(columns)
    wanted = RowRange(
        first_ms=INT64_MIN if from_ms is None else max(INT64_MIN, from_ms),
        last_ms=INT64_MAX if to_ms is None else min(INT64_MAX, to_ms - 1),
        first_offset=INT64_MIN if start_offset is None else max(INT64_MIN, start_offset),
        last_offset=INT64_MAX if end_offset is None else min(INT64_MAX, end_offset - 1),
    )
    statistics = statistics if statistics is not None else DecodeStatistics()
    transactions = None if aborted is None else AbortedTransactions(aborted)
    view = memoryview(buffer)
    rows = RowBuffers(schema, max_bytes, wanted)
    decoder = _Decoder(view, rows, max_batch_bytes, statistics, as_created=as_created)
    position, least_offset = 0, 0
    try:
        while position < len(view):
            start, old = position, None
            for position, header in iter_headers(view, start, least_offset):
                if header.magic != MAGIC:
                    old = header
                    break
                statistics.batches += 1
                statistics.next_offset = header.next_offset
                is_aborted = transactions is not None and transactions.drop(
                    header, view[position : position + header.size]
                )
                is_hidden = is_aborted or (skip_control and header.is_control)
                if is_hidden or not _may_meet(header, wanted):
                    statistics.batches_skipped += 1
                    continue
                if check_crcs:
                    verify_crc(view, position, header)
                yield from decoder.add(position, header)
            if old is None:
                break
            position += yield from decoder.add_messages(position, old, wanted, check_crcs)
            least_offset = statistics.next_offset or 0
        yield from decoder.finish()
    except (CorruptBatch, RequestRefused):
        yield from decoder.finish()  # what came before is still good
        raise


def _may_meet(header: BatchHeader, wanted: RowRange) -> bool:
    """Whether a record of the batch can be wanted, as far as the header says.

    The header bounds times from above only: records may be older than the base
    timestamp, which is just the first one's.
    """
    if header.records_count == 0:
        return False
    if wanted == EVERYTHING:
        return True
    if header.max_timestamp < wanted.first_ms:
        return False
    if header.next_offset <= wanted.first_offset or header.base_offset > wanted.last_offset:
        return False
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp <= wanted.last_ms
    return not wanted.is_empty


class _Decoder:
    """Takes batches in order; gives tables as they become full.

    Many batches are gathered at a time: uncompressed ones in place, small
    compressed ones side by side. A large compressed batch goes piece by piece.
    """

    def __init__(
        self,
        buffer: memoryview,
        rows: RowBuffers,
        max_batch_bytes: int,
        statistics: DecodeStatistics,
        *,
        as_created: bool,
    ) -> None:
        self._buffer = buffer
        self._as_created = as_created
        self._rows = rows
        self._max_batch_bytes = max_batch_bytes
        self._statistics = statistics
        self._plan = array("q")
        self._planned: list[int] = []  # positions: thousands of headers would wake the collector
        self._planned_bytes = 0
        self._unpacked: list[Buffer] = []  # what the plan is about, unless it is the buffer

    def add(self, position: int, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        """Take the batch at a position; the tables that are full now."""
        if header.records_count < 0:
            raise CorruptBatch(
                f"Found invalid record count {header.records_count} in magic v2 batch", position
            )
        if self._rows.producers is not None:
            yield from self._add_producer(header)
        start, end = position + HEADER_SIZE, position + header.size
        kind = CREATE_TIME if self._as_created else header.timestamp_type
        if header.codec is Codec.NONE:
            if self._unpacked:
                yield from self._gather_planned()
        else:
            if self._planned and not self._unpacked:
                yield from self._gather_planned()
            payload = self._buffer[start:end]
            pieces = decompress_chunks(header.codec, payload, max_bytes=self._max_batch_bytes)
            first, second = next(pieces, b""), next(pieces, None)
            if second is not None:
                yield from self._gather_planned()
                plan = array("q", _stretch(header, 0, 0, kind))
                yield from self._gather_pieces(position, plan, chain((first, second), pieces))
                return
            start, end = self._planned_bytes, self._planned_bytes + len(first)
            self._unpacked.append(first)
        self._plan.extend(_stretch(header, start, end, kind))
        self._planned.append(position)
        self._planned_bytes += end - start
        if self._planned_bytes >= _PLAN_BYTES:
            yield from self._gather_planned()

    def add_messages(
        self, position: int, header: BatchHeader, wanted: RowRange, check_crcs: bool
    ) -> Generator[pa.RecordBatch, None, int]:
        """Take a compressed message of v0 or v1, or plain ones, at a position; their size."""
        # Its statistics are those of the messages: each of them is a batch.
        statistics = self._statistics
        if not header.codec_number:
            data = self._buffer[position : position + max(_PLAN_BYTES, header.size)]
            run = open_run(data, header, check_crcs=check_crcs)
            statistics.batches += run.opened.header.records_count
            statistics.next_offset = run.opened.header.next_offset
            yield from self._add_opened(position, run.opened)
            return run.size
        statistics.batches += 1
        statistics.next_offset = header.next_offset
        if not _may_meet(header, wanted):
            statistics.batches_skipped += 1
            return header.size
        if check_crcs:
            verify_crc(self._buffer, position, header)
        message = self._buffer[position : position + header.size]
        opened = open_message(message, header, max_bytes=self._max_batch_bytes)
        yield from self._add_opened(position, opened)
        return header.size

    def _add_opened(self, position: int, opened: OpenedBatch) -> Iterator[pa.RecordBatch]:
        """Take the records of messages that are at a position."""
        header, kind = opened.header, opened.timestamp_type
        if self._as_created and kind == TimestampType.LOG_APPEND_TIME:
            kind = CREATE_TIME
        if self._rows.producers is not None:
            yield from self._add_producer(header)
        pieces = iter(opened.pieces)
        first, second = next(pieces, b""), next(pieces, None)
        if second is not None:
            yield from self._gather_planned()
            plan = array("q", _stretch(header, 0, 0, kind))
            yield from self._gather_pieces(position, plan, chain((first, second), pieces))
            return
        if self._planned and not self._unpacked:
            yield from self._gather_planned()
        self._unpacked.append(first)
        start, end = self._planned_bytes, self._planned_bytes + len(first)
        self._plan.extend(_stretch(header, start, end, kind))
        self._planned.append(position)
        self._planned_bytes = end
        if self._planned_bytes >= _PLAN_BYTES:
            yield from self._gather_planned()

    def _add_producer(self, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        producers = self._rows.producers
        assert producers is not None
        if not producers.follows(header):
            yield from self.finish()
            producers.clear()
        producers.add(header)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The tables of all that was taken and not given yet, up to what is wrong with it."""
        try:
            yield from self._gather_planned()
        except CorruptBatch:
            yield from self._rest()
            raise
        yield from self._rest()

    def _rest(self) -> Iterator[pa.RecordBatch]:
        if self._rows.count:
            yield self._table()

    def _table(self) -> pa.RecordBatch:
        self._statistics.rows += self._rows.count
        return self._rows.finish()

    def _gather_planned(self) -> Iterator[pa.RecordBatch]:
        if not self._planned:
            return
        data = b"".join(self._unpacked) if self._unpacked else self._buffer
        plan, planned = self._plan, self._planned
        self._statistics.bytes_decoded += self._planned_bytes
        self._plan, self._planned, self._planned_bytes, self._unpacked = array("q"), [], 0, []
        self._rows.start(plan)
        status = yield from self._gather(data)
        if status != layout.DONE:
            raise self._malformed(planned[self._rows.stretch])

    def _gather_pieces(
        self, position: int, plan: "array[int]", pieces: Iterable[Buffer]
    ) -> Iterator[pa.RecordBatch]:
        carry = bytearray()
        status = layout.CUT_OFF
        for piece in pieces:
            self._statistics.bytes_decoded += len(piece)
            if carry:
                carry += piece
                if len(carry) < self._rows.need:
                    continue
            data = memoryview(carry or piece)
            plan[layout.STRETCH_END] = len(data)
            self._rows.start(plan)
            status = yield from self._gather(data)
            if status == layout.MALFORMED:
                break
            carry = bytearray(data[self._rows.position :])
        if status != layout.DONE:
            raise self._malformed(position)

    def _gather(self, data: Buffer) -> Generator[pa.RecordBatch, None, int]:
        """Gather to the end of the plan; DONE, CUT_OFF or MALFORMED."""
        while (status := self._rows.gather(data)) == layout.FULL:
            if self._rows.count:
                yield self._table()
            self._rows.reserve(self._rows.need)
        return status

    def _malformed(self, position: int) -> CorruptBatch:
        """What is wrong, as `scan_batch` words it."""
        header = parse_header(self._buffer, position)
        batch = self._buffer[position : position + header.size]
        try:
            scan_batch(batch, header, max_bytes=self._max_batch_bytes)
        except CorruptBatch as error:
            return error
        raise AssertionError(f"scan and decode disagree on the batch at {header.base_offset}")


def _stretch(header: BatchHeader, start: int, end: int, kind: int) -> tuple[int, ...]:
    """What `gather` needs to know about a batch whose records, of that type of time, are there."""
    base = header.base_timestamp if kind == 0 else header.max_timestamp  # -1 both in v0
    return start, end, header.records_count, header.base_offset, base, kind
