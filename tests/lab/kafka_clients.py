"""The three Python clients behind one face, so that a test can be put to each of them."""

import asyncio
import itertools
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
from aiokafka.structs import TopicPartition as AioTopicPartition
from patience import PATIENCE_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its schemas in a way that Python deprecates
    import kafka
    import kafka.errors
    from kafka.net.manager import KafkaConnectionManager

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# A member that a slow machine holds up is not to lose its place.
SESSION_MS = int(1000 * PATIENCE_S)

# kafka-python gives a connection ten seconds and an answer thirty, and leaks its socket then.
_PATIENT = {
    "socket_connection_setup_timeout_ms": SESSION_MS,
    "socket_connection_setup_timeout_max_ms": SESSION_MS,
    "bootstrap_timeout_ms": SESSION_MS,
    "request_timeout_ms": SESSION_MS,
    "delivery_timeout_ms": 2 * SESSION_MS,
    "max_block_ms": SESSION_MS,
}
for _defaults in (
    KafkaConnectionManager.DEFAULT_CONFIG,
    kafka.KafkaConsumer.DEFAULT_CONFIG,
    kafka.KafkaProducer.DEFAULT_CONFIG,
    kafka.KafkaAdminClient.DEFAULT_CONFIG,
):
    _defaults.update({name: ms for name, ms in _PATIENT.items() if name in _defaults})

_names = itertools.count(1)


class Sent(NamedTuple):
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Delivered(NamedTuple):
    """What a producer says became of a record."""

    offset: int
    timestamp_ms: int


class Received(NamedTuple):
    """A record as a consumer gives it; `timestamp_type` 0 is create time, 1 append time."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Rejected(Exception):
    """A producer reports that a record was refused."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Order(NamedTuple):
    """Records to produce to a partition, and how."""

    address: str
    topic: str
    records: Sequence[Sent]
    partition: int
    codec: str
    config: Mapping[str, Any]


Found = dict[int, tuple[int, int] | None]
"""Offset and time of a record by partition; None where there is no such record."""


class KafkaClient(ABC):
    """A client library, as far as tests need it."""

    name: str

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        codec: str = "none",
        **config: Any,
    ) -> list[Delivered]:
        """Produce all, and wait for all of them."""
        return self._produce(Order(address, topic, records, partition, codec, config))

    def consume(
        self, address: str, topic: str, count: int, *, group: str | None = None
    ) -> list[Received]:
        """The first `count` records, by subscription to a group; commits what it read."""
        return self._consume(address, topic, count, group or f"g{next(_names)}")

    @abstractmethod
    def offsets_for_times(self, address: str, topic: str, times: Mapping[int, int]) -> Found:
        """For each partition offset and time of the first record at or after a time."""

    @abstractmethod
    def _produce(self, order: Order) -> list[Delivered]: ...

    @abstractmethod
    def _consume(self, address: str, topic: str, count: int, group: str) -> list[Received]: ...


class Confluent(KafkaClient):
    """confluent-kafka, on librdkafka."""

    name = "confluent-kafka"

    def _produce(self, order: Order) -> list[Delivered]:
        settings = {
            "bootstrap.servers": order.address,
            "linger.ms": 5_000,  # one batch also where the machine pauses; flush() ends it
            "compression.type": order.codec,
            **{name.replace("_", "."): value for name, value in order.config.items()},
        }
        outcomes: list[Any] = []
        producer = confluent_kafka.Producer(settings)
        for record in order.records:
            more: dict[str, Any] = (
                {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            )
            producer.produce(
                order.topic,
                value=record.value,
                key=record.key,
                partition=order.partition,
                headers=list(record.headers),
                on_delivery=lambda error, message: outcomes.append((error, message)),
                **more,
            )
        assert producer.flush(PATIENCE_S) == 0
        for error, _ in outcomes:
            if error is not None:
                raise Rejected(error.code(), error.str())
        return [Delivered(message.offset(), message.timestamp()[1]) for _, message in outcomes]

    def _consume(self, address: str, topic: str, count: int, group: str) -> list[Received]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
            }
        )
        received: list[Received] = []
        try:
            consumer.subscribe([topic])
            until = time.monotonic() + PATIENCE_S
            while len(received) < count and time.monotonic() < until:
                for message in consumer.consume(count - len(received), timeout=0.5):
                    if message.error() is not None:
                        raise AssertionError(message.error())
                    kind, timestamp = message.timestamp()
                    received.append(
                        Received(
                            message.partition(),
                            message.offset(),
                            timestamp,
                            kind - 1,
                            message.key(),
                            message.value(),
                            tuple(message.headers() or ()),
                        )
                    )
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return received

    def offsets_for_times(self, address: str, topic: str, times: Mapping[int, int]) -> Found:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "times"})
        try:
            asked = [confluent_kafka.TopicPartition(topic, p, ms) for p, ms in times.items()]
            found = consumer.offsets_for_times(asked, timeout=PATIENCE_S)
        finally:
            consumer.close()
        # librdkafka gives the end (-1) where there is none, and never the record's time.
        return {tp.partition: None if tp.offset < 0 else (tp.offset, -1) for tp in found}


