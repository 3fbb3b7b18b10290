"""Clients in Java, Go and JavaScript against horolog.

INTEROP_KAFKA=1 runs the same against Apache Kafka too, which proves the tests.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.sides import HOROLOG, KAFKA, horolog  # noqa: E402 - the tools lie beside the tests
from tools.peers.kafka import NEWEST, PEERS, Kafka, jars  # noqa: E402

CLIENTS = Path(__file__).parent / "clients"
TIMEOUT_S = 600  # a JVM on a busy machine; only what hangs ever meets it
_numbers = itertools.count()
BROKERS = [HOROLOG, KAFKA] if os.environ.get("INTEROP_KAFKA") else [HOROLOG]


class Broker(NamedTuple):
    """A broker that runs, and where its files lie."""

    name: str
    bootstrap: str
    log_dir: Path


class Client(NamedTuple):
    """A program that does what it is asked and prints JSON."""

    name: str
    command: list[str]

    def ask(self, broker: Broker, what: str, **asked: Any) -> dict[str, Any]:
        done = subprocess.run(
            [*self.command, what, broker.bootstrap, json.dumps(asked)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "NODE_PATH": str(PEERS / "node" / "node_modules")},
        )
        assert done.returncode == 0, f"{self.name} {what}: {done.stderr[-3000:]}"
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated"))
            item.add_marker(pytest.mark.timeout(TIMEOUT_S * 3))


@pytest.fixture(scope="session", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("broker")
    if request.param == HOROLOG:
        with horolog(directory=directory) as side:
            yield Broker(HOROLOG, side.bootstrap, directory / "data")
        return
    with Kafka(directory) as kafka:
        yield Broker(KAFKA, kafka.bootstrap, kafka.log_dir)


@pytest.fixture(scope="session")
def both_brokers(tmp_path_factory: Any) -> Iterator[tuple[Broker, Broker]]:
    """A horolog and an Apache Kafka at once."""
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    with horolog(directory=ours) as side, Kafka(theirs) as kafka:
        yield (
            Broker(HOROLOG, side.bootstrap, ours / "data"),
            Broker(KAFKA, kafka.bootstrap, kafka.log_dir),
        )


@pytest.fixture(scope="session")
def java_client(tmp_path_factory: Any) -> Client:
    classes = tmp_path_factory.mktemp("classes")
    path = os.pathsep.join(map(str, jars(NEWEST)))
    source = str(CLIENTS / "java" / "Client.java")
    subprocess.run(["javac", "-cp", path, "-d", str(classes), source], check=True)
    path = os.pathsep.join([str(classes), str(PEERS / NEWEST / "*")])
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    return Client("java", ["java", "-Xmx128m", "-XX:+UseSerialGC", quiet, "-cp", path, "Client"])


@pytest.fixture(scope="session")
def go_client() -> Client:
    program = PEERS / "go" / "client"
    assert program.exists(), "no peer go: run `make peers`"
    return Client("go", [str(program)])


@pytest.fixture(scope="session")
def node_client() -> Client:
    assert (PEERS / "node" / "node_modules").exists(), "no peer node: run `make peers`"
    return Client("node", ["node", str(CLIENTS / "node" / "client.js")])


@pytest.fixture(params=["java", "go", "node"])
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.getfixturevalue(f"{request.param}_client")
    return found


@pytest.fixture
def every_client(java_client: Client, go_client: Client, node_client: Client) -> list[Client]:
    return [java_client, go_client, node_client]


@pytest.fixture
def topic() -> Callable[[str], str]:
    """A name that no other test has."""
    return lambda name: f"{name}-{next(_numbers)}"
