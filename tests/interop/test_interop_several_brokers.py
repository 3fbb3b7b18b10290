"""Source and sink against two Apache Kafka brokers, of which one is killed."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S
from streaming_query import Query, append
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka

from horolog.client import Client
from horolog.errors import HorologError
from horolog.sources import scan
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rows import SinkColumns
from horolog.spark.write.task import TaskCommitMessage, write_rows

# The controller takes a broker for dead after this long without a heartbeat.
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "log.retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}


@dataclass
class Cluster:
    """Two brokers; the first is the controller, too."""

    first: Kafka
    second: Kafka

    @property
    def address(self) -> str:
        return f"{self.first.bootstrap},{self.second.bootstrap}"

    def topic(self, client: Client, name: str) -> set[int]:
        """A topic of four partitions with replicas on both; who leads them."""
        deadline = time.monotonic() + PATIENCE_S
        while len(client.metadata().brokers) < 2:
            assert time.monotonic() < deadline, "the second broker does not join"
        client.create_topics({name: 4}, replication_factor=2)
        while time.monotonic() < deadline:
            partitions = client.metadata([name]).topics[name].partitions.values()
            if len(partitions) == 4 and all(len(each.isr) == 2 for each in partitions):
                break
        return {each.leader for each in partitions}


@pytest.fixture(params=[NEWEST, LAST_WITH_OLD_FORMATS])
def cluster(request: Any, tmp_path: Path) -> Iterator[Cluster]:
    with Kafka(tmp_path / "one", peer=request.param, settings=SETTINGS) as first:
        second = first.another(tmp_path / "two")
        try:
            second.start()
            yield Cluster(first, second)
        finally:
            second.kill()


def test_a_stream_reads_on_from_the_brokers_that_are_left(cluster: Cluster) -> None:
    with Client(cluster.address) as client:
        assert cluster.topic(client, "orders") == {1, 2}
        query = Query(cluster, startingOffsets="earliest")
        read = []
        for partition in range(4):
            append(client, "orders", partition, 50)
        read += query.next() or []
        for partition in range(4):
            append(client, "orders", partition, 50)
        assert query.plan()
        cluster.second.kill()
        read += query.run()
        for partition in range(4):
            append(client, "orders", partition, 50)
        deadline = time.monotonic() + PATIENCE_S
        while len(read) < 600:
            assert time.monotonic() < deadline
            read += query.next() or []
        query = query.again()
        assert query.next() is None
    assert sorted(read) == [("orders", p, offset) for p in range(4) for offset in range(150)]


def test_a_task_that_writes_finishes_with_the_brokers_that_are_left(cluster: Cluster) -> None:
    """Within an attempt nothing is missing, and nothing is there twice."""
    rows = 200_000

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, 10_000):
            if start == 120_000:
                cluster.second.kill()
            values = [f"{row:08d}" + "x" * 400 for row in range(start, start + 10_000)]
            yield pa.RecordBatch.from_pydict({"key": values, "value": values})

    with Client(cluster.address) as client:
        assert cluster.topic(client, "written") == {1, 2}
        done = _write(cluster, batches())
        assert done.records == rows
        table = scan(client, "written", columns=("value",)).read_all()
    found = [int(value[:8]) for value in table.column("value").to_pylist()]
    assert sorted(found) == [*range(rows)]
    for partition in range(4):
        mine = table.filter(pa.compute.equal(table.column("partition"), partition))
        numbers = [int(value[:8]) for value in mine.column("value").to_pylist()]
        assert numbers == sorted(numbers)


def _write(cluster: Cluster, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
    columns = SinkColumns.of([("key", "string"), ("value", "string")], "written")
    given = {
        "kafka.bootstrap.servers": cluster.address,
        "topic": "written",
        "kafka.delivery.timeout.ms": str(int(PATIENCE_S * 1000)),
    }
    try:
        return write_rows(batches, columns, WriteOptions.parse(given))
    except HorologError as error:
        pytest.fail(f"{error}\n{cluster.first.tail()}")
