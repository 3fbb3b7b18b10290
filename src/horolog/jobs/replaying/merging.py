"""Merge of several partitions by the times of their records."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from horolog.record.timestamps import NO_TIMESTAMP, RecordClock, TimeRange
from horolog.sources.broker_log import BrokerLog
from horolog.sources.file_log import FileLog
from horolog.sources.options import ReadOptions
from horolog.sources.records import ReadRecord, RecordLog
from horolog.storage.names import TopicPartition

BEFORE_ALL: Final = -(1 << 63)
"""Time of a record without a time at the start of a partition, which is sent at once."""

Stream = Iterator[list[ReadRecord]]


class Due(NamedTuple):
    """A record with the time that orders it, in milliseconds."""

    ms: int
    partition: TopicPartition
    read: ReadRecord


def merged(
    streams: Mapping[TopicPartition, Stream],
    time_of: Callable[[ReadRecord], int | None],
    reached: Mapping[TopicPartition, int],
) -> Iterator[Due]:
    """Yield the records of all partitions by time.

    The order within a partition stays: an older record, or one without a time, follows its
    predecessor at once. One batch of each partition is in memory.

    Args:
        time_of: returns the time that orders a record; None without one.
        reached: largest time of each partition before its stream, in milliseconds.
    """
    # Two records of one partition are never compared, so that `read` never is.
    return heapq.merge(
        *(
            _in_order(partition, stream, time_of, reached.get(partition, BEFORE_ALL))
            for partition, stream in streams.items()
        )
    )


def _in_order(
    partition: TopicPartition,
    stream: Stream,
    time_of: Callable[[ReadRecord], int | None],
    reached_ms: int,
) -> Iterator[Due]:
    """Yield the records of a partition with times that never decrease."""
    for batch in stream:
        for read in batch:
            ms = time_of(read)
            if ms is not None and ms > reached_ms:
                reached_ms = ms
            yield Due(reached_ms, partition, read)


class ReplaySource(RecordLog):
    """Source of a replay: the records of a range of time, merged by time."""

    def __init__(self, options: ReadOptions, times: TimeRange) -> None:
        super().__init__(options, times, runs_ahead=False)
        self._plan = self.plan(self.partitions)
        self._time_of = append_time if times.clock is RecordClock.APPEND else create_time

    @property
    def log(self) -> BrokerLog | FileLog:
        """Log of the source, for lookups."""
        return self._log

    def spans(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the first and the end offset of each partition."""
        by_partition: dict[TopicPartition, tuple[int, int]] = {}
        for stretch in self._plan.stretches:
            start, _ = by_partition.get(stretch.partition, (stretch.start, 0))
            by_partition[stretch.partition] = start, stretch.end
        return by_partition

    def rest(
        self, offsets: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]
    ) -> Iterator[Due]:
        """Yield the records from these offsets on, merged by time."""
        streams = {
            partition: self.read_between(
                self._plan, partition, max(start, offsets.get(partition, start)), end
            )
            for partition, (start, end) in self.spans().items()
        }
        return merged(streams, self._time_of, reached)


def create_time(read: ReadRecord) -> int | None:
    """Return the record's timestamp; None if it has none."""
    timestamp = read.record.timestamp
    return None if timestamp == NO_TIMESTAMP else timestamp


def append_time(read: ReadRecord) -> int | None:
    """Return the record's append time; None if it is unknown."""
    return read.appended_ms
