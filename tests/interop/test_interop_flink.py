"""Flink's exactly-once sink: one topic copied to another, whatever is killed meanwhile.

Copy.java is a Flink within one JVM. Started again, it continues from its newest checkpoint.
"""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from committed import end_offsets, send_numbers, values_seen
from patience import eventually
from peer_process import PeerProcess, compiled, java_command
from running_broker import BrokerProcess, a_broker_process

pytestmark = pytest.mark.timeout(1800)

SOURCE = Path(__file__).parent / "clients" / "flink" / "Copy.java"
PARTITIONS = 3


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("flink"), newest="flink")


broker = a_broker_process(
    "in",
    "out",
    partitions=PARTITIONS,
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
)


class Run:
    """Flink beside a broker, and what was given to it."""

    def __init__(self, broker: BrokerProcess, classes: Path, directory: Path, naming: str) -> None:
        self.broker, self.sent = broker, 0
        self._checkpoints = directory / "checkpoints"
        given = (broker.address, "in", "out", str(PARTITIONS), str(self._checkpoints), naming)
        command = java_command("Copy", *given, newest="flink", classes=classes, heap="400m")
        self.flink = PeerProcess(command, said=directory / "copy.said")

    def send(self, records: int) -> None:
        numbers = range(self.sent, self.sent + records)
        send_numbers(self.broker.address, "in", numbers, PARTITIONS)
        self.sent += records

    def written(self) -> int:
        """Of transactions that are open, too."""
        return end_offsets(self.broker.address, "out")

    def await_written(self, records: int) -> None:
        self._wait(lambda: self.written() >= records)

    def await_checkpoint(self) -> None:
        """Return once a checkpoint is complete that is not there yet."""
        before = self._complete()
        self._wait(lambda: bool(self._complete() - before))

    def _complete(self) -> set[Path]:
        return set(self._checkpoints.glob("*/chk-*/_metadata"))

    def _wait(self, holds: Callable[[], bool]) -> None:
        held = eventually(lambda: holds() or not self.flink.lives)
        assert held, self.flink.said[-6000:]
        assert self.flink.lives, self.flink.said[-6000:]

    def values(self) -> list[list[int]]:
        """What is committed, by the partition that it has to be in, in order."""
        seen = [*map(int, values_seen(self.broker.address, "out"))]
        return [
            [value for value in seen if value % PARTITIONS == each] for each in range(PARTITIONS)
        ]

    def expected(self) -> list[list[int]]:
        return [[*range(each, self.sent, PARTITIONS)] for each in range(PARTITIONS)]

    def await_all(self) -> None:
        self._wait(lambda: sum(map(len, self.values())) >= self.sent)


# INCREMENTING probes for what earlier lives left open; POOLING asks ListTransactions for it.
@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_copies_records_exactly_once_whatever_is_killed(
    broker: BrokerProcess, classes: Path, tmp_path: Path, naming: str
) -> None:
    dice = random.Random(naming)
    run = Run(broker, classes, tmp_path, naming)
    with run.flink as flink:
        flink_killed = 0
        for killed in dice.sample(["flink", "broker", "flink", "both"], 4):
            run.send(300)
            run.await_checkpoint()
            before = run.written()
            run.send(600)
            run.await_written(before + dice.randrange(1, 500))
            if killed != "broker":
                flink.kill()
                flink_killed += 1
            if killed != "flink":
                broker.kill()
                broker.start_again()
            if not flink.lives:
                flink.start()
                assert flink.await_said("^(?:restored .*|started)")[0].startswith("restored ")
        run.await_all()
        assert run.values() == run.expected(), flink.said[-6000:]
        assert len(re.findall("^restored ", flink.said, re.MULTILINE)) == flink_killed
        flink.close()
    assert run.values() == run.expected()
