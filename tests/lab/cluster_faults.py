"""What befalls a cluster in a soak, drawn by a seed, one after the other."""

import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster_links import Links
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from patience import eventually
from raw_connection import RawConnection
from stepped_clock import SteppedClock
from tools.cluster import Cluster, ServerProcess

from horolog.wire import ApiKey

CONTROLLERS = 2
PREFERRED = 0


class ClusterFaults:
    """Faults of a cluster; each returns once the cluster should be able to recover."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        seed: int,
        links: Links | None = None,
        small: Mapping[int, Path] | None = None,
        clocks: Mapping[int, SteppedClock] | None = None,
    ) -> None:
        """Faults of a running cluster.

        Args:
            topics: what is moved, elected and looked at.
            links: before the cluster's processes, to cut.
            small: file systems to fill, by the brokers that have them.
            clocks: of brokers, to step.
        """
        self.cluster = cluster
        self._links = links
        self._small = small or {}
        self._clocks = clocks or {}
        self.topics = list(topics)
        self.watched = list(topics)
        """Topics that have to be whole."""
        self.random = random.Random(seed)
        self._churned = 0
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._faults: list[tuple[int, Callable[[], str]]] = [
            (4, self.kill),
            (3, self.stop),
            (3, self.pause),
            (2, self.kill_controller),
            (1, self.pause_controller),
            (1, self.wipe),
            (2, self.reassign),
            (2, self.elect),
            (1, self.churn),
            (1, self.kill_two),
            (4 if links else 0, self.cut),
            (1 if small else 0, self.fill),
            (2 if clocks else 0, self.step_clock),
        ]

    def one(self) -> str:
        """Let one fault happen; what it was."""
        weights = [weight for weight, _ in self._faults]
        (_, fault), *_ = self.random.choices(self._faults, weights)
        return fault()

    # Faults.

    def _broker(self) -> ServerProcess:
        """A broker; those of ours twice as often."""
        nodes = self.cluster.nodes
        return self.random.choices(nodes, [2 if it.kind == "h" else 1 for it in nodes])[0]

    def kill(self) -> str:
        node = self._broker()
        node.kill()
        self._wait(0, 12)
        node.start()
        return f"kill {node.kind}{node.node_id}"

    def kill_two(self) -> str:
        """Two brokers at once: there is no leader, or none that may acknowledge."""
        nodes = self.random.sample(self.cluster.nodes, min(2, len(self.cluster.nodes)))
        for node in nodes:
            node.kill()
        self._wait(0, 3)
        for node in nodes:
            node.start()
        return "kill " + ", ".join(f"{it.kind}{it.node_id}" for it in nodes)

    def stop(self) -> str:
        node = self._broker()
        node.stop()
        self._wait(0, 5)
        node.start()
        return f"stop {node.kind}{node.node_id}"

    def pause(self) -> str:
        node = self._broker()
        node.pause()
        seconds = self._wait(0.5, 15)
        node.resume()
        return f"pause {node.kind}{node.node_id} for {seconds:.1f} s"

    def kill_controller(self) -> str:
        node = self.random.choice(self.cluster.controllers)
        node.kill()
        self._wait(0, 4)
        node.start()
        return f"kill controller {node.node_id}"

    def pause_controller(self) -> str:
        node = self.random.choice(self.cluster.controllers)
        node.pause()
        seconds = self._wait(0.5, 12)
        node.resume()
        return f"pause controller {node.node_id} for {seconds:.1f} s"

    def cut(self) -> str:
        """Ways that are cut: to a broker, out of it, or to the controllers alone.

        A broker that reaches no controller is fenced while clients still reach it; followers that
        do not reach a leader leave its in-sync replicas.
        """
        assert self._links is not None
        node = self._broker()
        rest = [it for it in self.cluster.processes if it is not node]
        controllers = self.cluster.controllers
        ways: list[tuple[str, Sequence[ServerProcess], Sequence[ServerProcess]]] = [
            ("all from", [node], ()),
            ("the controllers from", controllers, [node]),
            ("everything from", rest, [node]),
        ]
        if len(self.cluster.nodes) > 1:
            peer = self.random.choice([it for it in self.cluster.nodes if it is not node])
            ways.append((f"{peer.kind}{peer.node_id} from", [peer], [node]))
        if len(controllers) > 1:
            apart = self.random.choice(controllers)
            others = [it for it in controllers if it is not apart]
            ways.append((f"controllers from {apart.node_id}, not from", others, [apart]))
        what, to, of = self.random.choice(ways)
        is_silent = self.random.random() < 0.5
        self._links.cut(to, of, is_silent=is_silent)
        seconds = self._wait(0.5, 15)
        self._links.mend()
        how = "silently " if is_silent else ""
        return f"{how}cut {what} {node.kind}{node.node_id} for {seconds:.1f} s"

    def step_clock(self) -> str:
        """An operator sets a broker's clock, less than an hour wrong, or right again.

        Not ahead beside brokers of Kafka: their append times go back where they lead next.
        """
        number, clock = self.random.choice(sorted(self._clocks.items()))
        most = 0 if any(it.kind == "k" for it in self.cluster.nodes) else 3000
        clock.step(1000 * self.random.choice([0, self.random.randint(-3000, most)]))
        return f"step the clock of h{number} to {clock.by_ms // 1000} s"

    def fill(self) -> str:
        """A disk becomes full, and its broker ends, so that others lead."""
        node_id, directory = self.random.choice(sorted(self._small.items()))
        node = self.cluster.node(node_id)
        ballast = directory / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        ends = eventually(lambda: node.has_ended)
        ballast.unlink()
        assert ends, f"node {node_id} lives with a full disk: {node.tail()}"
        node.kill()
        node.start()
        return f"fill the disk of {node.kind}{node_id}"

    def wipe(self) -> str:
        """A broker whose disk is replaced: an empty directory with an id of its own.

        The only Kafka has the only copy of the coordinators' topics. All others must have all
        records: by the word of a controller that has heard of each broker.
        """
        self.ask_controller(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=CONTROLLERS)
        time.sleep(12)  # a session of a killed broker has ended
        assert eventually(lambda: not self.lags(), 600), self.lags()
        kafkas = [it for it in self.cluster.nodes if it.kind == "k"]
        node = self.random.choice([it for it in self.cluster.nodes if kafkas != [it]])
        is_killed = self.random.random() < 0.5
        (node.kill if is_killed else node.stop)()
        for path in node.log_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.cluster.write_meta(node, is_new=True)
        node.start()
        return f"wipe {node.kind}{node.node_id}{', killed' if is_killed else ''}"

    def reassign(self) -> str:
        """Other orders of replicas, and fewer or more of them."""
        ids = [it.node_id for it in self.cluster.nodes]
        topic = self.random.choice(self.topics)
        replicas = self.random.sample(ids, len(ids))
        if len(ids) > 2 and self.random.random() < 0.4:
            replicas.pop()
        partition = self.random.randrange(3)
        self.move(topic, partition, replicas)
        return f"reassign {topic}-{partition} to {replicas}"

    def elect(self) -> str:
        self.elect_preferred()
        return "elect preferred leaders"

    def churn(self) -> str:
        """Topics that come, are written to and go."""
        names = [f"churn-{self._churned + it}" for it in range(3)]
        self._churned += self.random.choice([0, 3])
        factor = min(3, len(self.cluster.nodes))
        self._try(self._admin.create_topics([NewTopic(it, 2, factor) for it in names]))
        self._try(self._admin.create_partitions([NewPartitions(names[0], 4)]))
        writer = Producer({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        for number in range(300):
            writer.produce(names[number % 3], b"x" * 100)
        writer.flush(self.random.choice([0, 1, 10]))
        writer.purge()
        self._try(self._admin.delete_topics(names))
        return f"make, grow and delete {names[0]}"

    def _try(self, futures: Mapping[str, Any]) -> None:
        for future in futures.values():
            with suppress(KafkaException):
                future.result(60)

    def _wait(self, at_least: float, at_most: float) -> float:
        seconds = self.random.uniform(at_least, at_most)
        time.sleep(seconds)
        return seconds

    # The controllers, and how the cluster is.

    def ask_controller(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """The active controller's answer; waits until there is one."""
        found: list[Any] = []

        def asked() -> bool:
            for node in self.cluster.controllers:
                with suppress(OSError), RawConnection(node.address, 20) as connection:
                    quorum = connection.ask(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=CONTROLLERS)
                    if quorum.controller_id == node.node_id:
                        found.append(connection.ask(key, version, **fields))
                        return True
            return False

        assert eventually(asked), "there is no active controller"
        return found[0]

    def move(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Reassign a partition."""
        asked = {"partition_index": partition, "replicas": list(replicas)}
        self.ask_controller(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            0,
            topics=[{"name": topic, "partitions": [asked]}],
            timeout_ms=30_000,
        )

    def elect_preferred(self) -> None:
        """Let the first replica of each partition lead where it may."""
        partitions = [{"topic": it, "partitions": [0, 1, 2]} for it in self.topics]
        self.ask_controller(
            ApiKey.ELECT_LEADERS,
            2,
            election_type=PREFERRED,
            topic_partitions=partitions,
            timeout_ms=30_000,
        )

    def restore(self) -> None:
        """Give all partitions a replica on each broker again."""
        ids = [it.node_id for it in self.cluster.nodes]
        for topic in self.topics:
            for partition in range(3):
                self.move(topic, partition, ids[partition:] + ids[:partition])

    def replicas(self, topic: str) -> set[int]:
        """All brokers that have replicas of a topic."""
        with suppress(KafkaException):
            its = self._admin.list_topics(topic, timeout=10).topics[topic]
            return {number for one in its.partitions.values() for number in one.replicas}
        return set()

    def lags(self) -> list[str]:
        """Partitions without a leader, or whose ISR lacks a replica."""
        try:
            metadata = self._admin.list_topics(timeout=10)
        except KafkaException as error:
            return [str(error)]
        alive = {it.node_id for it in self.cluster.nodes if it.is_running}
        found = [f"broker {it}" for it in sorted(alive - metadata.brokers.keys())]
        for topic in self.watched:
            its = metadata.topics.get(topic)
            found += [
                f"{topic}-{it.id}: leader {it.leader}, ISR {it.isrs} of {it.replicas}"
                for it in (its.partitions.values() if its else ())
                if it.leader < 0 or set(it.isrs) != set(it.replicas)
            ]
        return found

    def ended(self) -> list[str]:
        """Processes that ended by themselves, with their last words."""
        return [
            f"node {it.node_id} ({it.kind}) has ended:\n{it.tail()}"
            for it in self.cluster.processes
            if it.has_ended
        ]
