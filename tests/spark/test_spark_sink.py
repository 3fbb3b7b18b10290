"""What a user does with `write` and `writeStream`, on a real Spark."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from running_broker import RunningBroker

from horolog.client import Client, ResourceType
from horolog.clock import SystemClock
from horolog.record import partition_of_key
from horolog.sources import scan

pytestmark = pytest.mark.spark


def rows_of(client: Client, topic: str) -> list[dict[str, Any]]:
    columns = ("offset", "key", "value", "timestamp_ms", "headers")
    return scan(client, topic, columns=columns).read_all().to_pylist()


def values_of(client: Client, topic: str) -> list[bytes]:
    return [row["value"] for row in rows_of(client, topic)]


def writer(frame: Any, broker: RunningBroker, **options: str) -> Any:
    it = frame.write.format("horolog").option("kafka.bootstrap.servers", broker.address)
    return it.options(**options)


def bound_times(client: Client, topic: str) -> None:
    """Let a topic refuse times in the future, an hour ahead or more."""
    client.create_topics({topic: 1})
    bound = {"message.timestamp.after.max.ms": "3600000"}
    client.alter_configs({(ResourceType.TOPIC, topic): bound})


def test_rows_are_written_with_their_key_time_headers_and_partition(
    spark: Any, broker: RunningBroker, client: Client
) -> None:
    client.create_topics({"a": 3, "b": 3})
    began_ms = SystemClock().now_ms()
    frame = spark.createDataFrame(
        [
            ("a", "k1", "v1", 2, -1_001, [("h", b"1"), ("h", None)], 5),
            ("a", "k2", None, None, None, None, 5),
            ("b", None, "v3", 1, 1_699_999_999_999_999, [], 5),
            ("a", "k4", "", None, -1_000_001, None, 5),
        ],
        "topic string, key string, value string, partition int, us bigint, "
        "headers array<struct<key:string,value:binary>>, other int",
    ).coalesce(1)
    frame = frame.withColumn("timestamp", frame.us.try_cast("double").cast("string"))
    frame = frame.selectExpr("*", "timestamp_micros(us) at", "cast(value as binary) v")
    frame = frame.drop("timestamp", "value", "us").withColumnsRenamed(
        {"at": "timestamp", "v": "value"}
    )
    writer(frame, broker).mode("append").save()
    a = {row["key"]: row for row in rows_of(client, "a")}
    assert len(a) == 3
    assert a[b"k1"]["partition"] == 2
    assert (a[b"k1"]["value"], a[b"k1"]["timestamp_ms"]) == (b"v1", -2)
    assert a[b"k1"]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert a[b"k2"]["partition"] == partition_of_key(b"k2", 3)
    assert (a[b"k2"]["value"], a[b"k2"]["headers"]) == (None, [])
    assert began_ms <= a[b"k2"]["timestamp_ms"] <= SystemClock().now_ms()
    assert (a[b"k4"]["value"], a[b"k4"]["timestamp_ms"]) == (b"", -1_001)
    (b,) = rows_of(client, "b")
    assert (b["partition"], b["key"], b["timestamp_ms"]) == (1, None, 1_699_999_999_999)


def test_a_log_is_copied_with_its_times(spark: Any, broker: RunningBroker, client: Client) -> None:
    frame = spark.range(500).selectExpr(
        "cast(id as string) value", "id * 7 - 1000 timestampMs", "cast(id % 10 as string) key"
    )
    writer(frame, broker, topic="first").save()  # the default mode appends, as in Spark's sink
    reader = spark.read.format("horolog").option("kafka.bootstrap.servers", broker.address)
    log = reader.option("subscribe", "first").load()
    writer(log, broker, topic="second", **{"kafka.compression.type": "zstd"}).save()
    first, second = rows_of(client, "first"), rows_of(client, "second")
    assert len(second) == 500
    assert sorted((row["value"], row["timestamp_ms"]) for row in first) == sorted(
        (row["value"], row["timestamp_ms"]) for row in second
    )
    assert {int(row["value"]) * 7 - 1000 for row in second} == {
        row["timestamp_ms"] for row in second
    }


def test_what_a_batch_cannot_do_is_said_first(spark: Any, broker: RunningBroker) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) value")

    def said(write: Any) -> str:
        with pytest.raises(PySparkException) as raised:
            write()
        return str(raised.value)

    to = writer(frame, broker, topic="t")
    assert said(to.mode("overwrite").save).startswith("Mode 'overwrite' is not supported: a log")
    assert said(to.mode("ignore").save).startswith("Mode 'ignore' is not supported: a log")
    assert said(lambda: to.mode("append").save("/x")).startswith("A write goes to a broker")
    for as_table in (
        lambda: to.saveAsTable("t"),
        lambda: frame.write.saveAsTable("t", "Horolog"),
        lambda: frame.write.saveAsTable("t", format="horolog", mode="append"),
        lambda: spark.readStream.format("rate").load().writeStream.toTable("t", format="horolog"),
    ):
        assert "use CREATE TEMPORARY VIEW name USING horolog" in said(as_table).splitlines()[0]
    assert not spark.catalog.tableExists("t")
    assert said(writer(frame, broker).save).startswith("Option 'topic' is required")
    assert said(writer(frame, broker, topic="t", **{"kafka.acks": "7"}).save).startswith(
        "Option 'kafka.acks' is '7'"
    )
    beyond = frame.selectExpr("value", "5 as partition")
    assert said(writer(beyond, broker, topic="t").save).startswith(
        "Rows for topic t cannot be written: Row 0 names partition 5; there are 1"
    )
    nulls = frame.selectExpr("value", "cast(null as string) topic")
    assert said(writer(nulls, broker).save).startswith("Row 0 of a task has no topic")


def test_options_of_other_formats_may_have_any_name(spark: Any, tmp_path: Path) -> None:
    named = {"plain": "1", "kind": "2", "around": "3"}
    rows = spark.createDataFrame([("a",)], "name string")
    rows.write.format("json").options(**named).save(str(tmp_path / "rows"), **named)
    read = spark.read.options(**named).load(str(tmp_path / "rows"), "json", **named)
    assert [row.name for row in read.collect()] == ["a"]


@pytest.fixture
def with_late(spark: Any) -> Any:
    """200 rows in one task, of which 20 are a day ahead."""
    return (
        spark.range(200)
        .coalesce(1)
        .selectExpr(
            "cast(id as string) value",
            "cast(id as string) key",
            "array(struct('own' as key, cast('1' as binary) as value)) headers",
            "unix_millis(now()) + if(id % 10 = 3, 86400000, -1000) timestampMs",
        )
    )


def test_records_of_refused_times_fail_the_write_and_are_named(
    broker: RunningBroker, client: Client, with_late: Any
) -> None:
    bound_times(client, "bounded")
    with pytest.raises(PySparkException) as raised:
        writer(with_late, broker, topic="bounded").save()
    said = str(raised.value)
    assert said.startswith("bounded-0 refuses 20 of 200 records (INVALID_TIMESTAMP): row 3 with")
    assert "; row 13 with time " in said
    assert "option 'onInvalidTimestamp'" in said
    assert rows_of(client, "bounded") == []


def test_a_moment_that_would_be_written_as_no_time_is_refused(
    spark: Any, broker: RunningBroker, client: Client
) -> None:
    broker.create_topic("old", message_timestamp_before_max_ms=str((1 << 63) - 1))

    def write(time: str, **options: str) -> None:
        writer = spark.sql(f"select 'x' value, {time}").write.format("horolog")
        writer = writer.option("kafka.bootstrap.servers", broker.address).options(**options)
        writer.option("topic", "old").mode("append").save()

    for options in ({}, {"exactlyOnce": "true", "writeName": "w", "writeBatch": "0"}):
        with pytest.raises(PySparkException, match="which Kafka's formats take for no timestamp"):
            write("timestamp'1969-12-31 23:59:59.999Z' timestamp", **options)
    write("timestamp'1969-12-31 23:59:59.998Z' timestamp")
    write("-1L timestampMs")  # none, said as Kafka says it
    assert scan(client, "old").read_all()["timestamp_ms"].to_pylist() == [-2, -1]


def test_refused_times_are_replaced_or_sent_elsewhere_and_no_record_is_lost_or_doubled(
    broker: RunningBroker, client: Client, with_late: Any
) -> None:
    now_ms = SystemClock().now_ms()
    for topic in ("nulled", "bounded"):
        bound_times(client, topic)
    small = {"kafka.batch.size": "900"}
    writer(with_late, broker, topic="nulled", onInvalidTimestamp="null", **small).save()
    assert values_of(client, "nulled") == [b"%d" % n for n in range(200)]
    assert all(
        now_ms - 60_000 < row["timestamp_ms"] < now_ms + 3_600_000
        for row in rows_of(client, "nulled")
    )
    writer(
        with_late,
        broker,
        topic="bounded",
        onInvalidTimestamp="deadLetter",
        deadLetterTopic="dead",
        **small,
    ).save()
    assert values_of(client, "bounded") == [b"%d" % n for n in range(200) if n % 10 != 3]
    dead = rows_of(client, "dead")
    assert [row["value"] for row in dead] == [b"%d" % n for n in range(200) if n % 10 == 3]
    headers = {each["key"]: each["value"] for each in dead[0]["headers"]}
    assert list(headers) == [
        "own",
        "horolog.topic",
        "horolog.partition",
        "horolog.timestamp",
        "horolog.error",
        "horolog.reason",
    ]
    assert (headers["horolog.topic"], headers["horolog.partition"]) == (b"bounded", b"0")
    assert int(headers["horolog.timestamp"]) > now_ms + 80_000_000
    assert headers["horolog.error"] == b"INVALID_TIMESTAMP"
    assert b"is out of range" in headers["horolog.reason"]


class Stream:
    """A stream from one topic to others, with its checkpoint."""

    def __init__(self, spark: Any, broker: RunningBroker, directory: Path) -> None:
        self.spark, self.broker, self.directory = spark, broker, directory

    def read(self, **options: str) -> Any:
        reader = self.spark.readStream.format("horolog").option("subscribe", "in")
        reader = reader.option("kafka.bootstrap.servers", self.broker.address)
        return reader.options(startingOffsets="earliest", **options).load()

    def write(self, frame: Any, mode: str = "append", **options: str) -> Any:
        writer = frame.writeStream.format("horolog").outputMode(mode).trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", self.broker.address).options(**options)
        query = writer.option("checkpointLocation", str(self.directory / "checkpoint")).start()
        try:
            query.awaitTermination()
            return query
        finally:
            query.stop()


@pytest.fixture
def stream(spark: Any, broker: RunningBroker, client: Client, tmp_path: Path) -> Stream:
    client.create_topics({"in": 2})
    frame = spark.range(100).selectExpr("cast(id as string) value", "id timestampMs")
    writer(frame, broker, topic="in").save()
    return Stream(spark, broker, tmp_path)


def with_attempts(frame: Any) -> Any:
    """For each row what its task knows of itself."""

    def attempts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # by value
        from horolog.spark.write.task import TaskAttempt  # noqa: PLC0415 - in the task

        for batch in batches:
            at = TaskAttempt.current()
            said = json.dumps([at.query_id, at.batch_id, at.partition, at.number])
            yield pa.RecordBatch.from_pydict({"value": [said] * batch.num_rows})

    return frame.mapInArrow(attempts, "value string")


def test_each_row_of_a_stream_is_written_and_its_attempt_is_known_to_the_task(
    stream: Stream, client: Client
) -> None:
    log = stream.read(maxOffsetsPerTrigger="60")
    query = stream.write(with_attempts(log), topic="out")
    assert sum(each["sink"]["numOutputRows"] for each in query.recentProgress) == 100
    stream.write(with_attempts(log), topic="out")  # nothing is left
    seen = Counter(tuple(json.loads(value)) for value in values_of(client, "out"))
    assert sum(seen.values()) == 100
    assert {(query_id, number) for query_id, _, _, number in seen} == {(query.id, 0)}
    assert {batch_id for _, batch_id, _, _ in seen} == {0, 1}


def test_a_result_is_appended_whole_in_mode_complete_and_not_in_mode_update(
    stream: Stream, client: Client
) -> None:
    counts = stream.read().groupBy("timestampType").count()
    counts = counts.selectExpr("cast(count as string) value")
    stream.write(counts, "complete", topic="counts")
    assert values_of(client, "counts") == [b"100"]
    with pytest.raises(PySparkException, match=r"^Output mode 'update' is not supported"):
        stream.write(counts, "update", topic="counts")


def test_what_a_stream_cannot_write_is_said_first(stream: Stream) -> None:
    with pytest.raises(PySparkException, match=r"^Option 'topic' is required where the rows"):
        stream.write(stream.read().select("value"))
