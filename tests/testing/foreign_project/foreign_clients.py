"""Tests of a program that uses Kafka, with three client libraries."""

import asyncio
import time
import unittest
from datetime import UTC, datetime

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidTimestampError

from horolog.testing import Broker, ManualClock

pytestmark = pytest.mark.usefixtures("leaves_nothing")

CLICKS = TopicPartition("clicks", 0)
WAIT_S = 180  # for what comes at once, on a machine that stops for seconds


def append(broker, topic="clicks", **record) -> int:
    """Send one record with confluent-kafka; the timestamp that it got."""
    told = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(
        topic,
        b"v",
        partition=0,
        on_delivery=lambda error, message: told.append(error or message.timestamp()[1]),
        **record,
    )
    assert producer.flush(WAIT_S) == 0
    return told[0]


def log_range(broker, topic="clicks") -> tuple[int, int]:
    """The first offset of partition 0, and the next one to be given."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "looks"}
    )
    try:
        return consumer.get_watermark_offsets(
            confluent_kafka.TopicPartition(topic, 0), timeout=WAIT_S
        )
    finally:
        consumer.close()


def test_records_are_kept_for_a_week(horolog_broker):
    with KafkaProducer(bootstrap_servers=horolog_broker.bootstrap_servers) as producer:
        producer.send("clicks", b"hello", partition=0).get(timeout=WAIT_S)
    with KafkaConsumer(bootstrap_servers=horolog_broker.bootstrap_servers) as consumer:
        horolog_broker.clock.advance("6d")
        horolog_broker.expire()
        assert consumer.beginning_offsets([CLICKS]) == {CLICKS: 0}
        horolog_broker.clock.advance("2d")
        horolog_broker.expire()
        assert consumer.beginning_offsets([CLICKS]) == {CLICKS: 1}


def test_a_week_passes_in_milliseconds(horolog_broker):
    append(horolog_broker)
    began = time.perf_counter()
    horolog_broker.clock.advance("8d")
    expired = horolog_broker.expire()
    assert time.perf_counter() - began < WAIT_S  # milliseconds on an idle machine
    assert expired.segments == 1
    assert log_range(horolog_broker) == (1, 1)


def test_nothing_expires_unless_it_is_asked_for(horolog_broker):
    append(horolog_broker)
    horolog_broker.clock.advance("8d")
    assert log_range(horolog_broker) == (0, 1)


def test_append_times_are_the_clocks(horolog_broker):
    horolog_broker.create_topic(
        "clicks", settings={"message.timestamp.type": "LogAppendTime", "retention.ms": -1}
    )
    clock = horolog_broker.clock
    start_ms = clock.freeze("2020-02-29T12:00:00Z")
    assert start_ms == datetime(2020, 2, 29, 12, tzinfo=UTC).timestamp() * 1000
    assert [append(horolog_broker), append(horolog_broker)] == [start_ms, start_ms]
    clock.advance("90m")
    assert append(horolog_broker, timestamp=5) == start_ms + 5_400_000


def test_a_clock_in_the_past_takes_records_of_the_present(horolog_broker, caplog):
    horolog_broker.clock.set("2020-01-01T00:00Z")
    assert append(horolog_broker) > 1_700_000_000_000
    assert caplog.records == []


def test_bounds_on_time_are_kept_where_a_test_sets_them(horolog_broker):
    horolog_broker.clock.freeze("2020-01-01T00:00Z")
    horolog_broker.create_topic("clicks", settings={"message.timestamp.after.max.ms": 3_600_000})
    with KafkaProducer(bootstrap_servers=horolog_broker.bootstrap_servers) as producer:
        refused = producer.send("clicks", b"from the present", partition=0)
        with pytest.raises(InvalidTimestampError):
            refused.get(timeout=WAIT_S)
    in_bounds_ms = horolog_broker.clock.now_ms() + 3_600_000
    assert append(horolog_broker, timestamp=in_bounds_ms) == in_bounds_ms
    assert log_range(horolog_broker) == (0, 1)


def test_segments_roll_by_record_time(horolog_broker):
    horolog_broker.create_topic("clicks", settings={"segment.ms": 3_600_000, "retention.ms": -1})
    start_ms = horolog_broker.clock.freeze()
    for hours in range(3):
        append(horolog_broker, timestamp=start_ms + hours * 3_600_001)
    names = {path.name for path in (horolog_broker.log_dir / "clicks-0").glob("*.log")}
    assert names == {f"{offset:020}.log" for offset in range(3)}


def test_committed_offsets_expire_after_a_week(horolog_broker):
    append(horolog_broker)
    clicks = confluent_kafka.TopicPartition("clicks", 0, 1)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": horolog_broker.bootstrap_servers, "group.id": "readers"}
    )
    consumer.commit(offsets=[clicks], asynchronous=False)
    horolog_broker.clock.advance("6d")
    assert horolog_broker.expire().offsets == 0
    assert consumer.committed([clicks], timeout=WAIT_S)[0].offset == 1
    horolog_broker.clock.advance("1d")
    assert horolog_broker.expire().offsets == 1
    assert consumer.committed([clicks], timeout=WAIT_S)[0].offset == confluent_kafka.OFFSET_INVALID
    consumer.close()


def test_network_timeouts_do_not_follow_the_clock(horolog_broker):
    """A member with a session of five minutes lives through a year."""
    append(horolog_broker)
    with KafkaConsumer(
        bootstrap_servers=horolog_broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        session_timeout_ms=300_000,
        heartbeat_interval_ms=1_000,
    ) as consumer:
        consumer.partitions_for_topic("clicks")  # before it shares out what it knows
        consumer.subscribe(["clicks"])
        while not consumer.poll(timeout_ms=30_000):
            pass
        horolog_broker.clock.advance("52w")
        horolog_broker.expire()
        consumer.commit()
        with KafkaAdminClient(bootstrap_servers=horolog_broker.bootstrap_servers) as admin:
            (group,) = admin.describe_groups(["g"]).values()
        assert "Stable" in str(group)


def test_settings_of_conftest_hold(horolog_broker):
    append(horolog_broker)
    with KafkaConsumer(bootstrap_servers=horolog_broker.bootstrap_servers) as consumer:
        assert consumer.partitions_for_topic("clicks") == {0, 1}


def test_a_broker_comes_back_where_it_was(horolog_broker):
    address = horolog_broker.bootstrap_servers
    append(horolog_broker)
    horolog_broker.stop()
    assert not horolog_broker.is_running
    horolog_broker.clock.advance("8d")
    horolog_broker.start()
    assert horolog_broker.bootstrap_servers == address
    assert log_range(horolog_broker) == (0, 1)
    assert horolog_broker.expire().segments == 1
    assert log_range(horolog_broker) == (1, 1)


def test_what_was_acknowledged_survives_a_kill(horolog_broker):
    for _ in range(3):
        append(horolog_broker)
    horolog_broker.kill()
    assert not (horolog_broker.log_dir / ".kafka_cleanshutdown").exists()
    horolog_broker.start()
    assert log_range(horolog_broker) == (0, 3)


def test_within_an_event_loop(horolog_broker):
    horolog_broker.create_topic("clicks", partitions=1)

    async def story() -> bytes:
        servers = horolog_broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("clicks", b"old")
            horolog_broker.clock.advance("8d")
            horolog_broker.expire()
            now_ms = horolog_broker.clock.now_ms()
            await producer.send_and_wait("clicks", b"new", timestamp_ms=now_ms)
        async with AIOKafkaConsumer(
            "clicks", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(story()) == b"new"


class WithoutPytest(unittest.TestCase):
    def setUp(self):
        self.broker = Broker(clock=ManualClock("2020-01-01T00:00Z")).start()
        self.addCleanup(self.broker.close)

    def test_the_clock_stays_where_it_was_set(self):
        self.broker.create_topic("t", settings={"message.timestamp.type": "LogAppendTime"})
        self.assertEqual(append(self.broker, "t"), 1_577_836_800_000)  # noqa: PT009
