"""What befalls a cluster in a soak, drawn by a seed, one after the other."""

import random
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from patience import eventually
from proxy import Proxy
from raw_connection import RawConnection
from tools.cluster import Cluster, ServerProcess

from horolog.wire import ApiKey

CONTROLLERS = 2
PREFERRED = 0


class CutProxy(Proxy):
    """What clients and replicas reach a broker by, until it is cut."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.targets = [("127.0.0.1", port)]
        self._is_cut = False

    def cut(self) -> None:
        self._is_cut = True
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def mend(self) -> None:
        self._is_cut = False

    def _serve(self, connection: socket.socket) -> None:
        if self._is_cut:
            connection.close()
            return
        try:
            super()._serve(connection)
        except OSError:  # the broker is down
            connection.close()


class ClusterFaults:
    """Faults of a cluster; each returns once the cluster should be able to recover."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        seed: int,
        proxies: Mapping[int, "CutProxy"],
        small: Mapping[int, Path],
    ) -> None:
        self.cluster = cluster
        self._proxies = proxies
        self._small = small
        self.topics = list(topics)
        self.random = random.Random(seed)
        self._churned = 0
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._faults: list[tuple[int, Callable[[], str]]] = [
            (4, self.kill),
            (3, self.stop),
            (3, self.pause),
            (2, self.kill_controller),
            (1, self.wipe),
            (2, self.reassign),
            (2, self.elect),
            (1, self.churn),
            (1, self.kill_two),
            (2 if proxies else 0, self.cut),
            (1 if small else 0, self.fill),
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

    def cut(self) -> str:
        """Nobody reaches a broker, which reaches the others."""
        node = self._broker()
        self._proxies[node.node_id].cut()
        seconds = self._wait(0.5, 12)
        self._proxies[node.node_id].mend()
        return f"cut {node.kind}{node.node_id} off for {seconds:.1f} s"

    def fill(self) -> str:
        """A disk becomes full, and its broker ends, so that others lead."""
        node_id, directory = self.random.choice(sorted(self._small.items()))
        node = self.cluster.node(node_id)
        ballast = directory / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        ends = eventually(lambda: node.has_ended, 60)
        ballast.unlink()
        assert ends, f"node {node_id} lives with a full disk: {node.tail()}"
        node.kill()
        node.start()
        return f"fill the disk of {node.kind}{node_id}"

    def wipe(self) -> str:
        """A broker whose disk is replaced: an empty directory with an id of its own.

        The only Kafka has the only copy of the coordinators' topics.
        """
        kafkas = [it for it in self.cluster.nodes if it.kind == "k"]
        node = self._broker()
        if kafkas == [node]:
            return "wipe nothing"
        node.stop()
        for path in node.log_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.cluster.write_meta(node, is_new=True)
        node.start()
        return f"wipe {node.kind}{node.node_id}"

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
        for futures in (
            self._admin.create_topics([NewTopic(it, 2, factor) for it in names]),
            self._admin.delete_topics(names),
        ):
            for future in futures.values():
                with suppress(KafkaException):
                    future.result(60)
        return f"make and delete {names[0]}"

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
        for topic in self.topics:
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
