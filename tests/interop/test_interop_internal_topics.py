"""Internal topics of a mixed cluster are made on Apache Kafka's brokers by a horolog that joins."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from controller_asker import split_batches
from patience import eventually
from raw_connection import RawConnection
from tools.cluster import Cluster, ServerProcess, running_cluster
from tools.golden.scenarios import QUIET
from tools.peers.kafka import BEFORE_NEWEST, LAST_WITH_OLD_FORMATS, NEWEST

from horolog.record.batch import parse_header
from horolog.record.builder import read_values
from horolog.schemas.metadata import BrokerChange, Record, decode
from horolog.wire import ApiKey

pytestmark = pytest.mark.interop
NOT_AVAILABLE, NOT_COORDINATOR = 15, 16
INVALID_FACTOR, INVALID_ASSIGNMENT = 38, 39
GROUP, TRANSACTION = 0, 1
INTERNAL = ("__consumer_offsets", "__transaction_state")


def leaders_of(admin: AdminClient, topic: str) -> set[int]:
    """Leaders of a topic's partitions, as a broker lists them."""
    found = admin.list_topics(timeout=10).topics.get(topic)
    return set() if found is None else {its.leader for its in found.partitions.values()}


@pytest.mark.parametrize("peer", [NEWEST, BEFORE_NEWEST, LAST_WITH_OLD_FORMATS])
def test_internal_topics_are_made_on_kafka_when_a_horolog_joins(peer: str) -> None:
    with running_cluster("kh", peer=peer) as cluster:
        kafka, ours = cluster.nodes
        admin = AdminClient({"bootstrap.servers": ours.address, **QUIET})
        assert eventually(lambda: set(INTERNAL) <= admin.list_topics(timeout=10).topics.keys())
        found = admin.list_topics(timeout=10).topics
        replicas = {
            replica
            for name in INTERNAL
            for partition in found[name].partitions.values()
            for replica in partition.replicas
        }
        assert replicas == {kafka.node_id}
        # The directory is not cordoned any more.
        asked = NewTopic("t", 4, replica_assignment=[[ours.node_id, kafka.node_id]] * 4)
        admin.create_topics([asked])["t"].result(30)
        spread = NewTopic("spread", 8, replication_factor=1)
        admin.create_topics([spread])["spread"].result(30)
        assert eventually(lambda: leaders_of(admin, "spread") == {ours.node_id, kafka.node_id})
        producer = Producer({"bootstrap.servers": ours.address, "acks": "all", **QUIET})
        for number in range(20):
            producer.produce("t", str(number))
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": ours.address, "group.id": "g", "auto.offset.reset": "earliest",
             **QUIET}
        )  # fmt: skip
        consumer.subscribe(["t"])
        values: list[int] = []
        while len(values) < 20:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            values.append(int(message.value() or b""))
        consumer.commit(asynchronous=False)
        consumer.close()
        assert sorted(values) == list(range(20))


def refusal_of(admin: AdminClient, topic: NewTopic) -> int | None:
    """The error that a topic is refused with; None if it is created."""
    try:
        admin.create_topics([topic])[topic.topic].result(30)
    except KafkaException as error:
        return int(error.args[0].code())
    return None


def coordinators_of(node: ServerProcess) -> list[int]:
    """What a broker answers to who looks for a coordinator."""
    with RawConnection(node.address) as connection:
        return [
            connection.ask(
                ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["k"]
            ).coordinators[0].error_code
            for kind in (GROUP, TRANSACTION)
        ]  # fmt: skip


