"""Gathers batches and old messages, one after the other, into tables."""

from array import array
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, BatchHeader, parse_header, verify_crc
from horolog.record.batch_runs import BatchRun, BatchRunReader
from horolog.record.compression import CHUNK_BYTES, Codec, decompress_chunks, decompress_into
from horolog.record.kernels.column_kernels import STRETCH_END
from horolog.record.kernels.layout import CUT_OFF, DONE, FULL, MALFORMED
from horolog.record.old_format.reading import OpenedBatch, open_message, open_run
from horolog.record.row_buffers import RowBuffers, empty_array
from horolog.record.row_range import EVERYTHING, INT64_MIN, RowRange
from horolog.record.scan import scan_batch
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import CREATE_TIME, TimestampType

__all__ = ["DecodeStatistics", "Decoder", "may_meet"]

_PLAN_BYTES = 512 << 10  # little enough to be in the cache still after the CRCs


@dataclass
class DecodeStatistics:
    """Counts of a `decode` so far."""

    batches: int = 0
    """Whole batches that were read."""
    batches_skipped: int = 0
    """Batches that were skipped by their header alone, without decompression."""
    bytes_decoded: int = 0
    """Bytes of records gone through, decompressed."""
    rows: int = 0
    next_offset: int | None = None
    """The offset after the last whole batch, also when none of its records is in the range."""


