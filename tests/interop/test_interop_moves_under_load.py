"""Replicas that Kafka's own tool moves between Kafka and horolog while clients write to them.

In each move all partitions get a new replica and lose the one that leads, which is killed as soon
as the move has begun.
"""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster_faults import ClusterFaults
from cluster_history import ClusterHistory
from cluster_load import PARTITIONS, Finder, Reader, Transactor, Worker, Writer, read_all
from cluster_soak import problems_of_files
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_load import acknowledge_all, transactional, verifiable, written_by_java
from patience import eventually
from raw_connection import RawConnection, lookup_fields
from tools.cluster import Cluster, ServerProcess
from tools.peers.kafka import BEFORE_NEWEST, LAST_WITH_OLD_FORMATS, NEWEST, run_tool

from horolog.wire import ApiKey

ONCE, JAVA, FIRST_FLOW, SECOND_FLOW, BULK = "once", "java", "first-flow", "second-flow", "bulk"
OF_HISTORY, OF_JAVA = (ONCE, FIRST_FLOW), (JAVA, SECOND_FLOW)
TOPICS = (*OF_HISTORY, *OF_JAVA, BULK)
LATEST, EARLIEST, LARGEST = -1, -2, -3


class Kind(NamedTuple):
    """A cluster to try."""

    brokers: str
    peer: str = NEWEST
    controllers: int = 1
    is_dynamic: bool = False


KINDS = (
    Kind("khh"),
    Kind("kkh", BEFORE_NEWEST, is_dynamic=True),
    Kind("khh", LAST_WITH_OLD_FORMATS),
)


