"""Questions of the demo as functions of DataFrames; times in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

from horolog.clock import HOUR_MS, MINUTE_MS


class Digest(NamedTuple):
    """Number of rows, and a fingerprint of them that does not depend on their order."""

    rows: int
    fingerprint: int


class Hour(NamedTuple):
    """Events of one topic in one hour of record time."""

    topic: str
    start_ms: int
    events: int


class Disorder(NamedTuple):
    """Distances of a topic's records from the order of their times."""

    topic: str
    records: int
    out_of_order: int
    over_an_hour: int
    median_late_ms: int
    most_late_ms: int


class Dot(NamedTuple):
    """One record in the picture of time against offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


def from_broker(
    spark: SparkSession, bootstrap: str, topics: str, **options: str | int
) -> DataFrame:
    """Read topics from the broker, limited by options."""
    reader = spark.read.format("horolog").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topics).option("includeTimestampMs", "true")
    return reader.options(**options).load()


def from_files(spark: SparkSession, log_dir: str) -> DataFrame:
    """Read all records of a log directory from its segment files."""
    return spark.read.format("horolog").option("includeTimestampMs", "true").load(log_dir)


def between(records: DataFrame, from_ms: int, to_ms: int) -> DataFrame:
    """Return the records with a time in a half-open range, late ones included."""
    time = F.col("timestamp")
    return records.where((time >= _moment(from_ms)) & (time < _moment(to_ms)))


def digest(records: DataFrame) -> Digest:
    """Return the fingerprint of the rows."""
    row_hash = F.xxhash64("topic", "partition", "offset", "timestampMs", "key", "value")
    rows, fingerprint = records.agg(F.count("*"), F.bit_xor(row_hash)).first() or (0, 0)
    return Digest(rows, fingerprint or 0)


def events_per_hour(records: DataFrame) -> list[Hour]:
    """Count events by topic and hour of their time."""
    start_ms = (F.floor(F.col("timestampMs") / HOUR_MS) * HOUR_MS).alias("start_ms")
    counted = records.groupBy("topic", start_ms).agg(F.count("*").alias("events"))
    return [Hour(*row) for row in counted.orderBy("topic", "start_ms").collect()]


def disorder(records: DataFrame) -> list[Disorder]:
    """Measure how far records are behind the latest time before them in their log."""
    in_log = Window.partitionBy("topic", "partition").orderBy("offset")
    latest_before = F.max("timestampMs").over(in_log.rowsBetween(Window.unboundedPreceding, -1))
    late_ms = F.greatest(latest_before - F.col("timestampMs"), F.lit(0))
    late = records.select("topic", F.coalesce(late_ms, F.lit(0)).alias("late_ms"))
    is_late = F.col("late_ms") > 0
    measured = late.groupBy("topic").agg(
        F.count("*"),
        F.count_if(is_late),
        F.count_if(F.col("late_ms") > 60 * MINUTE_MS),
        F.coalesce(F.percentile_approx(F.when(is_late, F.col("late_ms")), 0.5), F.lit(0)),
        F.max("late_ms"),
    )
    return [Disorder(*row) for row in measured.orderBy("topic").collect()]


def dots(records: DataFrame, at_most: int) -> list[Dot]:
    """Return about `at_most` records of each topic, evenly chosen by offset."""
    per_topic = {row["topic"]: row["count"] for row in records.groupBy("topic").count().collect()}
    step = F.create_map(
        *[F.lit(part) for topic, n in per_topic.items() for part in (topic, -(-n // at_most))]
    )
    picked = records.where(F.col("offset") % step[F.col("topic")] == 0)
    columns = picked.select("topic", "partition", "offset", "timestampMs")
    return [Dot(*row) for row in columns.collect()]


def _moment(at_ms: int) -> Column:
    return F.timestamp_millis(F.lit(at_ms))
