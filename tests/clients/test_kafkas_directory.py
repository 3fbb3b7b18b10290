"""A directory that Apache Kafka wrote, served: real clients see what Kafka itself answered."""

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from command_runner import run_command
from examples import stride
from raw_connection import produce_fields
from running_broker import MakeBroker, RunningBroker

from golden import HIDDEN_FROM_KAFKA, GoldenPartition, copy_directory, partitions, text
from horolog.client import Client, CommittedOffset, ResourceType
from horolog.clock import DAY_MS, ManualClock
from horolog.record import Codec, LogRecord, build_batch
from horolog.wire import ApiKey

FAR_MS = 2_000_000_000_000


@pytest.fixture
def broker(make_broker: MakeBroker, tmp_path: Path) -> RunningBroker:
    directory = copy_directory("clean", tmp_path / "kafka")
    return make_broker(log_dir=directory, clock=ManualClock(FAR_MS))


def test_everything_is_served_but_what_kafka_keeps_for_itself(broker: RunningBroker) -> None:
    topics = broker.ask(ApiKey.METADATA, 12, topics=None).topics
    served = {f"{topic.name}-{p.partition_index}" for topic in topics for p in topic.partitions}
    assert served == {golden.name for golden in partitions("clean")}
    assert all(p.error_code == 0 for topic in topics for p in topic.partitions)
    assert (broker.log_dir / "__consumer_offsets-0").is_dir()
    assert broker.broker.cluster_id in (broker.log_dir / "meta.properties").read_text()


def test_ends_and_moments_are_those_that_kafka_answers(broker: RunningBroker) -> None:
    with broker.connect() as connection:

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
            for target, offset, timestamp, epoch in golden.answers["lookups"][:: stride(4)]:
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
            "fetch.wait.max.ms": 10,
        }
    )
    found = []
    try:
        # A search for an offset before the leader is known is tried again after half a second.
        consumer.list_topics(golden.topic)
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


def produce(broker: RunningBroker, topic: str, *records: LogRecord) -> Any:
    fields = produce_fields(topic, {0: build_batch(records)}, acks=-1)
    return broker.ask(ApiKey.PRODUCE, 9, **fields).responses[0].partition_responses[0]


def test_nothing_without_a_key_is_taken_for_a_log_that_kafka_compacts(
    broker: RunningBroker,
) -> None:
    """Kafka's cleaner would throw it away, when the directory is Kafka's again."""
    refused = produce(
        broker, "compacted", LogRecord(FAR_MS, b"k", b"v"), LogRecord(FAR_MS, None, b"v")
    )
    assert refused.error_code == 87
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert "without key" in refused.record_errors[0].batch_index_error_message
    assert produce(broker, "compacted", LogRecord(FAR_MS, b"k", b"v")).error_code == 0
    assert produce(broker, "client-none", LogRecord(FAR_MS, None, b"v")).error_code == 0


def test_what_is_appended_obeys_the_settings_that_kafka_had(broker: RunningBroker) -> None:
    assert produce(broker, "append-time", LogRecord(7, None, b"v")).log_append_time_ms == FAR_MS
    assert produce(broker, "client-none", LogRecord(7, None, b"v")).log_append_time_ms == -1
    assert produce(broker, "broker-zstd", LogRecord(7, None, b"v")).error_code == 0
    assert broker.headers("broker-zstd")[-1].codec is Codec.ZSTD


def set_of(broker: RunningBroker, topic: str, name: str, value: str) -> int:
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    answer = broker.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    )
    return int(answer.responses[0].error_code)


def test_a_compacted_topic_that_is_given_a_setting_is_compacted_on(broker: RunningBroker) -> None:
    assert set_of(broker, "compacted", "max.message.bytes", "5000") == 0
    assert broker.log("compacted").config.cleanup_policy == {"compact"}
    assert set_of(broker, "compacted", "cleanup.policy", "") == 0
    assert not broker.broker.topics.named("compacted").adopted
    assert produce(broker, "compacted", LogRecord(FAR_MS, None, b"v")).error_code == 0
    assert broker.run(broker.service.background_tasks.run_retention()) == []


def test_a_setting_is_added_to_those_that_kafka_had(broker: RunningBroker) -> None:
    assert set_of(broker, "append-time", "retention.ms", "-1") == 0
    broker.restart()
    assert not broker.broker.topics.named("append-time").adopted
    assert produce(broker, "append-time", LogRecord(7, None, b"v")).log_append_time_ms == FAR_MS


