"""Replicas beside a leader that answers as Apache Kafka does, and one that does not."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from leading_log import LeadingLog, ReplicasLeader, stored_in
from overrides import override
from patience import eventually
from replica_node import ReplicaNode

from horolog.client import Address
from horolog.errors import ErrorCode, StorageFailed
from horolog.storage import Log, TopicPartition
from horolog.wire import ApiKey

ONE, OTHER = UUID(int=1 << 100), UUID(int=2 << 100)


@pytest.fixture
def leading(tmp_path: Path) -> LeadingLog:
    return LeadingLog(tmp_path / "leader", ONE)


@pytest.fixture
def leader(leading: LeadingLog) -> Iterator[ReplicasLeader]:
    with ReplicasLeader(leading) as leader:
        yield leader


def address(leader: ReplicasLeader) -> Address:
    return Address(leader.broker.host, leader.broker.port)


@pytest.fixture
def node(tmp_path: Path, leader: ReplicasLeader) -> Iterator[ReplicaNode]:
    with ReplicaNode(tmp_path / "replica", {1: address(leader)}) as node:
        yield node


def test_a_replica_has_the_bytes_of_its_leader_and_its_high_watermark(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(20)
    node.follow(1, 0, ONE)
    assert node.has_reached(20, committed=0)
    leading.commit(15)
    leader.notify()
    assert node.has_reached(20, committed=15)
    leading.fill(30)
    leader.notify()
    assert node.has_reached(50, committed=15)
    leading.commit()
    leader.notify()
    assert node.has_reached(50, committed=50)
    assert stored_in(node.log()) == leading.stored
    assert node.log().epochs.entries == leading.log.epochs.entries
    assert node.status() is not None


def test_a_fetch_says_who_asks_in_which_epoch_and_where_its_log_starts(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(10)
    leading.commit()
    leading.log.delete_records(4)
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=10)
    assert node.log().log_start_offset == 4
    last = lambda: leader.fetches[-1].topics[0].partitions[0]  # noqa: E731
    assert eventually(lambda: last().fetch_offset == 10)
    assert (last().log_start_offset, last().last_fetched_epoch) == (4, 0)
    assert last().current_leader_epoch == 0
    for request in leader.fetches:
        assert request.replica_state.replica_id == 2
        assert request.replica_state.replica_epoch == 7
        assert request.isolation_level == 0, "Kafka knows no flags"
    first = leader.fetches[0].topics[0]
    assert first.topic_id == ONE
    assert first.partitions[0].last_fetched_epoch == -1


@pytest.mark.parametrize(("level", "version"), [(21, 17), (26, 17), (27, 18), (33, 18)])
def test_the_version_of_fetch_is_that_of_the_cluster(
    level: int, version: int, leading: LeadingLog, leader: ReplicasLeader, tmp_path: Path
) -> None:
    leading.fill(1)
    with ReplicaNode(tmp_path / "replica", {1: address(leader)}, level=level) as node:
        node.follow(1, 0, ONE)
        assert node.has_reached(1)
    asked = {seen.version for seen in leader.broker.seen if seen.api_key is ApiKey.FETCH}
    assert asked == {version}


def test_a_tail_that_the_new_leader_does_not_have_is_cut(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode, tmp_path: Path
) -> None:
    leading.fill(10)
    leading.commit()
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=10)
    leading.fill(5, b"lost")
    leader.notify()
    assert node.has_reached(15)
    # Another broker leads, which has 12 records of the first leader, and writes others.
    second = LeadingLog(tmp_path / "second", ONE)
    second.fill(10)
    second.fill(2, b"lost")
    second.lead(1)
    second.fill(3, b"kept")
    second.commit(10)
    with ReplicasLeader(second, node_id=3) as new:
        node.addresses[3] = address(new)
        node.follow(3, 1, ONE)
        assert node.has_reached(15, committed=10)
        assert eventually(lambda: stored_in(node.log()) == second.stored)
        assert node.log().epochs.entries == second.log.epochs.entries


def test_two_elections_without_a_record_cut_nothing_and_end(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    """KAFKA-10706: an epoch without records is unknown to the next leader."""
    leading.fill(10)
    leading.commit()
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=10)
    node.lead(1)
    leading.lead(2)
    node.follow(1, 2, ONE)
    leading.fill(1)
    leader.notify()
    assert node.has_reached(11)
    assert stored_in(node.log()) == leading.stored
    assert node.log().epochs.entries == leading.log.epochs.entries


def test_the_high_watermark_of_an_answer_that_diverges_is_not_taken(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode, tmp_path: Path
) -> None:
    """KAFKA-14704: it would make records readable that are cut a moment later."""
    leading.fill(10)
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=0)
    second = LeadingLog(tmp_path / "second", ONE)
    second.fill(4)
    second.lead(1)
    second.fill(8, b"other")
    second.commit()
    seen: list[int] = []

    def note(asked: Any, answer: dict[str, Any]) -> Any:
        if "diverging_epoch" in answer or asked.fetch_offset == 4:
            seen.append(node.log().high_watermark)
        return answer

    with ReplicasLeader(second, node_id=3) as new:
        new.spoil = note
        node.addresses[3] = address(new)
        node.follow(3, 1, ONE)
        assert node.has_reached(12, committed=12)
    assert len(seen) >= 2
    assert set(seen) == {0}
    assert stored_in(node.log()) == second.stored


def test_behind_the_leaders_start_a_replica_begins_anew_there(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(10)
    leading.commit()
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=10)
    leader.spoil = lambda asked, answer: None  # it answers nothing meanwhile
    leading.fill(30)
    leading.commit()
    leading.log.roll(0)
    leading.log.delete_records(25)
    leader.spoil = lambda asked, answer: answer
    leader.notify()
    assert node.has_reached(40, committed=40)
    assert node.log().log_start_offset == 25


def test_beyond_the_leaders_end_a_replica_is_cut_there(
    leader: ReplicasLeader, leading: LeadingLog, node: ReplicaNode, tmp_path: Path
) -> None:
    """An unclean election: the leader lost all, and knows none of the epochs (KAFKA-7414)."""
    leading.fill(10)
    leading.commit()
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=10)
    second = LeadingLog(tmp_path / "second", ONE)
    second.lead(4)
    second.fill(3, b"other")
    second.commit()
    with ReplicasLeader(second, node_id=3) as new:
        node.addresses[3] = address(new)
        node.follow(3, 4, ONE)
        assert node.has_reached(3, committed=3)
        assert stored_in(node.log()) == second.stored


def test_a_start_that_moves_moves_the_replicas_whatever_is_committed(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    """KAFKA-9491, KAFKA-16452: the high watermark is at least the start."""

    def behind(asked: Any, answer: dict[str, Any]) -> Any:
        return answer | {"high_watermark": min(answer.get("high_watermark", 0), 3)}

    leader.spoil = behind
    leading.fill(20)
    leading.commit()
    node.follow(1, 0, ONE)
    assert node.has_reached(20, committed=3)
    leading.log.delete_records(12)
    leader.notify()
    assert eventually(lambda: node.log().log_start_offset == 12)
    assert node.log().high_watermark == 12


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
    ],
)
def test_errors_are_waited_for_and_cut_nothing(
    code: ErrorCode, leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(10)
    node.follow(1, 0, ONE)
    assert node.has_reached(10)
    refused: list[Any] = []

    def refuse(asked: Any, answer: dict[str, Any]) -> Any:
        refused.append(asked)
        return answer | {"error_code": code, "records": b""}

    leader.spoil = refuse
    leader.notify()
    assert eventually(lambda: len(refused) > 1)  # an answer that was on its way is there
    leading.fill(5)
    assert eventually(lambda: len(refused) > 3)
    assert node.log().log_end_offset == 10
    status = node.status()
    assert status is not None
    assert code.name.upper() in str(status.why)
    leader.spoil = lambda asked, answer: answer
    assert node.has_reached(15)
    assert stored_in(node.log()) == leading.stored


def test_a_leader_of_another_epoch_is_heard_no_more(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(10)
    node.follow(1, 5, ONE)  # this one leads in epoch 0
    assert eventually(lambda: len(leader.fetches) > 3)
    assert node.log().log_end_offset == 0
    leading.lead(5)
    assert node.has_reached(10)
    node.follow(1, 4, ONE)  # late news
    leading.fill(1)
    leader.notify()
    assert node.has_reached(11)


GARBAGE: dict[str, dict[str, Any]] = {
    "an epoch that diverges and does not": {"diverging_epoch": {"epoch": 0, "end_offset": 10}},
    "a diverging epoch of the future": {"diverging_epoch": {"epoch": 9, "end_offset": 3}},
    "records of elsewhere": {"records": b"\0" * 61 + b"x" * 40},
    "half a batch": {"records": b"\0\0\0\0\0\0\0\x0a\0\0\0\x40"},
    "text": {"records": b"HTTP/1.1 200 OK" * 20},
    "offsets that cannot be": {"high_watermark": -7, "log_start_offset": -9},
    "a start behind the end": {"log_start_offset": 11},
    "numbers at the edge": {"high_watermark": (1 << 63) - 1, "log_start_offset": (1 << 63) - 1},
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_of_a_leader_changes_nothing(
    garbage: dict[str, Any], leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(10)
    leading.commit()
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=10)
    given = []

    def spoil(asked: Any, answer: dict[str, Any]) -> Any:
        given.append(asked)
        return answer | garbage

    leader.spoil = spoil
    leader.notify()
    assert eventually(lambda: len(given) > 3)
    log = node.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 10, 10)
    leader.spoil = lambda asked, answer: answer
    leading.fill(2)
    leader.notify()
    assert node.has_reached(12)
    assert stored_in(node.log()) == leading.stored


def test_bounds_that_cannot_be_cut_nothing(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(10)
    leading.commit()
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=10)
    asked_bounds = []

    def spoil(asked: Any, answer: dict[str, Any]) -> Any:
        if hasattr(asked, "timestamp"):
            asked_bounds.append(asked)
            return answer | {"offset": 7 if asked.timestamp == -2 else 3}
        return answer | {"error_code": ErrorCode.offset_out_of_range}

    leader.spoil = spoil
    leader.notify()
    assert eventually(lambda: len(asked_bounds) > 6)
    assert {asked.current_leader_epoch for asked in asked_bounds} == {0}
    assert node.log().log_end_offset == 10
    leader.spoil = lambda asked, answer: answer
    leading.fill(1)
    leader.notify()
    assert node.has_reached(11)


def test_answers_about_others_are_left_alone(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(5)

    def mixed(request: Any, answer: dict[str, Any]) -> Any:
        mine = answer["responses"]
        other = [{"topic_id": OTHER, "partitions": it["partitions"]} for it in mine]
        ninth = [
            {**it, "partitions": [{**part, "partition_index": 9} for part in it["partitions"]]}
            for it in mine
        ]
        return answer | {"responses": [*other, *ninth, *mine, *mine]}

    leader.spoil_all = mixed
    node.follow(1, 0, ONE)
    assert node.has_reached(5)
    assert stored_in(node.log()) == leading.stored


@pytest.mark.parametrize(
    "of_all",
    [
        {"error_code": ErrorCode.unknown_server_error},
        {"error_code": ErrorCode.fetch_session_id_not_found},
        {"error_code": ErrorCode.invalid_fetch_session_epoch, "session_id": 7},
        {"session_id": 12_345},
    ],
)
def test_errors_of_a_whole_fetch_are_borne(
    of_all: dict[str, Any], leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    """A session that the leader does not keep is one of them."""
    leading.fill(5)
    leader.spoil_all = lambda request, answer: answer | of_all
    node.follow(1, 0, ONE)
    assert eventually(lambda: len(leader.fetches) > 3)
    leader.spoil_all = lambda request, answer: answer | {"session_id": 0}
    leading.fill(5)

    def forget(request: Any, answer: dict[str, Any]) -> Any:
        if request.session_id:
            code = ErrorCode.fetch_session_id_not_found
            return {"error_code": code, "session_id": 0, "responses": ()}
        return answer

    leader.spoil_all = forget
    leader.notify()
    assert node.has_reached(10)


def test_a_denied_replica_says_what_to_grant(
    leading: LeadingLog,
    leader: ReplicasLeader,
    node: ReplicaNode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    leading.fill(5)
    code = ErrorCode.topic_authorization_failed
    leader.spoil = lambda asked, answer: answer | {"error_code": code, "records": b""}
    node.follow(1, 0, ONE)
    assert eventually(lambda: "--operation ClusterAction" in caplog.text)
    assert "User:ANONYMOUS" in caplog.text
    assert eventually(lambda: len(leader.fetches) > 3)
    assert caplog.text.count("ClusterAction") == 1
    leader.spoil = lambda asked, answer: answer
    assert node.has_reached(5)


def test_a_leader_that_is_gone_is_asked_until_it_answers(
    leading: LeadingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leading.fill(5)
    with ExitStack() as stack:
        first = stack.enter_context(ReplicasLeader(leading))
        node = ReplicaNode(tmp_path / "replica", {1: address(first)})
        with node:
            node.follow(1, 0, ONE)
            assert node.has_reached(5)
            stack.close()
            assert eventually(lambda: "cannot be followed now" in caplog.text)
            leading.fill(3)
            with ReplicasLeader(leading) as second:
                node.addresses[1] = address(second)
                node.call(node.fetchers.on_brokers)
                assert node.has_reached(8)


def test_a_leader_whose_address_is_not_known_yet_is_asked_later(
    leading: LeadingLog, leader: ReplicasLeader, tmp_path: Path
) -> None:
    leading.fill(5)
    with ReplicaNode(tmp_path / "replica", {}) as node:
        node.follow(1, 0, ONE)
        status = node.status()
        assert status is not None
        assert status.why == "the address of broker 1 is not known"
        node.addresses[1] = address(leader)
        node.call(node.fetchers.on_brokers)
        assert node.has_reached(5)


def test_a_replica_that_leads_takes_nothing_more_of_the_former_leader(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode
) -> None:
    leading.fill(10)
    node.follow(1, 0, ONE)
    assert node.has_reached(10)
    held, release = [], []

    def hold(asked: Any, answer: dict[str, Any]) -> Any:
        if answer["records"] and not release:
            held.append(asked)
            assert eventually(lambda: bool(release))
        return answer

    leader.spoil = hold
    leading.fill(5)
    leader.notify()
    assert eventually(lambda: bool(held))
    node.lead(1)  # while an answer with records is on its way
    release.append(True)
    leader.spoil = lambda asked, answer: answer
    assert eventually(lambda: node.status() is None)
    log = node.log()
    assert (log.log_end_offset, log.is_following, log.leader_epoch) == (10, False, 1)


def test_a_topic_made_again_is_followed_by_its_id(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode, tmp_path: Path
) -> None:
    leading.fill(5)
    node.follow(1, 0, ONE)
    assert node.has_reached(5)
    remade = LeadingLog(tmp_path / "remade", OTHER)
    remade.fill(2, b"of the other")
    leader.logs[OTHER, 0] = remade
    partition = node.partitions.popitem()[1]

    async def remake() -> None:
        node.fetchers.stop(partition)
        await partition.close()
        node.log_dir.delete([TopicPartition("t", 0)], 0)

    node.run(remake())
    node.follow(1, 0, OTHER)
    assert node.has_reached(2)
    assert stored_in(node.log()) == remade.stored


def test_large_and_small_answers_are_the_same_log(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", ON_LOOP_BYTES=400)
    node.follow(1, 0, ONE)
    end = 0
    for count in (1, 2, 40, 1, 1, 100, 3):
        leading.fill(count)
        end += count
        leader.notify()
        assert node.has_reached(end)
    assert stored_in(node.log()) == leading.stored


def test_a_restart_goes_on_where_it_was(
    leading: LeadingLog, leader: ReplicasLeader, tmp_path: Path
) -> None:
    leading.fill(10)
    leading.commit()
    addresses = {1: address(leader)}
    with ReplicaNode(tmp_path / "replica", addresses) as node:
        node.follow(1, 0, ONE)
        assert node.has_reached(10, committed=10)
    leading.fill(5)
    leader.fetches.clear()
    with ReplicaNode(tmp_path / "replica", addresses) as node:
        node.follow(1, 0, ONE)
        assert node.has_reached(15)
        assert leader.fetches[0].topics[0].partitions[0].fetch_offset == 10
        assert stored_in(node.log()) == leading.stored


def test_many_partitions_go_on_under_the_next_leader_at_once(tmp_path: Path) -> None:
    count = 60
    logs = [
        LeadingLog(tmp_path / f"leader-{index}", UUID(int=index + 1), topic=f"t{index}")
        for index in range(count)
    ]
    with (
        ReplicasLeader(*logs) as leader,
        ReplicaNode(tmp_path / "replica", {1: address(leader)}) as node,
    ):
        for epoch in (0, 1, 2):
            for leading in logs:
                if epoch:
                    leading.lead(epoch)
                leading.fill(2)
                leading.commit()
                node.follow(1, epoch, leading.topic_id, topic=leading.key[0])
            leader.notify()
            for leading in logs:
                end = 2 * epoch + 2
                assert node.has_reached(end, committed=end, topic=leading.key[0])
        for leading in logs:
            assert stored_in(node.log(leading.key[0])) == leading.stored
            assert node.log(leading.key[0]).epochs.entries == leading.log.epochs.entries


def test_a_log_without_epochs_is_cut_to_what_is_committed(
    leading: LeadingLog, leader: ReplicasLeader, node: ReplicaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of formats v0 and v1: no answer says where it diverges, and a full disk may refuse it."""
    leading.fill(10)
    leading.commit(6)
    node.follow(1, 0, ONE)
    assert node.has_reached(10, committed=6)
    log = node.log()
    node.call(lambda: log.epochs.truncate_from_end(0))  # as if no batch had one
    truncate, refusals = log.truncate_to, [StorageFailed("the disk is full")] * 2

    def refuse(self: Log, offset: int, now_ms: int) -> None:
        if refusals:
            raise refusals.pop()
        truncate(offset, now_ms)

    monkeypatch.setattr(Log, "truncate_to", refuse)
    fetches = len(leader.fetches)
    leading.lead(1)
    node.follow(1, 1, ONE)
    assert eventually(lambda: not refusals)
    leading.fill(3)
    leader.notify()
    assert node.has_reached(13)
    asked = {
        request.topics[0].partitions[0].fetch_offset
        for request in leader.fetches[fetches:]
        if request.topics[0].partitions[0].current_leader_epoch == 1
    }
    assert min(asked) == 6, "nothing was fetched before it was cut"
    assert stored_in(log) == leading.stored
