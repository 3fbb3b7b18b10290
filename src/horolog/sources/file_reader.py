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
from horolog.record.transactions import AbortedTransactions
from horolog.sources.ahead import ahead
from horolog.sources.bounds import data_lost
from horolog.sources.clocks import decode_with_clocks
from horolog.sources.file_systems import Root
from horolog.sources.options import ReadOptions
from horolog.sources.plan import SegmentRange
from horolog.sources.segments import opened
from horolog.sources.wanted import Interval, Wanted
from horolog.storage.batches.reader import FEWEST_BYTES
from horolog.storage.file_errors import FileMissing
from horolog.storage.index.blocks import Window
from horolog.storage.lookup.by_append_time import appended_within
from horolog.storage.segments.reader import SegmentReader

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
    try:
        yield from _read(root, opened(root, wanted), wanted, what, options, columns)
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
    reader: SegmentReader,
    wanted: SegmentRange,
    what: Wanted,
    options: ReadOptions,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    makes_map = wanted.start == wanted.maps_from
    windows, appended = what.windows, what.append_times_ms
    if appended is not None:
        within = appended_within(reader, *appended, wanted.start, wanted.end)
        if within is None:
            return
        following = reader.locate(within.end)  # so that nothing behind is read ahead
        size = reader.size if following is None else following[0]
        wanted = replace(wanted, start=within.start, end=within.end, size=size)
        if within.is_exact:
            windows, appended = tuple(each for each in windows if not each.of_append), None
    # Without a limit in time, all that is within the offsets is worth reading.
    is_selective = bool(windows or wanted.aborted)
    wants = _BatchTest(wanted, what, reader, appended).wants if is_selective else None
    buffers = chain.from_iterable(
        reader.log.batches(end, FEWEST_BYTES).wanted(start, wanted.end, wants)
        for start, end in _stretches(reader, wanted, windows, what.from_ms, makes_map=makes_map)
    )
    with nullcontext(buffers) if root.is_local else ahead(buffers) as coming:
        for buffer in coming:
            try:
                yield from decode_with_clocks(
                    buffer,
                    reader.append_times.stretches,
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


def _stretches(
    reader: SegmentReader,
    wanted: SegmentRange,
    windows: Sequence[Window],
    from_ms: int | None,
    *,
    makes_map: bool,
) -> Iterator[tuple[int, int]]:
    """Start and end of what has to be read, as far as indexes and the block map say."""
    if not windows:
        yield reader.position_for(None, wanted.start), wanted.size
        return
    size = reader.size
    look = reader.blocks.look(size)
    if makes_map and look.is_worth_completing:
        reader.complete_blocks()
        look = reader.blocks.look(size)
    spans = [
        span
        for span in look.spans(windows, None)
        if span.base_offset < wanted.end and (span.next_offset or wanted.end) > wanted.start
    ]
    start = 0
    if spans and (not look.covered or spans[0].base_offset < wanted.start):
        start = reader.position_for(None if look.covered else from_ms, wanted.start)
    for span in spans:
        end = min(span.end, wanted.size)
        if end > max(span.position, start):
            yield max(span.position, start), end


def _where(buffer: Buffer, error: CorruptBatch) -> str:
    """Which batch is damaged; the error itself only knows a position in the buffer."""
    with suppress(CorruptBatch):  # then the error stands for itself
        for position, header in iter_headers(buffer):
            if error.position is not None and error.position < position + header.size:
                return f"the batch at offset {header.base_offset}: "
    return ""


class _BatchTest:
    """Which batches are worth reading, by their headers alone."""

    def __init__(
        self,
        wanted: SegmentRange,
        what: Wanted,
        reader: SegmentReader,
        appended: Interval | None,
    ) -> None:
        """Of a stretch of a segment.

        Args:
            wanted: the stretch.
            what: is wanted of it.
            reader: of the segment.
            appended: the wanted append times, where the batches themselves must say theirs.
        """
        self._appended = appended
        self._has_append_times = appended is not None and reader.has_append_times
        self._start = wanted.start
        self._from_ms = what.from_ms
        self._to_ms = what.to_ms
        self._aborted = AbortedTransactions(wanted.aborted)

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
        if self._appended is not None:
            if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
                if header.max_timestamp not in self._appended:
                    return False
            elif not self._has_append_times:
                return False  # when it was appended is not known
        return not self._aborted.drop(header)
