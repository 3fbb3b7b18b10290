"""Random logs, cleaned by Apache Kafka and by horolog: both leave the same records."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import pytest
from batches import marker
from compacting import clean
from handing_over import complaints, give_to_kafka
from old_messages import build_messages
from patience import eventually
from storelogs import UnsyncedFiles
from tools.golden import answers, scenarios
from tools.golden.scenarios import Scenario
from tools.peers.kafka import NEWEST, Kafka

from horolog.clock import SystemClock
from horolog.config import LONG_MAX, BrokerConfig, TopicConfig
from horolog.record import (
    MAGIC,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    cleaning,
    iter_headers,
    read_records,
)
from horolog.storage import CLEANER_OFFSETS, Log, LogDir, Origin, SourceBatches, TopicPartition

LOGS, ROUNDS, STEPS = 12, 2, 80
HOUR_MS: Final = 3_600_000
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1,
    index_interval_bytes=0,
    message_timestamp_after_max_ms=LONG_MAX,
    retention_ms=-1,
)
OF_KAFKA = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "1",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0.0",
}
TOPICS = [Scenario(f"t{n}", "random", scenarios.nothing, OF_KAFKA) for n in range(LOGS)]
PLAIN, IDEMPOTENT, TRANSACTIONAL = range(3)
CODECS = (*[Codec.NONE] * 6, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


class History:
    """What a log is given: one of three begins with old formats, one of four has append times."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self.chance = Random(seed)
        self.offset, self.now_ms = 0, now_ms
        self.is_old, self.is_stamped = seed % 3 == 0, seed % 4 == 1
        self.sequences = dict.fromkeys(range(10, 16), 0)
        self.epochs = dict.fromkeys(self.sequences, 0)
        self.open: set[int] = set()

    def go_on(self, log: Log) -> None:
        """Append for a while, end nearly all that is open, and leave one record to be active."""
        for _ in range(STEPS):
            self._step(log)
        for producer in sorted(self.open):
            if self.chance.random() < 0.8:
                self._end(log, producer)
        if log.segments[-1].size:
            log.roll(self.now_ms)
        self._append(log, [LogRecord(self.now_ms, b"last", b"v")])

    def _step(self, log: Log) -> None:
        chance = self.chance
        self.now_ms += chance.choice([0, 1, 1000, -2000, 60_000])
        if chance.random() < 0.1 and log.segments[-1].size:
            log.roll(self.now_ms)
            return
        records = [self._record() for _ in range(chance.choice([1, 1, 1, 2, 3, 8]))]
        if self.is_old and self.offset < 60:
            codec, magic = chance.choice([Codec.NONE, Codec.GZIP]), chance.choice([0, 1])
            plain = [each._replace(headers=()) for each in records]
            sent = build_messages(plain, magic, base_offset=self.offset, codec=codec)
            self._pull(log, sent, len(records))
            return
        producer = chance.choice([None, *self.sequences])
        if producer in self.open and chance.random() < 0.35:
            self._end(log, producer)
            return
        more: dict[str, Any] = {"codec": chance.choice(CODECS)}
        if self.is_stamped:
            more["timestamp_type"] = TimestampType.LOG_APPEND_TIME
            more["max_timestamp"] = self.now_ms
        if producer is not None:
            more["is_transactional"] = is_transactional = producer % 2 == 1
            if is_transactional:
                self.open.add(producer)
            more["producer_id"], more["producer_epoch"] = producer, self.epochs[producer]
            more["base_sequence"] = self.sequences[producer]
            self.sequences[producer] += len(records)
        self._append(log, records, **more)

    def _record(self) -> LogRecord:
        chance = self.chance
        value = chance.choice([None, b"", b"v" * chance.randrange(1, 80), b"x" * 400])
        headers = [("h", b"1")] if chance.random() < 0.1 else ()
        time_ms = self.now_ms + chance.choice([0, 0, 1, -5000, -HOUR_MS])
        return LogRecord(time_ms, b"k%d" % chance.randrange(12), value, headers)

    def _end(self, log: Log, producer: int) -> None:
        more: dict[str, Any] = {"epoch": self.epochs[producer], "leader_epoch": 0}
        kind = int(self.chance.random() < 0.6)
        self._pull(log, marker(self.offset, producer, kind=kind, ms=self.now_ms, **more), 1)
        self.open.discard(producer)
        if self.chance.random() < 0.3:
            self.epochs[producer] += 1
            self.sequences[producer] = 0

    def _append(self, log: Log, records: list[LogRecord], **more: Any) -> None:
        sent = build_batch(records, base_offset=self.offset, leader_epoch=0, **more)
        self._pull(log, sent, len(records))

    def _pull(self, log: Log, data: bytes, count: int) -> None:
        log.append(SourceBatches(data), self.now_ms, Origin.FOLLOWER)
        self.offset += count
        log.move_high_watermark(self.offset)


