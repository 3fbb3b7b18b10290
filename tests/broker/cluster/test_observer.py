"""The observer of the controllers' metadata log, over sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from observing import METADATA_ID, Observing, state_of
from patience import PATIENCE_S, eventually
from scripted_broker import HangUp, Raw
from scripted_controller import ScriptedController

from horolog.broker.cluster.controllers import ControllerLink, KnownController
from horolog.client.config import Address
from horolog.client.security import Security
from horolog.errors import HorologError
from horolog.history import AskTopicHistory, TopicAspect
from horolog.metadata import BROKER, TOPIC, MetadataUnreadable, read_topic_history
from horolog.metadata.image_changes import Changes
from horolog.schemas import metadata as m
from horolog.schemas.metadata import encode
from horolog.wire import ApiKey


@pytest.fixture
def quorum() -> Iterator[ScriptedController]:
    with ScriptedController(voters=[100, 101]) as controllers:
        yield controllers


class Running:
    """An observer on its thread."""

    def __init__(
        self, path: Path, quorum: ScriptedController, cluster_id: str | None = None
    ) -> None:
        cluster_id = cluster_id or quorum.cluster_id
        servers = [Address(*_split(server)) for server in quorum.bootstrap.split(",")]
        known = KnownController(servers, quorum.cluster_id)
        self.link = ControllerLink(known, Security(), client_id="broker-5-observer")
        self.observing = Observing(path, self.link, cluster_id=cluster_id)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.observing.observer.run()
        except HorologError as error:
            self.error = error

    def has(self, quorum: ScriptedController) -> bool:
        """Whether all that is committed is published."""
        return self.observing.offset == quorum.log.high_watermark

    def close(self) -> None:
        self.observing.observer.stop()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        self.link.close()


def _split(server: str) -> tuple[str, int]:
    host, _, port = server.partition(":")
    return host, int(port)


@pytest.fixture
def observe(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(quorum: ScriptedController, cluster_id: str | None = None) -> Running:
        for before in running:
            before.close()
        running.append(Running(tmp_path, quorum, cluster_id))
        return running[-1]

    yield start
    for one in running:
        one.close()


Observe = Callable[..., Running]


def create(quorum: ScriptedController, name: str, partitions: int = 1) -> UUID:
    """Make a topic, whether its broker is registered or not."""
    topic_id = uuid4()
    quorum.append(
        m.TopicRecord(name, topic_id),
        *(
            m.PartitionRecord(index, topic_id, (5,), (5,), (), (), 5, 0, 0, 0)
            for index in range(partitions)
        ),
    )
    return topic_id


def test_what_controllers_commit_is_published(quorum: ScriptedController, observe: Observe) -> None:
    create(quorum, "a")
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    create(quorum, "b")
    quorum.append(m.Config(BROKER, "", "x", "1"))
    eventually(lambda: running.has(quorum))
    assert running.observing.state == state_of(quorum.image)
    assert eventually(lambda: quorum.observers == {5: quorum.log.end})


def test_uncommitted_records_wait_for_the_high_watermark(
    quorum: ScriptedController, observe: Observe
) -> None:
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    quorum.hold()
    create(quorum, "a")
    eventually(lambda: quorum.observers[5] == quorum.log.end)
    assert "a" not in running.observing.image.topics
    quorum.release()
    eventually(lambda: "a" in running.observing.image.topics)


def test_records_that_a_new_leader_lacks_are_dropped(
    quorum: ScriptedController, observe: Observe
) -> None:
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    quorum.hold()
    create(quorum, "lost")
    eventually(lambda: quorum.observers[5] == quorum.log.end)
    quorum.lead(101, lose_tail=True)
    create(quorum, "kept")
    quorum.release()
    eventually(lambda: running.has(quorum))
    assert [*running.observing.image.topics] == ["kept"]


def test_a_snapshot_replaces_what_was_missed(quorum: ScriptedController, observe: Observe) -> None:
    gone = create(quorum, "gone")
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    running.close()
    quorum.append(m.RemoveTopic(gone))
    create(quorum, "new", 50)
    quorum.snapshot()
    create(quorum, "later")
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    assert running.observing.state == state_of(quorum.image)
    assert quorum.asked(ApiKey.FETCH_SNAPSHOT)


def test_a_restart_continues_behind_what_is_on_disk(
    quorum: ScriptedController, observe: Observe
) -> None:
    create(quorum, "a")
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    running.close()
    before = len(quorum.asked(ApiKey.FETCH))
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    asked = quorum.asked(ApiKey.FETCH)[before:]
    ends = {it.topics[0].partitions[0].fetch_offset for it in asked}
    assert ends == {quorum.log.end}
    assert running.observing.state == state_of(quorum.image)


def test_a_killed_controller_and_an_election_are_borne(
    quorum: ScriptedController, observe: Observe
) -> None:
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    quorum.lead(101)
    quorum.stop(100)
    create(quorum, "a")
    eventually(lambda: running.has(quorum))
    quorum.start(100)
    quorum.lead(100)
    create(quorum, "b")
    eventually(lambda: running.has(quorum))
    assert [*running.observing.image.topics] == ["a", "b"]
    assert running.error is None


@pytest.mark.parametrize(
    "values",
    [[b"\1\x63\0later"], [encode(m.RemoveTopic(UUID(int=9)))], [b"\1\2\x09"]],
    ids=["unknown type", "unknown topic", "unknown version"],
)
def test_a_record_that_cannot_be_applied_ends_the_thread(
    quorum: ScriptedController, observe: Observe, values: list[bytes]
) -> None:
    create(quorum, "a")
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    quorum.append_values(*values)
    running.thread.join(PATIENCE_S)
    assert isinstance(running.error, MetadataUnreadable)
    assert [*running.observing.image.topics] == ["a"]


def lying(partition: Mapping[str, Any], **top: Any) -> Mapping[str, Any]:
    """An answer to Fetch with this partition."""
    about = {
        "partition_index": 0,
        "high_watermark": 1 << 40,
        "log_start_offset": 0,
        "records": b"",
        "current_leader": {"leader_id": 100, "leader_epoch": 0},
        **partition,
    }
    topic = {"topic_id": METADATA_ID, "partitions": [about]}
    return {"error_code": 0, "responses": [topic], "node_endpoints": (), **top}


@pytest.mark.parametrize(
    "lie",
    [
        lying({"records": b"\0" * 61}),
        lying({"records": b"\xff" * 200}),
        lying({"diverging_epoch": {"epoch": 0, "end_offset": 0}}),
        lying({"diverging_epoch": {"epoch": 7, "end_offset": 1 << 50}}),
        lying({"snapshot_id": {"end_offset": 0, "epoch": 0}}),
        lying({"snapshot_id": {"end_offset": 1 << 50, "epoch": 3}}),
        lying({"partition_index": 3}),
        lying({"error_code": 1}),
        lying({"error_code": 999}),
        lying({"error_code": 75, "current_leader": {"leader_id": -1, "leader_epoch": -1}}),
        lying({"error_code": 6, "current_leader": {"leader_id": 101, "leader_epoch": 1 << 30}}),
        lying({}, error_code=104),
        lying({}, responses=()),
        HangUp(),
        Raw(b"\0\0\0\x04\xff\xff\xff\xff"),
    ],
    ids=[
        "zeros", "garbage", "diverges at 0", "diverges nowhere", "old snapshot", "no snapshot",
        "another partition", "out of range", "unknown error", "no leader", "epoch too high",
        "other cluster", "empty", "hangs up", "frame",
    ],
)  # fmt: skip
def test_answers_that_cannot_be_change_nothing(
    quorum: ScriptedController, observe: Observe, lie: Any
) -> None:
    create(quorum, "a")
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    lies = 0

    def answer(_: Any, usual: Callable[[], Mapping[str, Any]]) -> Any:
        nonlocal lies
        lies += 1
        return lie if lies < 4 else usual()

    quorum.answers[ApiKey.FETCH] = answer
    quorum.tick()
    eventually(lambda: lies > 4)
    create(quorum, "b")
    eventually(lambda: running.has(quorum))
    assert running.observing.state == state_of(quorum.image)
    assert running.error is None


@pytest.mark.parametrize("change", [
    {"unaligned_records": b""},
    {"unaligned_records": b"\0" * 100, "position": 0, "size": 100},
    {"position": 7},
    {"size": -1},
    {"snapshot_id": {"end_offset": 3, "epoch": 3}},
    {"error_code": -1},
])  # fmt: skip
def test_a_snapshot_that_cannot_be_is_fetched_again(
    quorum: ScriptedController, observe: Observe, change: Mapping[str, Any]
) -> None:
    create(quorum, "a")
    quorum.snapshot()
    lies = 0

    def answer(_: Any, usual: Callable[[], Mapping[str, Any]]) -> Any:
        nonlocal lies
        lies += 1
        body = usual()
        if lies > 2:
            return body
        topic = body["topics"][0]
        part = {**topic["partitions"][0], **change}
        return {**body, "topics": [{**topic, "partitions": [part]}]}

    quorum.answers[ApiKey.FETCH_SNAPSHOT] = answer
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    assert lies > 2
    assert running.observing.state == state_of(quorum.image)
    directory = Path(running.observing.log.directory)
    assert not list(directory.glob("*.part"))


def test_the_history_of_topics_is_read_from_the_copy(
    quorum: ScriptedController, observe: Observe, tmp_path: Path
) -> None:
    gone = create(quorum, "gone")
    quorum.snapshot()
    create(quorum, "a")
    quorum.append(m.Config(TOPIC, "a", "retention.ms", "5"), m.RemoveTopic(gone))
    running = observe(quorum)
    eventually(lambda: running.has(quorum))
    running.close()
    history = read_topic_history(tmp_path, AskTopicHistory("a"))
    said = [(entry.aspect, entry.name, entry.after) for entry in history.changes]
    assert (TopicAspect.SETTING, "retention.ms", "5") in said
    assert not any(log.damage for log in history.logs)
    [entry, *_] = reversed(read_topic_history(tmp_path, AskTopicHistory("gone")).changes)
    assert entry.aspect is TopicAspect.DELETED


def test_another_cluster_is_never_applied(quorum: ScriptedController, observe: Observe) -> None:
    create(quorum, "a")
    running = observe(quorum, cluster_id="another")
    eventually(lambda: "inconsistent" in str(running.observing.observer.complaint).lower())
    assert not running.observing.changes


def test_changes_collect_while_they_are_not_taken(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    with ScriptedController() as other:
        held, taken = threading.Event(), threading.Event()

        def take(_: Changes) -> None:
            taken.set()
            held.wait(PATIENCE_S)

        known = KnownController([Address(*_split(other.bootstrap))], other.cluster_id)
        link = ControllerLink(known, Security(), client_id="x")
        observing = Observing(tmp_path, link, cluster_id=other.cluster_id, taken=take)
        thread = threading.Thread(target=observing.observer.run)
        thread.start()
        taken.wait(PATIENCE_S)
        first = create(other, "a")
        other.append(m.RemoveTopic(first))
        create(other, "a")
        held.set()
        eventually(lambda: observing.offset == other.log.high_watermark)
        observing.observer.stop()
        thread.join(PATIENCE_S)
        link.close()
        assert observing.state == state_of(other.image)
