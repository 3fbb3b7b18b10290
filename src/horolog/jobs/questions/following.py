"""Job `audit --follow`: audits a live topic in windows between two looks at the log ends.

Each window is planned and summed up as an audit of its offsets. It begins with the largest time
before it in each partition, so that a record is out of order in the window that it comes in.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from horolog.client import NoAnswer
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.questions import FollowAudit
from horolog.jobs.questions.audit import (
    PARTS,
    AuditSummary,
    added_up,
    bounds_of,
)
from horolog.jobs.questions.late import IN_ORDER, with_late_across
from horolog.jobs.questions.scan import Scan, ddl_of
from horolog.jobs.selection import Selection
from horolog.sources.broker_log import BrokerLog
from horolog.spark.errors import TaskFailed, without_spark
from horolog.storage.names import TopicPartition

_TRIES: Final = 3
"""Windows that a task may fail in, one after the other, before the audit ends."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditWindow:
    """Records appended from one look at the log ends to the next."""

    from_ms: int
    to_ms: int
    """End by this machine's clock, where the next window begins."""
    rows: DataFrame
    """Rows like those of `audit`, kept in the driver."""
    records: int
    deleted: Mapping[TopicPartition, int]
    """Offsets that the log deleted before they could be read."""


@on_spark(FollowAudit)
def follow_audit(spark: SparkSession, job: FollowAudit) -> Iterator[AuditWindow]:
    """Audit what is appended from now on, window by window, until `stop` is set.

    What was appended up to then is in the last window. A broker that does not answer is asked
    again for the next window, which then has the records of both. Topics that match the pattern,
    and partitions, may appear and vanish; a topic that is created again is read from its start.

    Raises:
        Misconfigured: an argument is wrong.
        HorologError: the log cannot be read, or the broker did not answer for the last window.
    """
    if job.every_ms <= 0:
        raise Misconfigured(f"every is {job.every_ms} ms; it is above zero")
    bounds_of(job.before_max_ms, job.after_max_ms, 0)
    selection = Selection.of(job.source, job.topics, job.topics_pattern, settings=job.settings)
    if not selection.source.is_broker:
        raise Misconfigured("an audit follows what is appended at a broker, and needs HOST:PORT")
    following = _AuditFollowing(spark, selection, job)
    return _windows(following, job.every_ms, job.stop or threading.Event())


def _windows(
    following: "_AuditFollowing", every_ms: int, stopped: threading.Event
) -> Iterator[AuditWindow]:
    failures = 0
    while True:
        is_last = stopped.wait(every_ms / 1000)
        try:
            window = following.window()
        except (NoAnswer, TaskFailed) as error:
            failures = failures + 1 if isinstance(error, TaskFailed) else 0
            if is_last or failures == _TRIES:
                raise
            _logger.warning("%s; trying again with the next window", error)
            continue
        failures = 0
        yield window
        if is_last:
            return


class _AuditFollowing:
    """Up to where partitions have been read, and the largest time of each."""

    def __init__(self, spark: SparkSession, selection: Selection, job: FollowAudit) -> None:
        """Begin at the log ends."""
        self._spark, self._selection, self._job = spark, selection, job
        self._largest_ms: dict[TopicPartition, int] = {}
        self._clock = SystemClock()
        self._from_ms = self._clock.now_ms()
        with BrokerLog(selection.read_options()) as log:
            self._positions = log.latest(log.partitions())
            self._topic_ids = log.topic_ids

    def window(self) -> AuditWindow:
        """Return what was appended since the last window."""
        to_ms = self._clock.now_ms()
        with BrokerLog(self._selection.read_options()) as log:
            partitions = log.partitions(may_miss=True)
            earliest, ends = log.earliest(partitions), log.latest(partitions)
            topic_ids = log.topic_ids
        ranges, deleted = {}, {}
        for partition in sorted(partitions):
            # A new partition, or one of a topic that was created again, begins at 0.
            is_same = self._is_same(partition, topic_ids)
            begin, end = self._positions.get(partition, 0) if is_same else 0, ends[partition]
            if begin < earliest[partition]:
                deleted[partition] = earliest[partition] - begin
                begin = earliest[partition]
            if begin < end:
                ranges[partition] = (begin, end)
        largest_ms = {
            partition: its
            for partition, its in self._largest_ms.items()
            if partition.topic not in topic_ids or self._is_same(partition, topic_ids)
        }
        rows, largest = self._audited(ranges, largest_ms)
        # What is missing from one answer of a broker may be in the next.
        self._positions |= ends
        self._topic_ids |= topic_ids
        for partition, its in largest.items():
            # All that was appended since may be earlier than what was there before.
            largest_ms[partition] = max(its, largest_ms.get(partition, its))
        self._largest_ms = largest_ms
        window = AuditWindow(
            self._from_ms,
            to_ms,
            rows,
            sum(int(row["records"]) for row in rows.select("records").collect()),
            deleted,
        )
        self._from_ms = to_ms
        return window

    def _is_same(self, partition: TopicPartition, topic_ids: Mapping[str, str]) -> bool:
        before = self._topic_ids.get(partition.topic)
        return before is None or topic_ids.get(partition.topic) == before

    def _audited(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        largest_ms: Mapping[TopicPartition, int],
    ) -> tuple[DataFrame, dict[TopicPartition, int]]:
        """Audit ranges of offsets; return the rows, and each partition's largest time in order."""
        limits = self._job.before_max_ms, self._job.after_max_ms
        bounds = bounds_of(*limits, self._clock.now_ms())
        if not ranges:
            return added_up(self._spark.createDataFrame([], ddl_of(PARTS))), {}
        scan = Scan.plan(self._spark, self._selection.within(ranges), with_producers=True)
        parts = scan.frame(self._spark, AuditSummary(bounds, largest_ms)).persist()
        with without_spark():
            try:
                rows = added_up(with_late_across(parts, scan, largest_ms))
                kept = self._spark.createDataFrame(rows.toArrow(), rows.schema)
                largest = (
                    parts.where(F.col(IN_ORDER) > 0)
                    .groupBy("topic", "partition")
                    .agg(F.max("in_order_max_ms").alias("largest_ms"))
                    .collect()
                )
            finally:
                parts.unpersist()
        return kept, {
            TopicPartition(row["topic"], row["partition"]): int(row["largest_ms"])
            for row in largest
        }
