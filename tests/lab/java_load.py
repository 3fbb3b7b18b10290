"""Apache Kafka's own producers, which write to a topic until they are stopped."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from cluster_history import ClusterHistory, Written
from tools.peers.kafka import TOOLS, LoggedProcess, java

PATIENT = {
    "acks": "all",
    "enable.idempotence": "true",
    "retries": "2147483647",  # the tools set 0, which makes a producer that repeats nothing
    "delivery.timeout.ms": "600000",
    "max.block.ms": "600000",
    "request.timeout.ms": "10000",
}


class JavaLoad(LoggedProcess):
    """A tool that produces; its lines are those that it prints.

    Args:
        directory: for its settings and its lines.
        options: of the tool; the topic is given already.
        settings: of the producer, beside those that make it patient.
    """

    def __init__(
        self,
        tool: str,
        bootstrap: str,
        topic: str,
        directory: Path,
        peer: str,
        options: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{tool} of {topic}", directory / f"{topic}.{tool}.output")
        self.topic = topic
        config = directory / f"{topic}.{tool}.properties"
        lines = {**PATIENT, "bootstrap.servers": bootstrap, **(settings or {})}
        config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        arguments = ["--topic", topic, "--producer.config", str(config)]
        for name, value in options.items():
            arguments += [name, value] if value else [name]
        self._command = java(peer, TOOLS[tool], *arguments, heap="64m")

    def start(self) -> None:
        """Start it; its first record may take seconds."""
        self.run(self._command)

    def lines(self) -> Iterator[str]:
        """What it has printed so far."""
        yield from self.tail(1 << 40).splitlines()


def verifiable(bootstrap: str, topic: str, directory: Path, peer: str, per_s: int) -> JavaLoad:
    """A producer that prints each acknowledged record; the n-th value is 1.n."""
    options = {"--bootstrap-server": bootstrap, "--throughput": str(per_s), "--value-prefix": "1"}
    return JavaLoad("verifiable-producer", bootstrap, topic, directory, peer, options)


def transactional(bootstrap: str, topic: str, directory: Path, peer: str, per_s: int) -> JavaLoad:
    """A producer of transactions, whose n-th value is n; none of them is aborted."""
    options = {
        "--num-records": "100000000",
        "--throughput": str(per_s),
        "--payload-monotonic": "",
        "--transaction-duration-ms": "200",
    }
    settings = {"transactional.id": topic, "transaction.timeout.ms": "600000"}
    return JavaLoad("perf-producer", bootstrap, topic, directory, peer, options, settings)


def written_by_java(value: bytes) -> Written:
    """A record of either by its value."""
    return Written("java", int(value.rpartition(b".")[2]))


def acknowledge_all(load: JavaLoad, history: ClusterHistory) -> None:
    """Enter what a verifiable producer says was acknowledged, and complain of what was refused."""
    history.once.add("java")
    for line in load.lines():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if said["name"] == "producer_send_success":
            written = written_by_java(said["value"].encode())
            history.acknowledge((said["topic"], said["partition"]), said["offset"], written, 0)
        elif said["name"] == "producer_send_error":
            history.complain(f"{load.topic}: {line}")
