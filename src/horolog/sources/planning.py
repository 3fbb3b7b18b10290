"""Planning of a query by the driver: bounds of the read, and its tasks."""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.sources.bounds import Bounds, resolve
from horolog.sources.broker_log import BrokerLog
from horolog.sources.complete import require_complete
from horolog.sources.cuts import up_to_cut
from horolog.sources.file_log import FileLog
from horolog.sources.file_systems import Root
from horolog.sources.options import ReadOptions
from horolog.sources.plan import (
    TASK_BYTES,
    TASK_RECORDS,
    TASKS_PER_CORE,
    BrokerStretch,
    Stretch,
    Task,
    left_open,
    share_out,
)
from horolog.sources.row_filter import RowFilter
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)

_LONGEST_TASK = 8  # times what a task should read, where the cluster is not known


def check_paths(options: ReadOptions) -> None:
    """Check that the paths of a read exist.

    Raises:
        Misconfigured: one is not.
    """
    for path in options.paths:
        with Root(path, options.store) as root:
            root.matches()


def opened_log(options: ReadOptions, *, is_cut: bool = False) -> FileLog | BrokerLog:
    """Open the log of a read, as it is now.

    Close it after use.

    Args:
        is_cut: True if it is to be cut at a time.

    Raises:
        Misconfigured: it is not there.
    """
    return FileLog(options, is_cut=is_cut) if options.paths else BrokerLog(options)


def check_read(
    options: ReadOptions,
    stretches: Iterable[Stretch],
    partitions: Collection[TopicPartition] | None = None,
) -> None:
    """Make sure that what was read as of a time was complete while it was read.

    A time in the past cuts a log at the same offset whenever it is asked for. But compaction may
    pass the cut behind a plan, and a topic may be re-created. To be called after the last record
    was read.

    Args:
        stretches: those that were read.
        partitions: those of the plan; None for all of the log.

    Raises:
        Misconfigured: it has, or the log cannot be cut there any more for another reason.
        RequestRefused, NoAnswer, StorageFailed: as the read.
    """
    if options.as_of is None or (partitions is not None and not partitions):
        return
    if options.paths and all(path.local is None for path in options.paths):
        return  # compaction works on local files
    with opened_log(options) as log:
        present = log.partitions()
        check_topics(log, stretches)
        log.cut_ends(present if partitions is None else set(present).intersection(partitions))


def check_topics(log: FileLog | BrokerLog, stretches: Iterable[Stretch]) -> None:
    """Make sure that a log has the topics of a plan.

    Raises:
        Misconfigured: one was deleted or re-created.
    """
    for topic, topic_id in {(its.partition.topic, its.topic_id) for its in stretches}:
        if topic_id is not None and log.topic_ids.get(topic) != topic_id:
            raise Misconfigured(f"{topic} was deleted or re-created while it was read")


class ReadPlan(NamedTuple):
    """Stretches to read, in order, and the present end of each partition."""

    stretches: Sequence[Stretch]
    ends: Mapping[TopicPartition, int]


