"""Option `exactlyOnce` on a real Spark: attempts die, come again and differ; rows are counted.

What is slow here is in test_write_transactions.py and test_rejected_times.py without Spark's
engine.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from committed import numbers_committed
from pyspark.errors import PySparkException
from running_broker import RunningBroker

from horolog.client import Client

pytestmark = pytest.mark.spark

ROWS = 400


def dying(spark: Any, directory: Path) -> Callable[[str], None]:
    """Register the format "dying": horolog's own, which dies once at a place that is set."""
    marks = str(directory)

    def register() -> None:  # what is in here is pickled by value
        import os  # noqa: PLC0415

        from horolog.spark.source.log_source import LogSource  # noqa: PLC0415
        from horolog.spark.write.sink import LogStreamWriter  # noqa: PLC0415

        def die_at(place: str) -> None:
            try:
                os.unlink(f"{marks}/{place}")
            except FileNotFoundError:
                return
            raise RuntimeError(f"dies at {place}")

        class DyingWriter(LogStreamWriter):
            def write(self, iterator: Any) -> Any:
                from pyspark import TaskContext  # noqa: PLC0415

                task = TaskContext.get().partitionId()

                def rows() -> Any:
                    yield from iterator
                    die_at(f"task {task} before its last rows")

                message = super().write(rows())
                die_at(f"task {task} after its rows")
                return message

            def commit(self, messages: Any, batchId: int) -> None:
                die_at("before the commit")
                super().commit(messages, batchId)
                die_at("after the commit")

        class Dying(LogSource):
            @classmethod
            def name(cls) -> str:
                return "dying"

            def streamWriter(self, schema: Any, overwrite: bool) -> Any:
                return DyingWriter(*self._sink(schema))

        spark.dataSource.register(Dying)

    register()
    return lambda place: (directory / place).touch()


class Stream:
    """A stream from one topic into another, exactly once, with its checkpoint."""

    def __init__(self, spark: Any, broker: RunningBroker, client: Client, tmp_path: Path) -> None:
        self.spark, self.broker, self.client, self.path = spark, broker, client, tmp_path
        self.die_at = dying(spark, tmp_path)

    def produce(self, first: int) -> None:
        frame = self.spark.range(first, first + ROWS).selectExpr("cast(id as string) value")
        broker = {"kafka.bootstrap.servers": self.broker.address}
        frame.write.format("horolog").options(topic="in", **broker).mode("append").save()

    def run(self, change: Callable[[Any], Any] = lambda frame: frame, **options: str) -> Any:
        broker = {"kafka.bootstrap.servers": self.broker.address}
        frame = self.spark.readStream.format("horolog").options(subscribe="in", **broker)
        frame = frame.options(startingOffsets="earliest", minPartitions="2").load()
        frame = change(frame.selectExpr("cast(value as string) value"))
        writer = frame.writeStream.format("dying").trigger(availableNow=True).options(**broker)
        writer = writer.options(topic="out", exactlyOnce="true", **options)
        query = writer.option("checkpointLocation", str(self.path / "checkpoint")).start()
        try:
            query.awaitTermination()
            return query
        finally:
            query.stop()


@pytest.fixture
def stream(spark: Any, broker: RunningBroker, client: Client, tmp_path: Path) -> Stream:
    client.create_topics({"in": 2, "out": 2})
    stream = Stream(spark, broker, client, tmp_path)
    stream.produce(0)
    return stream


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "task 0 before its last rows",
        "task 1 after its rows",
        "before the commit",
        "after the commit",
    ],
)
def test_a_batch_that_died_anywhere_is_written_once(
    stream: Stream, client: Client, place: str
) -> None:
    stream.run(**{"kafka.batch.size": "500"})
    assert numbers_committed(client, "out") == list(range(ROWS))
    stream.produce(ROWS)
    stream.die_at(place)
    with pytest.raises(PySparkException, match=f"dies at {place}"):
        stream.run(**{"kafka.batch.size": "500"})
    stream.broker.restart()
    client.create_partitions({"out": 4})
    query = stream.run(**{"kafka.batch.size": "900", "kafka.compression.type": "zstd"})
    assert numbers_committed(client, "out") == list(range(2 * ROWS))
    assert client.offset_fetch(f"horolog/batch/{query.id}", require_stable=True)
    stream.produce(2 * ROWS)
    stream.run()
    assert numbers_committed(client, "out") == list(range(3 * ROWS))


@pytest.mark.slow
def test_a_batch_whose_driver_died_before_its_commit_may_be_written_by_another_plan(
    stream: Stream, client: Client
) -> None:
    stream.die_at("before the commit")
    with pytest.raises(PySparkException, match="dies at before the commit"):
        stream.run()
    query = stream.run(
        lambda frame: frame.selectExpr("cast(1000 + value as string) value").coalesce(1)
    )
    # The first plan's other task is open until its time is over, or its id is taken over.
    client.init_transactions(f"horolog/task/1/{query.id}", transaction_timeout_ms=60_000)
    assert numbers_committed(client, "out") == list(range(1000, 1000 + ROWS))


