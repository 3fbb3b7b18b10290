"""The two looks at the log that the driver takes: the bounds of a read, and its tasks."""

import os
from collections.abc import Mapping

from horolog.spark.bounds import Bounds, resolve
from horolog.spark.broker_log import BrokerLog
from horolog.spark.file_log import FileLog
from horolog.spark.filters import Wanted
from horolog.spark.options import ReadOptions
from horolog.spark.plan import (
    TASK_BYTES,
    TASK_RECORDS,
    TASKS_PER_CORE,
    OffsetRange,
    SegmentRange,
    share_out,
)
from horolog.storage.names import TopicPartition

_LONGEST_TASK = 8  # times what a task should read, where nobody knows the cluster

Task = tuple[OffsetRange | SegmentRange, ...]


def bounds_now(options: ReadOptions) -> dict[TopicPartition, Bounds]:
    """Where the read starts and ends in each partition, as the log is now."""
    with _log(options, first_look=True) as log:
        return resolve(options, log)


def tasks(
    options: ReadOptions,
    bounds: Mapping[TopicPartition, Bounds],
    wanted: Wanted,
    cores: int | None,
) -> list[Task]:
    """What each task is to read of what is wanted within the bounds.

    Raises:
        DataLost: something within the bounds is gone, and data loss is to fail.
    """
    with _log(options, first_look=False) as log:
        ranges = log.ranges(bounds, wanted)
    task_weight = TASK_BYTES if options.paths else TASK_RECORDS
    return share_out(
        ranges,
        task_weight=task_weight,
        cores=cores or _guessed_cores(sum(each.weight for each in ranges) // task_weight),
        min_tasks=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def _guessed_cores(tasks: int) -> int:
    """The driver's, or of a larger cluster as many as keep a task from becoming far too long."""
    return max(os.cpu_count() or 1, tasks // (TASKS_PER_CORE * _LONGEST_TASK))


def _log(options: ReadOptions, *, first_look: bool) -> BrokerLog | FileLog:
    return FileLog(options, first_look=first_look) if options.paths else BrokerLog(options)