class Moving:
    """A cluster under load, whose partitions have two replicas."""

    def __init__(self, directory: Path, kind: Kind, stack: ExitStack) -> None:
        brokers, peer, controllers, is_dynamic = kind
        self.directory = directory
        self.cluster = Cluster(
            directory,
            brokers,
            controllers,
            peer=peer,
            is_dynamic=is_dynamic,
            of_controllers={"broker.session.timeout.ms": "6000"},
        )
        stack.callback(self.cluster.close)
        self.cluster.start()
        self.cluster.wait_until_ready()
        self._make_topics()
        self.history = ClusterHistory()
        self.faults = ClusterFaults(self.cluster, TOPICS, 1, {}, {})
        at = self.cluster.bootstrap, self.history
        self.of_java = [
            verifiable(self.cluster.bootstrap, JAVA, directory, peer, 200),
            transactional(self.cluster.bootstrap, SECOND_FLOW, directory, peer, 200),
        ]
        finder = Finder("finder", *at, 5)
        finder.kafkas = {it.node_id for it in self.cluster.nodes if it.kind == "k"}
        self._workers: list[Worker] = [
            Writer("once", *at, 1, topic=ONCE, is_idempotent=True),
            Transactor("first", *at, 2, [FIRST_FLOW]),
            Reader("reader", *at, 3, OF_HISTORY, is_committed=False),
            Reader("committed", *at, 4, OF_HISTORY, is_committed=True),
            finder,
        ]
        self._fill()
        for load in self.of_java:
            load.start()
            stack.callback(load.kill)
        for worker in self._workers:
            worker.start()
            stack.callback(worker.over.set)
        self.await_writes()

    def _make_topics(self) -> None:
        """Replicas 1 and 2, the first of which leads."""
        settings = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
        placed = [[1, 2]] * PARTITIONS
        made = [
            NewTopic(it, PARTITIONS, replica_assignment=placed, config=settings) for it in TOPICS
        ]
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for future in admin.create_topics(made).values():
            future.result(120)

    def _fill(self) -> None:
        """What makes a move last."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        for number in range(3000):
            producer.produce(BULK, number.to_bytes(4) * 5000, partition=number % PARTITIONS)
            producer.poll(0)
            if number % 300 == 0:
                producer.flush(60)
        assert producer.flush(120) == 0

    def await_writes(self) -> None:
        """Wait until each client that writes has gone on."""

        def progress() -> tuple[int, ...]:
            printed = (it.output.stat().st_size for it in self.of_java)
            return self.history.count, len(self.history.ends), *printed

        before = progress()
        went_on = eventually(lambda: all(a > b for a, b in zip(progress(), before, strict=True)))
        assert went_on, (before, progress(), self._said())
        assert self.history.wrong == []
        for load in self.of_java:
            assert not load.has_ended, load.tail()

    def _said(self) -> str:
        return "\n".join(f"-- {it.kind}{it.node_id}\n{it.tail(1500)}" for it in self.cluster.nodes)

    def move(self, replicas: Sequence[int], killed: ServerProcess, at: ServerProcess) -> None:
        """Move all partitions by Kafka's tool at one broker, and kill another meanwhile."""
        file = self.directory / "replicas.json"
        partitions = [
            {"topic": topic, "partition": it, "replicas": list(replicas)}
            for topic in TOPICS
            for it in range(PARTITIONS)
        ]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        added = set(replicas) - self.faults.replicas(BULK)
        killer = threading.Thread(target=self._kill_when, args=(added, killed))
        killer.start()
        assert "Successfully started" in self._reassign(at, file, "--execute")
        killer.join()
        assert not killed.is_running
        assert eventually(lambda: self._is_complete(self._reassign(at, file, "--verify")), 300)
        killed.start()  # the only Kafka has the coordinators' topics alone
        self.cluster.wait_for_brokers({it.node_id for it in self.cluster.nodes})
        self.await_writes()
        assert eventually(lambda: self.faults.replicas(BULK) == set(replicas))

    def _kill_when(self, added: set[int], killed: ServerProcess) -> None:
        if eventually(lambda: added <= self.faults.replicas(BULK)):
            killed.kill()

    def _reassign(self, at: ServerProcess, file: Path, what: str) -> str:
        return run_tool(
            "reassign",
            *("--bootstrap-server", at.address),
            *("--reassignment-json-file", str(file), what),
            peer=self.cluster.peer,
        ).stdout.decode()

    def _is_complete(self, said: str) -> bool:
        return len(re.findall(r"is completed", said)) == len(TOPICS) * PARTITIONS

    def finish(self) -> list[str]:
        """Stop the load; what is wrong with the records, by each leader, and with the files."""
        for worker in self._workers:
            worker.over.set()
        for worker in self._workers:
            worker.join(300)
        assert not [it.name for it in self._workers if it.is_alive()]
        for load in self.of_java:
            load.stop()
        self._fence(SECOND_FLOW)
        self._fence("first")
        acknowledge_all(self.of_java[0], self.history)
        self.faults.restore()
        assert eventually(lambda: not self.faults.lags(), 300), self.faults.lags()
        found = self._problems()
        found += self._problems_of_leaders()
        self.cluster.stop()
        return found + list(problems_of_files(self.cluster.nodes, TOPICS))

    def _fence(self, transactional_id: str) -> None:
        """Abort what a producer left open."""
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "transactional.id": transactional_id}
        )
        producer.init_transactions(120)

    def _problems(self) -> list[str]:
        bootstrap = self.cluster.bootstrap
        stored = read_all(bootstrap, OF_HISTORY, "read_uncommitted")
        stored |= read_all(bootstrap, [JAVA], "read_uncommitted", written_by_java)
        found = self.history.problems(stored, read_all(bootstrap, OF_HISTORY, "read_committed"))
        assert len(self.history.acknowledged[JAVA, 0]) > 100
        # Transactions are committed one after the other: what is readable has no gap.
        committed = read_all(bootstrap, [SECOND_FLOW], "read_committed", written_by_java)
        numbers = sorted(it.written.number for its in committed.values() for it in its)
        if len(numbers) < 100 or numbers != list(range(len(numbers))):
            found.append(f"{SECOND_FLOW}: {len(numbers)} up to {numbers[-1:]} are committed")
        return found

    def _problems_of_leaders(self) -> Iterator[str]:
        """Let each broker lead each partition, and compare what it says about its ends."""
        ids = [it.node_id for it in self.cluster.nodes]
        found: dict[tuple[str, int], dict[int, list[tuple[int, int]]]] = {}
        for turn in range(len(ids)):
            order = ids[turn:] + ids[:turn]
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    self.faults.move(topic, partition, order)
            assert eventually(lambda: not self.faults.lags())
            self.faults.elect_preferred()
            assert eventually(lambda leader=order[0]: self._leads_all(leader))
            with RawConnection(self.cluster.node(order[0]).address) as connection:
                for topic in TOPICS:
                    for partition in range(PARTITIONS):
                        its = found.setdefault((topic, partition), {})
                        its[order[0]] = [
                            self._look_up(connection, topic, partition, it)
                            for it in (LATEST, EARLIEST, LARGEST)
                        ]
        for where, said in found.items():
            if len({tuple(it) for it in said.values()}) > 1:
                yield f"{where}: leaders say {said}"

    def _leads_all(self, leader: int) -> bool:
        metadata = AdminClient({"bootstrap.servers": self.cluster.bootstrap}).list_topics(
            timeout=60
        )
        partitions = [it for topic in TOPICS for it in metadata.topics[topic].partitions.values()]
        return {it.leader for it in partitions} == {leader}

    def _look_up(
        self, connection: RawConnection, topic: str, partition: int, time_ms: int
    ) -> tuple[int, int]:
        fields = lookup_fields(topic, {partition: time_ms})
        found: Any = None

        def answers() -> bool:
            nonlocal found
            answer = connection.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, **fields)
            (found,) = answer.topics[0].partitions
            return bool(found.error_code == 0)

        assert eventually(answers), found  # others may know of its election first
        return found.offset, found.timestamp


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind.brokers}-{kind.peer}")
def moving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Moving]:
    with ExitStack() as stack:
        yield Moving(tmp_path, request.param, stack)


def test_moves_under_load_and_kills_lose_and_double_nothing(moving: Moving) -> None:
    first, second, third = moving.cluster.nodes
    ids = [it.node_id for it in moving.cluster.nodes]
    moving.move(ids[1:], killed=first, at=second)
    moving.move([ids[2], ids[0]], killed=second, at=third)
    moving.move(ids[:2], killed=third, at=first)
    assert moving.finish() == []
