"""The two sides of every table: a horolog and an Apache Kafka, each a process in a `with` block."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import raw
from tools.peers.kafka import JVM_FLAGS, NEWEST, Kafka, java

from horolog.client import Client
from horolog.errors import HorologError

HOROLOG, KAFKA = "horolog", "Apache Kafka"
# Or each broker, and each process of Spark's in Python, compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

READY_TIMEOUT_S = 300.0  # after a kill, on a busy machine; only one that hangs ever meets it
STOP_TIMEOUT_S = 180.0  # thousands of partitions take a while

# Topics of a run are deleted after it; their files need not wait a minute.
SETTINGS = {"log.segment.delete.delay.ms": "1000", "log.initial.task.delay.ms": "1000"}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Side:
    """A broker that runs."""

    name: str
    bootstrap: str
    pid: int
    version: str
    listeners: Mapping[str, str] = field(default_factory=dict)
    """Addresses of its further listeners, by their protocol."""

    def cpu_s(self) -> float:
        """CPU seconds it has used so far, user and system, all threads."""
        return cpu_s(self.pid)

    def kill(self) -> None:
        """End it as a crash does."""
        os.kill(self.pid, signal.SIGKILL)

    def resident_mb(self) -> float:
        """Resident memory now."""
        return self._status_mb("VmRSS")

    def peak_mb(self) -> float:
        """The most resident memory that it has had since it started."""
        return self._status_mb("VmHWM")

    def _status_mb(self, name: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, user and system, all threads, living or gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def tree_cpu_s(*roots: int) -> float:
    """CPU seconds of processes and all that they started, those that have ended included."""
    found = _tree_cpu_s(roots)
    for _ in range(10):
        again = _tree_cpu_s(roots)
        if again.keys() == found.keys():
            break
        found = again  # one that ends meanwhile may be missed, and its parent read too early
    return sum(found.values())


def processes_below(*roots: int) -> set[int]:
    """The processes, and all living ones that they started."""
    return set(_tree_cpu_s(roots))


def _tree_cpu_s(roots: Iterable[int]) -> dict[int, float]:
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid] = int(fields[1])
            used[pid] = sum(map(int, fields[11:15])) / TICKS_PER_S
    below = set(roots)
    for pid in parents:
        line = [pid]
        while line[-1] in parents and line[-1] not in below:
            line.append(parents[line[-1]])
        if line[-1] in below:
            below.update(line)
    return {pid: used[pid] for pid in below if pid in used}


@contextlib.contextmanager
def kafka(
    settings: Mapping[str, str] | None = None,
    directory: Path | None = None,
    listeners: Sequence[str] = (),
) -> Iterator[Side]:
    """The newest Apache Kafka, with the heap and the flags of its own start script.

    Args:
        listeners: protocols of further listeners.
    """
    node = Kafka(
        directory,
        settings={**SETTINGS, **(settings or {})},
        heap="1g",
        initial_heap="1g",
        flags=JVM_FLAGS,
        listeners={protocol: protocol for protocol in listeners},
    )
    with node:
        further = {protocol: node.address_of(protocol) for protocol in listeners}
        yield Side(KAFKA, node.bootstrap, node.pid, f"{KAFKA} {node.version}", further)


def horolog_command(
    log_dir: Path, settings: Mapping[str, str] | None = None, listeners: Sequence[str] = ()
) -> list[str]:
    """The command that serves a log directory on free ports."""
    command = [sys.executable, "-m", "horolog"]
    script = Path(sys.executable).with_name("horolog")
    if script.exists():
        command = [str(script)]
    addresses = ",".join(f"{protocol}://127.0.0.1:0" for protocol in ("PLAINTEXT", *listeners))
    given = {"listeners": addresses, **SETTINGS, **(settings or {})}
    config = log_dir.with_name("horolog.properties")  # `--set` takes no secrets
    config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    config.chmod(0o600)
    command += ["serve", "--log-dir", str(log_dir), "--config", str(config)]
    return command


@contextlib.contextmanager
def horolog(
    settings: Mapping[str, str] | None = None,
    directory: Path | None = None,
    listeners: Sequence[str] = (),
) -> Iterator[Side]:
    """A horolog with its defaults, and listeners of further protocols."""
    base = directory or Path(tempfile.mkdtemp(prefix="horolog-bench-"))
    base.mkdir(parents=True, exist_ok=True)
    process = start(horolog_command(base / "data", settings, listeners), base / "horolog.err")
    try:
        bootstrap, *addresses = wait_until_ready(process, base / "horolog.err")
        further = dict(zip(listeners, addresses, strict=True))
        yield Side(HOROLOG, bootstrap, process.pid, "this tree", further)
    finally:
        stop(process)
        if directory is None:
            shutil.rmtree(base, ignore_errors=True)


def start(
    command: Sequence[str], errors: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Start a process that says on its output where it listens."""
    with errors.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=environment,
        )


def wait_until_ready(process: "subprocess.Popen[str]", errors: Path) -> list[str]:
    """The addresses on the line that starts with `ready`.

    Raises:
        RuntimeError: it has ended before, or takes too long and is killed.
    """
    assert process.stdout is not None
    too_long = threading.Timer(READY_TIMEOUT_S, process.kill)
    too_long.start()
    try:
        for line in process.stdout:
            if line.startswith("ready"):
                found = re.findall(r"(\S+:\d+)", line.partition(" (")[0])
                assert found, line
                return found
    finally:
        is_too_long = not too_long.is_alive()
        too_long.cancel()
    why = f" within {READY_TIMEOUT_S:.0f} s" if is_too_long else ""
    raise RuntimeError(f"horolog did not become ready{why}:\n{errors.read_text()[-500:]}")


def stop(process: "subprocess.Popen[str]") -> None:
    """End a broker as an operator does."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def start_command(name: str, base: Path) -> list[str]:
    """What starts a side on a directory that was served before."""
    if name == HOROLOG:
        return horolog_command(base / "data")
    command = java(
        NEWEST, "kafka.Kafka", str(base / "server.properties"), heap="1g", flags=JVM_FLAGS
    )
    return [command[0], "-Xms1g", *command[1:]]


SIDES: Mapping[str, Any] = {HOROLOG: horolog, KAFKA: kafka}


def create_topic(
    side: Side, topic: str, config: Mapping[str, str] | None = None, partitions: int = 1
) -> None:
    """Create a topic that keeps everything, and wait until it takes records."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    made = admin.create_topics(
        [NewTopic(topic, partitions, 1, config={"retention.ms": "-1", **(config or {})})]
    )
    made[topic].result()
    with raw.Connection(side.bootstrap) as connection:
        for _ in range(200):
            with contextlib.suppress(raw.Refused):
                raw.found(connection.ask(raw.LIST_OFFSETS, raw.list_offsets_request(topic, -1)))
                return


def delete_topic(side: Side, topic: str) -> None:
    """Delete a topic of a run."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result()


def records(client: Client, topic: str, partitions: int) -> int:
    """How many a topic has so far; 0 while it is not there."""
    try:
        ends = client.list_offsets({(topic, each): -1 for each in range(partitions)})
    except HorologError:  # not there yet, or without leaders
        return 0
    return sum(0 if end is None else end.offset for end in ends.values())
