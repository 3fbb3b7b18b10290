"""What a task of a write does, without Spark around it."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from running_broker import RunningBroker

from horolog.client import Client, NoAnswer
from horolog.errors import Misconfigured
from horolog.sources import scan
from horolog.spark.errors import RowsRefused
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rows import SinkColumns
from horolog.spark.write.task import TaskCommitMessage, write_rows

TEXT = ("value", "string")
TOPIC = ("topic", "string")


def write(
    address: str, fields: list[tuple[str, str]], *batches: pa.RecordBatch, **options: str
) -> TaskCommitMessage:
    asked = WriteOptions.parse({"kafka.bootstrap.servers": address, **options})
    return write_rows(iter(batches), SinkColumns.of(fields, asked.topic), asked)


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def values(client: Client, topic: str) -> list[int]:
    table = scan(client, topic, columns=("value",)).read_all()
    return [int(value) for value in table.column("value").to_pylist()]


def test_rows_of_mixed_topics_are_appended_in_order_and_counted(broker: RunningBroker) -> None:
    chance = random.Random(3)
    topics = [chance.choice(["a", "b", "c"]) for _ in range(3_000)]
    batches = [
        rows(
            value=[str(row) for row in range(first, first + 100)],
            topic=topics[first : first + 100],
        )
        for first in range(0, 3_000, 100)
    ]
    appended = write(broker.address, [TEXT, TOPIC], *batches)
    assert appended.records == 3_000
    for topic in ("a", "b", "c"):
        expected = [row for row in range(3_000) if topics[row] == topic]
        assert values(broker.client, topic) == expected
        assert appended.offsets[topic] == {0: (0, len(expected) - 1)}


def test_small_batches_of_keyless_rows_do_not_all_go_to_one_partition(
    broker: RunningBroker, client: Client
) -> None:
    client.create_topics({"spread": 3})
    partitions = set()
    for _ in range(20):
        appended = write(broker.address, [TEXT], rows(value=["1", "2"]), topic="spread")
        (partition,) = appended.offsets["spread"]
        partitions.add(partition)
    assert len(partitions) > 1


def test_a_task_without_rows_needs_no_broker() -> None:
    assert write("127.0.0.1:9", [TEXT], rows(value=["x"]).slice(1), topic="t").records == 0


def test_what_ends_a_task_in_its_middle_is_said_as_it_is(broker: RunningBroker) -> None:
    good = rows(value=["1"], topic=["a"])
    with pytest.raises(RowsRefused, match="Row 1 of a task has no topic"):
        write(broker.address, [TEXT, TOPIC], good, rows(value=["2"], topic=pa.nulls(1, pa.utf8())))

    def breaking() -> Iterator[pa.RecordBatch]:
        yield rows(value=["1"])
        yield rows(value=["2"])
        raise EOFError("Spark is gone")

    asked = WriteOptions.parse({"kafka.bootstrap.servers": broker.address, "topic": "a"})
    with pytest.raises(EOFError, match="Spark is gone"):
        write_rows(breaking(), SinkColumns.of([TEXT], "a"), asked)


@pytest.mark.parametrize(
    ("fields", "batch", "said"),
    [
        (
            [TEXT, ("partition", "int")],
            rows(value=["1", "2"], partition=pa.array([0, -1], pa.int32())),
            "Rows for topic t cannot be written: Row 1 names partition -1; there are 1",
        ),
        (
            [TEXT, ("headers", "array<struct<key:string,value:binary>>")],
            rows(value=["1"], headers=[[{"key": None, "value": b"v"}]]),
            "Rows for topic t cannot be written: A header or its key is null",
        ),
    ],
)
def test_rows_that_are_no_records_are_named(
    broker: RunningBroker, fields: list[tuple[str, str]], batch: pa.RecordBatch, said: str
) -> None:
    with pytest.raises(RowsRefused, match=said):
        write(broker.address, fields, batch, topic="t")


def test_brokers_that_refuse_or_do_not_answer_are_named(broker: RunningBroker) -> None:
    with pytest.raises(Misconfigured, match="'no/topic' contains one or more characters other"):
        write(broker.address, [TEXT], rows(value=["1"]), topic="no/topic")
    gone = {"kafka.delivery.timeout.ms": "50", "topic": "t"}
    with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:9"):
        write("127.0.0.1:9", [TEXT], rows(value=["1"]), **gone)
