"""One stretch of a segment file as Arrow tables; runs in a task."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, Misconfigured
from horolog.record.batch import BatchHeader, iter_headers
from horolog.record.timestamps import TimestampType
from horolog.spark.ahead import ahead
from horolog.spark.bounds import data_lost
from horolog.spark.clocks import decode_with_clocks
from horolog.spark.file_systems import Root
from horolog.spark.options import ReadOptions
from horolog.spark.plan import SegmentRange
from horolog.spark.segments import Segment
from horolog.spark.wanted import Wanted
from horolog.storage.append_time_lookup import append_times
from horolog.storage.batch_reader import FEWEST_BYTES
from horolog.storage.files import FileMissing
from horolog.storage.segment_reader import SegmentReader

TABLE_BYTES = 2 << 20  # larger tables are slower on their way to Spark


def read_segment(
    root: Root, wanted: SegmentRange, what: Wanted, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The wanted records of a stretch of a segment, with these of `decode`'s columns.

    Raises:
        Misconfigured: this process cannot see the path at all.
        DataLost: the segment went away, or lost its end, and data loss is to fail.
        CorruptBatch: a batch is damaged, and data loss is to fail.
    """
    segment = Segment(wanted.path, wanted.base_offset, wanted.size)
    try:
        yield from _read(root, segment, wanted, what, options, columns)
    except FileMissing:
        if not root.exists():
            raise Misconfigured(
                f"The path {root.name} does not exist on {socket.gethostname()}, where a task "
                "runs: every worker has to see it, at the same place"
            ) from None
        data_lost(options, f"{wanted.path} was deleted before it was read")
    except CorruptBatch as error:
        if options.fail_on_data_loss:
            raise CorruptBatch(
                f"{wanted.path} cannot be read to its end: {error.reason}. "
                "Set failOnDataLoss to false to go on after it"
            ) from error
        data_lost(options, f"{wanted.path} cannot be read to its end: {error.reason}")


def _read(
    root: Root,
    segment: Segment,
    wanted: SegmentRange,
    what: Wanted,
    options: ReadOptions,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    reader = segment.open(root.files, root.block_cache)
    appended = _appended_then(reader, wanted, what)
    if appended is None:
        return
    wanted = appended
    # Without a limit in time, all that is within the offsets is worth reading.
    is_selective = what.window is not None or bool(wanted.aborted)
    wants = _BatchTest(wanted, what).wants if is_selective else None
    buffers = chain.from_iterable(
        reader.log.batches(end, FEWEST_BYTES).wanted(start, wanted.end, wants)
        for start, end in _stretches(reader, wanted, what)
    )
    with nullcontext(buffers) if root.is_local else ahead(buffers) as coming:
        for buffer in coming:
            try:
                yield from decode_with_clocks(
                    buffer,
                    lambda first, end: append_times(reader, first, end, reader.size),
                    start_offset=wanted.start,
                    end_offset=wanted.end,
                    from_ms=what.from_ms,
                    to_ms=what.to_ms,
                    columns=columns,
                    max_bytes=TABLE_BYTES,
                    check_crcs=options.check_crcs,
                )
            except CorruptBatch as error:
                raise CorruptBatch(f"{_where(buffer, error)}{error}") from error


def _appended_then(
    reader: SegmentReader, wanted: SegmentRange, what: Wanted
) -> SegmentRange | None:
    """The part of a stretch that can have been appended at the wanted times; None if nothing can.

    Append times do not go back within a segment.
    """
    times_ms = what.append_times_ms
    if times_ms is None:
        return wanted
    times = reader.append_times
    first = times.first_from(times_ms.first, wanted.start, wanted.end)
    if first is None:
        return None
    later = times.first_from(times_ms.last + 1, wanted.start, wanted.end)
    # Where append times are unknown, batches may be stamped with them.
    end = wanted.end if later is None or later.ms is None else later.offset
    return replace(wanted, start=first.offset, end=end) if first.offset < end else None


def _stretches(
    reader: SegmentReader, wanted: SegmentRange, what: Wanted
) -> Iterator[tuple[int, int]]:
    """Start and end of what has to be read, as far as indexes and the block map say."""
    if what.window is None:
        yield reader.position_for(None, wanted.start), reader.size
        return
    size = reader.size
    look = reader.blocks.look(size)
    if wanted.start == wanted.maps_from and look.is_worth_completing:
        reader.complete_blocks()
        look = reader.blocks.look(size)
    spans = [
        span
        for span in look.spans(what.window, None)
        if span.base_offset < wanted.end and (span.next_offset or wanted.end) > wanted.start
    ]
    start = 0
    if spans and (not look.covered or spans[0].base_offset < wanted.start):
        start = reader.position_for(None if look.covered else what.from_ms, wanted.start)
    for span in spans:
        if span.end > start:
            yield max(span.position, start), span.end


def _where(buffer: Buffer, error: CorruptBatch) -> str:
    """Which batch is damaged; the error itself only knows a position in the buffer."""
    with suppress(CorruptBatch):  # then the error stands for itself
        for position, header in iter_headers(buffer):
            if error.position is not None and error.position < position + header.size:
                return f"the batch at offset {header.base_offset}: "
    return ""


class _BatchTest:
    """Which batches are worth reading, by their headers alone."""

    def __init__(self, wanted: SegmentRange, what: Wanted) -> None:
        self._start = wanted.start
        self._from_ms = what.from_ms
        self._to_ms = what.to_ms
        self._aborted = wanted.aborted

    def wants(self, header: BatchHeader) -> bool:
        """Whether a batch can hold a wanted record."""
        if header.is_control or header.records_count == 0 or header.next_offset <= self._start:
            return False
        if self._from_ms is not None and header.max_timestamp < self._from_ms:
            return False
        if (
            self._to_ms is not None
            and header.max_timestamp >= self._to_ms
            and header.timestamp_type is TimestampType.LOG_APPEND_TIME
        ):
            return False
        return not (self._aborted and header.is_transactional and self._is_aborted(header))

    def _is_aborted(self, header: BatchHeader) -> bool:
        return any(
            producer_id == header.producer_id and first <= header.base_offset <= last
            for producer_id, first, last in self._aborted
        )
