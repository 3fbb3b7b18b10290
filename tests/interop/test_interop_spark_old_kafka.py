"""Format "horolog" on Apache Kafka 2.x: the oldest and the last, judged by Spark's own source."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from releases import running
from tools.peers.kafka import LAST_OF_2, OLDEST_OF_2

from horolog.client import Client
from horolog.clock import SystemClock

pytestmark = [pytest.mark.interop, pytest.mark.spark]

ROWS = 2_000
_topics = (f"old-{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=[LAST_OF_2, OLDEST_OF_2])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap


def new_topic(bootstrap: str) -> str:
    topic = next(_topics)
    with Client(bootstrap) as client:
        client.create_topics({topic: 3})
    return topic


def numbers(spark: Any, first_ms: int) -> Any:
    return spark.range(ROWS).selectExpr(
        "cast(id % 9 as string) key",
        "cast(id as string) value",
        "array(struct('n' as key, cast(cast(id as string) as binary) as value)) headers",
        f"{first_ms} + id timestampMs",
    )


def read(spark: Any, bootstrap: str, topic: str, source: str, **options: str) -> Any:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("includeHeaders", "true")
    return reader.options(**options).load()


def contents(frame: Any) -> list[tuple[Any, ...]]:
    rows = frame.selectExpr(
        "partition",
        "offset",
        "cast(key as string) k",
        "cast(value as string) v",
        "unix_millis(timestamp) ms",
        "cast(headers[0].value as string) h",
    )
    return sorted(tuple(row) for row in rows.collect())


# Exactly once needs Kafka 2.5: test_interop_transactions.py has the refusal.


@pytest.mark.parametrize(
    ("bootstrap", "once"),
    [(LAST_OF_2, {}), (LAST_OF_2, {"exactlyOnce": "true"}), (OLDEST_OF_2, {})],
    indirect=["bootstrap"],
    ids=str,
)
def test_a_batch_is_written_and_read_as_by_sparks_own_source(
    spark: Any, bootstrap: str, once: dict[str, str]
) -> None:
    topic, first_ms = new_topic(bootstrap), SystemClock().now_ms() - 1_000_000
    writer = numbers(spark, first_ms).write.format("horolog").mode("append")
    if once:
        once = {**once, "writeName": f"old {topic}", "writeBatch": "0"}
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    for _ in range(2 if once else 1):
        writer.options(**once).save()
    committed = {"kafka.isolation.level": "read_committed"}
    theirs = contents(read(spark, bootstrap, topic, "kafka", **committed))
    assert sorted(int(row[3]) for row in theirs) == [*range(ROWS)]
    assert all(row[4] == first_ms + int(row[3]) and row[5] == row[3] for row in theirs)
    ours = read(spark, bootstrap, topic, "horolog", **committed)
    assert contents(ours) == theirs
    late = contents(ours.where(f"unix_millis(timestamp) >= {first_ms + ROWS // 2}"))
    assert late == [row for row in theirs if row[4] >= first_ms + ROWS // 2]
    from_time = {"startingTimestamp": str(first_ms + ROWS - 10), **committed}
    assert contents(read(spark, bootstrap, topic, "horolog", **from_time)) == contents(
        read(spark, bootstrap, topic, "kafka", **from_time)
    )


@pytest.mark.parametrize(
    ("bootstrap", "once"),
    [(LAST_OF_2, "false"), (LAST_OF_2, "true"), (OLDEST_OF_2, "false")],
    indirect=["bootstrap"],
)
def test_a_stream_goes_on_from_its_checkpoint(
    spark: Any, bootstrap: str, tmp_path: Path, once: str
) -> None:
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    first_ms = SystemClock().now_ms() - 1_000_000
    group = f"group of {source}"
    for run in (1, 2):
        writer = numbers(spark, first_ms).write.format("horolog").mode("append")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", source)
        writer.save()
        reader = spark.readStream.format("horolog").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", source).options(
            startingOffsets="earliest",
            maxOffsetsPerTrigger="900",
            includeHeaders="true",
            commitOffsetsToGroup=group,
        )
        frame = reader.load().select("key", "value", "headers", "timestamp")
        stream = frame.writeStream.format("horolog").trigger(availableNow=True)
        stream = stream.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        stream = stream.option("checkpointLocation", str(tmp_path)).option("exactlyOnce", once)
        stream.start().awaitTermination()
        committed = {"kafka.isolation.level": "read_committed"}
        found = contents(read(spark, bootstrap, target, "kafka", **committed))
        assert sorted(int(row[3]) for row in found) == sorted([*range(ROWS)] * run)
        assert all(row[4] == first_ms + int(row[3]) and row[5] == row[3] for row in found)
    with Client(bootstrap) as client:
        kept = client.offset_fetch(group, [(source, partition) for partition in range(3)])
    assert sum(each.offset for each in kept.values() if each is not None) > ROWS
