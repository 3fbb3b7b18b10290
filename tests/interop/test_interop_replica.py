"""Replicas of ours that follow Apache Kafka's brokers, under Apache Kafka's controllers.

The test registers node 2 with the controller, says that it lives, and takes its roles.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from controller_asker import ControllerAsker
from leading_log import stored_in
from patience import PATIENCE_S, eventually
from replica_node import ReplicaNode
from tools.cluster import Cluster
from tools.peers.kafka import BEFORE_NEWEST, LAST_WITH_OLD_FORMATS, NEWEST

from horolog.client import Address, Client
from horolog.clock import SystemClock
from horolog.config import TopicConfig
from horolog.record import Codec, LogRecord, build_batch
from horolog.storage import Origin, SourceBatches
from horolog.wire import ApiKey

NODE = 2
SETTINGS = {"log.retention.ms": "-1", "log.initial.task.delay.ms": "86400000"}
OF_CONTROLLERS = {"broker.session.timeout.ms": "15000"}
HEARTBEAT_S = 1.0


class MixedCluster:
    """A controller and a broker of Kafka, and node 2, which is the test."""

    def __init__(self, path: Path, peer: str) -> None:
        self.cluster = Cluster(
            path / "cluster", "k", peer=peer, settings=SETTINGS, of_controllers=OF_CONTROLLERS
        )
        self.heartbeat_version = 1 if peer == LAST_WITH_OLD_FORMATS else 2
        self.path = path
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self._is_over = threading.Event()
        self._is_alive = False

    def __enter__(self) -> "MixedCluster":
        cluster, stack = self.cluster, self._stack
        stack.callback(cluster.close)
        cluster.start()
        cluster.wait_until_ready()
        address = cluster.controllers[0].address
        self.asker = stack.enter_context(ControllerAsker(address, cluster.cluster_id))
        self.client = stack.enter_context(
            closing(Client(cluster.bootstrap, timeout_ms=int(1000 * PATIENCE_S)))
        )
        host, port = cluster.nodes[0].address.split(":")
        self.addresses = {1: Address(host, int(port))}
        beating = threading.Thread(target=self._beat)
        stack.callback(beating.join)
        stack.callback(self._is_over.set)
        beating.start()
        self.join()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _beat(self) -> None:
        while not self._is_over.wait(HEARTBEAT_S):
            with self._lock:
                if self._is_alive:
                    self.heartbeat()

    def leave(self, *topics: str) -> None:
        """Have node 2 forgotten, and wait until it is in no ISR."""
        with self._lock:
            self._is_alive = False
            answer = self.asker.ask(ApiKey.UNREGISTER_BROKER, broker_id=NODE)
        assert not answer.error_code, answer
        for topic in topics:
            assert eventually(lambda topic=topic: self.partition(topic).isr == (1,))  # type: ignore[misc]

    def join(self) -> None:
        """Register node 2 anew, under another broker epoch, and let it be unfenced."""
        with self._lock:
            assert not self.asker.register(NODE).error_code
            self._is_alive = True
        assert eventually(lambda: not self.heartbeat().is_fenced)

    def heartbeat(self, **changed: Any) -> Any:
        fields = {
            "broker_id": NODE,
            "broker_epoch": self.asker.epochs[NODE],
            "current_metadata_offset": 1 << 40,
            "want_fence": False,
            "want_shut_down": False,
            **changed,
        }
        with self._lock:
            return self.asker.ask(ApiKey.BROKER_HEARTBEAT, self.heartbeat_version, **fields)

    def create(self, topic: str, assignment: Sequence[int] = (1, NODE), **settings: str) -> None:
        with self._lock:
            answer = self.asker.create(topic, [assignment], **settings)
        assert not answer.error_code, answer

    def delete_records(self, topic: str, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            assert done.result().low_watermark == offset

    def partition(self, topic: str) -> Any:
        """What the metadata of the cluster say of it now."""
        with self._lock:
            return self.asker.follow().topics[topic].partitions[0]

    def follow(self, node: ReplicaNode, topic: str) -> None:
        """Let the node have the role that the metadata say."""
        assert eventually(lambda: self.partition(topic).leader == 1)
        with self._lock:
            its = self.asker.follow().topics[topic]
        node.follow(1, its.partitions[0].leader_epoch, its.topic_id, topic=topic)

    def node(self, **more: Any) -> ReplicaNode:
        with self._lock:
            level = self.asker.follow().features["metadata.version"]
        return ReplicaNode(
            self.path / "replica",
            self.addresses,
            broker_epoch=lambda: self.asker.epochs[NODE],
            level=level,
            clock=SystemClock(),
            config=TopicConfig(retention_ms=-1, segment_bytes=1 << 20),
            **more,
        )

    def is_followed(self, node: ReplicaNode, topic: str) -> bool:
        """Whether the logs come to be equal, with what is readable."""
        log = self.cluster.nodes[0].log_dir / f"{topic}-0"

        def are_equal() -> bool:
            theirs = b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))
            return stored_in(node.log(topic)) == theirs.rstrip(b"\0") or (
                stored_in(node.log(topic)) == theirs
            )

        return eventually(are_equal)


def batch(number: int, count: int = 5, size: int = 100) -> bytes:
    now_ms = SystemClock().now_ms()
    records = [LogRecord(now_ms + each, b"%d" % each, os.urandom(size)) for each in range(count)]
    return build_batch(records, codec=tuple(Codec)[number % 5])


def fill(client: Client, topic: str, count: int, *, size: int = 100) -> None:
    for number in range(count):
        client.produce(topic, 0, batch(number, size=size))


@pytest.fixture(params=[NEWEST])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path, request.param) as mixed:
        yield mixed


@pytest.mark.parametrize("mixed", [NEWEST, BEFORE_NEWEST, LAST_WITH_OLD_FORMATS], indirect=True)
def test_kafka_takes_a_replica_of_ours_for_its_own(mixed: MixedCluster) -> None:
    """It is in sync again, acks=all waits for it, and all bytes are the leader's."""
    mixed.create("t", min_insync_replicas="2", segment_bytes="1048576")
    assert mixed.partition("t").isr == (1, NODE)
    with mixed.node() as node:
        mixed.follow(node, "t")
        fill(mixed.client, "t", 50)  # by default acks=all
        assert mixed.is_followed(node, "t")
        producer = Producer({"bootstrap.servers": mixed.cluster.bootstrap, "acks": "all"})
        for number in range(1_000):
            producer.produce("t", os.urandom(1 + number % 7 * 2_000), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        assert mixed.is_followed(node, "t")
        log = node.log("t")
        assert eventually(lambda: log.high_watermark == log.log_end_offset)
        assert len(log.segments) > 5
        assert mixed.partition("t").isr == (1, NODE)


def test_a_replica_that_comes_back_is_taken_into_the_isr_again(mixed: MixedCluster) -> None:
    mixed.create("t")
    with mixed.node() as node:
        mixed.follow(node, "t")
        fill(mixed.client, "t", 5)
    mixed.leave("t")
    fill(mixed.client, "t", 20)
    mixed.join()
    with mixed.node() as node:
        mixed.follow(node, "t")
        assert mixed.is_followed(node, "t")
        assert eventually(lambda: mixed.partition("t").isr == (1, NODE))


def test_what_kafka_never_had_is_cut(mixed: MixedCluster) -> None:
    mixed.create("t")
    with mixed.node() as node:
        mixed.follow(node, "t")
        fill(mixed.client, "t", 10)
        assert mixed.is_followed(node, "t")
        partition = node.partitions.popitem()[1]
        node.call(lambda: node.fetchers.stop(partition))
        log = partition.log
        tail = b"".join(
            build_batch(
                [LogRecord(SystemClock().now_ms(), None, b"lost")],
                base_offset=log.log_end_offset + number,
                leader_epoch=log.leader_epoch,
            )
            for number in range(7)
        )
        now_ms = SystemClock().now_ms()
        log.append(SourceBatches(tail), now_ms, Origin.FOLLOWER)
    # Kafka leads again in a later epoch, and writes something else.
    mixed.leave("t")
    epoch = mixed.partition("t").leader_epoch
    mixed.cluster.nodes[0].stop()
    assert eventually(lambda: mixed.partition("t").leader == -1)
    mixed.cluster.nodes[0].start()
    assert eventually(lambda: mixed.partition("t").leader == 1)
    mixed.join()
    assert mixed.partition("t").leader_epoch > epoch
    fill(mixed.client, "t", 3)
    with mixed.node() as node:
        assert node.log("t").log_end_offset == 57
        mixed.follow(node, "t")
        assert mixed.is_followed(node, "t")
        theirs = mixed.cluster.nodes[0].log_dir / "t-0" / "leader-epoch-checkpoint"
        ours = node.path / "t-0" / "leader-epoch-checkpoint"
        assert eventually(lambda: ours.read_text() == theirs.read_text())


def test_what_kafka_has_deleted_is_left_out(mixed: MixedCluster) -> None:
    mixed.create("t", segment_bytes="1048576", file_delete_delay_ms="0")
    with mixed.node() as node:
        mixed.follow(node, "t")
        fill(mixed.client, "t", 2)
        assert mixed.is_followed(node, "t")
    mixed.leave("t")
    fill(mixed.client, "t", 100, size=10_000)
    mixed.delete_records("t", 250)
    mixed.join()
    with mixed.node() as node:
        mixed.follow(node, "t")
        assert node.has_reached(510, committed=510, topic="t")
        log = node.log("t")
        assert log.log_start_offset == 250
        theirs = mixed.cluster.nodes[0].log_dir / "t-0"
        stored = b"".join(path.read_bytes() for path in sorted(theirs.glob("*.log")))
        assert stored.endswith(stored_in(log)[-5_000:])
        # What is deleted while it is followed goes here, too.
        mixed.delete_records("t", 400)
        assert eventually(lambda: log.log_start_offset == 400)


def test_errors_of_an_election_are_waited_for(mixed: MixedCluster) -> None:
    """Kafka answers 6 or 75 until it has heard of its own epoch."""
    mixed.create("t")
    with mixed.node() as node:
        mixed.follow(node, "t")
        fill(mixed.client, "t", 5)
        assert mixed.is_followed(node, "t")
        partition = mixed.partition("t")
        node.follow(1, partition.leader_epoch + 1, partition.topic_id)  # which is not yet
        status = node.status
        assert eventually(lambda: "UNKNOWN_LEADER_EPOCH" in str(status()))
        assert node.log("t").log_end_offset == 25
