"""A real Apache Kafka, for as long as a `with` block lasts, and its command line tools.

One node that is broker and controller at once (KRaft), on free ports of the loopback interface, its
log directory wherever the caller wants it. The jars are those that `make peers` put into `.peers`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers"
NEWEST = "kafka-4"
BEFORE_NEWEST = "kafka-4.3"
LAST_WITH_OLD_FORMATS = "kafka-3.9"
OLDEST_OF_2 = "old/kafka-2.0.1"
LAST_OF_2 = "old/kafka-2.8.2"
UNDER_ZOOKEEPER = (OLDEST_OF_2, LAST_OF_2)  # releases that know nothing else
CLUSTER_ID = "aG9yb2xvZy1nb2xkZW4tMQ"  # 16 bytes in URL-safe base64, as Kafka writes a cluster id

START_TIMEOUT_S = 600.0  # a JVM on a busy machine; only one that hangs ever meets these
STOP_TIMEOUT_S = 600.0  # thousands of partitions take a while
TOOL_TIMEOUT_S = 600.0

# For a Kafka of a few minutes: where processors are busy it starts in a third of the time.
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
# What Kafka's own start script passes, the heap apart; figures are taken with these.
JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_claims: list[socket.socket] = []

TOOLS: Mapping[str, str] = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "configs": "org.apache.kafka.tools.ConfigCommand",
    "offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "all-groups": "org.apache.kafka.tools.GroupsCommand",
    "producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "dump": "org.apache.kafka.tools.DumpLogSegments",
    "perf-producer": "org.apache.kafka.tools.ProducerPerformance",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "storage": "kafka.tools.StorageTool",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
}
# Where older releases keep the tools that newer ones have moved.
OLDER_TOOLS: Mapping[str, Mapping[str, str]] = {
    BEFORE_NEWEST: {"configs": "kafka.admin.ConfigCommand"},
    LAST_WITH_OLD_FORMATS: {
        "configs": "kafka.admin.ConfigCommand",
        "producer": "kafka.tools.ConsoleProducer",
        "dump": "kafka.tools.DumpLogSegments",
        "api-versions": "kafka.admin.BrokerApiVersionsCommand",
    },
}


class NoPeer(Exception):
    """A peer that is not on this machine; `make peers` fetches it."""


class PeerFailed(Exception):
    """A peer that did not start, stop or answer, with the end of what it said."""


def jars(peer: str) -> list[Path]:
    """The jars of one peer, or NoPeer."""
    found = sorted((PEERS / peer).glob("*.jar"))
    if not found or shutil.which("java") is None:
        reason = f"{PEERS / peer} is empty" if not found else "there is no java"
        raise NoPeer(f"no peer {peer}: {reason}; run `make peers`")
    return found


def is_there(peer: str) -> bool:
    """Whether a peer can be run."""
    try:
        jars(peer)
    except NoPeer:
        return False
    return True


def version(peer: str) -> str:
    """The release that was fetched, read from its own jar's name."""
    for jar in jars(peer):
        if found := re.fullmatch(r"kafka_2\.1[23]-(.*)\.jar", jar.name):
            return found[1]
    raise NoPeer(f"no peer {peer}: its directory holds no jar of Kafka; run `make peers`")