def opened(path: Path, now_ms: int) -> LogDir:
    return LogDir.open(
        path,
        broker_config=BrokerConfig(),
        topic_config=lambda topic: CONFIG,
        follows=lambda topic: True,
        now_ms=now_ms,
        files=UnsyncedFiles(),
    )


def cleaned_to(log_dir: Path) -> dict[str, int]:
    """How far each log is cleaned."""
    path = log_dir / CLEANER_OFFSETS
    rows = path.read_text().splitlines()[2:] if path.exists() else []
    return {topic: int(offset) for topic, _, offset in map(str.split, rows)}


def until_cleaned(kafka: Kafka, points: dict[str, int]) -> None:
    assert eventually(lambda: cleaned_to(kafka.log_dir) == points), (points, kafka.log_dir)


def left(log_dir: Path, topic: str) -> tuple[list[Any], list[Any]]:
    """All records, with what readers ask of their batches; and the batches of format v2."""
    records: list[Any] = []
    batches: list[Any] = []
    for path in sorted((log_dir / f"{topic}-0").glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            of_batch = header.is_transactional, header.is_control, header.producer_id
            each = read_records(data[position : position + header.size])
            records += [(record, of_batch) for record in each]
            if header.magic == MAGIC:
                producer = *of_batch, header.producer_epoch, header.base_sequence
                batches.append((header.base_offset, header.last_offset, *producer))
    return records, batches


def comparable(batches: Iterable[Any], end_offset: int, is_old: bool) -> list[Any]:
    """The batches that both have in one form.

    Kafka converts old ones, and since 4.4 keeps none without records because the pass ended there.
    """
    return [
        (base, last, *others)
        for base, last, *others in batches
        if last + 1 != end_offset and (not is_old or base > 100)
    ]


@pytest.mark.timeout(3600)
def test_kafka_and_we_leave_the_same_records_of_random_logs_that_both_have_cleaned(
    tmp_path: Path,
) -> None:
    cleaning.load_kernels()
    now_ms = SystemClock().now_ms() - 4 * HOUR_MS  # Kafka forgets producers of long ago
    histories = {one.topic: History(seed, now_ms) for seed, one in enumerate(TOPICS)}
    settings = {"log.cleaner.backoff.ms": "300", "log.initial.task.delay.ms": "100"}
    kafka = Kafka(tmp_path / "kafka", settings=settings)
    with kafka:
        scenarios.create(kafka.bootstrap, TOPICS)
        scenarios.settle(2)
    shutil.copytree(kafka.directory, tmp_path / "new kafka")
    path = tmp_path / "logs"
    path.mkdir()
    for number in range(ROUNDS):
        with_logs = opened(path, now_ms)
        for topic, history in histories.items():
            at = TopicPartition(topic, 0)
            if not number:
                with_logs.create(*at, uuid4(), CONFIG, now_ms)
            log = with_logs.logs[at]
            log.begin_following(0)
            log.move_high_watermark(log.log_end_offset)
            history.go_on(log)
        with_logs.close()

        ours = tmp_path / f"ours {number}"
        shutil.copytree(path, ours)
        with_logs = opened(ours, now_ms)
        for log in with_logs.logs.values():
            log.move_high_watermark(log.log_end_offset)
            clean(log, SystemClock().now_ms())
        with_logs.close()
        answers.of_files(ours, peer=NEWEST)  # fails on any complaint

        shutil.rmtree(kafka.directory)
        shutil.copytree(tmp_path / "new kafka", kafka.directory)
        give_to_kafka(path, kafka)
        if number:
            shutil.copy2(path / CLEANER_OFFSETS, kafka.log_dir)
        said = kafka.output.stat().st_size
        with kafka:
            until_cleaned(kafka, cleaned_to(ours))
        assert complaints(kafka, said) == []
        for topic, history in histories.items():
            records, batches = left(ours, topic)
            theirs, their_batches = left(kafka.log_dir, topic)
            assert records == theirs, (number, topic)
            end, is_old = cleaned_to(ours)[topic], history.is_old
            assert comparable(batches, end, is_old) == comparable(their_batches, end, is_old)

        shutil.rmtree(path)  # the next round goes on with what Kafka has left
        path.mkdir()
        for topic in histories:
            shutil.copytree(kafka.log_dir / f"{topic}-0", path / f"{topic}-0")
        for name in (CLEANER_OFFSETS, ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            if (kafka.log_dir / name).exists():
                shutil.copy2(kafka.log_dir / name, path)