class Decoder:
    """Collector of batches in order, which yields tables as they become full.

    Many batches are gathered at a time: uncompressed ones in place, small compressed ones in a
    buffer. A large compressed batch is gathered piece by piece.
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
        # What the plan is about, unless it is the buffer; made when it is needed first.
        self._room: memoryview | None = None
        self._is_unpacked = False

    def add(self, position: int, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        """Take the batch at a position; yield the tables that are full now."""
        if header.records_count < 0:
            raise CorruptBatch(
                f"Found invalid record count {header.records_count} in magic v2 batch", position
            )
        if self._rows.producers is not None:
            yield from self._add_producer(header)
        start, end = position + HEADER_SIZE, position + header.size
        kind = CREATE_TIME if self._as_created else header.timestamp_type
        codec = header.codec
        if codec is not Codec.NONE:
            payload = self._buffer[start:end]
            if self._planned and not self._is_unpacked:
                yield from self._gather_planned()
            size = decompress_into(codec, payload, self._unpacked_room(self._planned_bytes))
            if size is None:
                yield from self._gather_planned()
                pieces = decompress_chunks(codec, payload, max_bytes=self._max_batch_bytes)
                yield from self._gather_opened(position, header, kind, pieces)
                return
            start, end = self._planned_bytes, self._planned_bytes + size
        elif self._is_unpacked:
            yield from self._gather_planned()
        self._plan.extend(_stretch(header, start, end, kind))
        self._planned.append(position)
        self._planned_bytes += end - start
        if self._planned_bytes >= _PLAN_BYTES:
            yield from self._gather_planned()

    def add_runs(
        self, position: int, reader: BatchRunReader, check_crcs: bool
    ) -> Generator[pa.RecordBatch, None, int]:
        """Take plain batches from a position on; return where they end.

        Offsets of the batches ascend. They end before the first batch that is damaged, large when
        decompressed, or compressed where the planned batches are not.
        """
        producers = self._rows.producers
        least = INT64_MIN if producers is None else producers.next_offset
        while True:
            run = reader.read(position, _PLAN_BYTES - self._planned_bytes, least)
            if self._planned and self._is_unpacked is (run.codec is Codec.NONE):
                break  # what is planned is gathered first
            if run.codec is Codec.NONE:
                run = run.undamaged(self._buffer) if check_crcs else run
                stretches, end = run.stretches, sum(run.ends) - sum(run.starts)
                end += self._planned_bytes
            else:
                run, stretches, end = self._unpack(run, check_crcs)
            if not run.starts:
                break
            positions = [start - HEADER_SIZE for start in run.starts]
            self._statistics.batches += len(positions)
            least = parse_header(self._buffer, positions[-1]).next_offset
            self._statistics.next_offset = least
            if producers is not None:
                producers.add_all(run.producers, least)
            self._is_unpacked = run.codec is not Codec.NONE
            self._plan.frombytes(stretches.tobytes())
            self._planned.extend(positions)
            self._planned_bytes = end
            position = run.ends[-1]
            if self._planned_bytes >= _PLAN_BYTES:
                yield from self._gather_planned()
        return position

    def _unpack(self, run: BatchRun, check_crcs: bool) -> tuple[BatchRun, Int64Array, int]:
        """Decompress a run behind the planned records; return its batches, stretches and end."""
        ends: list[int] = []
        start = end = self._planned_bytes
        for index, (first, last) in enumerate(zip(run.starts, run.ends, strict=True)):
            if end >= _PLAN_BYTES or (check_crcs and run.is_damaged(self._buffer, index)):
                break
            size = decompress_into(run.codec, self._buffer[first:last], self._unpacked_room(end))
            if size is None:
                break
            end += size
            ends.append(end)
        run = run.first(len(ends))
        return run, run.placed(ends, start) if ends else run.stretches, end

    def add_messages(
        self, position: int, header: BatchHeader, rows: RowRange, check_crcs: bool
    ) -> Generator[pa.RecordBatch, None, int]:
        """Take messages of v0 or v1 at a position; return the size of the taken ones."""
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
        if not may_meet(header, rows):
            statistics.batches_skipped += 1
            return header.size
        if check_crcs:
            verify_crc(self._buffer, position, header)
        message = self._buffer[position : position + header.size]
        opened = open_message(message, header, max_bytes=self._max_batch_bytes)
        yield from self._add_opened(position, opened)
        return header.size

    def _add_opened(self, position: int, opened: OpenedBatch) -> Iterator[pa.RecordBatch]:
        """Take the records of messages at a position."""
        header, kind = opened.header, opened.timestamp_type
        if self._as_created and kind == TimestampType.LOG_APPEND_TIME:
            kind = CREATE_TIME
        if self._rows.producers is not None:
            yield from self._add_producer(header)
        if self._planned and not self._is_unpacked:
            yield from self._gather_planned()
        pieces = iter(opened.pieces)
        first, second = next(pieces, b""), next(pieces, None)
        room = self._unpacked_room(self._planned_bytes)
        if second is not None or len(first) > len(room):
            yield from self._gather_planned()
            rest = () if second is None else (second,)
            yield from self._gather_opened(position, header, kind, chain((first, *rest), pieces))
            return
        room[: len(first)] = first
        start, end = self._planned_bytes, self._planned_bytes + len(first)
        self._plan.extend(_stretch(header, start, end, kind))
        self._planned.append(position)
        self._planned_bytes = end
        if self._planned_bytes >= _PLAN_BYTES:
            yield from self._gather_planned()

    def _unpacked_room(self, start: int) -> memoryview:
        """Return memory from `start` on, below _PLAN_BYTES, for a batch that is not large."""
        if self._room is None:
            self._room = memoryview(empty_array(_PLAN_BYTES + CHUNK_BYTES, np.uint8))
        self._is_unpacked = True
        return self._room[start : start + max(0, min(CHUNK_BYTES, self._max_batch_bytes))]

    def _add_producer(self, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        producers = self._rows.producers
        assert producers is not None
        if not producers.follows(header):
            yield from self.finish()
            producers.clear()
        producers.add(header)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the tables of all batches taken so far, up to the first malformed record."""
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
        is_unpacked, self._is_unpacked = self._is_unpacked, False
        if not self._planned:
            return
        data: Buffer = self._buffer
        if is_unpacked and self._room is not None:
            data = self._room[: self._planned_bytes]
        plan, planned = self._plan, self._planned
        self._statistics.bytes_decoded += self._planned_bytes
        self._plan, self._planned, self._planned_bytes = array("q"), [], 0
        self._rows.start(plan)
        status = yield from self._gather(data)
        if status != DONE:
            raise self._malformed(planned[self._rows.stretch])

    def _gather_opened(
        self, position: int, header: BatchHeader, kind: int, pieces: Iterator[Buffer]
    ) -> Iterator[pa.RecordBatch]:
        """Gather a batch whose records come in pieces, if it is sound or large.

        A codec's checksum follows the last piece. No rows of a small batch are taken before it is
        checked.
        """
        first, second = next(pieces, b""), next(pieces, None)
        rest = () if second is None else (second,)
        plan = array("q", _stretch(header, 0, 0, kind))
        yield from self._gather_pieces(position, plan, chain((first, *rest), pieces))

    def _gather_pieces(
        self, position: int, plan: "array[int]", pieces: Iterable[Buffer]
    ) -> Iterator[pa.RecordBatch]:
        carry = bytearray()
        status = CUT_OFF
        for piece in pieces:
            self._statistics.bytes_decoded += len(piece)
            if carry:
                carry += piece
                if len(carry) < self._rows.need:
                    continue
            data = memoryview(carry or piece)
            plan[STRETCH_END] = len(data)
            self._rows.start(plan)
            status = yield from self._gather(data)
            if status == MALFORMED:
                break
            carry = bytearray(data[self._rows.position :])
        if status != DONE:
            raise self._malformed(position)

    def _gather(self, data: Buffer) -> Generator[pa.RecordBatch, None, int]:
        """Gather to the end of the plan; return DONE, CUT_OFF or MALFORMED."""
        while (status := self._rows.gather(data)) == FULL:
            if self._rows.count:
                yield self._table()
            self._rows.reserve(self._rows.need)
        return status

    def _malformed(self, position: int) -> CorruptBatch:
        """Return the error of a malformed batch, in the words of `scan_batch`."""
        header = parse_header(self._buffer, position)
        batch = self._buffer[position : position + header.size]
        try:
            scan_batch(batch, header, max_bytes=self._max_batch_bytes)
        except CorruptBatch as error:
            return error
        raise AssertionError(f"scan and decode disagree on the batch at {header.base_offset}")


def _stretch(header: BatchHeader, start: int, end: int, kind: int) -> tuple[int, ...]:
    """Return the stretch, for `gather`, of a batch whose records are in memory."""
    base = header.base_timestamp if kind == 0 else header.max_timestamp  # -1 both in v0
    return start, end, header.records_count, header.base_offset, base, kind


def may_meet(header: BatchHeader, rows: RowRange) -> bool:
    """Return True if a record of the batch can be in the range, by its header.

    The header limits times from above only: records may be older than the base timestamp, which is
    that of the first record.
    """
    if rows == EVERYTHING:
        return True
    if header.max_timestamp < rows.first_ms:
        return False
    if header.next_offset <= rows.first_offset or header.base_offset > rows.last_offset:
        return False
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp <= rows.last_ms
    return not rows.is_empty
