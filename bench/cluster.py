"""What do three brokers with three replicas cost, and how long is a partition without a leader?

Beside three brokers of Apache Kafka, each side under one controller of Apache Kafka with the same
heap. CPU is that of the three brokers. A machine has fewer cores than a cluster has processes, so
latency is taken with one request under way, by a client of lower priority.
"""

import contextlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench import harness
from bench.sides import HOROLOG, KAFKA, SETTINGS, Side, cpu_s
from tools.cluster import Cluster, ServerProcess, running_cluster
from tools.peers.kafka import JVM_FLAGS, NEWEST

from horolog.client.config import parse_bootstrap_servers
from horolog.client.connection import Connection
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.wire.api import ApiKey

KINDS = {HOROLOG: "hhh", KAFKA: "kkk"}
HEAP = "512m"
SIZE = 1000
CPU = "broker CPU-s/GB"
IDLE_S = 20.0
_numbers = itertools.count()


@dataclass(frozen=True)
class ClusterSide(Side):
    """Three brokers that run."""

    cluster: Cluster | None = None

    @property
    def nodes(self) -> list[ServerProcess]:
        """Its brokers."""
        assert self.cluster is not None
        return self.cluster.nodes

    def cpu_s(self) -> float:
        """CPU seconds of the brokers that run."""
        return sum(cpu_s(node.pid) for node in self.nodes if node.is_running)

    def node(self, node_id: int) -> ServerProcess:
        """A broker by its id."""
        return next(node for node in self.nodes if node.node_id == node_id)

    def admin(self) -> Any:
        """A client that administers it."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


@contextlib.contextmanager
def clusters(asked: harness.Options) -> Iterator[list[ClusterSide]]:
    """The sides that were asked for, each with its controller."""
    with contextlib.ExitStack() as stack:
        sides = []
        for name in asked.names:
            cluster = stack.enter_context(
                running_cluster(KINDS[name], settings=SETTINGS, heap=HEAP, flags=JVM_FLAGS)
            )
            node = cluster.nodes[0]
            version = f"{KAFKA} {NEWEST}" if name == KAFKA else ""
            sides.append(ClusterSide(name, cluster.bootstrap, node.pid, version, {}, cluster))
        yield sides


@contextlib.contextmanager
def topic(side: ClusterSide, assignment: list[list[int]]) -> Iterator[str]:
    """A topic with these replicas, leaders first; it is deleted afterwards."""
    from confluent_kafka.admin import NewTopic

    name = f"cluster-{next(_numbers)}"
    config = {"retention.ms": "-1"}
    new = NewTopic(name, len(assignment), replica_assignment=assignment, config=config)
    admin = side.admin()
    admin.create_topics([new], request_timeout=60)[name].result()
    try:
        await_isr(side, name, set(assignment[-1]), len(assignment) - 1)
        yield name
    finally:
        admin.delete_topics([name])[name].result()


def await_isr(side: ClusterSide, name: str, wanted: set[int], partition: int = 0) -> None:
    """Wait until exactly these replicas are in sync."""
    admin = side.admin()
    while True:
        found = admin.list_topics(name, timeout=30).topics[name].partitions
        if partition in found and set(found[partition].isrs) == wanted:
            return
        time.sleep(0.1)  # each look costs the brokers, too


def reassign(side: ClusterSide, name: str, replicas: list[int]) -> None:
    """Give partition 0 of a topic other replicas, by a request as Kafka's tool sends it."""
    deadline = Deadline.after_ms(60_000)
    (address,) = parse_bootstrap_servers(side.nodes[0].address)
    connection = Connection.open(address, deadline, client_id="bench", max_response_bytes=1 << 20)
    with contextlib.closing(connection):
        partition = {"partition_index": 0, "replicas": replicas}
        asked = {"timeout_ms": 60_000, "topics": [{"name": name, "partitions": [partition]}]}
        link = Link.negotiate(connection, deadline)
        answer = link.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, asked, deadline)
        assert answer.error_code == 0, answer
        assert answer.responses[0].partitions[0].error_code == 0, answer


def produce(records: int) -> harness.Measure:
    """Records as fast as librdkafka sends them with acks=all."""

    def measure(side: Side) -> harness.Numbers:
        assert isinstance(side, ClusterSide)
        with topic(side, [[1, 2, 3]]) as name:
            client = {"records": records, "size": SIZE, "settings": {"acks": "all"}}
            return harness.run_client("librdkafka_produce", side, topic=name, **client)

    return measure


