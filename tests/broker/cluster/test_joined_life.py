"""What a broker of a cluster bears and says in its life: slow recovery, clocks, ports, rights."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from controller_asker import ControllerAsker
from joined_broker import JoinedBroker, format_directory
from patience import PATIENCE_S, eventually
from running_broker import NOW_MS
from scripted_controller import ScriptedController

from horolog.broker.cluster import membership
from horolog.clock import ManualClock
from horolog.errors import ErrorCode, Misconfigured
from horolog.storage import LogDir
from horolog.wire import ApiKey

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
DAY_MS = 86_400_000
ALL = -1
OPEN = {"horolog.cluster.cordoned": "false"}


@pytest.fixture
def quorum() -> Iterator[ScriptedController]:
    with ScriptedController() as controllers:
        yield controllers


def register_another(quorum: ScriptedController) -> None:
    """Register broker 2, which does not start: its replicas are those of a test."""
    with ControllerAsker(quorum.bootstrap, quorum.cluster_id) as other:
        assert not other.register(2).error_code


def beats(quorum: ScriptedController) -> int:
    return len(quorum.asked(ApiKey.BROKER_HEARTBEAT))


def test_heartbeats_go_on_while_logs_are_recovered(
    quorum: ScriptedController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over, opened = threading.Event(), LogDir.open

    def recover_slowly(*arguments: Any, **named: Any) -> LogDir:
        assert is_over.wait(PATIENCE_S)
        return opened(*arguments, **named)

    monkeypatch.setattr(LogDir, "open", recover_slowly)
    started: list[JoinedBroker] = []
    start = threading.Thread(target=lambda: started.append(JoinedBroker(tmp_path / "1", quorum)))
    start.start()
    try:
        assert eventually(lambda: beats(quorum) > 0)
        before = beats(quorum)
        assert eventually(lambda: beats(quorum) > before + 5)
        assert started == []
        assert quorum.image.brokers[1].fenced
        assert quorum.asked(ApiKey.BROKER_HEARTBEAT)[-1].want_fence
    finally:
        is_over.set()
        start.join()
    assert not quorum.image.brokers[1].fenced
    started[0].stop()


def test_why_it_is_not_ready_is_logged_until_it_is(
    quorum: ScriptedController,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert membership.LOGGED_EVERY_S == 30
    monkeypatch.setattr(membership, "LOGGED_EVERY_S", 0.05)
    caplog.set_level(logging.INFO)
    quorum.kept_fenced.add(1)
    started: list[JoinedBroker] = []
    start = threading.Thread(target=lambda: started.append(JoinedBroker(tmp_path / "1", quorum)))
    start.start()
    said = "not ready: the controllers keep this broker fenced"
    assert eventually(lambda: caplog.text.count(said) > 2)
    assert started == []
    quorum.kept_fenced.clear()
    start.join()
    started[0].stop()


def test_a_listener_may_be_advertised_at_another_address(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    elsewhere = {"advertised.listeners": "PLAINTEXT://broker-1.example:19092", **OPEN}
    register_another(quorum)
    with JoinedBroker(tmp_path / "1", quorum, settings=elsewhere) as broker:
        (endpoint,) = quorum.image.brokers[1].endpoints
        assert (endpoint.host, endpoint.port) == ("broker-1.example", 19_092)
        assert broker.port != 19_092
        (node,) = broker.ask(ApiKey.METADATA, 12, topics=[]).brokers
        assert (node.host, node.port) == ("broker-1.example", 19_092)
        # A replica that comes through that address is one on the listener for brokers.
        topic_id = quorum.create_topic("t", [[1, 2]])
        assert eventually(lambda: broker.produce("t", batch(NOW_MS)).error_code == 0)
        state = {"replica_id": 2, "replica_epoch": -1}
        answer = broker.fetch(topic_id, version=17, replica_state=state)
        assert (answer.error_code, bool(answer.records)) == (0, True)


def test_an_operator_changes_the_cordon_by_a_restart(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    with JoinedBroker(tmp_path / "1", quorum) as broker:
        its = broker.node.directory_id
        assert quorum.image.brokers[1].cordoned in (None, ())
    for asked, cordoned in (("true", [its]), ("auto", [])):
        quorum.expire(1)
        settings = {"horolog.cluster.cordoned": asked}
        with JoinedBroker(tmp_path / "1", quorum, settings=settings):
            assert list(quorum.image.brokers[1].cordoned or ()) == cordoned


def test_a_stepped_wall_clock_fences_nobody_and_empties_no_isr(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    clock = ManualClock.following()
    with (
        JoinedBroker(tmp_path / "1", quorum, 1, clock=clock) as leader,
        JoinedBroker(tmp_path / "2", quorum, 2, clock=clock),
    ):
        quorum.create_topic("t", [[1, 2]])
        for step_ms in (0, DAY_MS, -3 * DAY_MS):
            clock.step(step_ms)
            before = beats(quorum)
            assert eventually(lambda: leader.produce("t", batch(NOW_MS), acks=ALL).error_code == 0)
            assert eventually(lambda before=before: beats(quorum) > before + 4)
            assert sorted(quorum.image.topics["t"].partitions[0].isr) == [1, 2]
            assert not any(it.fenced for it in quorum.image.brokers.values())
        assert leader.count("t") == 3


def test_a_replica_needs_the_right_to_act_as_a_broker(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    closed = {"authorizer.class.name": AUTHORIZER, "super.users": "User:horolog", **OPEN}
    register_another(quorum)
    state = {"replica_id": 2, "replica_epoch": -1}
    with JoinedBroker(tmp_path / "1", quorum, settings=closed) as broker:
        topic_id = quorum.create_topic("t", [[1, 2]])

        def answered() -> int:
            return int(broker.fetch(topic_id, version=17, replica_state=state).error_code)

        assert eventually(lambda: len(broker.broker.replicas) == 1)
        assert answered() == ErrorCode.topic_authorization_failed
        ((_, leading),) = broker.broker.replicas
        assert leading.replicas[2].end == -1, "it is no progress"


def test_a_reserved_directory_id_is_refused_and_other_listeners_are_named(
    quorum: ScriptedController, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    format_directory(tmp_path / "1", quorum.cluster_id, directory_id=UUID(int=5))
    with pytest.raises(Misconfigured, match="is Kafka's"):
        JoinedBroker(tmp_path / "1", quorum)
    assert quorum.asked(ApiKey.BROKER_REGISTRATION) == []
    two = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in ("OTHER", "PLAINTEXT", "CONTROLLER")
        ),
    }
    with ControllerAsker(quorum.bootstrap, quorum.cluster_id) as others:
        others.join(3)
    with JoinedBroker(tmp_path / "2", quorum, 2, two):
        assert "no other broker has a listener OTHER" in caplog.text
