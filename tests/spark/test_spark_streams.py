"""What a user does with `readStream`, on a real Spark."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark.errors import PySparkException, StreamingQueryException
from running_broker import RunningBroker
from stream_run import Run

from horolog.client import Client
from horolog.record import LogRecord, build_batch

NINE_MS = 1_700_000_000_000

pytestmark = pytest.mark.spark


def append(client: Client, topic: str, partition: int, values: range) -> None:
    records = [LogRecord(NINE_MS + n, b"k", b"%d" % n, (("h", b"1"),)) for n in values]
    client.produce(topic, partition, build_batch(records))


@pytest.fixture
def clicks(spark: Any, broker: RunningBroker, client: Client) -> Callable[..., Any]:
    """Streams of a topic of two partitions."""
    broker.create_topic("clicks", partitions=2)

    def read(**options: str) -> Any:
        reader = spark.readStream.format("horolog").option("subscribe", "clicks")
        return reader.option("kafka.bootstrap.servers", broker.address).options(**options).load()

    return read


def test_what_is_available_is_read_once_over_restarts(
    spark: Any, clicks: Any, client: Client, tmp_path: Path
) -> None:
    append(client, "clicks", 0, range(30))
    append(client, "clicks", 1, range(30, 40))
    frame = clicks(
        startingOffsets="earliest",
        maxOffsetsPerTrigger="20",
        includeHeaders="true",
        commitOffsetsToGroup="lag",
    )
    run = Run(spark, frame, tmp_path)
    assert run.to_the_end() == [*range(40)]
    offsets = run.offsets()
    assert {each.pop("ids")["clicks"] for each in offsets} != {""}
    assert offsets == [
        {
            "version": 1,
            "offsets": {"clicks": {"0": 15, "1": 5}},
            "starts": {"clicks": {"0": 0, "1": 0}},
        },
        {"version": 1, "offsets": {"clicks": {"0": 30, "1": 10}}},
    ]
    append(client, "clicks", 1, range(40, 45))
    assert run.to_the_end() == [*range(45)]
    assert run.to_the_end() == [*range(45)]
    committed = client.offset_fetch("lag")
    assert {each: it and it.offset for each, it in committed.items()} == {
        ("clicks", 0): 30,
        ("clicks", 1): 15,
    }


def test_a_query_that_is_not_told_when_it_is_done_commits_to_no_group(
    spark: Any, clicks: Any, client: Client, tmp_path: Path
) -> None:
    append(client, "clicks", 0, range(30))

    def run(trigger: str, **options: str) -> None:
        frame = clicks(startingOffsets="earliest", **options)
        writer = frame.writeStream.format("noop").trigger(**{trigger: True})
        writer.option("checkpointLocation", tmp_path / trigger).start().awaitTermination()

    run("once")
    for limit in ({}, {"maxOffsetsPerTrigger": "20"}, {"minOffsetsPerTrigger": "20"}):
        with pytest.raises(StreamingQueryException, match="cannot be with trigger"):
            run("once", commitOffsetsToGroup="lag", **limit)
    assert client.offset_fetch("lag") == {}
    for end in (30, 35):
        run("availableNow", commitOffsetsToGroup="lag")
        assert client.offset_fetch("lag")["clicks", 0].offset == end
        append(client, "clicks", 0, range(30, 35))


def test_a_growing_directory_is_read_as_the_broker_is(
    spark: Any, clicks: Any, client: Client, broker: RunningBroker, tmp_path: Path
) -> None:
    append(client, "clicks", 0, range(30))
    reader = spark.readStream.format("horolog").option("startingOffsets", "earliest")
    run = Run(spark, reader.load(str(broker.log_dir)), tmp_path)
    assert run.to_the_end() == [*range(30)]
    append(client, "clicks", 1, range(30, 35))
    assert run.to_the_end() == [*range(35)]


def test_a_first_batch_that_fails_loses_nothing_after_a_restart(
    clicks: Any, client: Client, tmp_path: Path
) -> None:
    append(client, "clicks", 0, range(5))
    seen: list[int] = []
    failing = [True]

    def write(rows: Any, batch: int) -> None:
        values = [int(bytes(row.value)) for row in rows.collect()]
        if values and failing:
            failing.pop()
            raise RuntimeError("the sink is full")
        seen.extend(values)

    def start() -> Any:
        writer = clicks().writeStream.foreachBatch(write)
        return writer.option("checkpointLocation", str(tmp_path)).start()

    query = start()
    try:
        query.processAllAvailable()  # at the latest offsets
        append(client, "clicks", 0, range(5, 8))
        with pytest.raises(StreamingQueryException, match="the sink is full"):
            query.processAllAvailable()
    finally:
        query.stop()
    append(client, "clicks", 1, range(8, 10))
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(seen) == [5, 6, 7, 8, 9]


def test_a_partition_that_is_added_is_read_from_its_beginning(
    spark: Any, clicks: Any, client: Client, tmp_path: Path
) -> None:
    run = Run(spark, clicks(), tmp_path)
    query = run.now(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        append(client, "clicks", 0, range(3))
        query.processAllAvailable()
        client.create_partitions({"clicks": 3})
        append(client, "clicks", 2, range(3, 6))
        give_up = time.monotonic() + PATIENCE_S
        while len(run.values()) < 6 and time.monotonic() < give_up:
            query.processAllAvailable()  # until the new partition is known
        assert json.loads(query.lastProgress["sources"][0]["latestOffset"])["version"] == 1
    finally:
        query.stop()
    assert run.values() == [*range(6)]


def test_columns_and_transformations_of_a_stream_are_those_of_a_batch(
    spark: Any, clicks: Any, client: Client
) -> None:
    append(client, "clicks", 0, range(4))
    frame = clicks(startingOffsets="earliest", columns="timestampMs,partition,value")
    assert frame.isStreaming
    assert frame.dtypes == [("timestampMs", "bigint"), ("partition", "int"), ("value", "binary")]
    frame = frame.where("timestampMs > 1700000000000").groupBy("partition").count()
    query = frame.writeStream.format("memory").queryName("counted").outputMode("complete")
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row) for row in spark.table("counted").collect()] == [(0, 3)]


def test_what_a_stream_cannot_do_is_said_in_a_sentence(
    spark: Any, clicks: Any, client: Client, broker: RunningBroker, tmp_path: Path
) -> None:
    def start(frame: Any, name: str) -> Any:
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / name)).start()

    files = spark.readStream.format("horolog").option("subscribe", "orders")
    with pytest.raises(PySparkException, match="There is no topic orders") as of_path:
        start(files.load(str(broker.log_dir)), "a").awaitTermination()
    append(client, "clicks", 0, range(10))
    query = start(clicks(startingOffsets="earliest", maxOffsetsPerTrigger="5"), "b")
    query.awaitTermination()
    append(client, "clicks", 0, range(10, 20))
    broker.log("clicks", 0).delete_records(15)
    with pytest.raises(PySparkException, match="from offset 10, and starts at 15 now") as lost:
        start(clicks(startingOffsets="earliest"), "b").awaitTermination()
    for raised in (of_path, lost):
        assert "Traceback" not in str(raised.value).split("JVM stacktrace")[0]


def test_a_query_that_is_stopped_amid_foreach_batch_overflows_no_stack(spark: Any) -> None:
    """Spark searches the error's text, with the stack traces of Python and the JVM in it."""
    text = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.count.\n"
    text += ": java.lang.InterruptedException: " + "at a frame of a stack\n" * 900
    error = spark._jvm.py4j.Py4JException(text)
    engine = spark._jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    context = spark.sparkContext._jsc.sc()
    assert engine.isInterruptionException(error, context)
