"""Kafka Streams with state: what it counts, whatever is killed meanwhile.

Counts.java makes words keys (a repartition topic) and counts them (a changelog, compacted). With
exactly-once each count of each word comes out once, in order.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from committed import end_offsets, values_seen
from confluent_kafka import Producer
from patience import PATIENCE_S, eventually
from peer_process import PeerProcess, compiled, java_command
from running_broker import BrokerProcess, a_broker_process

from horolog.client import Client
from horolog.record import iter_headers

pytestmark = pytest.mark.timeout(3600)

STREAMS = Path(__file__).parent / "clients" / "streams"
# So long that a changelog fills segments: 1 MiB is the least that Kafka allows.
WORDS = [f"word{number:_>300}" for number in range(12)]
PARTITIONS = 3
KILLS = [
    "the broker",
    "the application",
    "the application, and its state is lost",
    "the broker",
    "both",
    "both, and the state is lost",
]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = STREAMS / "Counts.java"
    return compiled(source, tmp_path_factory.mktemp("counts"), "kafka-streams")


broker = a_broker_process(
    "in",
    "out",
    partitions=PARTITIONS,
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    log_cleaner_backoff_ms="200",
)


class Run:
    """An application beside a broker, and what was given to it."""

    def __init__(
        self, broker: BrokerProcess, classes: Path, directory: Path, guarantee: str
    ) -> None:
        self.broker, self.state = broker, directory / "state"
        self.sent: dict[str, int] = dict.fromkeys(WORDS, 0)
        given = (broker.address, "in", "out", guarantee, str(self.state))
        command = java_command("Counts", *given, behind=["kafka-streams"], classes=classes)
        self.application = PeerProcess(command, said=directory / "counts.said")

    def send(self, words: list[str]) -> None:
        producer = Producer(
            {"bootstrap.servers": self.broker.address, "enable.idempotence": True, "linger.ms": 5}
        )
        for number, word in enumerate(words):
            producer.produce("in", word.encode(), partition=number % PARTITIONS)
            self.sent[word] += 1
        assert producer.flush(PATIENCE_S) == 0

    def await_output(self, records: int) -> None:
        """Return once this many were written, of transactions that are open too."""

        def is_written() -> bool:
            return self.end_offsets() >= records or not self.application.lives

        assert eventually(is_written), self.application.said[-6000:]
        assert self.application.lives, self.application.said[-6000:]

    def end_offsets(self) -> int:
        return end_offsets(self.broker.address, "out")

    def counts(self) -> dict[str, list[int]]:
        """What came out for each word, in order."""
        found: dict[str, list[int]] = {word: [] for word in WORDS}
        for value in values_seen(self.broker.address, "out"):
            word, count = value.split()
            found[word].append(int(count))
        return found

    def expected(self) -> dict[str, list[int]]:
        return {word: [*range(1, times + 1)] for word, times in self.sent.items()}

    def await_all(self) -> None:
        """Return once all is counted, or counts have come that must not."""
        count = sum(self.sent.values())
        eventually(lambda: len(values_seen(self.broker.address, "out")) >= count)


@contextmanager
def running(
    broker: BrokerProcess, classes: Path, directory: Path, guarantee: str = "exactly_once_v2"
) -> Iterator[Run]:
    run = Run(broker, classes, directory, guarantee)
    with run.application:
        yield run


@pytest.mark.parametrize("seed", [1, 2])
def test_each_word_is_counted_exactly_once_whatever_is_killed(
    broker: BrokerProcess, classes: Path, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    kills = dice.sample(KILLS, len(KILLS))
    with running(broker, classes, tmp_path) as run:
        run.application.await_said("^state RUNNING")
        for kill in kills:
            before = run.end_offsets()
            run.send(dice.choices(WORDS, k=900))
            run.await_output(before + dice.randrange(900))
            if kill.startswith(("both", "the application")):
                run.application.kill()
            if kill.startswith(("both", "the broker")):
                broker.kill()
                broker.start_again()
            if kill.endswith("lost"):
                shutil.rmtree(run.state)
            if not run.application.lives:
                run.application.start()
        run.send(dice.choices(WORDS, k=100))
        run.await_all()
        assert run.counts() == run.expected(), run.application.said[-6000:]
        run.application.close()
        assert not run.application.find("^failed .*")
        assert run.counts() == run.expected()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_state_is_restored_from_a_compacted_changelog(
    broker: BrokerProcess, classes: Path, tmp_path: Path, guarantee: str
) -> None:
    dice = random.Random(3)
    with running(broker, classes, tmp_path, guarantee) as run:
        run.send(dice.choices(WORDS, k=30_000))
        run.await_all()
        run.application.close()
        changelog = "counts-out-counts-changelog"
        assert eventually(lambda: _records(broker, changelog) < 15_000, 60), "it is compacted"
        shutil.rmtree(run.state)
        broker.kill()
        broker.start_again()
        run.application.start()
        run.application.await_said("^state RUNNING")
        restored = sum(map(int, run.application.find(r"^restored (\d+) records")))
        assert len(WORDS) <= restored < 15_000
        run.send(dice.choices(WORDS, k=1_000))
        run.await_all()
        run.application.close()
        assert run.counts() == run.expected()
        assert not run.application.find("^failed .*")


def _records(broker: BrokerProcess, topic: str) -> int:
    """How many records a topic has, by what it returns; an answer may be of one segment only."""
    found = 0
    with Client(broker.address) as client:
        for partition in range(PARTITIONS):
            offset = 0
            while headers := list(iter_headers(client.fetch(topic, partition, offset).records)):
                found += sum(header.records_count for _, header in headers)
                offset = headers[-1][1].last_offset + 1
    return found