def one_by_one(requests: int) -> harness.Measure:
    """One record at a time with acks=all, over a connection to the leader."""

    def measure(side: Side) -> harness.Numbers:
        assert isinstance(side, ClusterSide)
        with topic(side, [[1, 2, 3]]) as name:
            asked = {"bootstrap": side.node(1).address, "acks": -1, "nice": 5}
            return harness.run_client(
                "raw_latency", side, topic=name, requests=requests, size=SIZE, **asked
            )

    return measure


def catch_up(records: int) -> harness.Measure:
    """A new replica takes all of a partition: CPU of the two brokers that take part."""

    def measure(side: Side) -> harness.Numbers:
        assert isinstance(side, ClusterSide)
        with topic(side, [[1]]) as name:
            client_of = {"records": records, "size": SIZE, "settings": {}}
            harness.run_client("librdkafka_produce", side, topic=name, **client_of)
            part = [side.node(1), side.node(2)]
            before, started = sum(cpu_s(node.pid) for node in part), time.perf_counter()
            reassign(side, name, [1, 2])
            await_isr(side, name, {1, 2})
            seconds = time.perf_counter() - started
            used = sum(cpu_s(node.pid) for node in part) - before
            size = records * SIZE
            return {
                "seconds": seconds,
                "MB/s": size / 1e6 / seconds,
                CPU: used / (size / 1e9),
            }

    return measure


def without_leader(seconds: float, end: Callable[[ServerProcess], None]) -> harness.Measure:
    """A producer beside the end of the leader's process, which is started again afterwards."""

    def measure(side: Side) -> harness.Numbers:
        assert isinstance(side, ClusterSide)
        assert side.cluster is not None
        with topic(side, [[1, 2, 3]]) as name:
            given = {"bootstrap": side.bootstrap, "topic": name, "seconds": seconds}
            client = subprocess.Popen(
                [sys.executable, "-m", "bench.clients", "longest_pause", json.dumps(given)],
                cwd=harness.ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert client.stdout is not None
            assert client.stdout.readline()
            time.sleep(1)
            node = side.node(1)
            end(node)
            said, _ = client.communicate(timeout=seconds + 150)
            node.start()
            side.cluster.wait_until_ready()
            numbers: dict[str, float] = json.loads(said.splitlines()[-1])
            return numbers

    return measure


def idle(side: Side) -> harness.Numbers:
    """CPU of a broker that has nothing to do, in hundredths of a core."""
    before = side.cpu_s()
    time.sleep(IDLE_S)
    return {"seconds": IDLE_S, "CPU %": 100 * (side.cpu_s() - before) / 3 / IDLE_S}


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    share = 4 if asked.quick else 1
    rows: list[tuple[str, str, str, tuple[str, ...], harness.Measure]] = [
        ("produce 1 kB, acks=all", CPU, "1.0x", ("MB/s",), produce(400_000 // share)),
        ("one at a time, acks=all", "p50_ms", "1.0x", ("p99_ms", "requests/s"), one_by_one(4000)),
        ("one at a time, acks=all, p99", "p99_ms", "1.2x", ("p50_ms",), one_by_one(4000)),
        ("a new replica", CPU, "1.0x", ("seconds", "MB/s"), catch_up(2_000_000 // share)),
        (
            "kill -9 of a leader",
            "pause_s",
            "1.2x",
            ("records",),
            without_leader(30, ServerProcess.kill),
        ),
        (
            "controlled shutdown of a leader",
            "pause_s",
            "1.2x",
            ("records",),
            without_leader(15, ServerProcess.stop),
        ),
    ]
    with clusters(asked) as sides:
        for work, figure, reach, details, measure in rows:
            row = harness.Row(work, figure, reach, details)
            harness.compare(measure, sides, asked, row, warm_s=0 if "leader" in work else None)
        with contextlib.ExitStack() as stack:
            for side in sides:
                stack.enter_context(topic(side, [[1, 2, 3]] * 1000))
            time.sleep(30)
            row = harness.Row("1,000 partitions of three replicas, idle", "CPU %", "1.0x")
            harness.compare(idle, sides, asked, row, warm_s=0)


if __name__ == "__main__":
    main()
