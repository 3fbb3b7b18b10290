"""KIP-228 with clients as they are released: what each can and cannot do with times before 1970.

The broker accepts, stores, finds and serves them; -1 alone is "no timestamp". What a client does
not do is its own limit. A test names it, so that a release that lifts it is noticed.
"""

import asyncio

import aiokafka
import confluent_kafka
import pytest
from aiokafka.structs import TopicPartition as AioTopicPartition
from kafka_clients import CLIENTS, KafkaClient, Sent, kafka
from patience import PATIENCE_S
from running_broker import RunningBroker

from horolog.client import RecordClock
from horolog.clock import SystemClock
from horolog.record import LogRecord, build_batch

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)

APOLLO_11 = -14_182_940_000  # 1969-07-20T20:17:40Z
TIMES = [APOLLO_11, -2, 0, 1_000, -1, APOLLO_11 - 5]
UNSUPPORTED_VERSION = 35


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """Records from both sides of 1970, and one without a time."""
    broker.create_topic("moon", retention_ms="-1")
    rows = [LogRecord(ms, b"k", b"v") for ms in TIMES]
    broker.client.produce("moon", 0, build_batch(rows[:4]))
    broker.client.produce("moon", 0, build_batch(rows[4:]))
    return "moon"


@every_client
def test_every_client_reads_them(broker: RunningBroker, topic: str, client: KafkaClient) -> None:
    """The first step of the document's upgrade order after brokers: consumers."""
    received = client.consume(broker.address, topic, len(TIMES))
    assert [record.timestamp_ms for record in received] == TIMES
    assert {record.timestamp_type for record in received} == {0}


@every_client
def test_every_client_writes_them(broker: RunningBroker, client: KafkaClient) -> None:
    """The last step: producers. They are stored exactly, and found by the broker."""
    broker.create_topic("t", retention_ms="-1")
    sent = [APOLLO_11, APOLLO_11 - 7, -2, 5]
    client.produce(broker.address, "t", [Sent(b"k", b"v", ms) for ms in sent])
    received = client.consume(broker.address, "t", len(sent))
    assert [record.timestamp_ms for record in received] == sent
    found = broker.client.find_records({("t", 0): APOLLO_11 - 6}, RecordClock.CREATE)[("t", 0)]
    assert found is not None
    assert (found.offset, found.ms) == (0, APOLLO_11)


@every_client
def test_lookups_from_1970_on_pass_earlier_records_by(
    broker: RunningBroker, topic: str, client: KafkaClient
) -> None:
    found = client.offsets_for_times(broker.address, topic, {0: 0})[0]
    assert found is not None
    assert found[0] == 2


def test_kafka_python_looks_up_no_earlier_time(broker: RunningBroker, topic: str) -> None:
    with kafka.KafkaConsumer(bootstrap_servers=broker.address) as consumer:
        for ms in (APOLLO_11, -1):
            with pytest.raises(ValueError, match="cannot be negative"):
                consumer.offsets_for_times({kafka.TopicPartition(topic, 0): ms})


def test_aiokafka_looks_up_no_earlier_time(broker: RunningBroker, topic: str) -> None:
    async def ask() -> str:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.address)
        await consumer.start()
        try:
            await consumer.offsets_for_times({AioTopicPartition(topic, 0): APOLLO_11})
        except ValueError as error:
            return str(error)
        finally:
            await asyncio.sleep(0)  # its own tasks must have begun before they can be stopped
            await consumer.stop()
        return ""

    assert "cannot be negative" in asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


def test_librdkafka_sends_earlier_times_which_mean_something_else(
    broker: RunningBroker, topic: str
) -> None:
    """ListOffsets has other meanings for -1 to -6, and Kafka refuses what is below."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "g"})

    def ask(ms: int) -> confluent_kafka.TopicPartition:
        asked = [confluent_kafka.TopicPartition(topic, 0, ms)]
        return consumer.offsets_for_times(asked, timeout=PATIENCE_S)[0]

    try:
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            ask(APOLLO_11)
        assert refused.value.args[0].code() == UNSUPPORTED_VERSION
        assert (ask(-1).offset, ask(-2).offset) == (len(TIMES), 0)
    finally:
        consumer.close()


def test_librdkafka_takes_the_first_millisecond_of_1970_for_now(broker: RunningBroker) -> None:
    broker.create_topic("t", retention_ms="-1")
    (confluent,) = (client for client in CLIENTS if client.name == "confluent-kafka")
    before_ms = SystemClock().now_ms()
    confluent.produce(broker.address, "t", [Sent(b"k", b"v", 0), Sent(b"k", b"v", 1)])
    first, second = confluent.consume(broker.address, "t", 2)
    assert first.timestamp_ms >= before_ms
    assert second.timestamp_ms == 1
