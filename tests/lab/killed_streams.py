"""Streams that write exactly once while a task or the driver is killed.

A module that subclasses `KilledStreams` says at which broker: by its fixture `bootstrap`, which
calls `prepare`. A consumer of librdkafka that reads what is committed has every row once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from committed import is_settled, values_seen
from patience import PATIENCE_S, eventually

from horolog.client import Client, Producer, TopicPartition

PROGRAM = Path(__file__).with_name("killed_transactions.py")
ROWS = 2_400
TASKS = 3


def prepare(client: Client) -> None:
    """Make the topics, and the rows that a stream writes."""
    client.create_topics({"in": TASKS})
    # Times of 1970 are not to be deleted before they are counted.
    client.create_topics({"out": 2, "dead": 2}, configs={"retention.ms": "-1"})
    with Producer(client, batch_bytes=2_000) as producer:
        values = [str(number) for number in range(ROWS)]
        numbers = [number % TASKS for number in range(ROWS)]
        producer.send("in", pa.table({"value": values, "partition": numbers}))


class Stream:
    """The program in a session of its own, its JVM included."""

    def __init__(
        self, bootstrap: str, directory: Path, fate: str, tasks: int = TASKS, *letters: str
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.hangs = directory / "now"
        self._said = directory / "said"
        with self._said.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    str(PROGRAM),
                    bootstrap,
                    str(directory),
                    fate,
                    str(tasks),
                    *letters,
                ],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def kill_where_it_hangs(self) -> None:
        give_up = time.monotonic() + 20 * PATIENCE_S
        while not self.hangs.exists():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < give_up, self.said()
            time.sleep(0.05)
        self._kill()

    def wait(self) -> bool:
        """Whether it was successful."""
        try:
            return self._process.wait(20 * PATIENCE_S) == 0
        finally:
            self._kill()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def said(self) -> str:
        return self._said.read_text()[-6000:]


def expect_every_row_once(bootstrap: str) -> None:
    seen = values_seen(bootstrap, "out")
    assert len(seen) == ROWS
    assert {int(value) for value in seen} == set(range(ROWS))


def settle(bootstrap: str, directory: Path) -> None:
    """Wait until nothing is open: a coordinator commits before it has told all partitions.

    What a run of more tasks has left open would be until its time is over, unless it is taken over.
    """
    out: list[TopicPartition] = [(name, at) for name in ("out", "dead") for at in (0, 1)]
    query = json.loads((directory / "query/checkpoint/metadata").read_text())["id"]
    with Client(bootstrap) as client:
        for task in range(2 * TASKS):
            client.init_transactions(f"horolog/task/{task}/{query}", transaction_timeout_ms=60_000)
        assert eventually(lambda: all(is_settled(client, *each) for each in out)), directory


class KilledStreams:
    """Needs the fixture `bootstrap`."""

    @pytest.mark.parametrize(
        "fate",
        [
            "the driver is killed before its commit",
            "the driver is killed between two commits",
            "the driver is killed after its commit",
        ],
    )
    def test_a_stream_whose_driver_is_killed_writes_every_row_once(
        self, bootstrap: str, tmp_path: Path, fate: str
    ) -> None:
        Stream(bootstrap, tmp_path / "query", fate).kill_where_it_hangs()
        assert len(values_seen(bootstrap, "out", "read_uncommitted")) > len(
            values_seen(bootstrap, "out")
        ) or (fate == "the driver is killed after its commit")
        again = Stream(bootstrap, tmp_path / "query", fate)
        assert again.wait(), again.said()
        settle(bootstrap, tmp_path)
        expect_every_row_once(bootstrap)

    def test_a_stream_whose_task_is_killed_after_its_rows_writes_every_row_once(
        self, bootstrap: str, tmp_path: Path
    ) -> None:
        stream = Stream(bootstrap, tmp_path / "query", "a task is killed after its rows")
        assert stream.wait(), stream.said()
        assert stream.hangs.exists()
        settle(bootstrap, tmp_path)
        expect_every_row_once(bootstrap)

    def test_a_batch_that_is_committed_in_part_is_not_mixed_with_one_of_other_tasks(
        self, bootstrap: str, tmp_path: Path
    ) -> None:
        fate = "the driver is killed between two commits"
        Stream(bootstrap, tmp_path / "query", fate).kill_where_it_hangs()
        divided = Stream(bootstrap, tmp_path / "query", fate, tasks=2 * TASKS)
        assert not divided.wait()
        assert "another number of tasks" in divided.said()
        again = Stream(bootstrap, tmp_path / "query", fate)
        assert again.wait(), again.said()
        settle(bootstrap, tmp_path)
        expect_every_row_once(bootstrap)

    @pytest.mark.parametrize(
        "fate", ["the driver is killed between two commits", "a task is killed after its rows"]
    )
    def test_dead_letters_of_a_stream_are_there_once_whatever_is_killed(
        self, bootstrap: str, tmp_path: Path, fate: str
    ) -> None:
        stream = Stream(bootstrap, tmp_path / "query", fate, TASKS, "dead")
        if fate.startswith("the driver"):
            stream.kill_where_it_hangs()
            stream = Stream(bootstrap, tmp_path / "query", fate, TASKS, "dead")
        assert stream.wait(), stream.said()
        assert stream.hangs.exists()
        settle(bootstrap, tmp_path)
        rows, letters = (sorted(map(int, values_seen(bootstrap, each))) for each in ("out", "dead"))
        assert rows == [row for row in range(ROWS) if row % 5]
        assert letters == [*range(0, ROWS, 5)]
