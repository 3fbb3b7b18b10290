"""The lab's controller, by the requests of a broker."""

import threading
from collections.abc import Iterator

import pytest
from controller_asker import ControllerAsker
from patience import eventually
from scripted_broker import HangUp
from scripted_controller import ScriptedController

from horolog.schemas.metadata import Config
from horolog.wire import ApiKey, decode_response, parse_response_header

NOT_CONTROLLER, STALE, FENCED_EPOCH, UNKNOWN_EPOCH = 41, 77, 74, 75


@pytest.fixture
def quorum() -> Iterator[ScriptedController]:
    with ScriptedController(voters=[100, 101]) as controllers:
        yield controllers


@pytest.fixture
def asker(quorum: ScriptedController) -> Iterator[ControllerAsker]:
    with ControllerAsker(quorum.address_of(100), quorum.cluster_id) as one:
        yield one


def test_active_controller_is_found_by_any_node(quorum: ScriptedController) -> None:
    quorum.lead(101)
    with ControllerAsker(quorum.address_of(100), quorum.cluster_id) as asker:
        answer = asker.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=2)
        assert (answer.controller_id, answer.cluster_id) == (101, quorum.cluster_id)
        addresses = {it.broker_id: f"{it.host}:{it.port}" for it in answer.brokers}
        assert addresses == {it: quorum.address_of(it) for it in (100, 101)}
        assert asker.register(1).error_code == NOT_CONTROLLER


def test_broker_is_unfenced_once_it_has_applied_its_registration(
    asker: ControllerAsker,
) -> None:
    epoch = asker.register(1).broker_epoch
    behind = asker.heartbeat(1, current_metadata_offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    assert asker.heartbeat(1, want_fence=True).is_fenced
    there = asker.heartbeat(1, current_metadata_offset=epoch)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert not asker.follow().brokers[1].fenced


def test_brokers_without_heartbeats_are_fenced_by_the_clock_of_the_test(
    quorum: ScriptedController, asker: ControllerAsker
) -> None:
    asker.join(1, 2)
    asker.create("t", [[1, 2]])
    quorum.advance(8000)
    asker.heartbeat(2)
    quorum.advance(8000)
    partition = asker.follow().topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)
    assert asker.register(1).error_code == 0
    assert asker.register(2).error_code == 101


def test_last_member_of_an_isr_becomes_eligible_and_leads_again(
    quorum: ScriptedController, asker: ControllerAsker
) -> None:
    asker.join(1)
    asker.create("t", [[1]])
    quorum.fence(1)
    lost = asker.follow().topics["t"].partitions[0]
    assert (lost.leader, lost.isr, lost.elr, lost.last_known_elr) == (-1, (), (1,), (1,))
    asker.heartbeat(1)
    back = asker.follow().topics["t"].partitions[0]
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, (1,), None, None)


def test_unclean_stop_ends_eligibility(quorum: ScriptedController, asker: ControllerAsker) -> None:
    asker.join(1)
    asker.create("t", [[1]])
    for was_clean in (True, False):
        quorum.expire(1)
        asker.register(1, previous_broker_epoch=asker.epochs[1] if was_clean else -1)
        assert asker.follow().topics["t"].partitions[0].elr == ((1,) if was_clean else None)
        asker.heartbeat(1)
        recovery = asker.follow().topics["t"].partitions[0].recovery_state
        assert recovery == (0 if was_clean else 1)


def test_leader_alters_the_isr(asker: ControllerAsker) -> None:
    asker.join(1, 2)
    asker.create("t", [[1, 2]])
    asker.follow()
    shrunk = asker.alter(1, "t", isr=[1])
    assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ((1,), 0, 1)
    assert asker.alter(1, "t", isr=[1, 2]).error_code == 95
    asker.follow()
    assert asker.alter(1, "t", isr=[1, 2]).isr == (1, 2)
    assert asker.alter(1, "t", broker_epoch=1).error_code == STALE


def test_controlled_shutdown_is_granted_once_others_know_of_it(asker: ControllerAsker) -> None:
    asker.join(1, 2)
    asker.create("t", [[1, 2]])
    assert not asker.heartbeat(1, want_shut_down=True).should_shut_down
    assert asker.follow().brokers[1].in_controlled_shutdown
    asker.heartbeat(2, current_metadata_offset=0)
    assert not asker.heartbeat(1, want_shut_down=True).should_shut_down
    asker.heartbeat(2, current_metadata_offset=asker.next_offset - 1)
    assert asker.heartbeat(1, want_shut_down=True).should_shut_down
    assert asker.follow().brokers[1].fenced


