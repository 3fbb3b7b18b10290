"""The same DataFrames written by Spark's own Kafka sink and by horolog's, to horolog and to Kafka.

What differs is listed in docs/spark.md.
"""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.sources import scan

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.usefixtures("spark_connector")]

SINKS = ("kafka", "horolog")
_topics = (f"sink-{number}" for number in itertools.count())


@pytest.fixture(params=[0, 1], ids=["to horolog", "to Kafka"])
def bootstrap(request: pytest.FixtureRequest, both_brokers: Any) -> str:
    address: str = both_brokers[request.param].bootstrap
    return address


def new_topic(bootstrap: str, partitions: int = 3, **config: str) -> str:
    topic = next(_topics)
    with Client(bootstrap) as client:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        client.create_topics({topic: partitions}, configs=settings)
    return topic


def records_of(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    columns = ("key", "value", "headers", "timestamp_ms")
    with Client(bootstrap) as client:
        return scan(client, topic, columns=columns).read_all().to_pylist()


def keyed(bootstrap: str, topic: str) -> list[tuple[object, ...]]:
    """What both sinks have to write alike: everything but times."""
    return sorted(
        (row["key"] or b"", row["partition"], row["value"] or b"", repr(row["headers"]))
        for row in records_of(bootstrap, topic)
    )


def writer(frame: Any, sink: str, bootstrap: str, **options: str) -> Any:
    it = frame.write.format(sink).option("kafka.bootstrap.servers", bootstrap)
    return it.options(**options)


def test_both_sinks_write_the_same_records_to_the_same_partitions(
    spark: Any, bootstrap: str
) -> None:
    frame = spark.range(500).selectExpr(
        "concat('key ', id % 50) key",
        "if(id % 7 = 0, null, cast(cast(id as string) as binary)) value",
        "if(id % 5 = 0, cast(id % 3 as int), null) partition",
        "case when id % 3 = 0 then null when id % 3 = 1 then array() else "
        "array(struct('a' as key, cast('1' as binary) as value), "
        "struct('a' as key, cast(null as binary) as value)) end headers",
        "'unused' other",
    )
    topics = {sink: new_topic(bootstrap) for sink in SINKS}
    for sink, topic in topics.items():
        writer(frame, sink, bootstrap, topic=topic).save()  # in the default mode
    written = keyed(bootstrap, topics["horolog"])
    assert written == keyed(bootstrap, topics["kafka"])
    assert len(written) == 500


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_the_sink_writes_is_read_by_sparks_own_source(
    spark: Any, bootstrap: str, codec: str
) -> None:
    topic, now_ms = new_topic(bootstrap), SystemClock().now_ms()  # much older ones would expire
    frame = spark.range(2_000).selectExpr(
        "cast(id as string) value", "cast(id % 9 as string) key", f"{now_ms} - id * 7 timestampMs"
    )
    settings = {"kafka.compression.type": codec, "kafka.batch.size": "5000"}
    writer(frame, "horolog", bootstrap, topic=topic, **settings).save()
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", topic).load()
    rows = rows.selectExpr("cast(value as string) v", "unix_millis(timestamp) ms").collect()
    assert sorted((int(row.v), row.ms) for row in rows) == [
        (n, now_ms - n * 7) for n in range(2_000)
    ]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    ("expression", "mode", "said"),
    [
        ("'v' value, cast(null as string) topic", "append", "topic"),
        ("'v' value", "append", "topic"),
        ("'v' key, 't' topic", "append", "value"),
        ("1 value, 't' topic", "append", "value"),
        ("'v' value, 't' topic, 1L partition", "append", "partition"),
        ("'v' value, 't' topic", "overwrite", "verwrite"),
        ("'v' value, 't' topic", "ignore", "gnore"),
    ],
)
def test_both_sinks_refuse_the_same(
    spark: Any, both_brokers: Any, sink: str, expression: str, mode: str, said: str
) -> None:
    frame = spark.sql(f"select {expression}")
    with pytest.raises((PySparkException, Py4JJavaError), match=said):
        writer(frame, sink, both_brokers[0].bootstrap).mode(mode).save()


@pytest.mark.parametrize("mode", ["append", "complete", "update"])
def test_both_sinks_append_the_same_in_each_output_mode(
    spark: Any, bootstrap: str, tmp_path: Path, mode: str
) -> None:
    source = new_topic(bootstrap)
    topics = {sink: new_topic(bootstrap) for sink in SINKS}
    numbers = spark.range(60).selectExpr("cast(id % 6 as string) key", "cast(id as string) value")
    writer(numbers, "horolog", bootstrap, topic=source).save()
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", source).options(
        startingOffsets="earliest", maxOffsetsPerTrigger="40"
    )
    frame = reader.load().selectExpr("cast(key as string) key", "value")
    if mode != "append":
        frame = frame.groupBy("key").count().selectExpr("key", "cast(count as string) value")
    for sink, topic in topics.items():
        stream = frame.writeStream.format(sink).outputMode(mode).trigger(availableNow=True)
        stream = stream.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        stream = stream.option("checkpointLocation", str(tmp_path / sink))
        if sink == "horolog" and mode == "update":
            with pytest.raises(PySparkException, match="foreachBatch") as refused:
                stream.start()
            assert "Output mode 'update'" in str(refused.value)

            def write(rows: Any, _: int, topic: str = topic) -> None:
                writer(rows, "horolog", bootstrap, topic=topic).mode("append").save()

            stream = frame.writeStream.outputMode(mode).trigger(availableNow=True)
            stream = stream.option("checkpointLocation", str(tmp_path / "each")).foreachBatch(write)
        stream.start().awaitTermination()
    written = keyed(bootstrap, topics["horolog"])
    assert written == keyed(bootstrap, topics["kafka"])
    assert len(written) >= (60 if mode == "append" else 6)