def plan_offsets(
    log: FileLog | BrokerLog,
    partitions: Collection[TopicPartition],
    row_filter: RowFilter,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> ReadPlan:
    """Plan the stretches that may hold records that a filter takes, of the log as it is now.

    Args:
        starts: the first offsets, where not the log start offsets.
        ends: the offsets after the last, where they are before the log ends.

    Raises:
        RequestRefused: a partition has not the offset that it is to be read from.
    """
    cut_ends = log.cut_ends(partitions)  # before the log ends, which are behind it
    earliest = log.earliest(partitions)
    latest = up_to_cut(cut_ends, earliest, log.latest(partitions))
    bounds = {}
    for partition in partitions:
        first, last = earliest[partition], latest[partition]
        start = starts.get(partition, first)
        if not first <= start <= max(first, last):
            raise RequestRefused(
                ErrorCode.offset_out_of_range,
                f"{partition} has no offset {start}: it has {first} up to {last}",
            )
        bounds[partition] = Bounds(start, max(start, min(last, ends.get(partition, last))))
    return ReadPlan(log.stretches(bounds, row_filter), latest)


def numbered(
    partitions: Collection[TopicPartition], numbers: Collection[int] | None, what: str
) -> Collection[TopicPartition]:
    """Return the partitions with these numbers, in order; all if there are none to choose.

    Raises:
        RequestRefused: one of them is not there; `what` is for the message.
    """
    if numbers is None:
        return partitions
    missing = set(numbers) - {partition.partition for partition in partitions}
    if missing:
        raise RequestRefused(
            ErrorCode.unknown_topic_or_partition, f"{what} has no partition {min(missing)}"
        )
    return sorted(partition for partition in partitions if partition.partition in numbers)


def tasks(
    options: ReadOptions, row_filter: RowFilter, cores: Callable[[], int | None]
) -> list[Task]:
    """Plan what each task reads, of the log as it is now.

    Args:
        cores: counts the cores of the cluster, once it is known that there is something to read.

    Raises:
        DataLost: something within the bounds is gone, and data loss is to fail.
    """
    times = options.times.range
    row_filter = row_filter.within(times).within(options.appended)
    with opened_log(options) as log:
        require_complete(log, options)
        bounds = resolve(options, log)
        stretches = log.stretches(bounds, row_filter)
    if options.is_latest:
        return _of_whole_partitions(options, stretches, cores())
    shares = shared_out(options, stretches, cores())
    if not options.paths and not _asks_for_pieces(options, len(bounds)):
        shares = _following_the_log(shares, bounds, row_filter)
    return [tuple(replace(stretch, times=times) for stretch in share) for share in shares]


def shared_out(options: ReadOptions, stretches: Sequence[Stretch], cores: int | None) -> list[Task]:
    """Return the stretches as tasks of the size that the options ask for."""
    task_weight = TASK_BYTES if options.paths else TASK_RECORDS
    cores = cores or _guessed_cores(sum(stretch.weight for stretch in stretches) // task_weight)
    shares: list[Task] = [
        *share_out(
            stretches,
            task_weight=task_weight,
            cores=cores,
            min_tasks=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
    ]
    if len(shares) > TASKS_PER_CORE * cores:
        _warn_of_many_tasks(options, shares, cores)
    return shares


def _of_whole_partitions(
    options: ReadOptions, stretches: Sequence[Stretch], cores: int | None
) -> list[Task]:
    """Return tasks of whole partitions, as many as the cores can keep busy with."""
    parts = [tuple(its) for _, its in groupby(stretches, key=lambda stretch: stretch.partition)]
    weights = [sum(stretch.weight for stretch in part) for part in parts]
    most = TASKS_PER_CORE * (cores or _guessed_cores(0))
    tasks: list[Task] = []
    taken = 0
    for part, weight in zip(parts, weights, strict=True):
        if tasks and taken * most < sum(weights) and len(parts) > most:
            tasks[-1] += part
        else:
            tasks.append(part)
            taken = 0
        taken += weight
    return tasks


def _asks_for_pieces(options: ReadOptions, partitions: int) -> bool:
    """Return True if options cut partitions, so that the plan fixes the ends."""
    least = options.min_partitions
    is_cut = least is not None and least > partitions
    return is_cut or options.max_records_per_partition is not None


def _warn_of_many_tasks(options: ReadOptions, shares: Sequence[Task], cores: int) -> None:
    """Warn about options that ask for more tasks than the cores can keep busy with."""
    limit = options.max_records_per_partition
    option = "minPartitions" if limit is None else "maxRecordsPerPartition"
    offsets = sum(stretch.end - stretch.start for share in shares for stretch in share)
    _logger.warning(
        "%s=%d makes %d tasks of about %d offsets each, for %d cores; each Python task costs "
        "about 65 ms of a core, whatever it reads",
        option,
        options.min_partitions if limit is None else limit,
        len(shares),
        -(-offsets // len(shares)),
        cores,
    )


def _following_the_log(
    shares: Sequence[Task], bounds: Mapping[TopicPartition, Bounds], row_filter: RowFilter
) -> list[Task]:
    until = row_filter.offsets.last + 1
    taken = {
        partition: bound for partition, bound in bounds.items() if row_filter.takes(*partition)
    }
    open_ends = {}
    for partition, bound in sorted(taken.items()):
        end = max(bound.end, row_filter.offsets.first)
        if bound.has_open_end and end < until:
            open_ends[partition] = BrokerStretch(partition, end, end, until=until)
    tasks = [
        tuple(stretch for stretch in share if isinstance(stretch, BrokerStretch))
        for share in shares
    ]
    open_starts = [partition for partition, bound in taken.items() if bound.has_open_start]
    return [*left_open(tasks, open_starts, open_ends)]


def _guessed_cores(tasks: int) -> int:
    """Return the driver's cores, or as many as keep a task short on a larger cluster."""
    return max(os.cpu_count() or 1, tasks // (TASKS_PER_CORE * _LONGEST_TASK))
