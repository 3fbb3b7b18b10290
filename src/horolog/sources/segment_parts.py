"""Parts of a partition, each in one segment file: merging, narrowing, stretches for tasks."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader
from horolog.record.transactions import AbortedTransaction
from horolog.sources.file_systems import Root
from horolog.sources.merge import merge_replicas
from horolog.sources.plan import SegmentStretch
from horolog.sources.replicas import Replica, epoch_spans
from horolog.sources.row_filter import RowFilter
from horolog.sources.segments import ListedSegment
from horolog.storage.batches.reader import FEWEST_BYTES, BatchReader
from horolog.storage.companion.blocks import Span
from horolog.storage.file_errors import FileMissing
from horolog.storage.lookup.by_append_time import appended_within
from horolog.storage.names import TopicPartition
from horolog.storage.segments.reader import SegmentReader

# How far the end of a segment may be from its last index entry: a few batches.
_NEAR_BYTES = 1 << 20


class SegmentPart(NamedTuple):
    """Offsets `start` to before `end` of a partition, in one segment file."""

    root: Root
    segment: ListedSegment
    segment_end: int
    start: int
    end: int
    is_followed: bool
    """True if the segment must reach `segment_end`, where the next one begins."""
    bytes_within: int | None = None
    """Bytes to read of the part, if known."""

    @property
    def weight(self) -> int:
        """Bytes of the part, as if all records of the segment were equally large."""
        if self.bytes_within is not None:
            return max(1, self.bytes_within)
        offsets = self.segment_end - self.segment.base_offset
        return max(1, self.segment.size * (self.end - self.start) // offsets)


def narrowed_in_time(
    part: SegmentPart, segment: SegmentReader, row_filter: RowFilter
) -> SegmentPart | None:
    """Return the part that may hold records in a filter's times; None if none may.

    Raises:
        FileMissing: the segment is gone.
        CorruptBatch: it is damaged.
    """
    windows, appended = row_filter.windows, row_filter.append_times
    if not appended.is_everything:
        within = appended_within(segment, appended.first_ms, appended.last_ms, part.start, part.end)
        if within is None:
            return None
        part = part._replace(start=within.start, end=within.end)
        if within.is_exact:
            windows = tuple(window for window in windows if not window.of_append)
    if not windows:
        return part
    look = segment.blocks.look(segment.size)
    from_ms = row_filter.from_ms
    if not look.covered and from_ms is not None and not may_reach(segment, from_ms):
        return None
    return _narrowed(part, look.spans(windows, part.segment_end))


def _narrowed(part: SegmentPart, spans: Sequence[Span]) -> SegmentPart | None:
    """Return the part from its first to its last span; None without any span.

    Its size is that of the spans: the task that reads it asks the block map again.
    """
    spans = [
        span
        for span in spans
        if span.base_offset < part.end and (span.next_offset or part.end) > part.start
    ]
    if not spans:
        return None
    if len(spans) == 1 and spans[0].end - spans[0].position == part.segment.size:
        return part
    start = max(part.start, spans[0].base_offset)
    end = min(part.end, spans[-1].next_offset or part.end)
    return part._replace(
        start=start, end=end, bytes_within=sum(span.end - span.position for span in spans)
    )


def merged_parts(found: list[tuple[Root, Replica]]) -> Iterator[SegmentPart]:
    """Yield one partition as parts of segments, from one replica or several."""
    if len(found) == 1:
        ((root, replica),) = found
        for segment, start, end in replica.stretches():
            yield SegmentPart(root, segment, end, start, end, _is_followed(replica, segment))
        return
    spans = [epoch_spans(root.files, replica) for root, replica in found]
    for number, first, last in merge_replicas(spans):
        root, replica = found[number]
        for segment, start, end in replica.stretches():
            begin, stop = max(start, first), min(end, last)
            if begin < stop:
                yield SegmentPart(root, segment, end, begin, stop, _is_followed(replica, segment))


def _is_followed(replica: Replica, segment: ListedSegment) -> bool:
    return replica.is_dense and segment is not replica.segments[-1]


def in_full(part: SegmentPart) -> tuple[ListedSegment, int | None]:
    """Return the segment of a part in full, and its end offset if an index makes that cheap.

    That takes an index: without one, all headers would be read for it. If the segment is damaged or
    gone, the task that reads it reports it.
    """
    segment, files = part.segment, part.root.files
    reader = segment.open(files)
    try:
        if segment.size - reader.position_for(None, part.segment_end - 1) > _NEAR_BYTES:
            return segment, None
        end = reader.whole_end()
        if end.next_offset < part.segment_end and files.size(segment.path) > segment.size:
            # It was listed before its last append, and the next one after that.
            size = files.size(segment.path)
            segment = segment._replace(size=size, listed_size=size)
            end = segment.open(files).whole_end()
    except FileMissing:
        return segment, None
    return segment, end.next_offset if end.size == segment.size else None


def has_holes(part: SegmentPart) -> bool:
    """Return True if offsets are missing within a segment, or compaction has written it."""
    expected, segment = None, part.segment.open(part.root.files)
    with suppress(FileMissing, CorruptBatch):  # the task that reads it reports it
        if not segment.size:
            return part.is_followed and segment.indexes.seal_facts(0) is not None
        seal = segment.indexes.seal_facts(segment.size)
        if seal is not None and seal.leaves_out:
            return True
        walk = segment.batches(FEWEST_BYTES)
        for _, header in walk.whole_headers(0):
            if expected not in (None, header.base_offset) or header.has_delete_horizon:
                return True
            expected = header.next_offset
            if header.base_offset + header.records_count < expected:
                return True
    return False


def may_reach(segment: SegmentReader, timestamp_ms: int) -> bool:
    """Return True if a segment may hold a record at or after a time."""
    known = segment.indexes.proved_largest(segment.size)
    if known is None:
        return True
    return known.largest is not None and known.largest.timestamp >= timestamp_ms


def headers_of(part: SegmentPart, position: int) -> Iterator[tuple[BatchReader, int, BatchHeader]]:
    """Yield the batches of a part from a position of its file on, with reader and position."""
    walk = part.segment.open(part.root.files).batches(FEWEST_BYTES)
    for at, header in walk.whole_headers(position, before=part.end):
        if header.next_offset > part.start:
            yield walk, at, header


def stretch_of(
    partition: TopicPartition,
    part: SegmentPart,
    aborted: tuple[AbortedTransaction, ...],
    topic_id: str | None,
) -> SegmentStretch:
    """Return the stretch by which a task reads a part."""
    return SegmentStretch(
        root=part.root.given,
        segment=part.segment,
        partition=partition,
        start=part.start,
        end=part.end,
        weight=part.weight,
        aborted=aborted,
        maps_from=part.start,
        topic_id=topic_id,
        limit=part.segment_end,
    )
