"""A cluster on this machine: Apache Kafka's controllers, and brokers of Kafka (k) and horolog (h).

    python -m tools.cluster --brokers khh --controllers 1
    with running_cluster("kkh") as cluster: ...

The jars are those that `make peers` put into `.peers`. Processes end with the block, or with
Ctrl-C; a line that each has logged is in its `output`.
"""

import argparse
import base64
import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, Literal

from tools.peers.kafka import (
    NEWEST,
    SHORT_LIVED,
    LoggedProcess,
    NoPeer,
    PeerFailed,
    free_port,
    jars,
    java,
    run_tool,
)

from horolog.client import Client
from horolog.errors import HorologError

FIRST_CONTROLLER: Final = 100
START_TIMEOUT_S = 600.0
Kind = Literal["controller", "k", "h"]


def new_id() -> str:
    """A random id in the form of Kafka's: 16 bytes in URL-safe base64, not beginning with -."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))[0] == "-":
        pass
    return made


class ServerProcess(LoggedProcess):
    """A controller or broker: its directory, its settings, and the process while it runs."""

    def __init__(
        self,
        kind: Kind,
        node_id: int,
        directory: Path,
        port: int,
        settings: Mapping[str, str],
        *,
        peer: str = NEWEST,
        heap: str = "256m",
        flags: Sequence[str] = SHORT_LIVED,
    ) -> None:
        self.kind = kind
        self.node_id = node_id
        self.directory = directory
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.log_dir = directory / "data"
        self.config = directory / "server.properties"
        self.settings = dict(settings)
        self.peer = peer
        self.launcher: Sequence[str] = ("-m",)
        """Arguments of Python before `horolog serve`."""
        self._heap = heap
        self._flags = flags
        super().__init__(f"node {node_id}", directory / "output")

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def takes_connections(self) -> bool:
        """Whether its port is open."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def write_config(self) -> None:
        """Write the settings that it starts with next."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in self.settings.items())
        self.config.write_text("".join(lines))

    def start(self) -> None:
        """Start its process; it may take a while until it serves."""
        self.write_config()
        if self.kind == "h":
            serve = "horolog", "serve", "--config", str(self.config)
            command = [sys.executable, *self.launcher, *serve]
        else:
            command = java(
                self.peer,
                "kafka.Kafka",
                str(self.config),
                heap=self._heap,
                log_level="warn",
                flags=self._flags,
            )
        self.run(command)

    def pause(self) -> None:
        """Let its process stand still (SIGSTOP), until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        os.kill(self.pid, signal.SIGCONT)


