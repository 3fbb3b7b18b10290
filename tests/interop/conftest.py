"""Clients in Java, Go and JavaScript against horolog.

INTEROP_KAFKA=1 runs the same against Apache Kafka too, which proves the tests.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.sides import HOROLOG, KAFKA, horolog  # noqa: E402 - the tools lie beside the tests
from tools.peers.kafka import NEWEST, PEERS, SHORT_LIVED, Kafka, NoPeer, jars  # noqa: E402 - as well

if connector := ",".join(map(str, sorted((PEERS / "spark").glob("*.jar")))):
    # Spark's JVM, which has not been started yet, takes its arguments from here.
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {connector} {arguments}"

CLIENTS = Path(__file__).parent / "clients"
TIMEOUT_S = 600  # a JVM on a busy machine; only what hangs ever meets it
_numbers = itertools.count()
BROKERS = [HOROLOG, KAFKA] if os.environ.get("INTEROP_KAFKA") else [HOROLOG]


class Broker(NamedTuple):
    """A broker that runs, and where its files lie."""

    name: str
    bootstrap: str
    log_dir: Path


class Client(Protocol):
    """Does what it is asked with a client library, and tells what it saw."""

    @property
    def name(self) -> str: ...

    def ask(self, broker: Broker, what: str, **asked: Any) -> dict[str, Any]: ...


class Program(NamedTuple):
    """A client that is started for each question."""

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


class JavaClient:
    """A client that is asked line by line, and started again where a question ended it."""

    name = "java"

    def __init__(self, command: list[str], said: Path) -> None:
        self._command, self._said = command, said
        self._process: subprocess.Popen[str] | None = None

    def ask(self, broker: Broker, what: str, **asked: Any) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        too_long = threading.Timer(TIMEOUT_S, process.kill)
        too_long.start()
        try:
            question = {"what": what, "bootstrap": broker.bootstrap, "asked": asked}
            print(json.dumps(question), file=process.stdin, flush=True)
            line = process.stdout.readline()
        finally:
            too_long.cancel()
        if not line:
            self.close()
        assert line, f"{self.name} {what}: no answer; {self._said.read_text()[-3000:]}"
        told: dict[str, Any] = json.loads(line)
        assert "failed" not in told, f"{self.name} {what}: {self._said.read_text()[-3000:]}"
        if told.pop("leaves", False):
            self.close()
        return told

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            with self._said.open("w") as said:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)
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
def java_client(tmp_path_factory: Any) -> Iterator[Client]:
    classes = tmp_path_factory.mktemp("classes")
    path = os.pathsep.join(map(str, jars(NEWEST)))
    source = str(CLIENTS / "java" / "Client.java")
    subprocess.run(["javac", "-cp", path, "-d", str(classes), source], check=True)
    path = os.pathsep.join([str(classes), str(PEERS / NEWEST / "*")])
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = ["java", "-Xmx128m", *SHORT_LIVED, quiet, "-cp", path, "Client"]
    with closing(JavaClient(command, classes / "said")) as client:
        yield client


@pytest.fixture(scope="session")
def go_client() -> Client:
    program = PEERS / "go" / "client"
    assert program.exists(), "no peer go: run `make peers`"
    return Program("go", [str(program)])


@pytest.fixture(scope="session")
def node_client() -> Client:
    assert (PEERS / "node" / "node_modules").exists(), "no peer node: run `make peers`"
    return Program("node", ["node", str(CLIENTS / "node" / "client.js")])


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


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Any) -> Iterator[Kafka]:
    """The newest Apache Kafka, for the tests of a file."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory: Any) -> Iterator[str]:
    """Of a horolog whose clock stands still on the first day of 2020."""
    command = [sys.executable, "-m", "horolog", "serve", "--port", "0", "--log-dir"]
    command += [str(tmp_path_factory.mktemp("clock")), "--clock", "manual:2020-01-01T00:00Z"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


@pytest.fixture
def spark_connector() -> None:
    """Skips where Spark's Kafka connector was not fetched."""
    try:
        jars("spark")
    except NoPeer as error:
        pytest.skip(str(error))