def subscribe_knowing(consumer: kafka.KafkaConsumer, topic: str) -> None:
    """Subscribe to a topic that the consumer knows by then.

    A kafka-python that is asked to share out partitions before it knows of any gives each member
    nothing, and does not always notice later. Kafka's delay of 3 s before a group's first round,
    which brokers here do without, hides that.

    Let it poll for long: one that joins again because it learnt of a topic, and whose poll ends
    before the group's answer comes, takes a rebalance to be in progress ever after (3.0.12:
    `need_rejoin` no longer says so, and the result of the join is never looked at).
    """
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])


def _commit(consumer: kafka.KafkaConsumer, topic: str, received: Sequence[Received]) -> None:
    """Commit what was received, again while the group rebalances."""
    offsets = {
        kafka.TopicPartition(topic, one.partition): kafka.OffsetAndMetadata(one.offset + 1, "", -1)
        for one in received
    }
    while True:
        try:
            consumer.commit(offsets)
            return
        except kafka.errors.RebalanceInProgressError:
            consumer.poll(5000)


class KafkaPython(KafkaClient):
    """kafka-python 3, all in Python."""

    name = "kafka-python"

    def _produce(self, order: Order) -> list[Delivered]:
        producer = kafka.KafkaProducer(**_producing(order))
        try:
            futures = [producer.send(**_fields(order, record)) for record in order.records]
            producer.flush(PATIENCE_S)
            done = [future.get(PATIENCE_S) for future in futures]
        except kafka.errors.BrokerResponseError as error:
            raise Rejected(error.errno, str(error)) from error
        finally:
            producer.close()
        return [Delivered(one.offset, one.timestamp) for one in done]

    def _consume(self, address: str, topic: str, count: int, group: str) -> list[Received]:
        consumer = kafka.KafkaConsumer(**_consuming(address, group))
        received: list[Received] = []
        try:
            subscribe_knowing(consumer, topic)
            until = time.monotonic() + PATIENCE_S
            while len(received) < count and time.monotonic() < until:
                left = count - len(received)
                for messages in consumer.poll(1000 * PATIENCE_S, max_records=left).values():
                    received += [_received(message) for message in messages]
            _commit(consumer, topic, received)
        finally:
            consumer.close()
        return received

    def offsets_for_times(self, address: str, topic: str, times: Mapping[int, int]) -> Found:
        consumer = kafka.KafkaConsumer(bootstrap_servers=address)
        try:
            found = consumer.offsets_for_times(
                {kafka.TopicPartition(topic, p): ms for p, ms in times.items()}
            )
        finally:
            consumer.close()
        return _found(found)


class Aiokafka(KafkaClient):
    """aiokafka, on an event loop of its own."""

    name = "aiokafka"

    def _produce(self, order: Order) -> list[Delivered]:
        async def produce() -> list[Delivered]:
            producer = aiokafka.AIOKafkaProducer(**_producing(order))
            await producer.start()
            try:
                futures = [
                    await producer.send(**_fields(order, record)) for record in order.records
                ]
                done = [await future for future in futures]
            finally:
                await producer.stop()
            return [Delivered(one.offset, one.timestamp) for one in done]

        try:
            return asyncio.run(asyncio.wait_for(produce(), PATIENCE_S))
        except aiokafka.errors.KafkaError as error:
            raise Rejected(error.errno, str(error)) from error

    def _consume(self, address: str, topic: str, count: int, group: str) -> list[Received]:
        async def consume() -> list[Received]:
            consumer = aiokafka.AIOKafkaConsumer(topic, **_consuming(address, group))
            await consumer.start()
            received: list[Received] = []
            try:
                while len(received) < count:
                    batches = await consumer.getmany(
                        timeout_ms=500, max_records=count - len(received)
                    )
                    for messages in batches.values():
                        received += [_received(message) for message in messages]
                await consumer.commit()
            finally:
                await consumer.stop()
            return received

        return asyncio.run(asyncio.wait_for(consume(), PATIENCE_S))

    def offsets_for_times(self, address: str, topic: str, times: Mapping[int, int]) -> Found:
        async def find() -> Found:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address)
            await consumer.start()
            try:
                found = await consumer.offsets_for_times(
                    {AioTopicPartition(topic, p): ms for p, ms in times.items()}
                )
            finally:
                await consumer.stop()
            return _found(found)

        return asyncio.run(asyncio.wait_for(find(), PATIENCE_S))


def _producing(order: Order) -> dict[str, Any]:
    return {
        "bootstrap_servers": order.address,
        "compression_type": None if order.codec == "none" else order.codec,
        "linger_ms": 20,
        **order.config,
    }


def _fields(order: Order, record: Sent) -> dict[str, Any]:
    return {
        "topic": order.topic,
        "key": record.key,
        "value": record.value,
        "partition": order.partition,
        "timestamp_ms": record.timestamp_ms,
        "headers": list(record.headers),
    }


def _consuming(address: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
    }


def _found(found: Mapping[Any, Any]) -> Found:
    return {
        place.partition: None if one is None else (one.offset, one.timestamp)
        for place, one in found.items()
    }


def _received(message: Any) -> Received:
    return Received(
        message.partition,
        message.offset,
        message.timestamp,
        message.timestamp_type,
        message.key,
        message.value,
        tuple(message.headers),
    )


CLIENTS: tuple[KafkaClient, ...] = (Confluent(), KafkaPython(), Aiokafka())
