"""Roles that a disk refuses, or that a node cannot hear of any more."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from faultyfiles import FaultyFiles
from joined_broker import JoinedBroker
from patience import PATIENCE_S, eventually
from running_broker import NOW_MS
from scripted_controller import ScriptedController

from horolog.broker.cluster import membership, node
from horolog.clock import ManualClock
from horolog.errors import StorageFailed
from horolog.schemas.metadata import PartitionRecord, RemoveTopic, TopicRecord
from horolog.storage import names
from horolog.wire import ApiKey


@pytest.fixture
def quorum() -> Iterator[ScriptedController]:
    with ScriptedController() as quorum:
        yield quorum


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyFiles:
    """The way of all logs to the disk."""
    files = FaultyFiles(None, for_ops=1 << 60)
    monkeypatch.setattr(node, "Files", lambda max_open: files)
    return files


@pytest.fixture
def broker(quorum: ScriptedController, disk: FaultyFiles, tmp_path: Path) -> Iterator[JoinedBroker]:
    with JoinedBroker(tmp_path / "1", quorum, clock=ManualClock(NOW_MS)) as broker:
        yield broker


def placed(quorum: ScriptedController, topic: str = "t", index: int = 0) -> PartitionRecord:
    found: PartitionRecord = quorum.image.topics[topic].partitions[index]
    return found


def elect(quorum: ScriptedController, leader: int, topic: str = "t") -> None:
    """Let a broker lead in the next epoch."""
    known = placed(quorum, topic)
    changed = known._replace(
        leader=leader,
        leader_epoch=known.leader_epoch + 1,
        partition_epoch=known.partition_epoch + 1,
    )
    quorum.append(changed)


def leads(broker: JoinedBroker, topic: str = "t") -> bool:
    def look() -> bool:
        partition = broker.broker.partitions.find(topic, 0)
        return partition is not None and not partition.log.is_following

    found: bool = broker.call(look)
    return found


def applied(broker: JoinedBroker, quorum: ScriptedController) -> None:
    end = quorum.log.end
    assert eventually(lambda: broker.node.view.offset >= end)


@contextmanager
def held_up(broker: JoinedBroker) -> Iterator[None]:
    """Let what changes the log of t-0 wait meanwhile."""
    goes_on, partition = threading.Event(), broker.broker.partitions["t", 0]
    broker.call(lambda: partition.change(lambda log: goes_on.wait(PATIENCE_S)) and None)
    try:
        yield
    finally:
        goes_on.set()


def test_a_topic_that_was_made_again_elsewhere_and_deleted_leaves_no_log(
    quorum: ScriptedController, broker: JoinedBroker, tmp_path: Path
) -> None:
    topic_id = quorum.create_topic("t", [[1]])
    assert eventually(lambda: leads(broker))
    with held_up(broker):
        elect(quorum, 1)  # waits behind that, and what follows waits behind it
        applied(broker, quorum)
        there = placed(quorum)._replace(
            topic_id=UUID(int=77), replicas=(9,), isr=(9,), leader=9, directories=()
        )
        quorum.append(RemoveTopic(topic_id))
        quorum.append(TopicRecord("t", there.topic_id), there)
        applied(broker, quorum)
        quorum.append(RemoveTopic(there.topic_id))
        applied(broker, quorum)
    assert eventually(lambda: broker.call(lambda: broker.broker.partitions.find("t", 0)) is None)
    assert eventually(lambda: not (tmp_path / "1" / "t-0").exists())


def creates(quorum: ScriptedController, broker: JoinedBroker) -> None:
    quorum.create_topic("new", [[1]])


def begins_to_lead(quorum: ScriptedController, broker: JoinedBroker) -> None:
    elect(quorum, 1)


def appends(quorum: ScriptedController, broker: JoinedBroker) -> None:
    assert broker.produce("t", batch(NOW_MS)).error_code


def deletes(quorum: ScriptedController, broker: JoinedBroker) -> None:
    quorum.append(RemoveTopic(quorum.image.topics["t"].topic_id))


@pytest.mark.parametrize("happens", [creates, begins_to_lead, appends, deletes])
def test_a_full_disk_is_reported_and_stops_the_node(
    quorum: ScriptedController,
    broker: JoinedBroker,
    disk: FaultyFiles,
    happens: Callable[[ScriptedController, JoinedBroker], None],
) -> None:
    quorum.create_topic("t", [[1]])
    assert eventually(lambda: leads(broker))
    disk.fail_after(0, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    happens(quorum, broker)
    assert eventually(broker.node.failed.done)
    assert isinstance(broker.node.failed.result(), StorageFailed)
    broker.stop()
    assert quorum.asked(ApiKey.BROKER_HEARTBEAT)[-1].offline_log_dirs


def test_a_flush_that_failed_before_the_start_is_done_again(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    path = tmp_path / "1"
    with JoinedBroker(path, quorum) as broker:
        quorum.create_topic("t", [[1]])
        assert eventually(lambda: leads(broker))
        broker.produce("t", batch(NOW_MS))
    quorum.expire(1)
    (path / "t-0" / names.SYNC_FAILED).write_bytes(b"")
    with JoinedBroker(path, quorum) as broker:
        assert eventually(lambda: leads(broker))
        assert not broker.produce("t", batch(NOW_MS)).error_code
        assert not broker.node.failed.done()
        assert not (path / "t-0" / names.SYNC_FAILED).exists()


def test_a_node_that_cannot_apply_metadata_does_not_wait_for_consent_for_long(
    quorum: ScriptedController, broker: JoinedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not hear who leads any more: others have to, whoever of them is behind."""
    monkeypatch.setattr(membership, "REPORT_S", 0.2)
    never: dict[str, Any] = {"should_shut_down": False}
    quorum.answers[ApiKey.BROKER_HEARTBEAT] = lambda request, usual: {**usual(), **never}
    quorum.append_values(b"\x01\x7f\x00")
    assert eventually(broker.node.failed.done)
    stopping = threading.Thread(target=broker.stop)
    stopping.start()
    stopping.join(PATIENCE_S / 2)
    assert not stopping.is_alive()
    assert quorum.asked(ApiKey.BROKER_HEARTBEAT)[-1].want_shut_down


def test_a_bug_in_what_watches_the_replicas_stops_the_node(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    """It would lead on, and neither commit nor give up what a lost replica lacks."""

    async def broken() -> None:
        raise AssertionError("a bug")

    broker.call(lambda: setattr(broker.node.leaders, "look", broken))
    quorum.fence(1)  # brokers have changed: it looks at once
    assert eventually(broker.node.failed.done)
    assert "a bug" in str(broker.node.failed.result())
