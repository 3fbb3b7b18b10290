"""Consume, transform, produce: every client's transactions, with kills of client and broker.

Each program copies one topic to another in transactions of a few records, the group's offsets with
them. Whatever is killed, a consumer that reads what is committed finds each record once.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from committed import end_offsets, send_numbers, values_seen
from patience import eventually
from peer_process import PeerProcess, compiled, java_command
from running_broker import BrokerProcess, a_broker_process
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, PEERS, run_tool

pytestmark = pytest.mark.timeout(1800)

CLIENTS = Path(__file__).parent / "clients"
PARTITIONS = 3
Command = Callable[[str, str], list[str]]
"""The command of a program for a broker's address and a transactional id."""


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled against the older client; the newer one runs it as well."""
    source = CLIENTS / "java" / "Transform.java"
    return compiled(source, tmp_path_factory.mktemp("transform"), newest=LAST_WITH_OLD_FORMATS)


# Two flows of KIP-890: the broker announces the second, older clients know the first.
NEWEST_JAVA, OLDER_JAVA = "Java 4.4, second flow", "Java 3.9, first flow"
SECOND_GO, FIRST_GO = "franz-go, second flow", "franz-go, first flow"
SARAMA, KAFKAJS = "sarama", "KafkaJS"
PYTHON = ("confluent-kafka", "aiokafka", "kafka-python")
CONSUMER_PROTOCOL = {
    "Java 4.4, consumer protocol": NEWEST_JAVA,
    "franz-go, consumer protocol": SECOND_GO,
    "confluent-kafka, consumer protocol": "confluent-kafka",
}
"""Clients as members of a group that the broker assigns (KIP-848), with what they are otherwise."""
KINDS = (NEWEST_JAVA, OLDER_JAVA, SECOND_GO, FIRST_GO, SARAMA, KAFKAJS, *PYTHON, *CONSUMER_PROTOCOL)
WITHOUT_GENERATIONS = {SARAMA, KAFKAJS, "aiokafka"}
"""Clients whose offsets in transactions do not name a member: two could copy a record at once."""


def command(kind: str, classes: Path) -> Command:
    def made(address: str, transactional_id: str) -> list[str]:
        if kind in CONSUMER_PROTOCOL:
            made = command(CONSUMER_PROTOCOL[kind], classes)(address, transactional_id)
            return ["env", "GROUP_PROTOCOL=consumer", *made]
        given = [address, "in", "out", "copies", transactional_id]
        if kind in {NEWEST_JAVA, OLDER_JAVA}:
            peer = NEWEST if kind == NEWEST_JAVA else LAST_WITH_OLD_FORMATS
            return java_command("Transform", *given, classes=classes, newest=peer)
        if kind in PYTHON:
            return [sys.executable, str(CLIENTS / "python" / "transform.py"), kind, *given]
        if kind == KAFKAJS:
            modules = f"NODE_PATH={PEERS / 'node' / 'node_modules'}"
            return ["env", modules, "node", str(CLIENTS / "node" / "transform.js"), *given]
        asked = {"topic": "in", "to": "out", "group": "copies", "id": transactional_id}
        flow = {"flow": 1 if kind == FIRST_GO else 2}
        what = "transform-by-sarama" if kind == SARAMA else "transform"
        return [str(PEERS / "go" / "client"), what, address, json.dumps({**asked, **flow})]

    return made


broker = a_broker_process(
    "in",
    "out",
    partitions=PARTITIONS,
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    log_cleaner_backoff_ms="200",
    group_consumer_min_session_timeout_ms="6000",
    group_consumer_session_timeout_ms="6000",
    group_consumer_min_heartbeat_interval_ms="500",
    group_consumer_heartbeat_interval_ms="500",
)


class Copying:
    """Programs that copy, and what is there to be copied."""

    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        self.broker, self._directory = broker, directory
        self.sent = 0
        self.programs: list[PeerProcess] = []

    def add(self, command: Command) -> PeerProcess:
        number = len(self.programs)
        program = PeerProcess(
            command(self.broker.address, f"id-{number}"), said=self._directory / f"{number}.said"
        )
        self.programs.append(program)
        return program

    def send(self, records: int) -> None:
        numbers = range(self.sent, self.sent + records)
        send_numbers(self.broker.address, "in", numbers, PARTITIONS)
        self.sent += records

    def written(self) -> int:
        return end_offsets(self.broker.address, "out")

    def revive(self) -> None:
        """Start programs again that want a new producer, as whoever runs them does."""
        for program in self.programs:
            if not program.lives:
                assert program.code in {None, 3}, program.said[-4000:]
                program.kill()
                program.start()

    def await_written(self, records: int) -> None:
        def is_written() -> bool:
            self.revive()
            return self.written() >= records

        assert eventually(is_written), self.said()

    def await_all(self) -> None:
        def are_there() -> bool:
            self.revive()
            return len(values_seen(self.broker.address, "out")) >= self.sent

        assert eventually(are_there), self.said()

    def values(self) -> list[int]:
        return sorted(map(int, values_seen(self.broker.address, "out")))

    def said(self) -> str:
        return "\n".join(program.said[-4000:] for program in self.programs)

    def close(self) -> None:
        for program in self.programs:
            program.kill()


@pytest.fixture
def copying(broker: BrokerProcess, tmp_path: Path) -> Iterator[Copying]:
    copying = Copying(broker, tmp_path)
    try:
        yield copying
    finally:
        copying.close()


def kill_in_turn(copying: Copying, dice: random.Random) -> None:
    """Kill programs and the broker in the middle of what they do."""
    for what in dice.sample(["program", "broker", "program", "both"], 4):
        before = copying.written()
        copying.send(600)
        copying.await_written(before + dice.randrange(1, 500))
        if what in {"program", "both"}:
            dice.choice(copying.programs).kill()
        if what in {"broker", "both"}:
            copying.broker.kill()
            copying.broker.start_again()


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_copied_exactly_once_whatever_is_killed(
    copying: Copying, classes: Path, kind: str
) -> None:
    copying.send(100)
    for _ in range(1 if kind in WITHOUT_GENERATIONS else 2):
        copying.add(command(kind, classes))
    copying.await_written(1)
    kill_in_turn(copying, random.Random(kind))
    copying.await_all()
    assert copying.values() == [*range(copying.sent)], copying.said()


def test_clients_of_both_flows_share_a_group_and_its_topics(
    copying: Copying, classes: Path
) -> None:
    copying.send(100)
    for kind in (OLDER_JAVA, NEWEST_JAVA, FIRST_GO, "confluent-kafka"):
        copying.add(command(kind, classes))
    copying.await_written(1)
    kill_in_turn(copying, random.Random(5))
    copying.await_all()
    assert copying.values() == [*range(copying.sent)], copying.said()


@pytest.mark.parametrize("kind", KINDS)
def test_clients_use_the_flow_that_they_know(
    copying: Copying, classes: Path, kind: str, tmp_path: Path
) -> None:
    copying.send(100)
    copying.add(command(kind, classes))
    copying.await_all()
    copying.broker.kill()
    logs = [
        str(path)
        for path in (tmp_path / "broker").glob("__transaction_state-*/*.log")
        if path.stat().st_size
    ]
    decoded = run_tool("dump", "--transaction-log-decoder", "--files", ",".join(logs))
    second = '"clientTransactionVersion":2' in decoded.stdout.decode()
    assert second == (CONSUMER_PROTOCOL.get(kind, kind) in {NEWEST_JAVA, SECOND_GO})


# sarama's producers are those of partitions, which the one that takes a partition over replaces.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != SARAMA])
def test_producer_whose_id_another_uses_is_fenced(
    copying: Copying, classes: Path, kind: str
) -> None:
    copying.send(300)
    made = command(kind, classes)
    first = copying.add(made)
    first.await_said("^committed")
    copying.programs.clear()
    second = copying.add(made)  # of the same transactional id
    try:
        second.await_said("^started")

        def is_fenced() -> bool:
            copying.send(10)
            return not first.lives

        assert eventually(is_fenced), first.said[-4000:]
        assert first.code == 3, first.said[-4000:]
        copying.await_all()
        assert copying.values() == [*range(copying.sent)], copying.said()
    finally:
        first.kill()