@pytest.mark.slow
def test_another_plan_for_a_batch_that_is_committed_is_refused_and_the_old_one_goes_on(
    stream: Stream, client: Client
) -> None:
    stream.die_at("after the commit")
    with pytest.raises(PySparkException, match="dies at after the commit"):
        stream.run()
    for change in (
        lambda frame: frame.selectExpr("cast(1000 + value as string) value"),
        lambda frame: frame.coalesce(1),
    ):
        with pytest.raises(PySparkException, match=r"docs/exactly-once\.md"):
            stream.run(change)
        assert numbers_committed(client, "out") == list(range(ROWS))
    stream.run()
    assert numbers_committed(client, "out") == list(range(ROWS))


def test_a_named_batch_is_written_once(spark: Any, broker: RunningBroker, client: Client) -> None:
    frame = spark.range(ROWS).selectExpr("cast(id as string) value")

    def write(frame: Any, **options: str) -> None:
        broker_of = {"kafka.bootstrap.servers": broker.address}
        writer = frame.write.format("horolog").options(topic="named", **broker_of, **options)
        writer.option("exactlyOnce", "true").mode("append").save()

    for _ in range(2):
        write(frame, writeName="import of May", writeBatch="0")
        assert numbers_committed(client, "named") == list(range(ROWS))
    with pytest.raises(PySparkException, match=r"was committed, at least in part, with other rows"):
        write(
            spark.range(5, 5 + ROWS).selectExpr("cast(id as string) value"),
            writeName="import of May",
            writeBatch="0",
        )
    assert numbers_committed(client, "named") == list(range(ROWS))
    with pytest.raises(PySparkException, match=r"^A batch that is written with option"):
        write(frame)
    with pytest.raises(PySparkException, match=r"^It is not known which batch is written"):
        write(frame, writeName="import of June")
    with ThreadPoolExecutor(1) as pool:  # a thread without an active session
        pool.submit(lambda: write(frame, writeName="import of June", writeBatch="0")).result()
    assert Counter(numbers_committed(client, "named")) == dict.fromkeys(range(ROWS), 2)


def test_each_micro_batch_of_foreach_batch_is_written_once(stream: Stream, client: Client) -> None:
    broker = {"kafka.bootstrap.servers": stream.broker.address}
    failing = [True]

    def write(frame: Any, batch: int) -> None:
        for topic in ("left", "right"):
            writer = frame.write.format("horolog").options(topic=topic, **broker)
            writer.options(exactlyOnce="true", writeName=topic).mode("append").save()
            if failing and topic == "left":
                failing.clear()
                raise RuntimeError("between the two")

    for dies in (True, False):
        reader = stream.spark.readStream.format("horolog").options(subscribe="in", **broker)
        frame = reader.option("startingOffsets", "earliest").load().select("value")
        writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(stream.path / "each")).start()
        if dies:
            with pytest.raises(PySparkException, match="between the two"):
                query.awaitTermination()
        else:
            query.awaitTermination()
    assert numbers_committed(client, "left") == list(range(ROWS))
    assert numbers_committed(client, "right") == list(range(ROWS))


def test_threads_of_foreach_batch_write_each_micro_batch_once_by_its_number(
    stream: Stream, client: Client
) -> None:
    """Each micro-batch has equal rows, so that a batch that is taken for another is not missed."""
    broker = {"kafka.bootstrap.servers": stream.broker.address}
    topics, knows_number = ("left", "right"), False
    client.create_topics(dict.fromkeys(topics, 2))

    def write(frame: Any, batch: int) -> None:
        number = {"writeBatch": str(batch)} if knows_number else {}

        def write_to(topic: str) -> None:
            writer = frame.write.format("horolog").options(topic=topic, **broker, **number)
            writer.options(exactlyOnce="true", writeName=topic).mode("append").save()

        with ThreadPoolExecutor(len(topics)) as pool:
            list(pool.map(write_to, topics))

    def run() -> None:
        reader = stream.spark.readStream.format("horolog").options(subscribe="in", **broker)
        reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS // 2))
        frame = reader.load().selectExpr("'7' value")
        writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(stream.path / "threads"))
        writer.start().awaitTermination()

    with pytest.raises(PySparkException, match="It is not known which batch is written"):
        run()
    assert [numbers_committed(client, topic) for topic in topics] == [[], []]
    knows_number = True
    run()
    assert [numbers_committed(client, topic) for topic in topics] == [[7] * ROWS] * 2


@pytest.mark.slow
@pytest.mark.parametrize("place", ["task 0 after its rows", "before the commit"])
def test_dead_letters_are_there_once_whatever_dies(
    stream: Stream, client: Client, place: str
) -> None:
    """Every fifth row has a time of the year 2100, which the topic does not take."""
    client.create_topics({"dead": 2})
    at_ms = "if(cast(value as int) % 5 = 0, 4102444800000L, 1000L) timestampMs"
    letters = {"onInvalidTimestamp": "deadLetter", "deadLetterTopic": "dead"}

    def run() -> None:
        stream.run(lambda frame: frame.selectExpr("value", at_ms), **letters)

    stream.die_at(place)
    with pytest.raises(PySparkException, match=f"dies at {place}"):
        run()
    run()
    assert numbers_committed(client, "out") == [each for each in range(ROWS) if each % 5]
    assert numbers_committed(client, "dead") == [*range(0, ROWS, 5)]
