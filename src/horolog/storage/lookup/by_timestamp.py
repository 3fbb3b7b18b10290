"""Finding records by their timestamps: exact to the record, over all segments.

Search asks every segment in the order of offsets whose largest timestamp reaches the
target, so that the earliest offset wins; unlike Kafka (which looks into one segment
only) it continues when that segment has nothing to show, because its only matches are
before the log start.

Largest times of the segments are in no order. Of those that are finished the largest of
all up to each one is kept, so that the first segment to look into is found by halving.

Targets below zero (KIP-228) are searched in the blocks that may contain them (companion/blocks.py),
since neither Kafka's time index nor a largest timestamp that Kafka wrote says anything about
times before 1970.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptIndex, RequestRefused
from horolog.record.batch import MAGIC, BatchHeader
from horolog.record.compression import Codec
from horolog.record.scan import scan_batch
from horolog.record.search import RecordSearch, find_at_or_after, find_equal
from horolog.record.timestamps import NO_TIMESTAMP, TimeRange
from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.batches.reader import BatchReader
from horolog.storage.file_errors import FileMissing
from horolog.storage.segments.reader import SegmentReader

_INT64_MAX = (1 << 63) - 1
# The limits of a lookup without `may_block`, which runs on the event loop.
_FEW_BATCHES = 64
_MUCH_TO_SCAN = 256 << 10
# By codec, so that each takes a fraction of a millisecond: a lookup that is begun again in a thread
# costs as much as that.
_LITTLE_TO_DECOMPRESS = {Codec.GZIP.value: 64 << 10}
_LITTLE_FOR_FAST_CODECS = 256 << 10


class TimestampOffset(NamedTuple):
    """Timestamp and offset of a record, and the leader epoch of its batch (-1 without one)."""

    timestamp: int
    offset: int
    leader_epoch: int


class LookupWay(NamedTuple):
    """Explanation of how a lookup by time finds its answer."""

    segments: int
    """Number of segments of the log."""
    passed: int
    """Segments before the one looked into last, whose largest times are earlier."""
    base_offset: int | None
    """Base offset of the segment looked into last; None if no segment reaches the time."""
    entry: TimeEntry | None
    """The entry of its time index that the search begins with; None if it begins at its start."""
    position: int
    """Where in its log the search begins."""
    batches: int
    """Batches passed by their headers or searched."""
    scanned_bytes: int
    """Size of the batches whose records were searched, as they are stored."""


class LargestTimes:
    """The largest timestamps of some segments; of each, and of all up to it."""

    def __init__(self, segments: Sequence[SegmentReader]) -> None:
        self.segments = segments
        tops = (segment.largest_to_search() for segment in segments)
        own = (NO_TIMESTAMP if top is None else max(top.timestamp, NO_TIMESTAMP) for top in tops)
        self._so_far = array("q", accumulate(own, max))

    def first_reaching(self, timestamp: int) -> int:
        """Return the index of the first segment that may have a record of that time or later."""
        return bisect_left(self._so_far, timestamp)


def find_by_timestamp(
    segments: Sequence[SegmentReader], timestamp: int, from_offset: int, max_batch_bytes: int
) -> TimestampOffset | None:
    """Find the record with the smallest offset at or after an offset and a timestamp."""
    for segment in segments:
        largest = segment.largest_to_search() if timestamp >= 0 else None
        if timestamp >= 0 and (largest is None or largest.timestamp < timestamp):
            continue
        found = _find_in(segment, timestamp, from_offset, max_batch_bytes)
        if found is not None:
            return found
    return None


def way_to(
    segments: Sequence[SegmentReader], timestamp: int, from_offset: int, max_batch_bytes: int
) -> LookupWay:
    """Look up a time as `find_by_timestamp` does, and note the way; it may wait for the disk."""
    passed = 0
    way = LookupWay(len(segments), 0, None, None, 0, 0, 0)
    for segment in segments:
        largest = segment.largest_to_search() if timestamp >= 0 else None
        if timestamp >= 0 and (largest is None or largest.timestamp < timestamp):
            passed += 1
            continue
        end = segment.end
        start = segment.position_for(timestamp, from_offset)
        entry: TimeEntry | None = None
        with suppress(FileMissing, CorruptIndex):  # then it is shown without an entry
            entry = segment.indexes.times.lookup(timestamp) if timestamp >= 0 else None
        if not start or (entry is not None and entry.timestamp == NO_TIMESTAMP):
            entry = None
        batches = scanned = 0
        for position, header in _batches(segment, timestamp, start, end.size):
            batches += 1
            if header.max_timestamp < timestamp or header.last_offset < from_offset:
                continue
            scanned += header.size
            batch = segment.read_batch(position, header)
            if find_at_or_after(batch, header, timestamp, from_offset, max_bytes=max_batch_bytes):
                return LookupWay(
                    len(segments), passed, segment.base_offset, entry, start, batches, scanned
                )
        way = LookupWay(
            len(segments),
            passed,
            segment.base_offset,
            entry,
            start,
            way.batches + batches,
            way.scanned_bytes + scanned,
        )
    return way._replace(passed=passed)


def _find_in(
    segment: SegmentReader, timestamp: int, from_offset: int, max_batch_bytes: int
) -> TimestampOffset | None:
    end = segment.end
    if not end.size:
        return None
    log = segment.log.batches(end.size)
    start = segment.indexes.position_for(timestamp, from_offset, end, log)
    for position, header in _candidates(segment, log, timestamp, from_offset, start):
        if not header.codec_number and header.magic == MAGIC:
            found = _find_in_plain(log, position, header, timestamp, from_offset)
        else:
            if header.size > _MUCH_TO_SCAN:
                segment.may_block()
            batch = log.batch(position, header)
            if segment.log.files.is_nonblocking:
                found = _find_in_little(segment, batch, header, timestamp, from_offset)
            else:
                found = find_at_or_after(
                    batch, header, timestamp, from_offset, max_bytes=max_batch_bytes
                )
        if found is not None:
            return TimestampOffset(*found, header.leader_epoch)
    return None


def _find_in_plain(
    log: BatchReader, position: int, header: BatchHeader, timestamp: int, from_offset: int
) -> tuple[int, int] | None:
    """`find_at_or_after` of a batch of v2 that is not compressed, read as far as needed."""
    search = RecordSearch(header, timestamp, from_offset)
    held = log.held_records(position, header)
    found = search.feed(held)
    if found is not None:
        return found
    for piece in log.more_records(position, header, len(held)):
        found = search.feed(piece)
        if found is not None:
            return found
    search.finish()
    return None


def _candidates(
    segment: SegmentReader, log: BatchReader, timestamp: int, from_offset: int, start: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches from a position on whose headers do not exclude the target."""
    if timestamp >= 0:
        found = log.find(start, from_offset, timestamp)
        while found is not None:
            yield found
            position, header = found
            found = log.find(position + header.size, from_offset, timestamp)
        return
    for passed, (position, header) in enumerate(_batches(segment, timestamp, start, log.size)):
        if passed > _FEW_BATCHES:
            segment.may_block()
        if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
            yield position, header


