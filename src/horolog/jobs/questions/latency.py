"""Job `latency`: measures how long records take from producer to log (KIP-33, use case 5)."""

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from horolog.errors import Misconfigured
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.questions import Latency
from horolog.jobs.questions.hops import BY_HOP, Hop, HopSummary
from horolog.jobs.questions.latency_sums import (
    CLASS,
    COUNTS,
    MEASURED,
    SPAN,
    LatencySummary,
)
from horolog.jobs.questions.live import LiveScan
from horolog.jobs.questions.scan import NO_HOUR, Scan
from horolog.jobs.selection import Selection

BY_APPEND_TIME: Final = "append time - create time"
BY_READER: Final = "clock of the reader - create time"
"""Measured differences; the second is KIP-33's own, for logs that keep one time only."""

PERCENTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


@on_spark(Latency)
def latency(spark: SparkSession, job: Latency) -> DataFrame:
    """Return the distribution of append time minus create time, by topic and hour.

    Only where the log knows both: horolog's logs, and LogAppendTime topics, Apache Kafka's too,
    whose batches keep the create times. A CreateTime topic of Apache Kafka keeps one time only;
    for such topics `live_ms` measures KIP-33's other way, which includes the way to the reader, and
    compares two machines' clocks.

    Returns:
        A row for each topic with `hour` null, and one for each of its hours of append time:

        - `topic`; `hour` timestamp; `is_total`: whether the row is of all hours;
        - `measure`: "append time - create time" or "clock of the reader - create time"; with a
          mirror's state also "append time at the target - append time at the source";
        - `records`; of these `untimed` have no create time, that of `in_other_unit` looks like one
          in another unit, and of `not_appended` the log knows no append time; `measured`: the rest;
        - `negative`: measured below zero, by clocks that differ;
        - `min_ms`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms` bigint: null where nothing is measured.
          Percentiles are exact below 256 ms, else within 1 %.

    Raises:
        HorologError: an argument is wrong, or the log cannot be read.
    """
    selection, live_ms = Selection.asked(job), job.live_ms
    summary, measure = LatencySummary(), BY_APPEND_TIME
    if live_ms is None:
        scan = Scan.plan(spark, selection, with_producers=False)
        job.on_progress(0, scan.offsets)
        parts = scan.frame(spark, summary)
        if job.mirror_state is not None:
            if job.target is None:
                raise Misconfigured("a mirror's state maps to its target: give --target HOST:PORT")
            target = Selection.of(job.target, None, ".*", settings=job.target_settings)
            hop = HopSummary(Hop.of(job.mirror_state, selection, target))
            hops = distributions(scan.frame(spark, hop), BY_HOP)
            return distributions(parts, measure).unionByName(hops)
    else:
        if job.mirror_state is not None:
            raise Misconfigured("give a mirror's state, or live")
        _check_live(selection, live_ms)
        measure = BY_READER
        parts = LiveScan.plan(spark, selection, live_ms).frame(spark, summary)
    return distributions(parts, measure)


def _check_live(selection: Selection, live_ms: int) -> None:
    if not selection.source.is_broker:
        raise Misconfigured("live measures what is appended meanwhile, and needs a broker")
    if not selection.times.is_everything:
        raise Misconfigured("live measures what is appended meanwhile: leave out from and to")
    if live_ms <= 0:
        raise Misconfigured(f"live is {live_ms} ms; it is above zero")


def distributions(parts: DataFrame, measure: str) -> DataFrame:
    """Add up the rows of all tasks to the rows that `latency` returns."""
    return parts.sparkSession.sql(_DISTRIBUTIONS, {"measure": measure}, parts=parts)


def _limited(place: int) -> str:
    """Return a column of SQL: a percentile within the smallest and the largest span."""
    name = [*PERCENTILES][place]
    return f"least(greatest(CAST(round(percentiles[{place}]) AS bigint), min_ms), max_ms) AS {name}"


_IS_MEASURED: Final = f"{MEASURED} > 0"
# A statement of SQL: the driver needs as much time for each column that Python makes of columns.
# A frequency must not be zero for a value; without a value it does not count.
_DISTRIBUTIONS = f"""
SELECT
    topic,
    CASE WHEN hour <> {NO_HOUR} THEN timestamp_millis(hour) END AS hour,
    is_total,
    :measure AS measure,
    {", ".join(COUNTS)},
    {MEASURED},
    negative,
    min_ms,
    {", ".join(map(_limited, range(len(PERCENTILES))))},
    max_ms
FROM (
    SELECT
        topic,
        hour,
        grouping(hour) = 1 AS is_total,
        {", ".join(f"sum({name}) AS {name}" for name in (*COUNTS, MEASURED))},
        coalesce(sum({MEASURED}) FILTER (WHERE {_IS_MEASURED} AND {CLASS} < 0), 0) AS negative,
        min(min_ms) FILTER (WHERE {_IS_MEASURED}) AS min_ms,
        max(max_ms) FILTER (WHERE {_IS_MEASURED}) AS max_ms,
        percentile(
            CASE WHEN {_IS_MEASURED} THEN {SPAN} END,
            array({", ".join(f"{share}D" for share in PERCENTILES.values())}),
            greatest({MEASURED}, 1)
        ) AS percentiles
    FROM {{parts}}
    GROUP BY GROUPING SETS ((topic, hour), (topic))
)"""  # noqa: S608 - of names of this package
