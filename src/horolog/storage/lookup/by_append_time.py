"""Lookups by append time: times of records, and the first record at or after a time.

Append times come from the companion file of each segment (companion/append_times.py). Where that
knows nothing (another broker has appended), a batch stamped with LogAppendTime says its own; the
append time of any other record is unknown there.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import BatchHeader
from horolog.record.search import first_offset
from horolog.record.timestamps import LOG_APPEND_TIME, AppendTimeStretch
from horolog.storage.batches.reader import FEWEST_BYTES
from horolog.storage.file_errors import FileMissing
from horolog.storage.segments.reader import SegmentReader

_MAX_BATCH_BYTES = 1 << 30  # decompressed
_FEW_BATCHES = 64  # more are not walked on the event loop


class AppendedAt(NamedTuple):
    """The record that a lookup by append time found."""

    offset: int
    ms: int | None
    """When it was appended. None if that is unknown: it is then the first record that may have
    been appended at or after the time, since append times before it are known to be earlier."""
    leader_epoch: int
    """-1 if its batch has none."""


class Stamps:
    """The append times that batches themselves say, noted while their headers are walked."""

    def __init__(self) -> None:
        self._stretches: list[AppendTimeStretch] = []

    def add(self, header: BatchHeader) -> None:
        """Take the next batch."""
        is_stamped = header.timestamp_type is LOG_APPEND_TIME
        ms = header.max_timestamp if is_stamped else None
        if not self._stretches or self._stretches[-1].ms != ms:
            self._stretches.append(AppendTimeStretch(header.base_offset, ms))

    def within(self, from_offset: int, to_offset: int) -> Iterator[AppendTimeStretch]:
        """Yield the append times of the batches with these offsets."""
        following = bisect_right(self._stretches, from_offset, key=lambda stretch: stretch.offset)
        for stretch in self._stretches[max(0, following - 1) :]:
            if stretch.offset >= to_offset:
                return
            yield AppendTimeStretch(max(from_offset, stretch.offset), stretch.ms)


def append_times(
    segment: SegmentReader,
    from_offset: int,
    to_offset: int,
    size: int,
    stamps: Stamps | None = None,
    *,
    seen: bool = False,
) -> list[AppendTimeStretch]:
    """Return the append times of records of a segment, in order.

    Args:
        to_offset: after the last; at most the segment's end.
        size: bytes of the segment up to that end.
        stamps: of all batches that hold these offsets; else they are read where they count.
        seen: give also when a follower saw those whose append times are not known.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where append times have to be read from it.
    """
    check_unproved(segment, to_offset)
    found = segment.append_times.stretches(from_offset, to_offset, seen=seen)
    if segment.log.is_abandoned:  # asked last: what was read may be of another log
        raise FileMissing(f"{segment.log.path} is gone")
    if all(stretch.ms is not None and not stretch.is_seen for stretch in found):
        return found
    ends = [*(stretch.offset for stretch in found[1:]), to_offset]
    filled: list[AppendTimeStretch] = []
    for stretch, end in zip(found, ends, strict=True):
        said: Iterable[AppendTimeStretch] = [stretch]
        is_known = stretch.ms is not None and not stretch.is_seen
        if not is_known and stamps is not None:
            said = stamps.within(stretch.offset, end)
        elif not is_known:
            said = _stamps(segment, stretch, end, size)
        for each in said:
            best = each if each.ms is not None else stretch._replace(offset=each.offset)
            if not filled or filled[-1][1:] != best[1:]:
                filled.append(best)
    return filled


def check_unproved(segment: SegmentReader, to_offset: int) -> None:
    """Make sure that no damage before an offset is why append times are unknown.

    A batch whose base offset has changed proves no entry, and none behind it counts then.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged there.
    """
    unproved = segment.append_times.unproved(to_offset)
    if unproved is None:
        return
    start, end = unproved
    position = segment.position_for(None, start)
    walk = segment.batches(FEWEST_BYTES).whole_headers(position, before=end)
    for passed, _ in enumerate(walk):
        if passed > _FEW_BATCHES:
            segment.may_block()
    segment.append_times.checked_to = end


def last_append_time(segment: SegmentReader, to_offset: int, size: int) -> AppendTimeStretch:
    """Return the append time, or seen time, of the last record before an offset of a segment.

    Since append times do not go back within a segment, none of its records was appended later.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where the append time has to be read from it.
    """
    if to_offset <= segment.base_offset:
        return AppendTimeStretch(to_offset, None)
    return append_times(segment, to_offset - 1, to_offset, size, seen=True)[-1]


def latest_append_time(segments: Sequence[SegmentReader]) -> int | None:
    """Return the last known append time or seen time of these segments; None if no time is known.

    Raises:
        StorageFailed, CorruptBatch: as `last_append_time`.
    """
    for segment, end_offset, size in reversed(list(with_ends(segments))):
        said = last_append_time(segment, end_offset, size).ms, segment.append_times.latest_ms
        found = [ms for ms in said if ms is not None]
        if found:
            return max(found)
    return None


def find_by_append_time(
    segments: Sequence[SegmentReader], ms: int, from_offset: int, resets: Collection[int] = ()
) -> AppendedAt | None:
    """Find the first record from an offset on that was appended at or after `ms`.

    Args:
        segments: consecutive, the last one with its end.
        from_offset: of the first record that counts.
        resets: offsets at which append times go back.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    return find_in_parts(held_parts(segments, from_offset), ms, resets)