def test_observer_waits_for_records_and_learns_what_is_committed(
    quorum: ScriptedController, asker: ControllerAsker
) -> None:
    asker.follow()
    waits = threading.Thread(target=lambda: asker.fetch(18, max_wait_ms=60_000))
    waits.start()
    quorum.tick()
    waits.join(30)
    assert not waits.is_alive()
    quorum.hold()
    quorum.append(Config(4, "", "a", "1"))
    assert "a" not in asker.follow().settings_of(4, "")
    answer = asker.fetch().responses[0].partitions[0]
    assert answer.records
    assert answer.high_watermark == asker.next_offset
    quorum.release()
    assert asker.follow().settings_of(4, "")["a"] == "1"


def test_records_that_a_new_leader_lacks_diverge(
    quorum: ScriptedController, asker: ControllerAsker
) -> None:
    asker.follow()
    committed, epoch = quorum.log.end, quorum.log.epoch
    quorum.hold()
    quorum.append(Config(4, "", "a", "1"), Config(4, "", "b", "1"))
    quorum.lead(101, lose_tail=True)
    quorum.release()
    with ControllerAsker(quorum.address_of(101), quorum.cluster_id) as other:
        old = other.fetch(fetch_offset=committed + 2, current_leader_epoch=epoch)
        assert old.responses[0].partitions[0].error_code == FENCED_EPOCH
        assert old.node_endpoints[0].node_id == 101
        found = other.fetch(
            fetch_offset=committed + 2, current_leader_epoch=epoch + 1, last_fetched_epoch=epoch
        )
        parts = found.responses[0].partitions[0].diverging_epoch
        assert (parts.epoch, parts.end_offset) == (epoch, committed)
        assert "a" not in other.follow().settings_of(4, "")


def test_snapshot_is_served_in_pieces(quorum: ScriptedController, asker: ControllerAsker) -> None:
    asker.join(1)
    asker.quorum_epoch = 1
    snapshot_id = quorum.snapshot()
    found = asker.fetch(current_leader_epoch=1).responses[0].partitions[0]
    assert (found.snapshot_id.end_offset, found.snapshot_id.epoch) == snapshot_id
    data, size = b"", 1
    while len(data) < size:
        its = asker.fetch_snapshot(*snapshot_id, len(data), 100)
        data, size = data + bytes(its.unaligned_records), its.size
    assert data == quorum.log.snapshots[snapshot_id]
    quorum.tick()
    assert 1 in asker.follow().brokers


def test_relayed_request_is_answered_with_its_own_header(
    quorum: ScriptedController, asker: ControllerAsker
) -> None:
    asker.join(1)
    key, version = ApiKey.CREATE_TOPICS, 7
    topic = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": []}
    answer = asker.envelope(key, version, topics=[{**topic, "configs": []}])
    correlation, position = parse_response_header(answer.response_data, key, version)
    inner = decode_response(key, version, answer.response_data, position)
    assert (correlation, inner.topics[0].error_code, inner.topics[0].num_partitions) == (5, 0, 2)
    assert quorum.seen[-1].principal is not None
    assert len(asker.follow().topics["t"].partitions) == 2
    assert asker.envelope(ApiKey.FETCH, 13).error_code == 42


def test_reassignment_completes_with_the_leaders_proposal(asker: ControllerAsker) -> None:
    asker.join(1, 2)
    asker.create("t", [[1]])
    moved = {"name": "t", "partitions": [{"partition_index": 0, "replicas": [2]}]}
    asker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=[moved])
    partition = asker.follow().topics["t"].partitions[0]
    assert (partition.replicas, partition.adding, partition.removing) == ((2, 1), (2,), (1,))
    assert asker.alter(1, "t", isr=[1, 2]).error_code == 108
    partition = asker.follow().topics["t"].partitions[0]
    assert (partition.replicas, partition.leader, partition.isr) == ((2,), 2, (2,))
    assert (partition.adding, partition.removing) == ((), ())


def test_hooks_lie_and_lose_answers(quorum: ScriptedController, asker: ControllerAsker) -> None:
    asker.join(1)
    quorum.answers[ApiKey.BROKER_HEARTBEAT] = lambda request, usual: {
        **usual(),
        "error_code": STALE,
    }
    assert asker.heartbeat(1).error_code == STALE
    quorum.answers[ApiKey.ALLOCATE_PRODUCER_IDS] = lambda request, usual: usual() and HangUp()
    asker.connection.send(
        ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=1, broker_epoch=asker.epochs[1]
    )
    assert asker.connection.is_closed()
    assert eventually(lambda: quorum.image.next_producer_id == 1000)


def test_stopped_controller_comes_back_at_its_port(quorum: ScriptedController) -> None:
    address = quorum.address_of(100)
    quorum.stop(100)
    with pytest.raises(ConnectionRefusedError):
        ControllerAsker(address, quorum.cluster_id)
    quorum.start(100)
    with ControllerAsker(address, quorum.cluster_id) as asker:
        assert asker.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=2).controller_id == 100
