"""Consume, transform, produce with a Python client: see test_interop_exactly_once_clients.py.

    python transform.py CLIENT BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID

Ends when its input ends; with 3 where a new producer is needed.
"""

import asyncio
import os
import sys
import threading
import traceback
from typing import Any

ended = threading.Event()
BATCH = 50


def watch_input() -> None:
    sys.stdin.read()
    ended.set()


def confluent(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    protocol: dict[str, Any] = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    if os.environ.get("GROUP_PROTOCOL") == "consumer":
        protocol = {"group.protocol": "consumer"}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **protocol,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
        }
    )
    producer.init_transactions()
    consumer.subscribe([source])
    print("started", flush=True)
    while not ended.is_set():
        messages = [each for each in consumer.consume(BATCH, 0.1) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        # Where the broker is killed during it, librdkafka may never send TxnOffsetCommit, and waits
        # for its answer longer than any timeout; at Apache Kafka 4.3 as at horolog.
        hangs = threading.Timer(20, os._exit, (3,))
        try:
            offsets: dict[tuple[str, int], int] = {}
            for message in messages:
                producer.produce(
                    target, message.value(), message.key(), partition=message.partition()
                )
                offsets[message.topic(), message.partition()] = message.offset() + 1
            hangs.start()
            producer.send_offsets_to_transaction(
                [TopicPartition(*partition, offset) for partition, offset in offsets.items()],
                consumer.consumer_group_metadata(),
            )
            hangs.cancel()
            while True:
                try:
                    producer.commit_transaction()
                    break
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise
            print(f"committed {len(messages)}", flush=True)
        except KafkaException as error:
            hangs.cancel()
            print(f"aborts: {error}", flush=True)
            if error.args[0].fatal():
                raise
            producer.abort_transaction()
            for partition in consumer.committed(consumer.assignment(), 60):
                if partition.offset < 0:
                    partition.offset = 0
                consumer.seek(partition)
    consumer.close()


async def aiokafka(
    bootstrap: str, source: str, target: str, group: str, transactional_id: str
) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
    )
    await producer.start()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    # Not by subscription: neither what it reads of offsets nor what it sends of them waits for a
    # transaction that is open, so that a rebalance in its middle copies records again.
    partitions = await producer.partitions_for(source)
    consumer.assign([TopicPartition(source, number) for number in partitions])
    print("started", flush=True)
    while not ended.is_set():
        found = await consumer.getmany(timeout_ms=100, max_records=BATCH)
        if not found:
            continue
        async with producer.transaction():
            for partition, records in found.items():
                for record in records:
                    await producer.send(
                        target, record.value, record.key, partition=partition.partition
                    )
            offsets: Any = {
                partition: records[-1].offset + 1 for partition, records in found.items()
            }
            await producer.send_offsets_to_transaction(offsets, group)
        print(f"committed {sum(map(len, found.values()))}", flush=True)
    await consumer.stop()
    await producer.stop()


def kafka_python(
    bootstrap: str, source: str, target: str, group: str, transactional_id: str
) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
    )
    producer.init_transactions()
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        max_poll_records=BATCH,
    )
    print("started", flush=True)
    while not ended.is_set():
        found = consumer.poll(timeout_ms=100)
        if not found:
            continue
        producer.begin_transaction()
        for partition, records in found.items():
            for record in records:
                producer.send(target, record.value, record.key, partition=partition.partition)
        offsets = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for partition, records in found.items()
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
        print(f"committed {sum(map(len, found.values()))}", flush=True)
    consumer.close()
    producer.close()


def main(client: str, *arguments: str) -> None:
    threading.Thread(target=watch_input, daemon=True).start()
    if client == "aiokafka":
        asyncio.run(aiokafka(*arguments))  # type: ignore[call-arg]
    else:
        {"confluent-kafka": confluent, "kafka-python": kafka_python}[client](*arguments)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception:
        traceback.print_exc()
        sys.exit(3)
