"""The mirror between horolog and Apache Kafka; its tasks run in this process."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batches import generated_record
from confluent_kafka import Producer as Librdkafka
from mirror_lab import (
    NO_SPARK,
    T0_MS,
    MirrorLab,
    log_bytes,
    produce,
    records,
    rows_of,
    values,
    without_offsets,
)
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import Kafka, dump

from horolog.client import Client, CommittedOffset, ResourceType
from horolog.clock import SystemClock
from horolog.jobs.comparing import compare
from horolog.record import Codec, LogRecord

EXPIRED_AFTER_S = 2.0
"""After which this Kafka has forgotten producers of old records."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Any) -> Iterator[Kafka]:
    settings = {
        "transactional.id.expiration.ms": "1000000",
        "producer.id.expiration.ms": "500",
        "producer.id.expiration.check.interval.ms": "200",
        "log.retention.check.interval.ms": "100000000",
    }
    with Kafka(tmp_path_factory.mktemp("kafka"), settings=settings) as running:
        yield running


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MirrorLab:
    return MirrorLab(tmp_path, monkeypatch)


@pytest.fixture
def ours(make_broker: MakeBroker) -> "RunningBroker":
    return make_broker()


def rows_at(address: str, topic: str, partition: int = 0) -> list[LogRecord]:
    """The committed records of a partition; markers at the target shift their offsets."""
    return without_offsets(rows_of(address, topic, partition))


@pytest.mark.parametrize("batch_bytes", [0, 1_500])
@pytest.mark.parametrize("waits", [False, True])
def test_kills_lose_and_double_nothing_in_kafka(
    lab: MirrorLab,
    ours: "RunningBroker",
    kafka: Kafka,
    topic: Callable[[str], str],
    waits: bool,
    batch_bytes: int,
) -> None:
    name = topic("killed")
    ours.create_topic(name, 2, retention_ms="-1")
    for number in range(20):
        produce(ours.address, name, number % 2, records(10 * number, 10))
    for after, at_commit in ((0, None), (3, None), (99, "before it"), (99, "after it"), (99, None)):
        how = {"after": after, "at_commit": at_commit, "batch_bytes": batch_bytes}
        lab.may_be_killed(ours.address, kafka.bootstrap, name, **how)
        if waits:
            time.sleep(EXPIRED_AFTER_S)
    done = lab.run(ours.address, kafka.bootstrap, name, batch_bytes=batch_bytes)
    assert not done.errors
    assert sum(partition.records for partition in done.partitions) == 200
    for partition in range(2):
        assert rows_at(kafka.bootstrap, name, partition) == rows_at(ours.address, name, partition)