class Cluster:
    """Controllers and brokers, none of which is started yet."""

    def __init__(
        self,
        directory: Path,
        brokers: str = "khh",
        controllers: int = 1,
        *,
        peer: str = NEWEST,
        controller_peer: str | None = None,
        is_dynamic: bool = False,
        format_arguments: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        of_controllers: Mapping[str, str] | None = None,
        of_kafka: Mapping[str, str] | None = None,
        of_horolog: Mapping[str, str] | None = None,
        heap: str = "256m",
        flags: Sequence[str] = SHORT_LIVED,
    ) -> None:
        """Plan it; node ids are 1, 2, 3 in the order of `brokers`, controllers have 100, 101.

        Args:
            settings: of all brokers, and `of_kafka` or `of_horolog` of one kind of them.
            is_dynamic: whether controllers may be added and removed (`kraft.version` 1).
            format_arguments: further ones of the storage tool, such as `--release-version 4.0`.
        """
        self.directory = directory
        self.peer = peer
        self.controller_peer = controller_peer or peer
        self.cluster_id = new_id()
        self.is_dynamic = is_dynamic
        self._format_arguments = format_arguments
        self._directory_ids: dict[int, str] = {}
        ids = range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
        ports = {node_id: free_port() for node_id in ids}
        self._voters = ports
        self._common = {
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            # On a busy machine controllers take more than Kafka's minute to start.
            "initial.broker.registration.timeout.ms": "600000",
            **self._quorum(),
        }
        self.controllers = [
            ServerProcess(
                "controller",
                node_id,
                directory / f"controller-{node_id}",
                port,
                {
                    "process.roles": "controller",
                    "node.id": str(node_id),
                    "listeners": f"CONTROLLER://127.0.0.1:{port}",
                    "log.dirs": str(directory / f"controller-{node_id}" / "data"),
                    "controller.quorum.request.timeout.ms": "20000",
                    **self._common,
                    **(of_controllers or {}),
                },
                peer=self.controller_peer,
                heap=heap,
                flags=flags,
            )
            for node_id, port in ports.items()
        ]
        self.nodes: list[ServerProcess] = []
        """Brokers, in the order of their ids."""
        kafkas = max(brokers.count("k"), 1)
        for node_id, letter in enumerate(brokers, 1):
            kind: Kind = "k" if letter == "k" else "h"
            of_kind = of_kafka if kind == "k" else of_horolog
            self.add(kind, node_id, kafkas, {**(settings or {}), **(of_kind or {})}, heap, flags)

    def _quorum(self) -> dict[str, str]:
        addresses = {node_id: f"127.0.0.1:{port}" for node_id, port in self._voters.items()}
        if self.is_dynamic:
            return {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
        voters = ",".join(f"{node_id}@{address}" for node_id, address in addresses.items())
        return {"controller.quorum.voters": voters}

    def add(
        self,
        kind: Kind,
        node_id: int,
        kafkas: int,
        settings: Mapping[str, str],
        heap: str = "256m",
        flags: Sequence[str] = SHORT_LIVED,
    ) -> ServerProcess:
        """Plan a further broker; internal topics have as many replicas as there are Kafkas."""
        directory = self.directory / f"broker-{node_id}-{kind}"
        port = free_port()
        factor = str(min(kafkas, 3))
        node = ServerProcess(
            kind,
            node_id,
            directory,
            port,
            {
                "process.roles": "broker",
                "node.id": str(node_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "inter.broker.listener.name": "PLAINTEXT",
                "log.dirs": str(directory / "data"),
                "offsets.topic.replication.factor": factor,
                "offsets.topic.num.partitions": "3",
                "transaction.state.log.replication.factor": factor,
                "transaction.state.log.min.isr": "1",
                "transaction.state.log.num.partitions": "3",
                "share.coordinator.state.topic.replication.factor": factor,
                "share.coordinator.state.topic.min.isr": "1",
                "share.coordinator.state.topic.num.partitions": "3",
                "group.initial.rebalance.delay.ms": "0",
                **self._common,
                **settings,
            },
            peer=self.peer,
            heap=heap,
            flags=flags,
        )
        self.nodes.append(node)
        return node

    # Life.

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return ",".join(node.address for node in self.nodes)

    @property
    def controller_bootstrap(self) -> str:
        """Addresses of all controllers."""
        return ",".join(node.address for node in self.controllers)

    @property
    def processes(self) -> list[ServerProcess]:
        """Controllers and brokers."""
        return [*self.controllers, *self.nodes]

    def node(self, node_id: int) -> ServerProcess:
        """A controller or broker by its id."""
        return next(it for it in self.processes if it.node_id == node_id)

    def format(self) -> None:
        """Write what each process finds at its first start.

        One controller is formatted by Kafka's tool; what it wrote is copied for the others.
        """
        self._directory_ids = {node.node_id: new_id() for node in self.processes}
        first = self.controllers[0]
        first.write_config()
        arguments = ["format", "-t", self.cluster_id, "-c", str(first.config)]
        if self.is_dynamic:
            quorum = ",".join(
                f"{node.node_id}@{node.address}:{self._directory_ids[node.node_id]}"
                for node in self.controllers
            )
            arguments += ["--initial-controllers", quorum]
        run_tool("storage", *arguments, *self._format_arguments, peer=self.controller_peer)
        for node in self.processes:
            if node.kind == "controller":
                for path in first.log_dir.rglob("*"):
                    copy = node.log_dir / path.relative_to(first.log_dir)
                    if path.is_file() and not copy.exists():
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        copy.write_bytes(path.read_bytes())
            self.write_meta(node)

    def write_meta(self, node: ServerProcess, *, is_new: bool = False) -> None:
        """Write a node's meta.properties; `is_new` gives its directory a new id."""
        if is_new or node.node_id not in self._directory_ids:
            self._directory_ids[node.node_id] = new_id()
        node.log_dir.mkdir(parents=True, exist_ok=True)
        (node.log_dir / "meta.properties").write_text(
            f"version=1\ncluster.id={self.cluster_id}\nnode.id={node.node_id}\n"
            f"directory.id={self._directory_ids[node.node_id]}\n"
        )

    def start(self) -> None:
        """Format what is new, and start all; `wait_until_ready` says when they serve."""
        if not (self.controllers[0].log_dir / "meta.properties").exists():
            self.format()
        for node in self.processes:
            if not node.is_running:
                node.start()

    def wait_for_controllers(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once all running controllers take connections.

        Raises:
            PeerFailed: a process ended, or it took too long.
        """
        deadline = time.monotonic() + timeout_s
        for node in self.controllers:
            while node.is_running or node.has_ended:
                self._check_running()
                if node.takes_connections:
                    break
                if time.monotonic() > deadline:
                    raise PeerFailed(f"no connection to {node.address}")
                time.sleep(0.02)

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once all brokers are unfenced and a topic of up to three replicas can be made.

        Raises:
            PeerFailed: a process ended, or it took too long.
        """
        wanted = {node.node_id for node in self.nodes if node.is_running}
        self.wait_for_brokers(wanted, timeout_s)
        deadline = time.monotonic() + timeout_s
        factor = min(3, len(wanted))
        while True:
            try:
                with closing(Client(self.bootstrap, timeout_ms=10_000)) as client:
                    client.topics.create({"r": 1}, replication_factor=factor, validate_only=True)
            except HorologError as error:
                if time.monotonic() > deadline:
                    raise PeerFailed(f"no topic of {factor} replicas: {error}") from None
                time.sleep(0.1)
            else:
                return

    def wait_for_brokers(self, wanted: set[int], timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once each of these brokers answers, and names them all as alive.

        Raises:
            PeerFailed: a process ended, or it took too long.
        """
        deadline = time.monotonic() + timeout_s
        said: object = None
        for node in self.nodes:
            while node.node_id in wanted:
                self._check_running()
                try:
                    with closing(Client(node.address, timeout_ms=5000)) as client:
                        said = set(client.topics.metadata([]).brokers)
                except HorologError as error:
                    said = error
                if said == wanted:
                    break
                if time.monotonic() > deadline:
                    raise PeerFailed(
                        f"node {node.node_id} said {said}, not {wanted}:\n{node.tail()}"
                    )
                time.sleep(0.1)

    def _check_running(self) -> None:
        for node in self.processes:
            if node.has_ended:
                raise PeerFailed(f"node {node.node_id} has ended:\n{node.tail()}")

    def close(self) -> None:
        """End all processes at once."""
        for node in reversed(self.processes):
            node.kill()

    def stop(self) -> None:
        """Stop brokers, then controllers, as an operator does."""
        for node in (*self.nodes, *self.controllers):
            if node.is_running:
                node.stop()


@contextmanager
def running_cluster(
    brokers: str = "khh", controllers: int = 1, *, directory: Path | None = None, **more: object
) -> Iterator[Cluster]:
    """A cluster that serves while the block lasts; further arguments are those of `Cluster`."""
    with ExitStack() as stack:
        if directory is None:
            made = tempfile.TemporaryDirectory(
                prefix="horolog-cluster-", ignore_cleanup_errors=True
            )
            directory = Path(stack.enter_context(made))
        cluster = Cluster(directory, brokers, controllers, **more)  # type: ignore[arg-type]
        stack.callback(cluster.close)
        cluster.start()
        cluster.wait_until_ready()
        yield cluster


def main() -> int:
    """Run a cluster until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", default="khh", help="a letter each: k Kafka, h horolog")
    parser.add_argument("--controllers", type=int, default=1)
    parser.add_argument("--peer", default=NEWEST, help="release in .peers")
    parser.add_argument("--dynamic", action="store_true", help="kraft.version 1")
    parser.add_argument("--directory", type=Path, help="kept; a temporary one otherwise")
    given = parser.parse_args()
    if not given.brokers or set(given.brokers) - {"k", "h"} or given.controllers < 1:
        parser.error("--brokers is k and h only; at least one controller")
    try:
        jars(given.peer)
    except NoPeer as error:
        print(error, file=sys.stderr)
        return 3
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running_cluster(
            given.brokers,
            given.controllers,
            directory=given.directory,
            peer=given.peer,
            is_dynamic=given.dynamic,
        ) as cluster:
            print(f"ready in {time.monotonic() - begun:.0f} s: {cluster.bootstrap}")
            for node in cluster.processes:
                name = {"k": "Kafka", "h": "horolog", "controller": "controller"}[node.kind]
                print(f"  {node.node_id:>3} {name:<10} {node.address}  {node.directory}")
            print("Ctrl-C ends all.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except PeerFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
