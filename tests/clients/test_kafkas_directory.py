"""A directory that Apache Kafka wrote, served: real clients see what Kafka itself answered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from raw_connection import RawConnection, produce_fields
from running_broker import RunningBroker

from golden import HIDDEN_FROM_KAFKA, GoldenPartition, copy_directory, partitions, text
from horolog.clock import DAY_MS, ManualClock
from horolog.record.builder import Record, build_batch
from horolog.record.compression import Codec
from horolog.wire.api import ApiKey

FAR_MS = 2_000_000_000_000


@pytest.fixture
def broker(make_broker: Callable[..., RunningBroker], tmp_path: Path) -> RunningBroker:
    directory = copy_directory("clean", tmp_path / "kafka")
    return make_broker(log_dir=directory, clock=ManualClock(FAR_MS))


def test_everything_is_served_but_what_kafka_keeps_for_itself(broker: RunningBroker) -> None:
    with RawConnection(broker.address) as connection:
        topics = connection.ask(ApiKey.METADATA, 12, topics=None).topics
    served = {f"{topic.name}-{p.partition_index}" for topic in topics for p in topic.partitions}
    assert served == {golden.name for golden in partitions("clean")}
    assert all(p.error_code == 0 for topic in topics for p in topic.partitions)
    assert (broker.log_dir / "__consumer_offsets-0").is_dir()
    assert broker.broker.cluster_id in (broker.log_dir / "meta.properties").read_text()


def test_ends_and_moments_are_those_that_kafka_answers(broker: RunningBroker) -> None:
    with RawConnection(broker.address) as connection:

        def ask(golden: GoldenPartition, timestamp: int) -> Any:
            partition = {"partition_index": golden.partition, "timestamp": timestamp}
            topics = [{"name": golden.topic, "partitions": [partition]}]
            return connection.ask(ApiKey.LIST_OFFSETS, 9, topics=topics).topics[0].partitions[0]

        for golden in partitions("clean"):
            latest, earliest = ask(golden, -1), ask(golden, -2)
            assert latest.offset == golden.answers["latest"][0], golden.name
            assert earliest.offset == golden.answers["earliest"][0], golden.name
            if golden.name in HIDDEN_FROM_KAFKA:
                continue
            for target, offset, timestamp, epoch in golden.answers["lookups"]:
                if target < 0:
                    continue  # a special target, or a time that the wire cannot ask for
                found = ask(golden, target)
                assert (found.offset, found.timestamp, found.leader_epoch) == (
                    offset,
                    timestamp,
                    epoch,
                ), (golden.name, target)


def consume(address: str, golden: GoldenPartition, isolation: str) -> list[tuple[Any, ...]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found = []
    try:
        start = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(golden.topic, golden.partition, start)])
        while (message := consumer.poll(10)) is not None:
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            found.append((message.offset(), message.timestamp()[1], text(message.value())))
    finally:
        consumer.close()
    raise AssertionError("no end of the partition")


@pytest.mark.parametrize(
    "golden",
    [
        g
        for g in partitions("clean")
        if g.topic in {"transactions", "append-time-zstd", "compacted"}
    ],
    ids=lambda golden: golden.name,
)
def test_records_are_those_that_kafka_gives_committed_or_not(
    broker: RunningBroker, golden: GoldenPartition
) -> None:
    expected = [(offset, time, value) for offset, time, _, value, *_ in golden.answers["records"]]
    assert consume(broker.address, golden, "read_uncommitted") == expected
    committed = golden.answers["committed_offsets"]  # None: all of them
    assert consume(broker.address, golden, "read_committed") == [
        record for record in expected if committed is None or record[0] in committed
    ]


def test_a_transaction_without_a_producer_counts_as_aborted(broker: RunningBroker) -> None:
    (golden,) = (g for g in partitions("clean") if g.topic == "transaction-open")
    everything = consume(broker.address, golden, "read_uncommitted")
    committed = consume(broker.address, golden, "read_committed")
    assert len(everything) > len(committed)
    assert {offset for offset, *_ in committed} >= set(golden.answers["committed_offsets"])


def produce(broker: RunningBroker, topic: str, *records: Record) -> Any:
    with RawConnection(broker.address) as connection:
        fields = produce_fields(topic, {0: build_batch(records)}, acks=-1)
        return connection.ask(ApiKey.PRODUCE, 9, **fields).responses[0].partition_responses[0]


def test_nothing_without_a_key_is_taken_for_a_log_that_kafka_compacts(
    broker: RunningBroker,
) -> None:
    """Kafka's cleaner would throw it away, when the directory is Kafka's again."""
    refused = produce(broker, "compacted", Record(FAR_MS, b"k", b"v"), Record(FAR_MS, None, b"v"))
    assert refused.error_code == 87
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert "without key" in refused.record_errors[0].batch_index_error_message
    assert produce(broker, "compacted", Record(FAR_MS, b"k", b"v")).error_code == 0
    assert produce(broker, "client-none", Record(FAR_MS, None, b"v")).error_code == 0


def test_what_is_appended_obeys_the_settings_that_kafka_had(broker: RunningBroker) -> None:
    assert produce(broker, "append-time", Record(7, None, b"v")).log_append_time_ms == FAR_MS
    assert produce(broker, "client-none", Record(7, None, b"v")).log_append_time_ms == -1
    assert produce(broker, "broker-zstd", Record(7, None, b"v")).error_code == 0
    assert broker.headers("broker-zstd")[-1].codec is Codec.ZSTD


def set_of(broker: RunningBroker, topic: str, name: str, value: str) -> int:
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    with RawConnection(broker.address) as connection:
        answer = connection.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
    return int(answer.responses[0].error_code)


def test_a_setting_without_bearing_on_records_does_not_take_over_a_compacted_topic(
    broker: RunningBroker,
) -> None:
    assert set_of(broker, "compacted", "max.message.bytes", "5000") == 44
    assert broker.broker.topics.named("compacted").adopted
    assert set_of(broker, "compacted", "cleanup.policy", "") == 0
    assert not broker.broker.topics.named("compacted").adopted
    assert produce(broker, "compacted", Record(FAR_MS, None, b"v")).error_code == 0
    assert broker.run(broker.service.background_tasks.run_retention()) == []


def test_a_setting_is_added_to_those_that_kafka_had(broker: RunningBroker) -> None:
    assert set_of(broker, "append-time", "retention.ms", "-1") == 0
    broker.restart()
    assert not broker.broker.topics.named("append-time").adopted
    assert produce(broker, "append-time", Record(7, None, b"v")).log_append_time_ms == FAR_MS


def test_adopted_with_defaults_a_compacted_log_still_keeps_everything(
    make_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    directory = copy_directory("clean", tmp_path / "kafka")
    broker = make_broker(
        log_dir=directory, clock=ManualClock(FAR_MS), horolog_adopt_defaults="true"
    )
    size = broker.log("compacted").size
    deleted = {name for name, _ in broker.run(broker.service.background_tasks.run_retention())}
    assert "compacted-0" not in deleted
    assert broker.log("compacted").size == size


def test_years_of_retention_take_nothing_of_it(broker: RunningBroker) -> None:
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(10_000 * DAY_MS)
    before = {key: each.size for key, each in broker.broker.partitions.items()}
    assert broker.run(broker.service.background_tasks.run_retention()) == []
    assert before == {key: each.size for key, each in broker.broker.partitions.items()}
