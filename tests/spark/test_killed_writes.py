"""Writes whose tasks, executors, drivers and brokers are killed: no row is missing.

At least once: rows of killed attempts are there twice, and only those.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S
from running_broker import BrokerProcess, a_broker_process

from horolog.client import Client, NoAnswer, Producer
from horolog.errors import RequestRefused
from horolog.sources import scan

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("killed_writes.py")
ROWS = 2_000
EACH = ROWS // 4  # rows of a task


class Program:
    """The program as a group of processes, its JVM included."""

    def __init__(self, said: Path, *arguments: str) -> None:
        self._said = said
        with said.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """The driver, and all that it started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> bool:
        """Whether it was successful."""
        try:
            return self._process.wait(20 * PATIENCE_S) == 0
        finally:
            self.kill()  # its JVM may be there still

    def said(self) -> str:
        return self._said.read_text()[-3000:]


broker = a_broker_process("in", "out", partitions=3)


def counts(client: Client) -> Counter[int]:
    values = scan(client, "out", columns=("value",)).read_all().column("value").to_pylist()
    return Counter(int(value) for value in values)


def test_rows_of_killed_tasks_are_written_again(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    program = Program(tmp_path / "said", "tasks", broker.address, str(tmp_path))
    assert program.wait(), program.said()
    found = counts(client)
    assert set(found) == set(range(ROWS))
    assert {found[row] for row in range(EACH)} == {2}  # sent whole, killed, sent again
    assert all(2 <= found[row] <= 3 for row in range(EACH, 2 * EACH))  # and once half-way
    assert {found[row] for row in range(2 * EACH, ROWS)} == {1}


def test_rows_of_a_killed_executor_are_written_again(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    program = Program(tmp_path / "said", "cluster", broker.address, str(tmp_path))
    assert program.wait(), program.said()
    found = counts(client)
    assert set(found) == set(range(ROWS))
    assert all(found[row] >= 2 for row in range(EACH))


def test_rows_of_a_speculative_copy_are_there_twice(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    program = Program(tmp_path / "said", "speculation", broker.address, str(tmp_path))
    assert program.wait(), program.said()
    assert (tmp_path / "copied").exists(), program.said()
    found = counts(client)
    assert set(found) == set(range(ROWS))
    assert {found[row] for row in range(3 * EACH)} == {1}
    assert {found[row] for row in range(3 * EACH, ROWS)} == {2}  # the other attempt was as quick


def test_a_stream_goes_on_after_its_driver_and_its_broker_are_killed(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    with Producer(client) as producer:
        producer.send("in", pa.table({"value": [str(row) for row in range(ROWS)]}))

    def run(*plan: str) -> Program:
        address = broker.address
        return Program(tmp_path / "said", "stream", address, str(tmp_path), *plan)

    def until(count: int, program: Program) -> None:
        give_up = time.monotonic() + 20 * PATIENCE_S
        while program.runs and time.monotonic() < give_up and found() < count:
            time.sleep(0.05)  # another process writes

    def found() -> int:
        try:
            return sum(it.offset for it in client.list_offsets(ends).values() if it)
        except (NoAnswer, RequestRefused):
            return 0

    ends: Any = {("out", partition): -1 for partition in range(3)}
    killed = run("50", "2")
    until(200, killed)
    assert killed.runs, killed.said()
    killed.kill()
    again = run("130", "3")  # another plan for the micro-batch that is repeated
    until(found() + 300, again)
    broker.kill()
    broker.start_again()
    for _ in range(3):  # what could not bear the broker's absence is started again
        if again.wait():
            break
        again = run("130", "3")
    else:
        pytest.fail(again.said())
    rows = counts(client)
    assert set(rows) == set(range(ROWS))
    assert sum(rows.values()) <= ROWS + 50 + 3 * 130, rows.most_common(3)
