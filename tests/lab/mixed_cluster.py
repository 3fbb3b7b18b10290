"""A cluster of Apache Kafka's brokers and horolog's, and what clients do with it."""

import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from patience import eventually
from tools.cluster import Cluster

from horolog.client import Client

PARTITIONS = 3
QUIET: dict[str, Any] = {"log_level": 0}
_END_OF_PARTITION = -191
_numbers = itertools.count()


class MixedCluster:
    """A cluster that serves, and topics that no other test has."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    def topic(
        self, name: str, replicas: Sequence[Sequence[int]] | None = None, **settings: str
    ) -> str:
        """Make a topic; without `replicas` broker 1 leads partition 0, and so on."""
        made = f"{name}-{next(_numbers)}"
        ids = [node.node_id for node in self.cluster.nodes]
        placed = [list(its) for its in replicas or (ids[it:] + ids[:it] for it in range(3))]
        config = {key.replace("_", "."): value for key, value in settings.items()}
        topic = NewTopic(made, len(placed), replica_assignment=placed, config=config)
        self.admin.create_topics([topic])[made].result(120)
        assert eventually(lambda: self.leaders(made) == [its[0] for its in placed])
        return made

    def leaders(self, topic: str) -> list[int]:
        """The leaders of a topic's partitions, in order; -1 where there is none."""
        return [its.leader for its in self._partitions(topic)]

    def isrs(self, topic: str) -> list[set[int]]:
        """The replicas in sync of a topic's partitions."""
        return [set(its.isrs) for its in self._partitions(topic)]

    def await_whole(self, topic: str) -> None:
        """Wait until each replica of a topic is in sync."""

        def is_whole() -> bool:
            its = self._partitions(topic)
            return bool(its) and all(set(it.isrs) == set(it.replicas) for it in its)

        assert eventually(is_whole), self._partitions(topic)

    def _partitions(self, topic: str) -> list[PartitionMetadata]:
        found = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
        return [found[it] for it in sorted(found)]

    def producer(self, **more: Any) -> Producer:
        """A producer that waits for all replicas in sync."""
        settings = {key.replace("_", "."): value for key, value in more.items()}
        return Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "acks": "all", **QUIET, **settings}
        )

    def write(self, topic: str, values: Sequence[str], partitions: int = PARTITIONS) -> None:
        """Write values to the partitions in turn; all are acknowledged."""
        failed: list[Any] = []
        producer = self.producer(enable_idempotence=True)
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                partition=number % partitions,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(120) == 0
        assert failed == []

    def read(
        self, topic: str, node: int = 0, level: str = "read_uncommitted", start: int = 0
    ) -> list[str]:
        """All values of a topic, asked first at one broker."""
        with closing(Client(self.cluster.nodes[node].address, timeout_ms=60_000)) as client:
            places = [TopicPartition(topic, it, start) for it in client.topics.numbers(topic)]
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.nodes[node].address,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": level,
                "auto.offset.reset": "error",
                **QUIET,
            }
        )
        values, left = [], {it.partition for it in places}
        try:
            consumer.assign(places)
            while left:
                message = consumer.poll(120)
                assert message is not None, f"partitions {left} have no end"
                if message.error() is None:
                    values.append(message.value().decode())
                else:
                    assert message.error().code() == _END_OF_PARTITION, message.error()
                    left.discard(message.partition())
        finally:
            consumer.close()
        return values
