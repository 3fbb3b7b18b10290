"""Reads partitions from their files, without a broker, by offsets or by a time range.

Of a time range only the blocks that may hold it are read (`storage/index/block_map.py`). A log
without a map gets one in the user's cache when a range of it is first read.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from horolog.cli.reading import (
    ReadRecord,
    TimeRange,
    between,
    offset_within,
    records_appended,
    records_of,
)
from horolog.cli.screen import say
from horolog.client import RecordClock
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.transactions import AbortedTransaction, AbortedTransactions
from horolog.storage import names
from horolog.storage.batches.reader import ReadAhead
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.block_cache import block_cache
from horolog.storage.index.blocks import Span, Window
from horolog.storage.lookup.by_append_time import append_times
from horolog.storage.names import INTERNAL_TOPICS, TopicPartition
from horolog.storage.offline.partition_reader import PartitionReader
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.verify import find_target

_AHEAD = ReadAhead(batch=1 << 20)  # and not beyond a span
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class LogStretch(NamedTuple):
    """Offsets of one partition, from `start` up to but not including `end`."""

    log: PartitionReader
    start: int
    end: int
    aborted: Collection[AbortedTransaction] = ()
    """Transactions whose records are left out."""


def open_partitions(path: Path, partitions: Sequence[int] | None = None) -> list[PartitionReader]:
    """The partitions at a path, as they are now: a log directory, a partition or a segment.

    Kafka's internal topics are left out of a log directory.

    Raises:
        Misconfigured: the path is none of these.
        RequestRefused: there is none of these partitions.
        StorageFailed: the disk refused.
    """
    target, files, cache = find_target(path), Files(read_only=True), block_cache()
    found = []
    for directory in target.partitions:
        partition = names.partition_of(directory.name) or TopicPartition(directory.name, 0)
        if (target.is_log_dir and partition.topic in INTERNAL_TOPICS) or (
            partitions and partition.partition not in partitions
        ):
            continue
        log = PartitionReader(files, directory, segment=target.segment, cache=cache)
        for note in log.notes:
            say(note)
        found.append(log)
    missing = set(partitions or ()).difference(log.partition.partition for log in found)
    if missing:
        raise RequestRefused(
            ErrorCode.unknown_topic_or_partition, f"{path} has no partition {min(missing)}"
        )
    return found


def plan_files(
    logs: Sequence[PartitionReader], from_offset: int | None, *, read_committed: bool = False
) -> list[LogStretch]:
    """The offsets to read of each partition, up to its end when it was opened.

    With `read_committed` none of aborted transactions, and none behind an open one.

    Raises:
        RequestRefused: a partition does not have the offset.
    """
    stretches = []
    for log in logs:
        start, end = log.log_start_offset, log.log_end_offset
        if from_offset is not None:
            start = offset_within(str(log.partition), from_offset, start, end)
        if read_committed:
            found = log.transactions()
            end = max(start, found.last_stable_offset)
            stretches.append(LogStretch(log, start, end, found.aborted))
        else:
            stretches.append(LogStretch(log, start, end))
    return stretches


def read_stretch(
    stretch: LogStretch, times: TimeRange, clock: RecordClock
) -> Iterator[tuple[int, list[ReadRecord]]]:
    """The records of a stretch, batch by batch, each with the next offset to read.

    Raises:
        CorruptBatch: a log is damaged there.
        StorageFailed: the disk refused.
    """
    log, start, end, _ = stretch
    reached = start
    for segment, next_offset in log.ends():
        if next_offset <= start or segment.base_offset >= end or not segment.size:
            continue
        try:
            for span in _spans(segment, next_offset, times, clock):
                if span.base_offset < end and (span.next_offset or next_offset) > start:
                    for reached, records in _read_span(stretch, segment, span, times, clock):
                        yield reached, records
        except FileMissing as error:
            say(f"{error}: a broker has deleted the segment before it was read")
        yield min(end, next_offset), []
    if times.is_everything and reached < end:
        say(f"{log.partition} has no batch from offset {reached} on, though it goes on to {end}")


def _spans(
    segment: SegmentReader, next_offset: int, times: TimeRange, clock: RecordClock
) -> list[Span]:
    """The stretches of a segment that may hold a record in the range."""
    if times.is_everything:
        return [Span(0, segment.size, segment.base_offset, next_offset)]
    look = segment.blocks.look(segment.size)
    if clock is RecordClock.CREATE and not look.covered and times.from_ms is not None:
        known = segment.proved_largest()
        if known and (known.largest is None or known.largest.timestamp < times.from_ms):
            return []
    if look.is_worth_completing:
        segment.complete_blocks()
        look = segment.blocks.look(segment.size)
    window = Window(
        _INT64_MIN if times.from_ms is None else times.from_ms,
        _INT64_MAX if times.to_ms is None else times.to_ms - 1,
        of_append=clock is RecordClock.APPEND,
    )
    return look.spans((window,), next_offset)


def _read_span(
    stretch: LogStretch,
    segment: SegmentReader,
    span: Span,
    times: TimeRange,
    clock: RecordClock,
) -> Iterator[tuple[int, list[ReadRecord]]]:
    log, start, end, _ = stretch
    number = log.partition.partition
    position = span.position
    if span.base_offset < start:
        position = max(position, segment.position_for(None, start))
    walk = segment.log.batches(span.end, _AHEAD)
    appended, aborted = _AppendTimes(segment, span), AbortedTransactions(stretch.aborted)
    for at, header in walk.headers(position, before=end):
        if (
            header.next_offset <= start
            or (clock is RecordClock.CREATE and not times.may_hold(header))
            or aborted.drop(header)
        ):
            yield header.next_offset, []
            continue
        appended_ms = None
        if clock is RecordClock.APPEND:
            appended_ms = appended.of(header.last_offset)
            if not (times.is_everything or _holds(times, appended_ms)):
                yield header.next_offset, []
                continue
        batch = walk.batch(at, header)
        walk.check(at, header)
        within = (
            records_of(batch, header, number, times)
            if clock is RecordClock.CREATE
            else records_appended(batch, header, number, times, appended_ms)
        )
        yield header.next_offset, between(within, start, end)


def _holds(times: TimeRange, appended_ms: int | None) -> bool:
    return appended_ms is not None and times.holds(appended_ms)


class _AppendTimes:
    """The append times of a span of a segment, read when they are first asked for."""

    def __init__(self, segment: SegmentReader, span: Span) -> None:
        self._segment = segment
        self._span = span
        self._offsets: list[int] = []
        self._times: list[int | None] = []

    def of(self, offset: int) -> int | None:
        """When the batch that holds it was appended, None if that is unknown."""
        if not self._offsets:
            segment, span = self._segment, self._span
            end = segment.end.next_offset if span.next_offset is None else span.next_offset
            found = append_times(segment, span.base_offset, end, segment.size)
            self._offsets = [each.offset for each in found]
            self._times = [each.ms for each in found]
        index = bisect_right(self._offsets, offset) - 1
        return self._times[index] if index >= 0 else None