def test_kafkas_transactions_come_as_far_as_they_are_committed_and_groups_go_on(
    lab: MirrorLab, ours: "RunningBroker", kafka: Kafka, topic: Callable[[str], str]
) -> None:
    name = topic("transactions")
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 1}, configs={"retention.ms": "-1"})
    producer = Librdkafka({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    for number, outcome in enumerate(("commit", "abort", "commit", "abort", "commit")):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(name, b"%d" % (3 * number + each))
        producer.flush()
        getattr(producer, f"{outcome}_transaction")()
    expected = [b"%d" % number for number in (0, 1, 2, 6, 7, 8, 12, 13, 14)]
    with Client(kafka.bootstrap) as client:
        # At 8: records 0 to 2, a marker, 3 to 5 aborted, a marker; so before record 6.
        client.offset_commit(name, {(name, 0): CommittedOffset(8)})
    lab.killed_before_the_end(kafka.bootstrap, ours.address, name, after=3)
    done = lab.run(kafka.bootstrap, ours.address, name, groups=name)
    assert not done.errors
    assert values(ours.address, name) == expected
    (following,) = [row.offset for row in rows_of(ours.address, name) if row.value == b"6"]
    assert following is not None
    with Client(ours.address) as client:
        assert client.offset_fetch(name) == {(name, 0): CommittedOffset(following)}


def test_times_that_kafka_refuses_stop_the_partition_with_its_sentence(
    lab: MirrorLab, ours: "RunningBroker", kafka: Kafka, topic: Callable[[str], str]
) -> None:
    name = topic("early")
    ours.create_topic(name, 2, retention_ms="-1")
    produce(ours.address, name, 0, [LogRecord(-5_000, b"k", b"before 1970")])
    for partition in range(2):
        produce(ours.address, name, partition, records(0, 3))
    with Client(kafka.bootstrap) as client:
        client.create_topics({name: 2}, configs={"retention.ms": "-1"})
    assert not lab.run(ours.address, kafka.bootstrap, name).errors
    assert rows_at(kafka.bootstrap, name) == rows_at(ours.address, name)
    resource = (ResourceType.TOPIC, name)
    with Client(kafka.bootstrap) as client:
        client.alter_configs({resource: {"message.timestamp.before.max.ms": "100000"}})
    for partition in range(2):
        fresh = SystemClock().now_ms() if partition else T0_MS
        produce(ours.address, name, partition, records(3, 3, timestamp=fresh))
    done = lab.run(ours.address, kafka.bootstrap, name)
    assert len(done.errors) == 1
    assert f"{name}-0" in done.errors[0]
    assert any("message.timestamp.before.max.ms=100000" in note for note in done.notes)
    assert len(values(kafka.bootstrap, name, 1)) == 6


def test_two_attempts_at_once_write_each_record_once_to_kafka(
    lab: MirrorLab,
    ours: "RunningBroker",
    kafka: Kafka,
    topic: Callable[[str], str],
) -> None:
    name = topic("twice")
    # This Kafka forgets the producer of older records five times a second, also amid the attempts.
    ahead_ms = SystemClock().now_ms() + 600_000
    ours.create_topic(name, 1, retention_ms="-1")
    for number in range(150):
        produce(ours.address, name, 0, records(5 * number, 5, timestamp=ahead_ms))
    lab.run_twice_at_once(ours.address, kafka.bootstrap, name)
    assert not lab.run(ours.address, kafka.bootstrap, name).errors
    assert values(kafka.bootstrap, name) == values(ours.address, name)


def test_kafkas_log_comes_into_a_directory_that_kafkas_own_tool_and_horolog_read(
    lab: MirrorLab,
    kafka: Kafka,
    topic: Callable[[str], str],
    tmp_path: Path,
    make_broker: MakeBroker,
) -> None:
    name = topic("directory")
    with Client(kafka.bootstrap) as client:
        client.create_topics(
            {name: 1}, configs={"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
        )
    producer = Librdkafka({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    for number, outcome in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        for each in range(30):
            producer.produce(name, b"%d" % (30 * number + each), key=b"k")
        producer.flush()
        getattr(producer, f"{outcome}_transaction")()
    lab.killed_before_the_end(kafka.bootstrap, tmp_path / "copy", name, after=2)
    assert not lab.run(kafka.bootstrap, tmp_path / "copy", name).errors
    copied, theirs = tmp_path / "copy" / f"{name}-0", kafka.log_dir / f"{name}-0"
    assert log_bytes(copied) == log_bytes(theirs)
    assert (copied / "partition.metadata").read_text() == (
        theirs / "partition.metadata"
    ).read_text()
    assert (copied / "leader-epoch-checkpoint").read_text() == (
        theirs / "leader-epoch-checkpoint"
    ).read_text()
    said = dump([copied / "00000000000000000000.log", copied / "00000000000000000000.index"])
    assert "isvalid: true" in said
    assert "isvalid: false" not in said
    copy = make_broker(log_dir=tmp_path / "copy")
    assert rows_of(copy.address, name) == rows_of(kafka.bootstrap, name)
    assert compare(
        NO_SPARK,
        source=kafka.bootstrap,
        target=tmp_path / "copy",
        topics=name,
        fields="key,value,headers,time,type",
    ).is_equal


def test_what_went_to_kafka_comes_back_the_same(
    lab: MirrorLab, ours: "RunningBroker", kafka: Kafka, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic("back")
    ours.create_topic(name, 3, retention_ms="-1")
    rng = random.Random(11)
    for number in range(30):
        rows = [
            row._replace(timestamp=abs(row.timestamp) % T0_MS)
            for row in (generated_record(rng) for _ in range(10))
        ]
        produce(ours.address, name, number % 3, rows, codec=rng.choice(tuple(Codec)))
    assert not lab.run(ours.address, kafka.bootstrap, name).errors
    back = {"rename": "(.*)=back.\\1", "state": tmp_path / "back"}
    assert not lab.run(kafka.bootstrap, ours.address, name, **back).errors
    asked = {"source": ours.address, "target": kafka.bootstrap, "topics": name}
    assert compare(NO_SPARK, mirror_state=lab.state, **asked).is_equal
    asked |= {"source": kafka.bootstrap, "target": ours.address}
    assert compare(NO_SPARK, mirror_state=tmp_path / "back", **asked).is_equal
    for partition in range(3):
        there = rows_at(ours.address, f"back.{name}", partition)
        assert there == rows_at(ours.address, name, partition)
