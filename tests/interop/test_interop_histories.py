"""Every reader gives the same records of random histories that Apache Kafka wrote."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples import some_of
from histories import History, Question
from history_readers import check, check_damaged
from mirror_lab import rows_of
from patience import eventually
from raw_connection import delete_fields, topic_fields
from running_broker import Asked
from tools.peers.kafka import Kafka

from horolog.clock import SystemClock
from horolog.wire import ApiKey

SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.ms": "-1",
}
STEPS = 120


class KafkaBroker(Asked):
    """A Kafka, asked as a broker of ours is."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka, self.address, self.clock = kafka, kafka.bootstrap, SystemClock()

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        if key is ApiKey.INIT_PRODUCER_ID:  # makes the coordinator's topic, the first time
            names = {"key_type": 1, "coordinator_keys": [fields["transactional_id"]]}
            assert eventually(lambda: not self._find(names).coordinators[0].error_code)
        return super().ask(key, version, **fields)

    def _find(self, names: dict[str, Any]) -> Any:
        return super().ask(ApiKey.FIND_COORDINATOR, 4, **names)

    def create_topic(self, topic: str, partitions: int, **settings: str) -> None:
        settings["internal_segment_bytes"] = settings.pop("segment_bytes")
        fields = topic_fields(topic, partitions, **settings)
        fields["topics"][0]["replication_factor"] = 1
        (answer,) = self.ask(ApiKey.CREATE_TOPICS, 5, timeout_ms=60_000, **fields).topics
        assert answer.error_code == 0, answer
        for number in range(partitions):
            assert eventually(lambda at=number: not self.fetch(topic, 0, at).error_code)

    def delete_records(self, topic: str, offset: int, partition: int) -> None:
        fields = delete_fields(topic, {partition: offset})
        (answer,) = self.ask(ApiKey.DELETE_RECORDS, 2, timeout_ms=60_000, **fields).topics
        assert answer.partitions[0].error_code == 0, answer

    def kill(self) -> None:
        """End it between two swaps, when it has written down the log starts."""
        self.close_client()
        os.kill(self.kafka.pid, signal.SIGSTOP)
        while any(self.kafka.log_dir.glob("*/*.swap")):
            os.kill(self.kafka.pid, signal.SIGCONT)
            time.sleep(0.05)
            os.kill(self.kafka.pid, signal.SIGSTOP)
        self.kafka.kill()

    def knows_starts(self, starts: dict[tuple[str, int], int]) -> bool:
        """Whether these log starts are in its checkpoint, which a kill leaves."""
        lines = (self.kafka.log_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
        found = {(topic, int(at)): int(start) for topic, at, start in map(str.split, lines)}
        return all(found.get(at, 0) == start for at, start in starts.items())

    def restart(self, *, cleaner: bool) -> None:
        self.close_client()
        self.kafka.stop()
        self.kafka.set({"log.cleaner.enable": str(cleaner).lower()})
        self.kafka.start()


class KafkaHistory(History):
    """What it compacts is known at the end; it rolls by itself, and its clock is the machine's."""

    def pass_time(self) -> None:
        """Time passes."""

    def roll(self, topic: str | None = None) -> None:
        """Segments are small."""

    def compact(self) -> None:
        """The cleaner runs all the time."""

    def restart(self) -> None:
        """It takes too long."""

    def create_again(self) -> None:
        """Its files stay for a minute."""

    def reset_append_times(self) -> None:
        """It keeps none."""

    def _write_starts(self) -> None:
        """A stop does."""

    def _settle(self) -> None:
        assert eventually(lambda: all(map(self._is_settled, self.sent)))

    def _is_settled(self, at: tuple[str, int]) -> bool:
        start, first = self.log_starts[at], self._open_first_offset(at)
        found = self.broker.fetch(at[0], start, at[1], isolation_level=1)
        if first is not None and first < start:
            return bool(found.last_stable_offset <= start)  # a Kafka lets it lie before the start
        end = found.high_watermark if first is None else first
        return bool(found.last_stable_offset == end)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with Kafka(tmp_path, settings=SETTINGS) as kafka:
        broker = KafkaBroker(kafka)
        yield broker
        broker.close_client()


@pytest.mark.parametrize("seed", some_of(range(10), every=10))
def test_readers_of_a_kafka_and_of_its_files_give_what_was_sent(
    broker: KafkaBroker, seed: int
) -> None:
    history = KafkaHistory(broker, random.Random(seed))
    history.steps(STEPS)
    broker.restart(cleaner=False)
    log_dir = broker.kafka.log_dir
    history.take_compacted(log_dir)
    for topic, partition in history.sent:
        for committed in (False, True):
            fetched = rows_of(broker.address, topic, partition, committed=committed)
            assert [(row.offset, row.value) for row in fetched] == [
                (row.offset, row.value)
                for row in history.expected(Question(topic, committed))
                if row.partition == partition
            ]
    check(history, log_dir, history.rng, knows_append_times=False)
    broker.close_client()
    broker.kafka.stop()
    check(history, log_dir, history.rng, knows_append_times=False)


@pytest.mark.parametrize("seed", some_of(range(100, 106), every=6))
def test_files_of_a_killed_kafka_damaged_or_not_give_what_was_sent_or_a_refusal(
    broker: KafkaBroker, seed: int, tmp_path: Path
) -> None:
    history = KafkaHistory(broker, random.Random(seed))
    history.steps(STEPS)
    assert eventually(lambda: broker.knows_starts(history.log_starts))
    broker.kill()
    killed = broker.kafka.log_dir
    history.take_compacted(killed)
    check(history, killed, history.rng, knows_append_times=False)
    check_damaged(history, killed, tmp_path, knows_append_times=False)
