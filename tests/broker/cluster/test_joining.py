"""A broker joins a cluster, is fenced and comes back, and leaves it."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from batches import batch
from controller_asker import ControllerAsker
from joined_broker import JoinedBroker, format_directory, settings_of
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection
from running_broker import NOW_MS, RunningBroker
from scripted_controller import ScriptedController

from horolog.broker.cluster.lifecycle import BrokerState
from horolog.client import Client
from horolog.errors import HorologError, Misconfigured
from horolog.schemas.metadata import FeatureLevel
from horolog.wire import ApiKey

STALE_BROKER_EPOCH, DUPLICATE, UNSUPPORTED, INCONSISTENT = 77, 101, 35, 104
INVALID_REGISTRATION, NOT_LEADER = 119, 6


STALE = {
    "error_code": STALE_BROKER_EPOCH,
    "is_caught_up": False,
    "is_fenced": True,
    "should_shut_down": False,
}

TAKEN = {"error_code": DUPLICATE, "broker_epoch": -1}


@pytest.fixture
def quorum() -> Iterator[ScriptedController]:
    with ScriptedController() as controllers:
        yield controllers


@pytest.fixture
def broker(quorum: ScriptedController, tmp_path: Path) -> Iterator[JoinedBroker]:
    with JoinedBroker(tmp_path / "1", quorum) as joined:
        yield joined


def epoch_in_marker(log_dir: Path) -> int:
    found = json.loads((log_dir / ".kafka_cleanshutdown").read_text())
    assert found["version"] == 0
    return int(found["brokerEpoch"])


# --- start ----------------------------------------------------------------------------


def test_a_broker_registers_with_its_port_and_is_unfenced(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    here = quorum.image.brokers[1]
    assert not here.fenced
    assert [(it.name, it.host, it.port) for it in here.endpoints] == [
        ("PLAINTEXT", "127.0.0.1", broker.port)
    ]
    assert broker.node.life.state is BrokerState.RUNNING
    assert here.broker_epoch == broker.node.life.broker_epoch
    (first, *_) = quorum.asked(ApiKey.BROKER_REGISTRATION)
    assert (first.previous_broker_epoch, len(first.log_dirs)) == (-1, 1)


def test_the_offset_of_heartbeats_is_never_ahead_of_what_is_applied(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    ends = [beat.current_metadata_offset for beat in quorum.asked(ApiKey.BROKER_HEARTBEAT)]
    assert ends == sorted(ends)
    quorum.tick()
    last = quorum.log.end - 1
    assert eventually(
        lambda: quorum.asked(ApiKey.BROKER_HEARTBEAT)[-1].current_metadata_offset == last
    )


def test_metadata_that_are_fetched_and_not_applied_are_in_no_heartbeat(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    """KAFKA-13836: the controllers would take the broker for caught up."""
    view, begun, goes_on = broker.node.view, threading.Event(), threading.Event()

    def hold(changes: object) -> None:
        begun.set()
        goes_on.wait(PATIENCE_S)

    before = quorum.log.end
    assert eventually(lambda: view.offset >= before)
    broker.call(lambda: view.on_changes.append(hold))
    try:
        quorum.create_topic("t", [[1]])
        assert eventually(begun.is_set)
        sent = len(quorum.asked(ApiKey.BROKER_HEARTBEAT))
        assert eventually(lambda: len(quorum.asked(ApiKey.BROKER_HEARTBEAT)) > sent + 3)
        beats = quorum.asked(ApiKey.BROKER_HEARTBEAT)
        assert max(beat.current_metadata_offset for beat in beats) < before
    finally:
        goes_on.set()
    end = quorum.log.end
    assert eventually(
        lambda: quorum.asked(ApiKey.BROKER_HEARTBEAT)[-1].current_metadata_offset == end - 1
    )


def test_a_port_that_has_changed_at_a_restart_is_registered(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    with JoinedBroker(tmp_path / "1", quorum) as broker:
        before = quorum.image.brokers[1]
    quorum.expire(1)
    with JoinedBroker(tmp_path / "1", quorum) as broker:
        after = quorum.image.brokers[1]
        assert after.broker_epoch > before.broker_epoch
        assert after.incarnation_id != before.incarnation_id
        assert [it.port for it in after.endpoints] == [broker.port]


def test_the_first_broker_of_kafka_cordons_the_directory_before_the_next_heartbeat_is_due(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    later = {"broker.heartbeat.interval.ms": "3600000"}
    with JoinedBroker(tmp_path / "1", quorum, settings=later):
        assert not quorum.image.brokers[1].cordoned
        with ControllerAsker(quorum.bootstrap, quorum.cluster_id) as kafka:
            assert not kafka.register(2).error_code  # without `horolog.replication`
        assert eventually(lambda: quorum.image.brokers[1].cordoned)
        assert quorum.image.brokers[2].fenced, "its clients find this broker cordoned"


def test_a_broker_that_joins_is_cordoned_before_it_is_unfenced(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    with ControllerAsker(quorum.bootstrap, quorum.cluster_id) as kafka:
        kafka.join(2)
    quorum.kept_fenced.add(1)
    started: list[JoinedBroker] = []
    start = starting(tmp_path / "1", quorum, started)
    assert eventually(lambda: 1 in quorum.image.brokers and quorum.image.brokers[1].cordoned)
    quorum.kept_fenced.clear()
    start.join()
    its = [started[0].node.directory_id]
    beats = quorum.asked(ApiKey.BROKER_HEARTBEAT)
    assert all(list(it.cordoned_log_dirs) == its for it in beats if it.broker_id == 1)
    started[0].stop()


def starting(
    path: Path, quorum: ScriptedController, started: list[JoinedBroker]
) -> threading.Thread:
    """Start a broker that is not ready before the test lets it."""
    thread = threading.Thread(target=lambda: started.append(JoinedBroker(path, quorum)))
    thread.start()
    return thread


def test_until_it_is_unfenced_only_apiversions_is_answered(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    quorum.kept_fenced.add(1)
    started: list[JoinedBroker] = []
    start = starting(tmp_path / "1", quorum, started)
    assert eventually(lambda: 1 in quorum.image.brokers)
    (endpoint,) = quorum.image.brokers[1].endpoints
    address = f"{endpoint.host}:{endpoint.port}"
    with RawConnection(address) as raw:
        assert raw.ask(ApiKey.API_VERSIONS, 4).error_code == 0
        raw.send(ApiKey.METADATA, 12, topics=[])
        raw.send(ApiKey.API_VERSIONS, 4)
        assert raw.is_silent(0.2)
        assert started == []
        quorum.kept_fenced.clear()
        assert [node.node_id for node in raw.receive()[1].brokers] == [1]
        assert raw.receive()[1].error_code == 0
    start.join()
    started[0].stop()


def test_a_request_that_waits_is_dropped_when_the_start_fails(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    quorum.kept_fenced.add(1)
    quorum.answers[ApiKey.BROKER_REGISTRATION] = lambda request, usual: TAKEN
    settings = {"initial.broker.registration.timeout.ms": "1"}
    with pytest.raises(HorologError, match="registered by another process"):
        JoinedBroker(tmp_path / "1", quorum, settings=settings)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (UNSUPPORTED, "finalised are .*metadata.version=33.*kafka-features"),
        (INCONSISTENT, "the controllers are not of cluster"),
        (INVALID_REGISTRATION, "its directory id"),
    ],
)
def test_a_refusal_that_stays_fails_the_start_at_once(
    quorum: ScriptedController, tmp_path: Path, code: int, why: str
) -> None:
    quorum.answers[ApiKey.BROKER_REGISTRATION] = lambda request, usual: {
        "error_code": code,
        "broker_epoch": -1,
    }
    with pytest.raises(Misconfigured, match=why):
        JoinedBroker(tmp_path / "1", quorum)
    assert len(quorum.asked(ApiKey.BROKER_REGISTRATION)) == 1


def test_a_feature_that_is_not_claimed_is_named_before_registering(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    quorum.append(FeatureLevel("share.version", 3))
    with pytest.raises(Misconfigured, match=r"downgrade --feature share\.version=2"):
        JoinedBroker(tmp_path / "1", quorum)
    assert quorum.asked(ApiKey.BROKER_REGISTRATION) == []


def test_the_id_of_a_controller_and_another_listener_name_are_refused(
    quorum: ScriptedController, broker: JoinedBroker, tmp_path: Path
) -> None:
    with pytest.raises(Misconfigured, match=r"node\.id=100 is that of a controller"):
        JoinedBroker(tmp_path / "100", quorum, 100)
    other = {
        "listeners": "OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OTHER",
    }
    with pytest.raises(Misconfigured, match="theirs are PLAINTEXT"):
        JoinedBroker(tmp_path / "2", quorum, 2, other)
    format_directory(tmp_path / "3", quorum.cluster_id, 3, directory_id=broker.node.directory_id)
    with pytest.raises(Misconfigured, match="is that of broker 1: a copied directory"):
        JoinedBroker(tmp_path / "3", quorum, 3)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (None, "is not formatted: `horolog storage format"),
        ("version=1\ncluster.id=x\nnode.id=2\n", "node.id=1, and .* has node.id=2"),
        ("version=1\ncluster.id=x\nnode.id=1\nhorolog.metadata=own\n", "a horolog that is alone"),
        ("version=0\ncluster.id=x\nbroker.id=1\n", "has no cluster.id of version 1"),
    ],
)
def test_a_directory_that_is_not_this_broker_s_is_left_as_it_is(
    quorum: ScriptedController, tmp_path: Path, lines: str | None, why: str
) -> None:
    log_dir = tmp_path / "1"
    log_dir.mkdir()
    if lines is not None:
        (log_dir / "meta.properties").write_text(lines)
    with pytest.raises(Misconfigured, match=why):
        RunningBroker(log_dir, settings_of(quorum))
    assert [path.name for path in log_dir.iterdir()] == ["meta.properties"] * (lines is not None)


def test_a_directory_of_another_cluster_does_not_join(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    format_directory(tmp_path / "1", "another")
    settings = settings_of(quorum) | {"initial.broker.registration.timeout.ms": "1"}
    with pytest.raises(HorologError, match=f"is of cluster {quorum.cluster_id}, not of another"):
        RunningBroker(tmp_path / "1", settings)


# --- fenced, and back -----------------------------------------------------------------


def test_a_fenced_broker_keeps_its_epoch(quorum: ScriptedController, broker: JoinedBroker) -> None:
    epoch = quorum.image.brokers[1].broker_epoch
    quorum.kept_fenced.add(1)
    quorum.fence(1)
    life = broker.node.life
    assert eventually(lambda: life.is_fenced)
    assert broker.node.status() == "the controllers keep this broker fenced"
    quorum.kept_fenced.clear()
    assert eventually(lambda: not life.is_fenced)
    assert quorum.image.brokers[1].broker_epoch == epoch


def test_a_broker_that_is_not_known_any_more_registers_anew(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    epoch = quorum.image.brokers[1].broker_epoch
    first = quorum.asked(ApiKey.BROKER_REGISTRATION)[0]
    with Client(broker.address) as client:
        assert client.metadata([]).controller_id == 1
    quorum.answers[ApiKey.BROKER_HEARTBEAT] = stale_once(quorum)
    quorum.expire(1)
    life = broker.node.life
    assert eventually(lambda: life.broker_epoch > epoch and not life.is_fenced)
    again = quorum.asked(ApiKey.BROKER_REGISTRATION)[-1]
    assert (again.previous_broker_epoch, again.incarnation_id != first.incarnation_id) == (
        epoch,
        True,
    )
    assert eventually(lambda: not quorum.image.brokers[1].fenced)


def test_a_registration_that_was_removed_is_made_anew_and_nothing_is_lost(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    """A broker of Apache Kafka stays away until it is started again."""
    quorum.create_topic("t", [[1]])
    assert eventually(lambda: broker.produce("t", batch(NOW_MS)).error_code == 0)
    epoch = quorum.image.brokers[1].broker_epoch
    with ControllerAsker(quorum.bootstrap, quorum.cluster_id) as operator:
        assert operator.ask(ApiKey.UNREGISTER_BROKER, broker_id=1).error_code == 0
    assert eventually(lambda: 1 in quorum.image.brokers and not quorum.image.brokers[1].fenced)
    assert quorum.image.brokers[1].broker_epoch > epoch
    assert eventually(lambda: broker.produce("t", batch(NOW_MS)).error_code == 0)
    assert broker.count("t") == 2


def test_another_process_under_this_id_is_the_one_that_leads(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    quorum.create_topic("t", [[1]])
    assert eventually(lambda: broker.produce("t", batch(NOW_MS)).error_code == 0)
    leader_epoch = quorum.image.topics["t"].partitions[0].leader_epoch
    epoch = quorum.image.brokers[1].broker_epoch
    quorum.answers[ApiKey.BROKER_HEARTBEAT] = lambda request, usual: (
        STALE if request.broker_epoch == epoch else usual()
    )
    quorum.answers[ApiKey.BROKER_REGISTRATION] = lambda request, usual: (
        usual() if request.listeners[0].port == 19_001 else TAKEN
    )
    quorum.expire(1)
    with ControllerAsker(quorum.bootstrap, quorum.cluster_id) as other:
        assert not other.register(1, log_dirs=[broker.node.directory_id]).error_code
        assert not other.heartbeat(1).is_fenced
        end = quorum.log.end
        assert quorum.image.topics["t"].partitions[0].leader_epoch > leader_epoch
        assert eventually(lambda: broker.node.view.offset >= end)
        assert broker.produce("t", batch(NOW_MS)).error_code == NOT_LEADER
        assert eventually(lambda: "registered by another process" in broker.node.status())
    del quorum.answers[ApiKey.BROKER_REGISTRATION]
    quorum.expire(1)
    assert eventually(lambda: broker.produce("t", batch(NOW_MS)).error_code == 0)


def stale_once(quorum: ScriptedController) -> Callable[[Any, Any], Mapping[str, Any]]:
    def stale(_: Any, usual: Any) -> Mapping[str, Any]:
        del quorum.answers[ApiKey.BROKER_HEARTBEAT]
        return STALE

    return stale


def test_another_active_controller_is_found(tmp_path: Path) -> None:
    with (
        ScriptedController(voters=[100, 101]) as quorum,
        JoinedBroker(tmp_path / "1", quorum) as broker,
    ):
        beats = len(quorum.asked(ApiKey.BROKER_HEARTBEAT))
        quorum.lead(101)
        quorum.stop(100)
        assert eventually(lambda: len(quorum.asked(ApiKey.BROKER_HEARTBEAT)) > beats + 2)
        quorum.tick()
        end = quorum.log.end
        assert eventually(lambda: broker.node.view.offset >= end)


def test_a_record_that_cannot_be_applied_stops_the_node(
    quorum: ScriptedController, broker: JoinedBroker
) -> None:
    quorum.append_values(b"\x01\x7f\x00")
    assert eventually(broker.node.failed.done)
    assert "metadata" in str(broker.node.failed.result())


# --- stop -----------------------------------------------------------------------------


def test_a_clean_stop_is_granted_and_its_epoch_is_told_at_the_next_start(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    log_dir = tmp_path / "1"
    with JoinedBroker(log_dir, quorum):
        epoch = quorum.image.brokers[1].broker_epoch
    assert quorum.asked(ApiKey.BROKER_HEARTBEAT)[-1].want_shut_down
    assert epoch_in_marker(log_dir) == epoch
    quorum.expire(1)
    with JoinedBroker(log_dir, quorum) as broker:
        assert quorum.asked(ApiKey.BROKER_REGISTRATION)[-1].previous_broker_epoch == epoch
        assert not (log_dir / ".kafka_cleanshutdown").exists()
        broker.kill()
        quorum.expire(1)
        broker.start()
        assert quorum.asked(ApiKey.BROKER_REGISTRATION)[-1].previous_broker_epoch == -1


def test_a_killed_broker_waits_for_the_end_of_its_session(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    broker = JoinedBroker(tmp_path / "1", quorum)
    broker.kill()
    registrations = len(quorum.asked(ApiKey.BROKER_REGISTRATION))
    start = threading.Thread(target=broker.start)
    start.start()
    assert eventually(lambda: len(quorum.asked(ApiKey.BROKER_REGISTRATION)) > registrations)
    quorum.expire(1)
    start.join()
    broker.stop()


def test_a_stop_that_is_not_granted_is_no_clean_one(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    settings = {"broker.session.timeout.ms": "200"}
    broker = JoinedBroker(tmp_path / "1", quorum, settings=settings)
    quorum.stop(100)
    broker.stop()
    assert epoch_in_marker(tmp_path / "1") == -1


def test_a_broker_that_is_not_known_any_more_stops_without_an_epoch(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    broker = JoinedBroker(tmp_path / "1", quorum)

    def unregistered(request: Any, usual: Callable[[], Any]) -> Any:
        return STALE if request.want_shut_down else usual()

    quorum.answers[ApiKey.BROKER_HEARTBEAT] = unregistered
    broker.stop()
    assert epoch_in_marker(tmp_path / "1") == -1


def test_leaders_are_not_moved_where_that_is_turned_off(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    settings = {"controlled.shutdown.enable": "false"}
    with JoinedBroker(tmp_path / "1", quorum, settings=settings):
        pass
    assert not any(beat.want_shut_down for beat in quorum.asked(ApiKey.BROKER_HEARTBEAT))


def test_a_lost_directory_is_reported_before_the_stop(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    broker = JoinedBroker(tmp_path / "1", quorum)
    broker.call(lambda: broker.node.lose_directory("it is gone"))
    assert str(broker.node.failed.result()) == "it is gone"
    directory_id: UUID = broker.node.directory_id
    broker.stop()
    assert list(quorum.asked(ApiKey.BROKER_HEARTBEAT)[-1].offline_log_dirs) == [directory_id]


def test_a_directory_that_is_gone_stops_the_node(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    with JoinedBroker(tmp_path / "1", quorum) as broker:
        (tmp_path / "1" / ".lock").unlink()
        broker.run(broker.broker.partitions.check())
        assert eventually(broker.node.failed.done)
        assert "is gone" in str(broker.node.failed.result())


def test_a_stop_before_the_broker_is_ready_ends_the_process(
    quorum: ScriptedController, tmp_path: Path
) -> None:
    """SIGTERM comes while the controllers keep the broker fenced."""
    quorum.kept_fenced.add(1)
    log_dir = tmp_path / "1"
    format_directory(log_dir, quorum.cluster_id)
    lines = "".join(f"{name}={value}\n" for name, value in settings_of(quorum).items())
    config = tmp_path / "server.properties"
    config.write_text(f"{lines}log.dirs={log_dir}\n")
    command = [sys.executable, "-m", "horolog", "serve", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert eventually(lambda: 1 in quorum.image.brokers)
    assert eventually(
        lambda: any(not it.want_fence for it in quorum.asked(ApiKey.BROKER_HEARTBEAT))
    )
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "stopped before the broker was ready" in output
    assert "ready 127" not in output
