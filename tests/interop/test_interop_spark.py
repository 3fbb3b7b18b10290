"""The same notebook on Spark's own Kafka source and on horolog's: they see the same log.

What differs is listed in docs/spark.md.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.usefixtures("spark_connector")]

Append = Callable[[], None]
SOURCES = ("kafka", "horolog")
_topics = (f"notebook-{number}" for number in itertools.count())


def appender(bootstrap: str, topic: str, partition: int = 0) -> Append:
    """Appends ten records at each call."""

    def append() -> None:
        now_ms = SystemClock().now_ms()  # an old record would expire while the JVM starts
        with Client(bootstrap) as client:
            client.produce(topic, partition, build_batch([LogRecord(now_ms, b"k", b"v")] * 10))

    return append


def load(spark: Any, source: str, bootstrap: str, topic: str, **options: str) -> Any:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def count_again(frame: Any, append: Append) -> list[int]:
    seen = [frame.count()]
    append()
    return [*seen, frame.count()]


def collect_again(frame: Any, append: Append) -> list[int]:
    seen = [len(frame.collect())]
    append()
    return [*seen, len(frame.collect())]


def collect_after_count(frame: Any, append: Append) -> list[int]:
    seen = [frame.count()]
    append()
    seen.append(len(frame.collect()))
    append()
    return [*seen, len(frame.collect()), frame.count()]


def explain_before_collect(frame: Any, append: Append) -> list[int]:
    frame.explain()
    append()
    return [len(frame.collect()), frame.count()]


def derived_again(frame: Any, append: Append) -> list[int]:
    derived = frame.where("offset >= 3").select("value")
    seen = [derived.count(), len(derived.collect())]
    append()
    return [*seen, derived.count(), len(derived.collect()), frame.where("offset >= 3").count()]


def view(frame: Any, append: Append) -> list[int]:
    frame.createOrReplaceTempView("notebook")
    query = "select count(*) from notebook where offset >= 2"
    seen = [frame.sparkSession.sql(query).first()[0]]
    append()
    return [*seen, frame.sparkSession.sql(query).first()[0]]


def cached(frame: Any, append: Append) -> list[int]:
    frame.cache()
    try:
        seen = [frame.count()]
        append()
        return [*seen, frame.count(), frame.where("offset >= 5").count()]
    finally:
        frame.unpersist()


def cached_and_filled_later(frame: Any, append: Append) -> list[int]:
    frame.cache()
    try:
        append()
        seen = [frame.count()]
        append()
        return [*seen, frame.count()]
    finally:
        frame.unpersist()


def self_union(frame: Any, append: Append) -> list[int]:
    both = frame.union(frame)
    seen = [both.count()]
    append()
    return [*seen, both.count(), frame.where("offset < 4").union(frame).count()]


def self_join(frame: Any, append: Append) -> list[int]:
    keys = frame.select("offset")
    seen = [keys.join(frame, "offset").count()]
    append()
    return [*seen, keys.join(frame, "offset").count()]


def rows_as_an_rdd(frame: Any, append: Append) -> list[int]:
    seen = [frame.rdd.count()]
    append()
    return [*seen, frame.rdd.count()]


def first_rows(frame: Any, append: Append) -> list[int]:
    seen = [len(frame.take(100)), len(frame.limit(100).collect())]
    append()
    return [*seen, len(frame.take(100)), len(frame.limit(100).collect())]


def pandas(frame: Any, append: Append) -> list[int]:
    seen = [len(frame.toPandas())]
    append()
    return [*seen, len(frame.toPandas())]


def written(frame: Any, append: Append) -> list[int]:
    seen = []
    for _ in range(2):
        frame.write.mode("overwrite").format("noop").save()
        seen.append(frame.selectExpr("max(offset)").first()[0])
        append()
    return seen


NOTEBOOKS = [
    count_again,
    collect_again,
    collect_after_count,
    explain_before_collect,
    derived_again,
    view,
    cached,
    cached_and_filled_later,
    self_union,
    self_join,
    rows_as_an_rdd,
    first_rows,
    pandas,
    written,
]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_each_query_sees_the_log_as_sparks_own_source_does(
    spark: Any, broker: Any, notebook: Callable[[Any, Append], list[int]]
) -> None:
    seen = {}
    for source in SOURCES:
        topic = next(_topics)
        with Client(broker.bootstrap) as client:
            client.create_topics({topic: 1})
        append = appender(broker.bootstrap, topic)
        append()
        seen[source] = notebook(load(spark, source, broker.bootstrap, topic), append)
    assert seen["horolog"] == seen["kafka"]


# Streams.


def stream(spark: Any, source: str, bootstrap: str, topic: str, **options: str) -> Any:
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def batches_of(frame: Any, checkpoint: Path) -> list[list[tuple[int, int]]]:
    """Partition and offset of the rows of each micro-batch, up to what is available now."""
    batches: list[list[tuple[int, int]]] = []

    def take(rows: Any, batch: int) -> None:
        batches.append(sorted(tuple(row) for row in rows.select("partition", "offset").collect()))

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return [batch for batch in batches if batch]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"},
        {"startingOffsets": "latest"},
        {"startingTimestamp": "0", "minPartitions": "5"},
    ],
    ids=str,
)
def test_a_stream_reads_what_sparks_own_source_reads_batch_by_batch(
    spark: Any, broker: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    topic = next(_topics)
    with Client(broker.bootstrap) as client:
        client.create_topics({topic: 2})
    appends = [appender(broker.bootstrap, topic, partition) for partition in (0, 1)]
    for number in (0, 0, 1):
        appends[number]()
    seen: dict[str, list[object]] = {source: [] for source in SOURCES}
    for append in (appends[1], appends[0]):
        for source in SOURCES:
            frame = stream(spark, source, broker.bootstrap, topic, **options)
            seen[source].append(batches_of(frame, tmp_path / source))
        append()
    for source in SOURCES:
        frame = stream(spark, source, broker.bootstrap, topic, **options)
        seen[source].append(batches_of(frame, tmp_path / source))
    assert seen["horolog"] == seen["kafka"]


def test_a_checkpoint_of_sparks_own_source_is_gone_on_with(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    topic = next(_topics)
    with Client(broker.bootstrap) as client:
        client.create_topics({topic: 1})
    append = appender(broker.bootstrap, topic)
    append()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    kafka = stream(spark, "kafka", broker.bootstrap, topic, **options)
    assert batches_of(kafka, tmp_path) == [
        [(0, offset) for offset in range(6)],
        [(0, offset) for offset in range(6, 10)],
    ]
    append()
    horolog = stream(spark, "horolog", broker.bootstrap, topic, **options)
    assert batches_of(horolog, tmp_path) == [
        [(0, offset) for offset in range(10, 16)],
        [(0, offset) for offset in range(16, 20)],
    ]
