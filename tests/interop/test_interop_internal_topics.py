"""Internal topics of a mixed cluster are made on Apache Kafka's brokers by a horolog that joins."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from patience import eventually
from tools.cluster import running_cluster
from tools.golden.scenarios import QUIET
from tools.peers.kafka import BEFORE_NEWEST, LAST_WITH_OLD_FORMATS, NEWEST

pytestmark = pytest.mark.interop
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
