"""Kafka Connect, distributed: its three compacted topics, and a source that writes exactly once.

Two workers run a source that reads the lines of a file and a sink that writes them to another one,
while workers and the broker are killed.
"""

import json
import random
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from committed import end_offsets, values_seen
from patience import PATIENCE_S, eventually
from peer_process import PeerProcess, java_command
from running_broker import BrokerProcess, a_broker_process
from tools.peers.kafka import BEFORE_NEWEST, free_port

from horolog.client import Client

pytestmark = pytest.mark.timeout(3600)

STORES = ("offset", "config", "status")


class Worker:
    """A worker of Kafka Connect."""

    def __init__(self, bootstrap: str, directory: Path, name: str) -> None:
        self.address = f"http://127.0.0.1:{free_port()}"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": self.address,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "exactly.once.source.support": "enabled",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "500",
        }
        for store in STORES:
            settings[f"{store}.storage.topic"] = f"connect-{store}s"
            settings[f"{store}.storage.replication.factor"] = "1"
            # So that they are compacted while the test runs.
            settings[f"{store}.storage.segment.ms"] = "500"
            settings[f"{store}.storage.min.cleanable.dirty.ratio"] = "0.01"
        properties = directory / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java_command(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(properties),
            behind=["kafka-connect"],
            newest=BEFORE_NEWEST,
            heap="512m",
        )
        self.process = PeerProcess(command, said=directory / f"{name}.said")

    def ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The answer of its REST interface; None while it refuses, or is not there."""
        request = urllib.request.Request(
            f"{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def is_running(self, connector: str) -> bool:
        found = self.ask("GET", f"/connectors/{connector}/status")
        if found is None or not found["tasks"]:
            return False
        return all(each["state"] == "RUNNING" for each in (found["connector"], *found["tasks"]))


class Connect:
    """Workers beside a broker, and the file that is read."""

    def __init__(self, broker: BrokerProcess, directory: Path, workers: list[Worker]) -> None:
        self.broker, self.workers = broker, workers
        self.source, self.sink = directory / "source.txt", directory / "sink.txt"
        self.source.touch()
        self.lines: list[str] = []

    def connect(self, name: str, kind: str, **settings: str) -> None:
        config = {
            "connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector",
            "tasks.max": "1",
            **settings,
        }

        def is_there() -> bool:
            return self.workers[0].ask("PUT", f"/connectors/{name}/config", config) is not None

        assert eventually(is_there), self.said()
        assert eventually(lambda: self.workers[0].is_running(name)), self.said()

    def write(self, lines: int) -> None:
        new = [f"line {number}" for number in range(len(self.lines), len(self.lines) + lines)]
        with self.source.open("a") as file:
            file.write("".join(f"{line}\n" for line in new))
        self.lines += new

    def await_lines(self) -> list[str]:
        """The lines in the topic, once there are as many as were written or more."""
        found: list[str] = []

        def are_there() -> bool:
            found[:] = values_seen(self.broker.address, "lines")
            if len(found) < len(self.lines):
                self.write(1)  # a source that has filled a batch waits for more to be readable
            return len(found) >= len(self.lines)

        eventually(are_there)
        return found

    def said(self) -> str:
        return "\n".join(worker.process.said[-5000:] for worker in self.workers)


broker = a_broker_process(
    "lines",
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    log_cleaner_backoff_ms="200",
)


@pytest.fixture
def connect(broker: BrokerProcess, tmp_path: Path) -> Iterator[Connect]:
    with ExitStack() as stack:
        workers = [Worker(broker.address, tmp_path, name) for name in ("first", "second")]
        for worker in workers:
            stack.enter_context(worker.process)
        yield Connect(broker, tmp_path, workers)


def test_a_source_writes_each_line_once_whatever_is_killed(connect: Connect) -> None:
    dice = random.Random(4)
    # Of a poll is a transaction: many small ones.
    batches = {"batch.size": "20"}
    connect.connect("reads", "Source", file=str(connect.source), topic="lines", **batches)
    connect.connect("writes", "Sink", file=str(connect.sink), topics="lines")
    for kill in dice.sample(["a worker", "the broker", "both", "a worker", "all"], 5):
        before = end_offsets(connect.broker.address, "lines")
        connect.write(2_000)
        least = before + dice.randrange(1, 1_500)
        assert eventually(lambda: end_offsets(connect.broker.address, "lines") >= least)  # noqa: B023
        killed = connect.workers if kill == "all" else [dice.choice(connect.workers)]
        if kill != "the broker":
            for worker in killed:
                worker.process.kill()
        if kill in {"the broker", "both", "all"}:
            connect.broker.kill()
            connect.broker.start_again()
        for worker in connect.workers:
            if not worker.process.lives:
                worker.process.start()
    connect.write(10)
    assert connect.await_lines() == connect.lines, connect.said()

    # What is configured and how far the connectors are was read from compacted topics.
    worker = connect.workers[1]
    assert eventually(lambda: worker.is_running("reads") and worker.is_running("writes"))
    assert worker.ask("GET", "/connectors/reads")["config"]["topic"] == "lines"
    assert eventually(lambda: set(connect.sink.read_text().splitlines()) == set(connect.lines)), (
        connect.said()
    )
    (source,) = worker.ask("GET", "/connectors/reads/offsets")["offsets"]
    assert source["offset"] == {"position": connect.source.stat().st_size}
    with Client(connect.broker.address) as client:
        ends = client.list_offsets({("connect-offsets", number): -1 for number in range(25)})
    written = sum(end.offset for end in ends.values() if end is not None)
    kept = len(values_seen(connect.broker.address, "connect-offsets"))
    assert kept < written / 2, "it is compacted"
