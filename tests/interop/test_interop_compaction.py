"""Logs that horolog has compacted, for Apache Kafka: its dump tool, its broker, its cleaner."""

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from batches import marker
from compacting import COMPACT as COMPACTED
from compacting import clean
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from handing_over import complaints, give_to_kafka
from patience import eventually
from running_broker import RunningBroker
from storelogs import NOW, new_follower, pull, records_in
from tools.golden import answers, scenarios
from tools.golden.scenarios import Scenario
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, Kafka

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.record import AppendTimeStretch, Codec, LogRecord, build_batch, cleaning

COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
}
TOPICS = [
    Scenario(f"compacted-{codec.name.lower()}", "by key", scenarios.nothing, COMPACT)
    for codec in (Codec.NONE, Codec.LZ4)
]
BATCHES, RECORDS = 40, 500


def batches(codec: Codec) -> list[bytes]:
    """Records of a thousand keys in turn; one in seven is a tombstone."""
    now_ms = SystemClock().now_ms()
    found = []
    for first in range(0, BATCHES * RECORDS, RECORDS):
        records = [
            LogRecord(now_ms + n, b"key %d" % (n % 1000), None if n % 7 == 3 else b"%d " % n * 20)
            for n in range(first, first + RECORDS)
        ]
        found.append(build_batch(records, codec=codec))
    return found


def consumed(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Everything that a consumer gets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(600)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


@pytest.mark.timeout(3600)  # Kafka is started twice
@pytest.mark.parametrize("peer", [NEWEST, LAST_WITH_OLD_FORMATS])
def test_kafka_opens_what_we_compacted_and_compacts_on_and_we_open_the_result(
    tmp_path: Path, peer: str
) -> None:
    broker = RunningBroker(tmp_path / "ours")
    with broker:
        for scenario, codec in zip(TOPICS, (Codec.NONE, Codec.LZ4), strict=True):
            given = {name.replace(".", "_"): value for name, value in COMPACT.items()}
            broker.create_topic(scenario.topic, **{**given, "segment_bytes": "200000"})
            for batch in batches(codec):
                broker.append(scenario.topic, batch)
            broker.roll(scenario.topic)
            broker.append(scenario.topic, build_batch([LogRecord(1, b"last", b"v")]))
        broker.run(broker.broker.cleaner.clean_all())
        before = {one.topic: consumed(broker.address, one.topic) for one in TOPICS}
    assert all(len(found) < 3000 for found in before.values())
    answers.of_files(tmp_path / "ours", peer=NEWEST)  # fails on any complaint

    logs = (tmp_path / "ours").glob("compacted-*/*.log")
    assert sum(not path.stat().st_size for path in logs) > 11, "nothing is left of many segments"
    empty = Kafka(tmp_path / "kafka", peer=peer, settings={"log.cleaner.backoff.ms": "500"})
    with empty:
        scenarios.create(empty.bootstrap, TOPICS)
        scenarios.settle(2)
    give_to_kafka(tmp_path / "ours", empty)
    shutil.copy2(tmp_path / "ours" / "cleaner-offset-checkpoint", empty.log_dir)
    said = empty.output.stat().st_size
    with empty:
        scenarios.settle(2)
        assert {one.topic: consumed(empty.bootstrap, one.topic) for one in TOPICS} == before
        points = empty.log_dir / "cleaner-offset-checkpoint"
        at_first = points.read_text()
        for scenario, codec in zip(TOPICS, (Codec.NONE, Codec.LZ4), strict=True):
            for batch in batches(codec):
                produce(empty.bootstrap, scenario.topic, batch)
        # The segments of one of them are full: 1 MiB is the least that Kafka takes.
        assert eventually(lambda: points.read_text() != at_first, 60), "its cleaner went on"
        after = {one.topic: consumed(empty.bootstrap, one.topic) for one in TOPICS}
    assert complaints(empty, said) == []
    answers.of_files(empty.log_dir, peer=NEWEST)

    shutil.copytree(empty.log_dir, tmp_path / "back")
    with RunningBroker(tmp_path / "back") as broker:
        for one in TOPICS:
            found = [(r.offset, r.key, r.value) for r in records_in(broker.log(one.topic))]
            assert {key: value for _, key, value in found} == {
                key: value for _, key, value in after[one.topic]
            }


@pytest.mark.timeout(3600)
def test_kafkas_dump_tool_has_nothing_to_say_of_cleaned_transactions_of_one_record(
    tmp_path: Path,
) -> None:
    """Several runs, after which markers, tombstones and empty batches are left, among others."""
    chance, offset, sequences = Random(3), 0, dict.fromkeys(range(6), 0)
    cleaning.load_kernels()
    with new_follower(tmp_path, replace(COMPACTED, segment_bytes=40_000)) as log:
        for run in range(3):
            now_ms = NOW + 600 * run
            for _ in range(400):
                key = b"k%d" % chance.randrange(60)
                record = LogRecord(now_ms, key, chance.choice([None, b"v", b"v" * 60]))
                producer = chance.randrange(6)
                more: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0}
                more["base_sequence"] = sequences[producer]
                more["is_transactional"] = producer > 2
                sequences[producer] += 1
                appended = [AppendTimeStretch(offset, now_ms)]
                sent = [build_batch([record], base_offset=offset, leader_epoch=0, **more)]
                if producer > 2:
                    kind = int(chance.random() < 0.6)
                    sent.append(marker(offset + 1, producer, kind=kind, ms=now_ms, leader_epoch=0))
                pull(log, *sent, append_times=appended)
                offset += len(sent)
            log.roll(now_ms)
            last = build_batch([LogRecord(now_ms, b"z", b"v")], base_offset=offset, leader_epoch=0)
            pull(log, last, append_times=[AppendTimeStretch(offset, now_ms)])
            offset += 1
            clean(log, now_ms + 1)
        log.roll(now_ms)
        headers = [header for each in log.segments for _, header in each.headers(0, each.size)]
    assert any(header.is_control and header.has_delete_horizon for header in headers)
    assert any(header.is_control and not header.has_delete_horizon for header in headers)
    assert any(header.has_delete_horizon and not header.is_control for header in headers)
    assert any(not header.records_count for header in headers)
    (found,) = answers.of_files(tmp_path, peer=NEWEST).values()  # fails on any complaint
    at = answers.COLUMNS.index("base_offset")
    logs = [rows for name, rows in sorted(found.items()) if name.endswith(".log")]
    assert [row[at] for rows in logs for row in rows] == [each.base_offset for each in headers]


def produce(bootstrap: str, topic: str, batch: bytes) -> None:
    with Client(bootstrap, timeout_ms=600_000) as client:
        client.produce(topic, 0, batch)