def free_port() -> int:
    """A port that was free a moment ago, and that no other process gets here.

    The kernel gives none of this range to a connection: on a busy machine many are opened until a
    JVM binds its port. Until this process ends a socket without a file claims the port.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0horolog-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return port


def java(
    peer: str,
    main_class: str,
    *arguments: str,
    heap: str = "256m",
    log_level: str = "error",
    extra_jars: Iterable[Path] = (),
    flags: Sequence[str] = SHORT_LIVED,
) -> list[str]:
    """The command that runs a class of a peer, quiet unless something is wrong."""
    path = os.pathsep.join([str(PEERS / peer / "*"), *map(str, extra_jars)])
    jars(peer)
    return [
        "java",
        f"-Xmx{heap}",
        *flags,
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dlog4j2.disable.jmx=true",
        "-cp",
        path,
        main_class,
        *arguments,
    ]


def run_tool(
    name: str,
    *arguments: str,
    peer: str = NEWEST,
    stdin: bytes | None = None,
    check: bool = True,
    timeout_s: float = TOOL_TIMEOUT_S,
) -> subprocess.CompletedProcess[bytes]:
    """Run one of Kafka's own tools to its end.

    Raises:
        PeerFailed: it has not ended in time; or with what it said, when `check` and its exit code
            is not 0.
    """
    if name == "groups":  # after five seconds it ends with 0 and without an answer
        arguments += ("--timeout", str(int(timeout_s * 1000)))
    main_class = OLDER_TOOLS.get(peer, {}).get(name, TOOLS[name])
    try:
        done = subprocess.run(
            java(peer, main_class, *arguments),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")[-4000:]
        what = f"{name} {' '.join(arguments)}"
        raise PeerFailed(f"{what} had not ended after {timeout_s:.0f} s:\n{said}") from None
    if check and done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace")[-4000:]
        raise PeerFailed(f"{name} {' '.join(arguments)} ended with {done.returncode}:\n{said}")
    return done


class LoggedProcess:
    """A process that logs to a file. Subclasses say in `title` what it is, for errors."""

    def __init__(self, title: str, output: Path) -> None:
        self._title = title
        self.output = output
        """Where it logs to."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; it must be running."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def run(self, command: Sequence[str]) -> None:
        """Start the process; it may take a while until it serves."""
        assert self._process is None or self.has_ended, "already running"
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def stop(self) -> None:
        """Shut it down cleanly: indexes trimmed, checkpoints and the clean mark written."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerFailed(f"{self._title} did not stop:\n{self.tail()}") from None
        self._process = None
        if code not in {0, 143}:  # 143: ended by SIGTERM after its shutdown hook had run
            raise PeerFailed(f"{self._title} stopped with {code}:\n{self.tail()}")

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def tail(self, size: int = 4000) -> str:
        """The end of what it logged."""
        try:
            return self.output.read_text(errors="replace")[-size:]
        except FileNotFoundError:
            return ""


class Kafka(LoggedProcess):
    """One Apache Kafka node.

    Args:
        directory: where its files go (`data` below it is the log directory); a temporary one,
            removed at the end, when None. One that was used before is opened as it stands.
        peer: which of the fetched releases.
        settings: lines of server.properties that replace or join the ones here.
        heap: the JVM's largest heap.
        initial_heap: the heap it starts with; Kafka's own script makes both 1 GB.
        flags: of the JVM.
        port: the port to listen on; a free one when None.
        zookeeper: the address of a ZooKeeper to run under instead of KRaft (3.9 is the last that
            can; only so does it still write the old record formats). 2.x needs one.
        listeners: further listeners by name, each with its security protocol (KRaft only);
            `address_of` tells where they are.
        format_arguments: of the storage tool, `--add-scram ...` for example.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        peer: str = NEWEST,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        initial_heap: str | None = None,
        flags: Sequence[str] = SHORT_LIVED,
        port: int | None = None,
        zookeeper: str | None = None,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
    ) -> None:
        self.peer = peer
        self._listeners = {
            name: (protocol, f"127.0.0.1:{free_port()}")
            for name, protocol in (listeners or {}).items()
        }
        self._format_arguments = format_arguments
        self._zookeeper = zookeeper
        self.version = version(peer)
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="horolog-peer-"))
        self.log_dir = self.directory / "data"
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._controller_port = free_port()
        self._heap = heap
        self._initial_heap = initial_heap
        self._flags = flags
        self._settings = dict(settings or {})
        super().__init__(f"Kafka {self.version}", self.directory / "kafka.out")

    @property
    def controller(self) -> str:
        """Where its controller listens (KRaft)."""
        return f"127.0.0.1:{self._controller_port}"

    def another(self, directory: Path, node_id: int = 2) -> Kafka:
        """A further broker of this one's cluster, which is not started yet."""
        node = Kafka(directory, peer=self.peer)
        node._settings = {
            **self._settings,
            "process.roles": "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": f"PLAINTEXT://{node.bootstrap}",
        }
        return node

    def set(self, settings: Mapping[str, str]) -> None:
        """Further lines of its server.properties, from its next start on."""
        self._settings.update(settings)

    def address_of(self, listener: str) -> str:
        """Where one of the further listeners is."""
        return self._listeners[listener][1]

    def properties(self) -> dict[str, str]:
        """Its server.properties."""
        return {
            **(self._kraft() if self._zookeeper is None else self._with_zookeeper(self._zookeeper)),
            "advertised.listeners": ",".join(
                [f"PLAINTEXT://{self.bootstrap}", *self._further_listeners()]
            ),
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }

    def _kraft(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": ",".join(
                [
                    f"PLAINTEXT://{self.bootstrap}",
                    f"CONTROLLER://{self.controller}",
                    *self._further_listeners(),
                ]
            ),
            "listener.security.protocol.map": ",".join(
                [
                    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                    *(f"{name}:{protocol}" for name, (protocol, _) in self._listeners.items()),
                ]
            ),
            "controller.listener.names": "CONTROLLER",
            # On a busy machine it must not take itself for dead, nor keep itself busy.
            "initial.broker.registration.timeout.ms": "600000",
            "controller.quorum.request.timeout.ms": "60000",
            "metadata.max.idle.interval.ms": "0",
            "broker.session.timeout.ms": "30000",  # after a kill it waits that long for itself
        }

    def _further_listeners(self) -> list[str]:
        return [f"{name}://{address}" for name, (_, address) in self._listeners.items()]

    def _with_zookeeper(self, address: str) -> dict[str, str]:
        return {
            "broker.id": "1",
            "zookeeper.connect": address,
            "zookeeper.connection.timeout.ms": "600000",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
        }

    def format(self) -> None:
        """Write meta.properties, as an operator does once before the first start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self._write_properties()
        run_tool(
            "storage",
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            str(config),
            *self._format_arguments,
            peer=self.peer,
        )

    def start(self, *, wait: bool = True) -> None:
        """Start it, formatting a directory that never was; return once it takes connections."""
        assert self._process is None, "already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._zookeeper is None and not (self.log_dir / "meta.properties").exists():
            self.format()
        config = self._write_properties()
        command = java(
            self.peer,
            "kafka.Kafka",
            str(config),
            heap=self._heap,
            log_level="warn",
            flags=self._flags,
        )
        if self._initial_heap:
            command.insert(1, f"-Xms{self._initial_heap}")
        self.run(command)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return once it takes connections on each listener, which it does only when it is up."""
        assert self._process is not None
        ports = [self.port, *(int(it.rpartition(":")[2]) for _, it in self._listeners.values())]
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.has_ended:
                raise PeerFailed(f"Kafka {self.version} ended at start:\n{self.tail()}")
            try:
                for port in ports:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.kill()
        raise PeerFailed(f"Kafka {self.version} took no connection in time:\n{self.tail()}")

    def tool(
        self, name: str, *arguments: str, stdin: bytes | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one of its tools against it."""
        return run_tool(
            name,
            "--bootstrap-server",
            self.bootstrap,
            *arguments,
            peer=self.peer,
            stdin=stdin,
            check=check,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.kill()
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    def _write_properties(self) -> Path:
        config = self.directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        return config


@contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    """A ZooKeeper for the last Kafka that needs one; yields its address."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
    with (directory / "zookeeper.out").open("ab") as output:
        process = subprocess.Popen(
            java(
                LAST_WITH_OLD_FORMATS,
                main_class,
                str(port),
                str(directory / "data"),
                # Its HTTP server always takes port 8080: a second ZooKeeper would end.
                flags=(*SHORT_LIVED, "-Dzookeeper.admin.enableServer=false"),
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


@contextmanager
def release(peer: str, directory: Path) -> Iterator[Kafka]:
    """A Kafka of any release, with a ZooKeeper beside it if it knows nothing else.

    Under a ZooKeeper it takes connections before there is a controller.
    """
    with ExitStack() as stack:
        address = None
        if peer in UNDER_ZOOKEEPER:
            address = stack.enter_context(zookeeper(directory / "zookeeper"))
        yield stack.enter_context(Kafka(directory / "kafka", peer=peer, zookeeper=address))


def dump(files: Sequence[Path], *, peer: str = NEWEST, deep: bool = False) -> str:
    """What Kafka's dump tool says of files; of a bad index it says "mismatch" or "not found"."""
    done = run_tool(
        "dump",
        *(["--deep-iteration", "--print-data-log"] if deep else []),
        "--files",
        ",".join(map(str, files)),
        peer=peer,
    )
    return (done.stdout + done.stderr).decode(errors="replace")