def _batches(
    segment: SegmentReader, timestamp: int, start: int, end: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches from a position on that may contain the target."""
    if timestamp >= 0:
        yield from segment.headers(start, end)
        return
    for span in segment.blocks.spans(TimeRange(timestamp, _INT64_MAX), end, None):
        if span.end > start:
            yield from segment.headers(max(start, span.position), span.end)


def _find_in_little(
    segment: SegmentReader, batch: Buffer, header: BatchHeader, timestamp: int, from_offset: int
) -> tuple[int, int] | None:
    """`find_at_or_after` of a compressed batch; calls `may_block` unless little is decompressed."""
    limit = _LITTLE_TO_DECOMPRESS.get(header.codec_number, _LITTLE_FOR_FAST_CODECS)
    try:
        return find_at_or_after(batch, header, timestamp, from_offset, max_bytes=limit)
    except RequestRefused:
        segment.may_block()
        raise


def offsets_before(
    segments: Sequence[SegmentReader], ms: int, count: int, start: int, end: int, now_ms: int
) -> list[int]:
    """List base offsets of segments last changed at or before a time, for ListOffsets v0.

    As in Kafka, where this is all that a log without timestamps can be asked. Modification times
    bound from above when the records of a segment were appended.

    Args:
        segments: of the log, in order.
        count: how many offsets at most.
        end: log end offset, which counts as changed now, unless the last segment is empty.

    Returns:
        the largest offset first.

    Raises:
        StorageFailed: the disk refused.
    """
    changed = []
    for segment in segments:
        with suppress(FileMissing):  # it was deleted meanwhile
            changed.append((max(start, segment.base_offset), segment.modified_ms()))
    if segments and segments[-1].size:
        changed.append((end, now_ms))
    last = len(changed)
    while last and changed[last - 1][1] > ms:
        last -= 1
    return [offset for offset, _ in reversed(changed[max(0, last - max(0, count)) : last])]


def find_max_timestamp(
    segments: Sequence[SegmentReader],
    from_offset: int,
    max_batch_bytes: int,
    end_offset: int | None = None,
) -> TimestampOffset | None:
    """Find the first record with the largest timestamp (KIP-734); None in an empty log.

    Where no record has a timestamp this is the first record, with -1, as in Kafka.

    Args:
        end_offset: end of a batch, behind which no record counts; None for the log end.
    """
    best: TimestampOffset | None = None
    if end_offset is not None:
        while len(segments) > 1 and segments[-1].base_offset >= end_offset:
            segments = segments[:-1]
        largest = segments[-1].largest_to_search()
        if segments[-1].end.next_offset > end_offset and (
            largest is None or largest.offset >= end_offset
        ):
            best = _largest_before(segments[-1], from_offset, max_batch_bytes, end_offset)
            segments = segments[:-1]
    largest_times = [segment.largest_to_search() for segment in segments]
    tops = [NO_TIMESTAMP if largest is None else largest.timestamp for largest in largest_times]
    highest = max((top for top in tops if top != NO_TIMESTAMP), default=None)
    if highest is not None and (best is None or highest >= best.timestamp):
        # Where it should be, and is unless records there are gone.
        found = _largest_in(segments[tops.index(highest)], from_offset, max_batch_bytes)
        if found is not None and found.timestamp >= highest:
            return found
    last, best = best, None
    for segment, top in zip(segments, tops, strict=True):
        if segment.size == 0 or (best is not None and not _is_better(top, best)):
            continue
        found = _largest_in(segment, from_offset, max_batch_bytes)
        if found is not None and (best is None or _is_better(found.timestamp, best)):
            best = found
    if best is None or (last is not None and _is_better(last.timestamp, best)):
        return last
    return best


def _is_better(timestamp: int, best: TimestampOffset) -> bool:
    """-1 is no timestamp, so that even one before 1970 is better."""
    if timestamp == NO_TIMESTAMP:
        return False
    return best.timestamp == NO_TIMESTAMP or timestamp > best.timestamp


def _largest_in(
    segment: SegmentReader, from_offset: int, max_batch_bytes: int
) -> TimestampOffset | None:
    largest = segment.largest_to_search()
    end = segment.size  # taken later, so that the largest is before it
    start = 0
    if largest is not None and largest.offset >= from_offset:
        start = segment.indexes.position_before(largest.offset, end)
    target = None if largest is None else largest.timestamp
    headers = segment.headers(start, end)
    return _largest_of(segment, headers, target, from_offset, max_batch_bytes)


def _largest_before(
    segment: SegmentReader, from_offset: int, max_batch_bytes: int, end_offset: int
) -> TimestampOffset | None:
    """Find the largest timestamp in the batches of a segment that end before an offset.

    Up to the last entry of the offset index before there, the time index has it.
    """
    found = segment.locate(end_offset)
    end = segment.size if found is None else found[0]
    indexes, best = segment.indexes, None
    last_start = indexes.position_before(end_offset - 1, segment.size)
    with suppress(FileMissing, CorruptIndex):
        entry = indexes.times.last_before(end_offset)
        if entry.timestamp != NO_TIMESTAMP and entry.offset >= from_offset:
            start = min(indexes.position_before(entry.offset, segment.size), last_start)
            headers = segment.headers(start, end)
            best = _largest_of(segment, headers, entry.timestamp, from_offset, max_batch_bytes)
            if best is not None and best.timestamp != entry.timestamp:
                best = None  # that batch is not what the entry says
    start = 0 if best is None else last_start
    headers = segment.headers(start, end)
    found_last = _largest_of(segment, headers, None, from_offset, max_batch_bytes)
    if best is None or (found_last is not None and _is_better(found_last.timestamp, best)):
        return found_last
    return best


def _largest_of(
    segment: SegmentReader,
    headers: Iterable[tuple[int, BatchHeader]],
    target: int | None,
    from_offset: int,
    max_batch_bytes: int,
) -> TimestampOffset | None:
    """Find the first record with the largest timestamp in these batches, up to the target."""
    best: TimestampOffset | None = None
    for position, header in headers:
        if header.last_offset < from_offset:
            continue
        if best is not None and not _is_better(header.max_timestamp, best):
            continue
        batch = segment.read_batch(position, header)
        top: int | None = header.max_timestamp
        if header.base_offset < from_offset:  # the header knows that of all its records
            top = scan_batch(
                batch, header, max_bytes=max_batch_bytes, min_offset=from_offset
            ).max_timestamp
        top = NO_TIMESTAMP if top is None else top
        found = find_equal(batch, header, top, from_offset, max_bytes=max_batch_bytes)
        if found is not None and (best is None or _is_better(found[0], best)):
            best = TimestampOffset(*found, header.leader_epoch)
        if best is not None and best.timestamp == target:
            break
    return best
