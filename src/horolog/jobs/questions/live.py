"""Tasks that read records while they are appended, and note when they read them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pyspark.sql import SparkSession

from horolog.client import Fetched
from horolog.clock import SystemClock
from horolog.jobs.questions.scan import TaskScan, Times
from horolog.jobs.selection import Selection
from horolog.record.batch import iter_headers
from horolog.record.columns import decode
from horolog.sources.broker_log import BrokerLog
from horolog.sources.broker_reader import task_client
from horolog.sources.options import ReadOptions
from horolog.spark.masters import parallelism
from horolog.spark.workers import prepare_for_tasks
from horolog.storage.names import TopicPartition

_WAIT_MS = 500
_COLUMNS = ("offset", "timestamp_ms")


@dataclass(frozen=True, slots=True)
class LiveScan(TaskScan):
    """Partitions to follow from their log ends, shared among tasks that run at the same time."""

    shares: tuple[dict[TopicPartition, int], ...]
    options: ReadOptions
    for_ms: int

    @classmethod
    def plan(cls, spark: SparkSession, selection: Selection, for_ms: int) -> "LiveScan":
        """Share out the partitions, from their current log ends.

        Raises:
            HorologError: the broker cannot be asked.
        """
        options = selection.read_options()
        with BrokerLog(options) as log:
            ends = log.latest(log.partitions())
        cores = parallelism(lambda name: spark.conf.get(name, None)) or 1
        count = min(cores, len(ends))
        partitions = sorted(ends)
        shares = [
            {partition: ends[partition] for partition in partitions[number::count]}
            for number in range(count)
        ]
        return cls(tuple(shares), options, for_ms)

    @property
    def places(self) -> int:
        """Number of tasks."""
        return len(self.shares)

    def times(self, place: int) -> Iterator[Times]:
        """Yield the times of records while they are appended to the partitions of a task.

        Its append time is when it was read.
        """
        prepare_for_tasks()
        positions = dict(self.shares[place])
        clock = SystemClock()
        until = time.monotonic() + self.for_ms / 1000
        with task_client(self.options) as client:
            while (left_s := until - time.monotonic()) > 0:
                client.records.wait_for_records(
                    {
                        (partition.topic, partition.partition): at
                        for partition, at in positions.items()
                    },
                    max_wait_ms=max(1, min(_WAIT_MS, int(1000 * left_s))),
                    read_committed=self.options.read_committed,
                )
                for partition, offset in positions.items():
                    fetched = client.fetch(
                        *partition,
                        offset,
                        max_bytes=self.options.fetching.max_bytes,
                        max_wait_ms=0,
                        read_committed=self.options.read_committed,
                    )
                    now_ms = clock.now_ms()
                    for _, header in iter_headers(fetched.records):
                        positions[partition] = max(positions[partition], header.next_offset)
                    yield from _times(partition, offset, fetched, self.options, now_ms)


def _times(
    partition: TopicPartition, offset: int, fetched: Fetched, options: ReadOptions, now_ms: int
) -> Iterator[Times]:
    """Yield the times of fetched records, with the given time as their append time."""
    for table in decode(
        fetched.records,
        start_offset=offset,
        columns=_COLUMNS,
        aborted=fetched.aborted if options.read_committed else None,
        check_crcs=options.check_crcs,
        as_created=True,
    ):
        offsets, created = (table.column(name).to_numpy() for name in _COLUMNS)
        count = len(offsets)
        yield Times(
            topic=partition.topic,
            partition=partition.partition,
            offsets=offsets,
            created_ms=created,
            appended_ms=np.full(count, now_ms),
            is_appended=np.ones(count, np.bool_),
            is_stamped=np.zeros(count, np.bool_),
            producers=None,
        )