class HeldPart(NamedTuple):
    """Offsets `start` to before `end` of a log, which are in one segment."""

    segment: SegmentReader
    start: int
    end: int
    size: int
    """Bytes of the segment up to the end."""


def held_parts(segments: Sequence[SegmentReader], from_offset: int) -> list[HeldPart]:
    """Return the parts of a log from an offset on, in consecutive segments.

    The last segment's end is taken once.
    """
    return [
        HeldPart(segment, max(from_offset, segment.base_offset), end, size)
        for segment, end, size in with_ends(segments)
        if end > from_offset
    ]


def find_in_parts(
    parts: Sequence[HeldPart], ms: int, resets: Collection[int] = ()
) -> AppendedAt | None:
    """Find the first record of a log's parts that was appended at or after `ms`.

    Args:
        resets: offsets at which append times go back.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    for (segment, start, end, size), following in zip_longest(parts, parts[1:]):
        found = _find_in(segment, ms, start, end, size)
        if found is not None and found.ms is None and following is not None:
            # No later than the first that is known of the next one that holds anything.
            next_ms = following.segment.append_times.earliest_ms
            are_reset = any(end <= reset < following.end for reset in resets)
            if next_ms is not None and next_ms < ms and not are_reset:
                continue
        if found is not None:
            return found
    return None


def goes_back(parts: Sequence[HeldPart], ms: int, offset: int) -> bool:
    """Return True if a batch behind a record of that append time says an earlier one.

    Apache Kafka's append times go back with its clock. Only batches are read whose append times
    are in no companion, from the segment of the record on, or where one begins with such batches.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged there.
    """
    for segment, start, end, size in parts:
        first, times = max(start, offset), segment.append_times
        if first >= end:
            continue
        proof = times.proof()
        if start > offset and proof.entries and times.earliest_ms is not None:
            first = max(first, proof.end)  # only another broker may have continued it
        for unknown, known in times.unknown_in(first, end) if first < end else ():
            located = segment.locate(unknown)
            for _, header in () if located is None else segment.headers(located[0], size):
                if header.base_offset >= known:
                    break
                if header.timestamp_type is LOG_APPEND_TIME and header.max_timestamp < ms:
                    return True
    return False


class AppendedWithin(NamedTuple):
    """The offsets of a segment that may hold records appended between two times."""

    start: int
    end: int
    is_exact: bool
    """Whether no other record is among them: their append times are all known."""


def appended_within(
    segment: SegmentReader, first_ms: int, last_ms: int, from_offset: int, to_offset: int
) -> AppendedWithin | None:
    """Return the offsets of a segment's records that were appended from `first_ms` up to `last_ms`.

    Append times do not go back within a segment. Where they are not in its file, batches may be
    stamped with them. None if there is no such record.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to prove append times.
    """
    times = segment.append_times
    check_unproved(segment, to_offset)
    first = times.first_from(first_ms, from_offset, to_offset)
    if first is None:
        return None
    later = times.first_from(last_ms + 1, first.offset, to_offset)
    is_known = later is None or later.ms is not None
    end = to_offset if later is None or later.ms is None else later.offset
    if first.offset >= end:
        return None
    return AppendedWithin(first.offset, end, first.ms is not None and is_known)


def with_ends(segments: Sequence[SegmentReader]) -> Iterator[tuple[SegmentReader, int, int]]:
    """Consecutive segments that hold anything, the offsets after them, and their sizes.

    The last one's end is taken once; the others end where the next one begins.
    """
    last = segments[-1].end
    ends = [*(segment.base_offset for segment in segments[1:]), last.next_offset]
    for segment, end_offset in zip(segments, ends, strict=True):
        size = last.size if segment is segments[-1] else segment.size
        if size:
            yield segment, end_offset, size


def _find_in(
    segment: SegmentReader, ms: int, from_offset: int, to_offset: int, size: int
) -> AppendedAt | None:
    times = segment.append_times
    offset = max(from_offset, segment.base_offset)
    passed = 0
    while True:
        found = times.first_from(ms, offset, to_offset) if offset < to_offset else None
        located = None if found is None else segment.locate(found.offset)
        if found is None or located is None:
            return None
        header = located[1]
        first = max(header.base_offset, found.offset)
        known_ms = found.ms if first == found.offset else times.at(first)
        if known_ms is None:
            check_unproved(segment, header.next_offset)
            break
        kept = _first_kept(segment, located[0], header, first)
        if kept is not None:
            return AppendedAt(kept, known_ms, header.leader_epoch)
        passed += 1
        if passed > _FEW_BATCHES:
            segment.may_block()
        offset = header.next_offset  # compaction has left nothing of this one
    # Up to the next entry the batches themselves may say it.
    for passed, (position, header) in enumerate(segment.headers(located[0], size)):
        if passed > _FEW_BATCHES:
            segment.may_block()
        if header.base_offset >= to_offset:
            return None
        first = max(header.base_offset, found.offset)
        known_ms = (
            header.max_timestamp if header.timestamp_type is LOG_APPEND_TIME else times.at(first)
        )
        if known_ms is None or known_ms >= ms:
            kept = _first_kept(segment, position, header, first)
            if kept is not None:
                return AppendedAt(kept, known_ms, header.leader_epoch)
    return None


def _first_kept(
    segment: SegmentReader, position: int, header: BatchHeader, offset: int
) -> int | None:
    """Return the first offset of a batch's records at or after an offset; None if none remains.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the batch is damaged.
    """
    if header.records_count > header.last_offset_delta:
        return offset
    if not header.records_count:
        return None
    segment.may_block()  # it may be long, and compressed
    batch = segment.read_batch(position, header)
    try:
        return first_offset(batch, header, offset, max_bytes=_MAX_BATCH_BYTES)
    except RequestRefused as error:
        raise CorruptBatch(str(error)) from error


def _stamps(
    segment: SegmentReader, stretch: AppendTimeStretch, to_offset: int, size: int
) -> Iterator[AppendTimeStretch]:
    located = segment.locate(stretch.offset)
    if located is None:
        yield stretch
        return
    stamps = Stamps()
    for passed, (_, header) in enumerate(segment.headers(located[0], size)):
        if passed > _FEW_BATCHES:
            segment.may_block()
        if header.base_offset >= to_offset:
            break
        stamps.add(header)
    yield from stamps.within(stretch.offset, to_offset)