def test_adopted_with_defaults_a_compacted_log_still_keeps_everything(
    make_broker: MakeBroker, tmp_path: Path
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
    before = {key: each.log.size for key, each in broker.broker.partitions.items()}
    assert broker.run(broker.service.background_tasks.run_retention()) == []
    assert before == {key: each.log.size for key, each in broker.broker.partitions.items()}


def said(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_what_is_not_carried_over_from_kafka_is_said_by_group_and_setting(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = copy_directory("clean", tmp_path / "kafka")
    with (directory / "__cluster_metadata-0" / f"{0:020}.log").open("ab") as metadata:
        settings = (
            b"\x01\x04\x00\x04\x01\x11log.retention.ms\x023\x00",
            b"\x01\x04\x00\x04\x01\x16ssl.keystore.password\x05hush\x00",
            b"\x01\x04\x00\x02\x0cclient-none\x16remote.storage.enable\x05true\x00",
        )
        records = [LogRecord(5, None, value) for value in settings]
        metadata.write(build_batch(records, base_offset=10_000))
    broker = make_broker(log_dir=directory, clock=ManualClock(FAR_MS))
    assert "group 'golden-group': the offsets that it committed with Kafka" in said(caplog)
    assert "client-none-0 at 7" in said(caplog)
    assert "log.retention.ms=3 of every broker in Kafka's metadata is not carried" in said(caplog)
    assert "ssl.keystore.password=[hidden] of every broker" in said(caplog)
    assert "remote.storage.enable=true of topic client-none" in said(caplog)
    assert "started on it again: so far nothing" in said(caplog)

    client = broker.client
    left = client.left_behind("client-none")
    assert left is not None
    assert (left.is_adopted, left.is_made_here) == (True, False)
    assert left.settings == {"remote.storage.enable": "true"}
    assert ("golden-group", 0, 7) in left.offsets
    for group, partition, offset in left.offsets:
        client.offset_commit(group, {("client-none", partition): CommittedOffset(offset)})
    client.create_topics({"made": 1})
    of_made, left = client.left_behind("made"), client.left_behind("client-none")
    assert of_made is not None
    assert (of_made.is_adopted, of_made.is_made_here) == (False, True)
    assert left is not None
    assert left.offsets == []
    client.alter_configs({(ResourceType.TOPIC, "client-gzip"): {"retention.ms": "-1"}})
    heartbeats = {"consumer.heartbeat.interval.ms": "6000"}
    client.alter_configs({(ResourceType.GROUP, "golden"): heartbeats})
    caplog.clear()
    broker.restart()
    assert "group 'golden-group'" not in said(caplog)
    back = caplog.records[-1].getMessage()
    assert "topics (their directories become *-stray) made; " in back
    assert "settings of topics client-gzip; settings of groups golden; offsets of groups" in back
    assert "offsets of groups 'golden', 'golden-group'" in back


def test_a_directory_of_horologs_own_has_nothing_left_behind(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker()
    with Client(broker.address) as client:
        client.create_topics({"t": 1})
        client.offset_commit("g", {("t", 0): CommittedOffset(0)})
        broker.restart()
        left = client.left_behind("t")
    assert left is not None
    assert (left.is_adopted, left.is_made_here, left.settings, left.offsets) == (
        False,
        False,
        {},
        [],
    )
    assert "Kafka" not in said(caplog)


def test_more_than_fits_one_answer_is_asked_for_page_by_page(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    directory = copy_directory("clean", tmp_path / "kafka")
    groups = [f"group-{at:05}" for at in range(5_000)]
    with (directory / "__consumer_offsets-0" / f"{0:020}.log").open("ab") as log:
        records = [
            LogRecord(5, b"\0\1\0\x0b%b\0\x0bclient-none\0\0\0\0" % group.encode(), bytes(20))
            for group in groups
        ]
        log.write(build_batch(records, base_offset=10_000))
    broker = make_broker(log_dir=directory, clock=ManualClock(FAR_MS))
    left = broker.client.left_behind("client-none")
    assert left is not None
    assert {group for group, _, _ in left.offsets} >= set(groups)
    assert len(left.offsets) == len(set(left.offsets))


def test_topics_describe_shows_what_is_not_carried_over(broker: RunningBroker) -> None:
    broker.client.create_topics({"made": 1})
    described = run_command("topics", "describe", "compacted", HOROLOG_BOOTSTRAP=broker.address)
    assert "nothing of it expires until it is given settings" in described.out
    assert ["golden", "0", "132"] in [line.split() for line in described.lines]
    made = run_command("topics", "describe", "made", "--json", HOROLOG_BOOTSTRAP=broker.address)
    assert made.json["left_behind"] == {
        "is_adopted": False,
        "is_made_here": True,
        "settings": {},
        "offsets": [],
    }