def test_times_that_a_broker_refuses_are_handled_alike_by_horolog_and_kafka(
    spark: Any, bootstrap: str
) -> None:
    frame = (
        spark.range(300)
        .coalesce(1)
        .selectExpr(
            "cast(id as string) value",
            "cast(id % 10 as string) key",
            "unix_millis(now()) + if(id % 10 = 3, 86400000, 0) timestampMs",
        )
    )
    late = [b"%d" % number for number in range(300) if number % 10 == 3]

    def bounded() -> str:
        return new_topic(bootstrap, message_timestamp_after_max_ms="3600000")

    def values(topic: str) -> list[bytes]:
        return sorted(row["value"] for row in records_of(bootstrap, topic))

    small = {"kafka.batch.size": "700"}
    failing = bounded()
    with pytest.raises(PySparkException, match=rf"^{failing}-\d refuses \d+ of \d+ records"):
        writer(frame, "horolog", bootstrap, topic=failing, **small).save()
    nulled = bounded()
    writer(frame, "horolog", bootstrap, topic=nulled, onInvalidTimestamp="null", **small).save()
    assert values(nulled) == sorted(b"%d" % number for number in range(300))
    soon_ms = SystemClock().now_ms() + 3_600_000
    assert all(row["timestamp_ms"] < soon_ms for row in records_of(bootstrap, nulled))
    rest, dead = bounded(), new_topic(bootstrap)
    writer(
        frame,
        "horolog",
        bootstrap,
        topic=rest,
        onInvalidTimestamp="deadLetter",
        deadLetterTopic=dead,
        **small,
    ).save()
    assert values(rest) == sorted({b"%d" % number for number in range(300)} - set(late))
    assert values(dead) == sorted(late)
    for partition in range(3):
        numbers = [
            int(row["value"])
            for row in records_of(bootstrap, rest)
            if row["partition"] == partition
        ]
        assert numbers == sorted(numbers)


def done(checkpoint: Path) -> dict[str, Any]:
    """The function of docs/moving.md that carries offsets over."""
    names: dict[str, Any] = {}
    page = Path(__file__).parents[2].joinpath("docs/moving.md").read_text()
    exec(re.findall(r"```python\n(import json\n.*?)```", page, re.DOTALL)[0], names)
    offsets: dict[str, Any] = json.loads(names["done"](checkpoint))
    return offsets


def test_a_query_with_state_is_moved_with_its_checkpoint(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    source, sink = new_topic(bootstrap, 1), new_topic(bootstrap)

    def append(first: int) -> None:
        numbers = spark.range(first, first + 30).selectExpr("cast(id as string) value")
        writer(numbers, "horolog", bootstrap, topic=source).save()

    def run(of: str, sink_of: str) -> None:
        reader = spark.readStream.format(of).option("kafka.bootstrap.servers", bootstrap)
        rows = reader.options(subscribe=source, startingOffsets="earliest").load()
        counted = rows.groupBy("timestampType").count().selectExpr("cast(count as string) value")
        stream = counted.writeStream.format(sink_of).outputMode("complete")
        stream = stream.option("kafka.bootstrap.servers", bootstrap).option("topic", sink)
        stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        stream.start().awaitTermination()

    append(0)
    run("kafka", "kafka")
    assert done(tmp_path) == {source: {"0": 30}}
    append(30)
    run("horolog", "horolog")
    assert done(tmp_path) == {source: {"0": 60}}
    run("horolog", "horolog")  # nothing is left
    append(60)
    run("horolog", "kafka")  # the sink's way back
    assert sorted(row["value"] for row in records_of(bootstrap, sink)) == [b"30", b"60", b"90"]


def test_an_unfinished_micro_batch_of_sparks_own_source_is_read_again(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    source, sink = new_topic(bootstrap), new_topic(bootstrap)
    numbers = spark.range(30).selectExpr("cast(id as string) value")
    writer(numbers, "horolog", bootstrap, topic=source).save()

    def rows(of: str) -> Any:
        reader = spark.readStream.format(of).option("kafka.bootstrap.servers", bootstrap)
        return reader.options(subscribe=source, startingOffsets="earliest").load()

    def fail(*_: Any) -> None:
        raise RuntimeError("the sink is full")

    failing = rows("kafka").writeStream.foreachBatch(fail).trigger(availableNow=True)
    with pytest.raises(PySparkException, match="the sink is full"):
        failing.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    stream = rows("horolog").select("value").writeStream.format("horolog")
    stream = stream.option("kafka.bootstrap.servers", bootstrap).option("topic", sink)
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    stream.start().awaitTermination()
    written = sorted(int(row["value"]) for row in records_of(bootstrap, sink))
    assert written == [*range(30)]
