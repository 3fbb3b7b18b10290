"""offsets_for_times through the real clients, against a scan of what was sent."""

import random

import confluent_kafka.admin
import pytest
from kafka_clients import CLIENTS, CODECS, KafkaClient, Sent, kafka
from running_broker import RunningBroker

AROUND_MS = 1_700_000_000_000

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


@pytest.fixture
def written(broker: RunningBroker) -> dict[int, list[int]]:
    """Times out of order in two partitions, in batches of every codec by every client."""
    broker.create_topic("t", partitions=2, index_interval_bytes="100")
    rng = random.Random(11)
    times: dict[int, list[int]] = {0: [], 1: []}
    for turn in range(10):
        for partition in (0, 1):
            part = [AROUND_MS + rng.randrange(-500, 500) for _ in range(rng.randrange(1, 30))]
            CLIENTS[turn % 3].produce(
                broker.address,
                "t",
                [Sent(None, b"v", time) for time in part],
                partition=partition,
                codec=CODECS[turn % 5],
            )
            times[partition] += part
    return times


def first_at_or_after(times: list[int], moment: int) -> tuple[int, int] | None:
    return next(((n, time) for n, time in enumerate(times) if time >= moment), None)


@every_client
def test_lookups_equal_a_scan(
    client: KafkaClient, broker: RunningBroker, written: dict[int, list[int]]
) -> None:
    for restarted in (False, True):
        if restarted:
            broker.restart()
        for moment in range(AROUND_MS - 510, AROUND_MS + 520, 103):
            found = client.offsets_for_times(broker.address, "t", {0: moment, 1: moment})
            for partition, times in written.items():
                expected = first_at_or_after(times, moment)
                answer = found[partition]
                if client.name == "confluent-kafka" and answer and expected:
                    expected = (expected[0], -1)  # librdkafka tells no time
                assert answer == expected, (partition, moment)


def test_the_record_with_the_largest_time(
    broker: RunningBroker, written: dict[int, list[int]]
) -> None:
    expected = {partition: times.index(max(times)) for partition, times in written.items()}
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    spec = confluent_kafka.admin.OffsetSpec.max_timestamp()
    asked = {confluent_kafka.TopicPartition("t", partition): spec for partition in expected}
    found = {tp.partition: future.result() for tp, future in admin.list_offsets(asked).items()}
    assert {partition: one.offset for partition, one in found.items()} == expected
    assert {partition: one.timestamp for partition, one in found.items()} == {
        partition: max(times) for partition, times in written.items()
    }


def test_the_ends_of_partitions(broker: RunningBroker, written: dict[int, list[int]]) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.address)
    try:
        partitions = [kafka.TopicPartition("t", partition) for partition in written]
        ends = consumer.end_offsets(partitions)
        assert {tp.partition: end for tp, end in ends.items()} == {
            partition: len(times) for partition, times in written.items()
        }
        assert set(consumer.beginning_offsets(partitions).values()) == {0}
    finally:
        consumer.close()