def test_a_horolog_has_no_partitions_before_internal_topics_are_made(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "khk")  # internal topics have two replicas
    first, ours, second = cluster.nodes
    try:
        cluster.format()
        for node in (*cluster.controllers, first):
            node.start()
        cluster.wait_for_brokers({1})
        ours.start()
        cluster.wait_for_brokers({1, 2})
        admin = AdminClient({"bootstrap.servers": ours.address, **QUIET})
        spread = NewTopic("spread", 1, replication_factor=2)
        assigned = NewTopic("assigned", 1, replica_assignment=[[ours.node_id]])
        assert refusal_of(admin, spread) == INVALID_FACTOR
        assert refusal_of(admin, assigned) == INVALID_ASSIGNMENT
        assert refusal_of(admin, NewTopic("single", 4, replication_factor=1)) is None
        assert eventually(lambda: leaders_of(admin, "single") == {first.node_id})
        assert coordinators_of(ours) == [NOT_AVAILABLE] * 2
        second.start()
        assert eventually(lambda: set(INTERNAL) <= admin.list_topics(timeout=10).topics.keys())
        found = admin.list_topics(timeout=10).topics
        for name in INTERNAL:
            for partition in found[name].partitions.values():
                assert sorted(partition.replicas) == [first.node_id, second.node_id]
        assert eventually(lambda: refusal_of(admin, spread) is None)
        # The heartbeat after that lifts the cordon.
        assert eventually(lambda: refusal_of(admin, assigned) is None)
        assert eventually(lambda: coordinators_of(ours) == [0, 0])
    finally:
        cluster.close()


def records_of(node: ServerProcess) -> list[Record]:
    """The records of the metadata log, as a broker has it on disk."""
    data = (node.log_dir / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()
    return [
        decode(value or b"")
        for batch in split_batches(data)
        if not parse_header(batch).is_control
        for value in read_values(batch)
    ]


def ask_for_coordinators(node: ServerProcess, until: threading.Event) -> None:
    """Be a client that uses a group and a transaction as soon as a broker answers."""
    while not until.is_set():
        with suppress(OSError, AssertionError):
            coordinators_of(node)
        time.sleep(0.01)


@pytest.mark.parametrize("peer", [NEWEST, BEFORE_NEWEST])
def test_horologs_are_cordoned_before_the_first_kafka_is_alive(tmp_path: Path, peer: str) -> None:
    """Its clients may ask for coordinators at once, and it asks the controllers for the topics."""
    cluster = Cluster(tmp_path, "hhk", peer=peer)
    *ours, kafka = cluster.nodes
    ended = threading.Event()
    client = threading.Thread(target=ask_for_coordinators, args=(kafka, ended))
    try:
        cluster.format()
        for node in (*cluster.controllers, *ours):
            node.start()
        cluster.wait_for_brokers({1, 2})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        assert refusal_of(admin, NewTopic("before", 2, replication_factor=2)) is None
        kafka.start()
        client.start()
        assert eventually(lambda: set(INTERNAL) <= admin.list_topics(timeout=10).topics.keys())
        found = admin.list_topics(timeout=10).topics
        for name in INTERNAL:
            assert [its.replicas for its in found[name].partitions.values()] == [[3]] * 3
        assert eventually(lambda: refusal_of(admin, NewTopic("t", 6, replication_factor=1)) is None)
        changes = [it for it in records_of(ours[0]) if isinstance(it, BrokerChange)]
        alive = next(at for at, it in enumerate(changes) if it.broker_id == 3 and it.fenced == -1)
        assert {it.broker_id for it in changes[:alive] if it.cordoned} == {1, 2}
    finally:
        ended.set()
        if client.ident is not None:
            client.join()
        cluster.close()


def test_a_cluster_of_horologs_alone_says_that_nobody_coordinates() -> None:
    with running_cluster("hhh") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        assert refusal_of(admin, NewTopic("t", 3, replication_factor=3)) is None
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **QUIET}
        )
        for number in range(30):
            producer.produce("t", str(number), partition=number % 3)
        assert producer.flush(60) == 0
        for node in cluster.nodes:
            assert coordinators_of(node) == [NOT_AVAILABLE] * 2
            with RawConnection(node.address) as connection:
                told = connection.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="id")
                assert told.error_code == NOT_COORDINATOR
        assert not set(INTERNAL) & admin.list_topics(timeout=10).topics.keys()
