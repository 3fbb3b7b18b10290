"""What a task of a write does, without Spark around it."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from committed import numbers_committed
from pyspark import TaskContext
from running_broker import RunningBroker

from horolog.client import Client, NoAnswer
from horolog.errors import Misconfigured, RequestRefused
from horolog.sources import scan
from horolog.spark.errors import RowsRefused
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rows import SinkColumns
from horolog.spark.write.task import TaskCommitMessage, commit_batch, write_rows

TEXT = ("value", "string")
TOPIC = ("topic", "string")


def write(
    address: str, fields: list[tuple[str, str]], *batches: pa.RecordBatch, **options: str
) -> TaskCommitMessage:
    asked = WriteOptions.parse({**options, "kafka.bootstrap.servers": address})
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


def in_task(properties: dict[str, str]) -> SimpleNamespace:
    """The context of a task that Spark runs with these local properties."""
    return SimpleNamespace(
        partitionId=lambda: 0, attemptNumber=lambda: 0, getLocalProperty=properties.get
    )


def in_query(batch: int) -> SimpleNamespace:
    """A task in the thread of a streaming query."""
    return in_task({"sql.streaming.queryId": "q", "streaming.sql.batchId": str(batch)})


ONCE = {"topic": "once", "exactlyOnce": "true", "writeName": "copy"}


def write_once(
    monkeypatch: pytest.MonkeyPatch, address: str, context: SimpleNamespace | None, **options: str
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    given = {"kafka.bootstrap.servers": address, **ONCE, **options}
    done = write(address, [TEXT], rows(value=["7"]), **given)
    commit_batch([done], WriteOptions.parse(given))


@pytest.mark.parametrize(
    "context",
    [None, in_task({}), in_task({"sql.streaming.queryId": "q"})],
    ids=["no context", "no properties", "no number"],
)
def test_a_batch_whose_number_is_not_known_is_refused(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, context: SimpleNamespace | None
) -> None:
    broker.client.create_topics({"once": 1})
    with pytest.raises(RowsRefused, match="set option 'writeBatch', in foreachBatch to the number"):
        write_once(monkeypatch, broker.address, context)
    assert numbers_committed(broker.client, "once") == []


def test_equal_batches_of_other_numbers_are_all_written_and_repeats_are_not(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.client.create_topics({"once": 1})
    for number, context in enumerate((None, in_task({}), in_query(2), None)):
        for _ in range(2):
            write_once(monkeypatch, broker.address, context, writeBatch=str(number))
    assert numbers_committed(broker.client, "once") == [7] * 4
    with pytest.raises(RequestRefused, match="gone on to batch 3"):
        write_once(monkeypatch, broker.address, None, writeBatch="2")


def test_a_number_that_is_not_the_micro_batchs_is_refused(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.client.create_topics({"once": 1})
    with pytest.raises(RowsRefused, match="'writeBatch' is 0, and the micro-batch has number 1"):
        write_once(monkeypatch, broker.address, in_query(1), writeBatch="0")
    with pytest.raises(Misconfigured, match="Spark numbers the micro-batches of a stream"):
        WriteOptions.parse(
            {"kafka.bootstrap.servers": broker.address, **ONCE, "writeBatch": "0"}
        ).refuse_batch_number()


def test_tasks_of_another_micro_batch_than_spark_commits_are_refused(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.client.create_topics({"once": 1})
    monkeypatch.setattr(TaskContext, "get", lambda: in_query(0))
    given = {"kafka.bootstrap.servers": broker.address, **ONCE}
    done = write(broker.address, [TEXT], rows(value=["7"]), **given)
    with pytest.raises(RowsRefused, match="Tasks have written batch 0, and Spark commits 1"):
        commit_batch([done], WriteOptions.parse(given), batch_id=1)
    commit_batch([done], WriteOptions.parse(given), batch_id=0)
    assert numbers_committed(broker.client, "once") == [7]
