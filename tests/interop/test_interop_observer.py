"""An observer of Apache Kafka's controllers, and Kafka on the directory that the observer kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from observing import Observing, state_of
from patience import PATIENCE_S, eventually
from tools.peers.kafka import (
    BEFORE_NEWEST,
    CLUSTER_ID,
    LAST_WITH_OLD_FORMATS,
    NEWEST,
    Kafka,
    run_tool,
)

from horolog.broker.cluster.controllers import ControllerLink, KnownController
from horolog.client.config import Address
from horolog.client.security import Security
from horolog.metadata import Image, KafkaForm
from horolog.storage import Files

pytestmark = pytest.mark.interop
PEERS = [NEWEST, BEFORE_NEWEST, LAST_WITH_OLD_FORMATS]
SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.max.snapshot.interval.ms": "0",
}


@contextmanager
def observed(kafka: Kafka, path: Path) -> Iterator[Observing]:
    """An observer as node 5 of a Kafka's controller, on a thread."""
    path.mkdir(exist_ok=True)
    host, _, port = kafka.controller.partition(":")
    known = KnownController([Address(host, int(port))], CLUSTER_ID)
    link = ControllerLink(known, Security(), client_id="broker-5-observer")
    observing = Observing(path, link, cluster_id=CLUSTER_ID)
    thread = threading.Thread(target=observing.observer.run)
    thread.start()
    try:
        yield observing
    finally:
        observing.observer.stop()
        thread.join(PATIENCE_S)
        link.close()


def has_topics(observing: Observing, *names: str) -> Callable[[], bool]:
    return lambda: set(names) <= observing.image.topics.keys()


def image_on_disk(path: Path) -> Image:
    replay = KafkaForm(Files(read_only=True), str(path)).replay()
    assert not replay.damage
    return replay.image


def batches_from(path: Path, start: int) -> dict[int, bytes]:
    found = {}
    for batch in KafkaForm(Files(read_only=True), str(path)).kept([]):
        base = int.from_bytes(batch[:8], "big")
        if base >= start:
            found[base] = bytes(batch)
    return found


@pytest.mark.parametrize("peer", PEERS)
def test_observer_has_the_image_and_the_bytes_of_a_controller(peer: str, tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka", peer=peer)
    with kafka:
        with observed(kafka, tmp_path / "whole") as observing:
            kafka.tool("topics", "--create", "--topic", "a", "--partitions", "3")
            kafka.tool("topics", "--create", "--topic", "b", "--config", "retention.ms=5")
            eventually(has_topics(observing, "a", "b"))
        with observed(kafka, tmp_path / "whole") as observing:
            kafka.tool("topics", "--delete", "--topic", "a")
            alice = ("configs", "--alter", "--entity-type", "users", "--entity-name", "alice")
            kafka.tool(*alice, "--add-config", "SCRAM-SHA-256=[password=secret]")
            kafka.tool(*alice, "--add-config", "producer_byte_rate=1024")
            eventually(lambda: bool(observing.image.quotas and observing.image.credentials))
            assert [*observing.image.topics] == ["b"]
            published = observing.state
        kafka.stop()
    assert published == state_of(image_on_disk(tmp_path / "whole"))
    ours = batches_from(tmp_path / "whole", 0)
    theirs = batches_from(kafka.log_dir, 0)
    assert ours
    assert ours.items() <= theirs.items()


@pytest.mark.parametrize("peer", PEERS)
def test_observer_begins_with_a_snapshot(peer: str, tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka", peer=peer, settings=SNAPSHOTS) as kafka:
        for name in ("a", "b"):
            kafka.tool("topics", "--create", "--topic", name, "--partitions", "100")
        eventually(lambda: any(kafka.log_dir.glob("__cluster_metadata-0/*[1-9]*.checkpoint")))
        with observed(kafka, tmp_path / "ours") as observing:
            eventually(has_topics(observing, "a", "b"))
            assert len(observing.image.topics["a"].partitions) == 100
            assert observing.log.snapshot_id is not None
            kafka.tool("topics", "--create", "--topic", "c")
            eventually(has_topics(observing, "c"))


def test_the_quorum_lists_the_observer_without_lag(tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka") as kafka, observed(kafka, tmp_path / "ours") as observing:
        eventually(lambda: observing.offset > 0)
        said = ""
        deadline = time.monotonic() + PATIENCE_S
        while "Observer" not in said and time.monotonic() < deadline:
            said = run_tool(
                "metadata-quorum", "--bootstrap-server", kafka.bootstrap, "describe",
                "--replication",
            ).stdout.decode()  # fmt: skip
        [row] = [line.split() for line in said.splitlines() if line.split()[:1] == ["5"]]
        assert row[-1] == "Observer"


@pytest.mark.parametrize("peer", PEERS)
def test_kafka_continues_with_the_directory_of_an_observer(peer: str, tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka", peer=peer) as kafka:
        kafka.tool("topics", "--create", "--topic", "a")
        broker = kafka.another(tmp_path / "second", 5)
        broker.format()
        with observed(kafka, broker.log_dir) as observing:
            eventually(has_topics(observing, "a"))
            observing.observer.snapshot()
        with broker:
            kafka.tool("topics", "--create", "--topic", "b", "--replica-assignment", "5")
            eventually((broker.log_dir / "b-0").is_dir)
            broker.stop()
        with observed(kafka, broker.log_dir) as observing:
            eventually(has_topics(observing, "a", "b"))
