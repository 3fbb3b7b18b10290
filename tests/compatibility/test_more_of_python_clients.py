"""What docs/compatibility.md says of the Python clients and tests/clients does not show."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

import aiokafka
import aiokafka.admin
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from kafka_clients import SESSION_MS, Confluent, Sent, kafka, subscribe_knowing
from patience import PATIENCE_S, eventually
from running_broker import RunningBroker

AROUND_MS = 1_700_000_000_000


class KafkaPythonMember:
    """A kafka-python consumer that polls on a thread of its own."""

    def __init__(self, address: str) -> None:
        self.assigned: set[int] = set()
        self._stop = threading.Event()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=SESSION_MS,
        )
        subscribe_knowing(self._consumer, "t")
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(timeout_ms=100)
            self.assigned = {tp.partition for tp in self._consumer.assignment()}
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def test_kafka_python_shares_out_partitions_when_members_come_and_go(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t", partitions=4)
    first = KafkaPythonMember(broker.address)
    with contextlib.closing(first):
        assert eventually(lambda: first.assigned == {0, 1, 2, 3})
        second = KafkaPythonMember(broker.address)
        with contextlib.closing(second):
            assert eventually(lambda: len(first.assigned) == len(second.assigned) == 2)
            assert first.assigned | second.assigned == {0, 1, 2, 3}
        assert eventually(lambda: first.assigned == {0, 1, 2, 3})


def test_aiokafka_shares_out_partitions_when_members_come_and_go(broker: RunningBroker) -> None:
    broker.create_topic("t", partitions=4)

    def member() -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.address,
            group_id="g",
            heartbeat_interval_ms=200,
            session_timeout_ms=SESSION_MS,
        )

    def held(consumer: aiokafka.AIOKafkaConsumer) -> set[int]:
        return {tp.partition for tp in consumer.assignment()}

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.02)

    async def come_and_go() -> None:
        first, second = member(), member()
        await first.start()
        try:
            await until(lambda: held(first) == {0, 1, 2, 3})
            await second.start()
            try:
                await until(lambda: len(held(first)) == len(held(second)) == 2)
                assert held(first) | held(second) == {0, 1, 2, 3}
            finally:
                await second.stop()
            await until(lambda: held(first) == {0, 1, 2, 3})
        finally:
            await first.stop()

    asyncio.run(asyncio.wait_for(come_and_go(), 3 * PATIENCE_S))


def test_kafka_python_finds_the_record_with_the_largest_time(broker: RunningBroker) -> None:
    times = [AROUND_MS + n for n in (5, 1, 9, 3, 9, 2)]
    Confluent().produce(broker.address, "t", [Sent(None, b"v", time) for time in times])
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.address)
    with contextlib.closing(admin):
        partition = kafka.TopicPartition("t", 0)
        found = admin.list_partition_offsets({partition: kafka.admin.OffsetSpec.MAX_TIMESTAMP})
    assert (found[partition].offset, found[partition].timestamp) == (2, AROUND_MS + 9)


def test_kafka_python_names_the_record_at_fault(broker: RunningBroker) -> None:
    broker.create_topic("t", message_timestamp_before_max_ms="60000")
    now_ms = broker.clock.now_ms()
    producer = kafka.KafkaProducer(bootstrap_servers=broker.address, linger_ms=200)
    with contextlib.closing(producer):
        sent = [producer.send("t", b"v", timestamp_ms=ms) for ms in (now_ms, now_ms - 120_000)]
        producer.flush()
        fine, too_old = (one.exception for one in sent)
    assert too_old.errno == 32
    assert "offset 1 is out of range" in str(too_old)
    assert getattr(fine, "errno", None) != 32
    assert "part of a batch" in str(fine)


def test_aiokafka_changes_settings(broker: RunningBroker) -> None:
    broker.create_topic("t")

    async def change() -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        try:
            await admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, "t", configs={"segment.ms": "7777"})]
            )
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(change(), PATIENCE_S))
    assert broker.log("t").config.segment_ms == 7777
