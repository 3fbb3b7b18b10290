"""Brokers of Kafka and of horolog in one cluster: kills in turn, moves, and swapped directories."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster_faults import ClusterFaults
from cluster_history import ClusterHistory
from cluster_load import Writer, read_all
from cluster_soak import problems_of_files
from confluent_kafka.admin import AdminClient, NewTopic
from patience import eventually
from tools.cluster import Cluster
from tools.peers.kafka import BEFORE_NEWEST, LAST_WITH_OLD_FORMATS, NEWEST

TOPIC = "t"


class Kind(NamedTuple):
    """A cluster to try."""

    brokers: str
    peer: str = NEWEST
    controllers: int = 1
    is_dynamic: bool = False


KINDS = (
    Kind("khh"),
    Kind("kkh", controllers=3, is_dynamic=True),
    Kind("khh", BEFORE_NEWEST),
    Kind("khh", LAST_WITH_OLD_FORMATS, is_dynamic=True),
    Kind("hhh", BEFORE_NEWEST),
)


class Running:
    """A cluster with a topic that a writer writes to all the time."""

    def __init__(self, directory: Path, kind: Kind, stack: ExitStack) -> None:
        brokers, peer, controllers, is_dynamic = kind
        self.cluster = Cluster(
            directory,
            brokers,
            controllers,
            peer=peer,
            is_dynamic=is_dynamic,
            of_controllers={"broker.session.timeout.ms": "6000"},
        )
        stack.callback(self.cluster.close)
        self.cluster.start()
        self.cluster.wait_until_ready()
        settings = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        topic = NewTopic(TOPIC, 3, len(brokers), config=settings)
        for future in admin.create_topics([topic]).values():
            future.result(120)
        self.faults = ClusterFaults(self.cluster, [TOPIC], 1)
        self.history = ClusterHistory()
        self.writer = Writer(
            "w", self.cluster.bootstrap, self.history, 1, topic=TOPIC, is_idempotent=True
        )
        self.writer.start()
        stack.callback(self.writer.over.set)
        self.await_writes()

    def await_writes(self, count: int = 200) -> None:
        """Wait until that many more records are acknowledged."""
        before = self.history.count
        said = eventually(lambda: self.history.count > before + count)
        assert said, (self.faults.lags(), self.history.wrong, self.writer.failure)

    def await_whole(self) -> None:
        """Wait until each replica is in sync."""
        assert eventually(lambda: not self.faults.lags(), 300), self.faults.lags()

    def finish(self) -> None:
        """Stop the writer, and compare what is there with what it was told."""
        self.writer.over.set()
        self.writer.join(180)
        assert not self.writer.is_alive()
        self.await_whole()
        stored = read_all(self.cluster.bootstrap, [TOPIC], "read_uncommitted")
        assert self.history.problems(stored, {}) == []


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind.brokers}-{kind.peer}")
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(tmp_path, request.param, stack)


def test_replicas_are_equal_after_each_broker_was_killed(running: Running) -> None:
    cluster = running.cluster
    for node in cluster.nodes:
        running.faults.restore()
        running.await_whole()
        running.faults.elect_preferred()  # each leads a partition
        running.await_writes()
        node.kill()
        running.await_writes()  # others lead
        node.start()
        running.await_whole()
    running.finish()
    cluster.stop()
    assert list(problems_of_files(cluster.nodes, [TOPIC])) == []


def test_partition_moves_to_each_broker_and_back(running: Running) -> None:
    for node in (*running.cluster.nodes, running.cluster.nodes[0]):
        for partition in range(3):
            running.faults.move(TOPIC, partition, [node.node_id])
        assert eventually(partial(_is_only, running, node.node_id))
        running.await_writes()
    running.faults.restore()
    running.finish()


def _is_only(running: Running, broker_id: int) -> bool:
    return running.faults.replicas(TOPIC) == {broker_id}


def test_broker_of_another_kind_goes_on_in_a_directory(tmp_path: Path) -> None:
    """Kafka where horolog was and back, without a copy of anything."""
    with ExitStack() as stack:
        running = Running(tmp_path, Kind("khh"), stack)
        cluster = running.cluster
        for kinds in ("hkh", "khh"):
            for node, kind in zip(cluster.nodes, kinds, strict=True):
                if node.kind != kind:
                    node.stop()
                    node.kind = "k" if kind == "k" else "h"
                    node.start()
                    running.await_whole()
                    running.await_writes()
        running.finish()
        cluster.stop()
        assert list(problems_of_files(cluster.nodes, [TOPIC])) == []
