"""A cluster under load and faults, and what has to be true of it afterwards."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from cluster_faults import ClusterFaults
from cluster_history import ClusterHistory, Stored, Where, problems_of_append_times
from cluster_links import Links
from cluster_load import PARTITIONS, Finder, Reader, Transactor, Worker, Writer, read_all
from confluent_kafka.admin import AdminClient, NewTopic
from patience import eventually
from stepped_clock import SteppedClock
from tools.cluster import Cluster, ServerProcess

from horolog.record import iter_headers

PLAIN, ONCE, STAMPED = "plain", "once", "stamped"
TRANSACTIONAL = ("transactional-0", "transactional-1")
INTERNAL = ("__consumer_offsets", "__transaction_state")
LATE_S = 60.0
"""Without a success for so long, a writer is waited for before the next fault."""
RECOVERY_S = 600.0


class ClusterSoak:
    """Load from the start on, faults one by one, and the end."""

    def __init__(self, cluster: Cluster, seed: int, stack: ExitStack) -> None:
        """Start the cluster and its load; the end of the stack is the end of both."""
        self.cluster = cluster
        links = stack.enter_context(Links(cluster))
        ours = [it for it in cluster.nodes if it.kind == "h"]
        small = {it.node_id: it.directory for it in ours if _is_mounted(it.directory, stack)}
        clocks = {
            it.node_id: SteppedClock(cluster.directory / f"clock-{it.node_id}") for it in ours
        }
        for node in ours:
            node.launcher = clocks[node.node_id].launcher
        stack.callback(cluster.close)
        cluster.start()
        cluster.wait_until_ready()
        self.history = ClusterHistory()
        has_kafka = any(it.kind == "k" for it in cluster.nodes)
        self.topics = [PLAIN, ONCE, STAMPED, *(TRANSACTIONAL if has_kafka else ())]
        self._make_topics()
        self.faults = ClusterFaults(cluster, self.topics, seed, links, small, clocks)
        self.faults.watched += INTERNAL
        self._workers = self._load(seed, has_kafka=has_kafka)
        self._begun = time.monotonic()
        self._writing = [it.name for it in self._workers if isinstance(it, Writer | Transactor)]
        for worker in self._workers:
            worker.start()

    def _make_topics(self) -> None:
        count = len(self.cluster.nodes)
        settings = {"min.insync.replicas": str(min(2, count)), "segment.bytes": "1048576"}
        topics = []
        for name in self.topics:
            more = {"message.timestamp.type": "LogAppendTime"} if name == STAMPED else {}
            factor = min(3, count)
            topics.append(NewTopic(name, PARTITIONS, factor, config={**settings, **more}))
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for future in admin.create_topics(topics).values():
            future.result(120)
        # Until then librdkafka may count records as acknowledged that came to nobody.
        assert eventually(self._are_known_everywhere, RECOVERY_S), "not every broker has all topics"

    def _are_known_everywhere(self) -> bool:
        """True if each broker names a leader of each partition."""
        for node in self.cluster.nodes:
            found = AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=30).topics
            for name in self.topics:
                known = found[name].partitions.values() if name in found else ()
                if sum(it.leader >= 0 for it in known) < PARTITIONS:
                    return False
        return True

    def _load(self, seed: int, *, has_kafka: bool) -> Sequence[Worker]:
        at = self.cluster.bootstrap, self.history
        workers: list[Worker] = [
            Writer("plain", *at, seed + 1, topic=PLAIN, is_idempotent=False),
            Writer("once-a", *at, seed + 2, topic=ONCE, is_idempotent=True),
            Writer("once-b", *at, seed + 3, topic=ONCE, is_idempotent=True, pause_s=0.02),
            Writer("stamped", *at, seed + 4, topic=STAMPED, is_idempotent=True, is_stamped=True),
            Reader("reader", *at, seed + 5, self.topics, is_committed=False),
            Reader("committed", *at, seed + 6, self.topics, is_committed=True),
            finder := Finder("finder", *at, seed + 7),
        ]
        finder.kafkas = {it.node_id for it in self.cluster.nodes if it.kind == "k"}
        if has_kafka:
            for name in ("txn-a", "txn-b"):
                workers.append(Transactor(name, *at, seed + len(workers), TRANSACTIONAL))
        return workers

    def fault(self) -> str:
        """One fault; returns once the cluster is whole again and writers go on.

        Raises:
            AssertionError: it did not recover, or something is wrong already.
        """
        begun = time.monotonic()
        what = self.faults.one()
        self.await_whole(what)
        whole_s, before, late = time.monotonic() - begun, self.history.count, self._late()
        assert eventually(
            lambda: self.history.count > before + 50 and not self._late(), RECOVERY_S
        ), f"after {what}: no success for {self._late()}; {self._said()}"
        assert not self.history.wrong, (what, self.history.wrong[:10])
        told = f"{what}: whole after {whole_s:.0f} s"
        if late:
            told += f", and {', '.join(late)} went on after {time.monotonic() - begun:.0f} s"
        return told

    def _late(self) -> list[str]:
        """Writers that were told of no success for long."""
        told, now = self.history.successes, time.monotonic()
        return [it for it in self._writing if now - told.get(it, self._begun) > LATE_S]

    def await_whole(self, what: str) -> None:
        """Wait until each broker is there, and each replica in sync."""

        def is_whole() -> bool:
            assert not (ended := self.faults.ended()), f"after {what}: {ended}"
            # The controllers count one that was killed until its session is over.
            is_there = all(node.takes_connections for node in self.cluster.nodes)
            return is_there and not self.faults.lags()

        assert eventually(is_whole, RECOVERY_S), (
            f"after {what}: {self.faults.lags()} {self._said()}"
        )

    def _said(self) -> str:
        return "\n".join(f"-- {it.kind}{it.node_id}\n{it.tail(1500)}" for it in self.cluster.nodes)

    def finish(self) -> list[str]:
        """Stop the load and the cluster; what is wrong with all that is there."""
        self.end_load()
        return self.problems()

    def end_load(self) -> None:
        """Stop all clients."""
        for worker in self._workers:
            worker.over.set()
        for worker in self._workers:
            worker.join(300)
        assert not [it.name for it in self._workers if it.is_alive()]

    def problems(self) -> list[str]:
        """What is wrong by each leader and by the files; stops the cluster."""
        self.faults.restore()
        self.await_whole("all replicas came back")
        bootstrap = self.cluster.bootstrap
        # Transactions of producers that are gone end by their timeout.
        committed: dict[Where, list[Stored]] = {}

        def is_stable() -> bool:
            nonlocal committed
            ends = {it: its[-1:] for it, its in committed.items()}
            committed = read_all(bootstrap, self.topics, "read_committed")
            return ends == {it: its[-1:] for it, its in committed.items()}

        time.sleep(45 if len(self.topics) > 3 else 0)
        assert eventually(is_stable)
        stored = read_all(bootstrap, self.topics, "read_uncommitted")
        found = list(self._problems_of_leaders(stored))
        found += problems_of_append_times(
            {it: its for it, its in stored.items() if it[0] == STAMPED}
        )
        self.cluster.stop()
        log_dir = self.cluster.nodes[0].log_dir
        logs = {
            (topic, at): batches_in(log_dir / f"{topic}-{at}")
            for topic in self.topics
            for at in range(PARTITIONS)
        }
        epochs = {where: epochs_in(its) for where, its in logs.items()}
        found += self.history.problems(stored, committed, epochs)
        for where, its in logs.items():
            found += problems_of_sequences(where, its)
        return found + list(problems_of_files(self.cluster.nodes, self.topics))

    def _problems_of_leaders(self, stored: dict[Where, list[Stored]]) -> Iterator[str]:
        """Read everything from each broker as the leader."""
        ids = [it.node_id for it in self.cluster.nodes]
        for turn in range(1, len(ids)):
            order = ids[turn:] + ids[:turn]
            for topic in self.topics:
                for partition in range(PARTITIONS):
                    at = partition % len(ids)
                    self.faults.move(topic, partition, order[at:] + order[:at])
            self.faults.elect_preferred()
            self.await_whole("another leader was elected")
            again = read_all(self.cluster.bootstrap, self.topics, "read_uncommitted")
            for where, its in stored.items():
                if its != again[where]:
                    yield f"{where}: {len(its)} records, {len(again[where])} by another leader"


def problems_of_files(nodes: Sequence[ServerProcess], topics: Sequence[str]) -> Iterator[str]:
    """Compare the logs of all replicas from their latest start on, byte for byte."""
    for topic in topics:
        for partition in range(PARTITIONS):
            name = f"{topic}-{partition}"
            logs = {
                f"{it.kind}{it.node_id}": batches_in(it.log_dir / name)
                for it in nodes
                if (it.log_dir / name).is_dir()
            }
            start = max(min(its, default=0) for its in logs.values())
            tails = {node: {at: its[at] for at in its if at >= start} for node, its in logs.items()}
            first, *others = tails
            for other in others:
                if tails[other] != tails[first]:
                    differing = {
                        at
                        for at in tails[first].keys() | tails[other].keys()
                        if tails[first].get(at) != tails[other].get(at)
                    }
                    yield (
                        f"{name} differs in {first} and {other} at {sorted(differing)[:5]}, "
                        f"{len(differing)} batches"
                    )


def epochs_in(batches: Mapping[int, bytes]) -> dict[int, int]:
    """The producers' epochs of a log's records, by offset."""
    headers = [header for it in batches.values() for _, header in iter_headers(it)]
    return {
        offset: it.producer_epoch
        for it in headers
        for offset in range(it.base_offset, it.base_offset + it.last_offset_delta + 1)
    }


def problems_of_sequences(where: Where, batches: Mapping[int, bytes]) -> Iterator[str]:
    """Where a log has a producer's batch twice, lacks one, or has two the wrong way round."""
    expected: dict[int, tuple[int, int]] = {}
    for offset in sorted(batches):
        ((_, header),) = iter_headers(batches[offset])
        if header.base_sequence < 0:
            continue
        epoch, sequence = expected.get(header.producer_id, (-1, 0))
        sequence = sequence if header.producer_epoch == epoch else 0
        if header.producer_epoch < epoch or header.base_sequence != sequence:
            yield (
                f"{where} {offset}: sequence {header.base_sequence} of epoch "
                f"{header.producer_epoch} of producer {header.producer_id}, {sequence} of epoch "
                f"{epoch} was expected"
            )
        next_sequence = header.base_sequence + header.last_offset_delta + 1
        expected[header.producer_id] = header.producer_epoch, next_sequence


def _is_mounted(directory: Path, stack: ExitStack) -> bool:
    """Mount a small file system there; only a privileged user may.

    What is in it after a failure is copied beside it.
    """
    directory.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return False

    def unmount(failure: object, *_: object) -> None:
        if failure is not None:
            shutil.copytree(
                directory, f"{directory}-failed", ignore=shutil.ignore_patterns("ballast")
            )
        subprocess.run(["umount", "-l", str(directory)], check=True)

    stack.push(unmount)
    return True


def batches_in(directory: Path) -> dict[int, bytes]:
    """The batches of a log's segments by their base offsets."""
    found = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            found[header.base_offset] = data[position : position + header.size]
    return found


def given_number(name: str, default: int) -> int:
    """A number that the command line gave; an empty one is the default."""
    return int(os.environ.get(name) or default)
