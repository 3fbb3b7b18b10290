"""Fetch sessions (KIP-227) as client libraries use them."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from kafka_clients import kafka
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.record import LogRecord, build_batch

PARTITIONS, ROUNDS, MANY = 3, 8, 50

broker = a_broker("t", partitions=PARTITIONS, of_topics={"retention_ms": "-1"})


def append_some(broker: RunningBroker, number: int) -> None:
    records = [LogRecord(NOW_MS, None, b"%d" % number) for _ in range(MANY)]
    broker.append("t", build_batch(records), number % PARTITIONS)


def with_kafka_python(broker: RunningBroker, go_on: Callable[[int], None]) -> list[Any]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.address, auto_offset_reset="earliest", fetch_max_wait_ms=50
    )
    consumer.assign([kafka.TopicPartition("t", each) for each in range(PARTITIONS)])
    found = []
    for number in range(ROUNDS):
        go_on(number)
        while len(found) < (number + 1) * MANY:
            for records in consumer.poll(timeout_ms=100).values():
                found += [(each.partition, each.offset, each.value) for each in records]
    consumer.close()
    return found


def with_aiokafka(broker: RunningBroker, go_on: Callable[[int], None]) -> list[Any]:
    async def run() -> list[Any]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.address, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition("t", each) for each in range(PARTITIONS)])
        found = []
        for number in range(ROUNDS):
            go_on(number)
            while len(found) < (number + 1) * MANY:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found += [(each.partition, each.offset, each.value) for each in records]
        await consumer.stop()
        return found

    return asyncio.run(run())


def with_librdkafka(broker: RunningBroker, go_on: Callable[[int], None]) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": "g", "fetch.wait.max.ms": 50}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", each, 0) for each in range(PARTITIONS)])
    found = []
    for number in range(ROUNDS):
        go_on(number)
        while len(found) < (number + 1) * MANY:
            for each in consumer.consume(MANY, 0.1):
                assert each.error() is None
                found.append((each.partition(), each.offset(), each.value()))
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("read", "has_sessions"),
    [(with_kafka_python, True), (with_aiokafka, False), (with_librdkafka, False)],
    ids=["kafka-python", "aiokafka", "confluent-kafka"],
)
def test_all_is_read_once_and_in_order_also_where_sessions_are_lost(
    broker: RunningBroker, read: Callable[..., list[Any]], has_sessions: bool
) -> None:
    sessions = broker.broker.fetch_sessions
    had: list[int] = []

    def go_on(number: int) -> None:
        append_some(broker, number)
        had.append(broker.call(lambda: len(sessions)))
        if number == ROUNDS // 2:
            broker.call(lambda: [sessions.end(each) for each in list(sessions.ids)])

    found = read(broker, go_on)
    assert bool(max(had)) == has_sessions
    for partition in range(PARTITIONS):
        mine = [offset for at, offset, _ in found if at == partition]
        assert mine == list(range(len(mine)))
    assert len(found) == ROUNDS * MANY
