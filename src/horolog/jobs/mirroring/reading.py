"""Whole batches of one partition, from a broker or from segment files; runs in a task."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.jobs.mirroring.batches import Drop
from horolog.jobs.selection import Selection
from horolog.record.transactions import AbortedTransactions
from horolog.sources.bounds import Bounds
from horolog.sources.broker_log import BrokerLog
from horolog.sources.broker_reader import fetches, task_client
from horolog.sources.file_log import FileLog
from horolog.sources.file_systems import Root
from horolog.sources.options import ReadOptions
from horolog.sources.plan import OffsetRange, SegmentRange
from horolog.sources.row_times import narrowed
from horolog.sources.segments import opened
from horolog.sources.wanted import Wanted
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.lookup.by_append_time import append_times
from horolog.storage.names import TopicPartition

Range = OffsetRange | SegmentRange


class SourceBatches(NamedTuple):
    """Batches that hold offsets from `start` to before `end`; the first may begin before that."""

    data: Buffer
    start: int
    end: int
    drop: Drop
    append_times: Sequence[tuple[int, int | None]] = ()
    """From which offsets on records were appended when; None if that is unknown."""


def ranges_of(
    log: BrokerLog | FileLog,
    selection: Selection,
    options: ReadOptions,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    is_first: bool = False,
) -> tuple[Range, ...]:
    """What has to be read of a partition for the records of the selected times.

    Args:
        log: as the driver sees it.
        selection: whose times are wanted.
        options: of the source.
        partition: of the log.
        start: the first offset.
        end: after the last.
        is_first: `start` was the log start offset, which may have moved since.

    Raises:
        DataLost: something of it is in none of the files.
    """
    is_limited = selection.from_ms is not None or selection.to_ms is not None
    if isinstance(log, BrokerLog) and not is_limited:
        return (OffsetRange(partition, start, end, is_from_earliest=is_first),)
    wanted = narrowed(Wanted(), options.times.interval_ms)
    return tuple(log.ranges({partition: Bounds(start, end)}, wanted))


def source_batches(
    ranges: Sequence[Range], start: int, options: ReadOptions, *, with_append_times: bool = False
) -> Iterator[SourceBatches]:
    """What is in the ranges from an offset on, as whole batches and in order.

    Raises:
        DataLost: something of it is gone.
        CorruptBatch: what is there is no batch.
        RequestRefused, NoAnswer: the broker refuses, or does not answer.
    """
    for each in ranges:
        if each.end <= start:
            continue
        if isinstance(each, OffsetRange):
            yield from _of_broker(each, max(start, each.start), options, with_append_times)
        else:
            yield from _of_segment(each, max(start, each.start), options, with_append_times)


def _of_broker(
    wanted: OffsetRange, start: int, options: ReadOptions, with_append_times: bool
) -> Iterator[SourceBatches]:
    is_from_earliest = wanted.is_from_earliest and start == wanted.start
    rest = replace(wanted, start=start, is_from_earliest=is_from_earliest)
    with closing(task_client(options)) as client:
        for each in fetches(client, rest, options, with_append_times):
            drop = AbortedTransactions(each.aborted or ()).drop
            times = each.append_times(each.start, each.end)
            yield SourceBatches(each.data, each.start, each.end, drop, times)


def _of_segment(
    wanted: SegmentRange, start: int, options: ReadOptions, with_append_times: bool
) -> Iterator[SourceBatches]:
    drop = AbortedTransactions(wanted.aborted).drop
    with Root(wanted.root, options.store) as root:
        segment = opened(root, wanted)
        position = segment.position_for(None, start)
        try:
            for buffer in segment.log.batches(segment.size, EVERYTHING).wanted(
                position, wanted.end, None
            ):
                times = (
                    append_times(segment, start, wanted.end, segment.size)
                    if with_append_times
                    else ()
                )
                yield SourceBatches(bytes(buffer), start, wanted.end, drop, times)
        except CorruptBatch as error:
            raise CorruptBatch(f"{wanted.path}: {error.reason}") from error
