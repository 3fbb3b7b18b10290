"""Lag of a streaming query in records and time, and its count of late records.

A listener gets it after each micro-batch, `lag_of` reads it from any progress of a query:

    spark.streams.addListener(LagListener(print))
    lag_of(query.lastProgress)                        # without a listener

The source measures it in the driver once a micro-batch has been read, at most once a second, and
reports it as `latestOffset` in the query's progress. So it works over Spark Connect as well.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from horolog.sources.columns import LATE_BY_MS
from horolog.spark.read.progress import sources_of

_OBSERVED = "horolog"


class PartitionLag(NamedTuple):
    """Lag of a query behind the end of one partition.

    `time_ms` is how long ago the oldest batch was written, by its first record's time, that the
    query has not read: 0 where it has read all, None where that is not known.
    """

    topic: str
    partition: int
    records: int
    time_ms: int | None


class QueryLag(NamedTuple):
    """Lag of a query after a micro-batch.

    `late` counts the records of this micro-batch that were late, where the query counts them
    (`with_late_counted`), and `most_late_ms` is by how much the latest of them was.
    `dropped_late` counts the rows that Spark left out of aggregations and joins in this
    micro-batch since they were later than the query's watermark.
    """

    query_id: str
    name: str | None
    batch_id: int
    partitions: tuple[PartitionLag, ...]
    dropped_late: int
    late: int | None = None
    most_late_ms: int | None = None

    @property
    def records(self) -> int:
        """Unread records of all partitions."""
        return sum(partition.records for partition in self.partitions)

    @property
    def time_ms(self) -> int | None:
        """Largest lag in time of a partition; None if none is known."""
        known = [
            partition.time_ms for partition in self.partitions if partition.time_ms is not None
        ]
        return max(known, default=None)

    @property
    def metrics(self) -> dict[str, str]:
        """Lag under the names of the `metrics` that Spark's Kafka source reports."""
        behind = [partition.records for partition in self.partitions]
        if not behind:
            return {}
        return {
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "minOffsetsBehindLatest": str(min(behind)),
        }


def lag_of(progress: Any) -> QueryLag | None:
    """Return the lag in a progress; None for a query of another format, or before the first lag."""
    if progress is None:
        return None
    partitions = tuple(
        lag
        for source, offset in sources_of(progress)
        for lag in _lags(_as_json(source["latestOffset"]), offset.offsets)
    )
    if not partitions:
        return None
    dropped = sum(
        operator.get("numRowsDroppedByWatermark", 0) for operator in progress["stateOperators"]
    )
    counted = (progress.get("observedMetrics") or {}).get(_OBSERVED)
    return QueryLag(
        str(progress["id"]),
        progress["name"],
        progress["batchId"],
        partitions,
        dropped,
        *((None, None) if counted is None else (counted["late"], counted["most_late_ms"])),
    )


def with_late_counted(frame: DataFrame, *, after_ms: int = 0) -> DataFrame:
    """Return a stream whose late records are counted in each micro-batch, for `QueryLag.late`.

    Late is a record whose time is more than `after_ms` before the largest time before it in its
    partition. The stream must have the column `lateByMs` (option `includeLateness`).
    """
    late_by = F.col(LATE_BY_MS)
    return frame.observe(
        _OBSERVED,
        F.count_if(late_by > after_ms).alias("late"),
        F.coalesce(F.max(late_by), F.lit(0)).alias("most_late_ms"),
    )


class LagListener(StreamingQueryListener):
    """Listener that keeps the lag of each running query and reports it after each micro-batch.

    Args:
        report: called with each `QueryLag`, in Spark's thread for listeners.
    """

    def __init__(self, report: Callable[[QueryLag], None] | None = None) -> None:
        self._report = report
        self.latest: dict[str, QueryLag] = {}
        """Lag of each running query, by query id."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: no lag is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep and report the lag of a query of this format."""
        lag = lag_of(event.progress)
        if lag is not None:
            self.latest[lag.query_id] = lag
            if self._report is not None:
                self._report(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the lag is unchanged."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query."""
        self.latest.pop(str(event.id), None)


def _as_json(value: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _lags(latest: Mapping[str, Any], read: Mapping[Any, int]) -> Iterator[PartitionLag]:
    now_ms, unread = latest.get("nowMs"), latest.get("unreadSinceMs", {})
    for topic, partitions in latest.get("offsets", {}).items():
        for number, end in partitions.items():
            position = read.get((topic, int(number)))
            if position is None:
                continue
            records = max(0, end - position)
            since_ms = unread.get(topic, {}).get(number)
            time_ms = None if records else 0
            if records and now_ms is not None and since_ms is not None:
                time_ms = max(0, now_ms - since_ms)
            yield PartitionLag(topic, int(number), records, time_ms)
