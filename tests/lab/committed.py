"""Numbers for librdkafka's producer to send, and what is committed of a topic, to its end."""

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from patience import PATIENCE_S, eventually

from horolog.client import Client
from horolog.sources import scan


def send_numbers(bootstrap: str, topic: str, numbers: range, partitions: int) -> None:
    """Each number as a value, once, in the partition that is the rest of its division."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def values_seen(
    bootstrap: str, topic: str, isolation: str = "read_committed", **settings: Any
) -> list[str]:
    """All values from the beginning on, in any order; `isolation` as Kafka names it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "values-seen",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
            **settings,
        }
    )
    try:
        described = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in described])
        left, values = set(described), []
        while left:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"no end of {topic} after {PATIENCE_S} s"
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise AssertionError(str(error))
        return values
    finally:
        consumer.close()


def end_offsets(bootstrap: str, topic: str) -> int:
    """The end offsets of all partitions together, those of transactions that are open included."""
    with Client(bootstrap) as client:
        partitions = client.metadata([topic]).topics[topic].partitions
        found = client.list_offsets({(topic, number): -1 for number in partitions})
    return sum(end.offset for end in found.values() if end is not None)


def is_settled(client: Client, topic: str, partition: int) -> bool:
    """Whether no transaction is open: the markers of a transaction may follow its commit."""
    found = client.fetch(topic, partition, 0, max_wait_ms=0, read_committed=True)
    return found.last_stable_offset == found.high_watermark


def numbers_committed(client: Client, topic: str) -> list[int]:
    """All values as numbers, in order, once no transaction is open."""
    partitions = client.topics.numbers(topic)
    assert eventually(lambda: all(is_settled(client, topic, each) for each in partitions))
    rows = scan(client, topic, columns=("value",), read_committed=True).read_all()
    return sorted(int(value) for value in rows.column("value").to_pylist())
