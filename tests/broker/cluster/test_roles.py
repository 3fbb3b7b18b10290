"""Roles by the metadata: which logs there are, who leads them, and in which order that changes."""

from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from patience import eventually
from role_taking import DIRECTORY, HERE, RoleTaking, gone, id_of, placed, topic

from horolog.errors import StorageFailed
from horolog.replication.roles import role_of
from horolog.schemas.metadata import PartitionRecord, Record

ELSEWHERE = UUID(int=2_000)


def node_with(path: Path, *records: Record) -> RoleTaking:
    node = RoleTaking(path)
    node.write(*records)
    return node


@pytest.mark.parametrize(
    ("state", "role"),
    [
        (placed(), ("leads", 0)),
        (placed(epoch=3), ("leads", 3)),
        (placed(replicas=(1,)), ("leads alone", 0)),
        (placed(leader=2), ("follows 2", 0)),
        (placed(leader=-1), ("waits", 0)),
        (placed(leader=2, replicas=(2, 3)), ("none", -1)),
    ],
)
def test_a_new_partition_takes_its_role(
    tmp_path: Path, state: PartitionRecord, role: tuple[str, int]
) -> None:
    with node_with(tmp_path) as node:
        node.start()
        node.write(topic(), state)
        node.settle()
        assert node.role() == role


@pytest.mark.parametrize("epochs", [range(1, 9), [7]], ids=["one by one", "the last alone"])
def test_roles_change_with_the_leader(tmp_path: Path, epochs: "range | list[int]") -> None:
    with node_with(tmp_path, topic(), placed()) as node:
        node.start()
        assert node.role() == ("leads", 0)
        for epoch in epochs:
            node.write(placed(leader=(1, 2, 3, -1)[epoch % 4], epoch=epoch))
            if epoch % 3:
                node.settle()
        node.settle()
        assert node.role() == {8: ("leads", 8), 7: ("waits", 7)}[max(epochs)]


def test_a_leader_keeps_its_place_where_only_the_in_sync_replicas_change(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed()) as node:
        node.start()
        partition = node.partition()
        assert partition is not None
        leading = partition.leading
        assert leading is not None
        node.append()
        node.write(placed(isr=(1,), partition_epoch=1))
        node.settle()
        assert partition.leading is leading
        assert leading.isr == (1,)
        assert partition.log.high_watermark == 2


def test_a_leader_elected_again_begins_an_epoch(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed()) as node:
        node.start()
        node.append()
        node.write(placed(epoch=1))
        node.settle()
        assert node.role() == ("leads", 1)
        assert node.log().epoch_start_offset == 2
        assert node.log().high_watermark == 0, "no replica has told what it has"


def test_a_demoted_leader_does_not_show_what_is_not_committed(tmp_path: Path) -> None:
    """KAFKA-14704."""
    with node_with(tmp_path, topic(), placed()) as node:
        node.start()
        node.append()
        node.write(placed(leader=2, epoch=1))
        node.settle()
        assert (node.log().log_end_offset, node.log().high_watermark) == (2, 0)


def test_replicas_come_and_go_while_it_leads(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed(replicas=(1,))) as node:
        node.start()
        node.append()
        assert node.log().high_watermark == 2
        node.write(placed(replicas=(1, 4), isr=(1,), partition_epoch=1))
        node.settle()
        assert node.role() == ("leads", 0)
        node.write(placed(replicas=(1, 4), isr=(1, 4), partition_epoch=2))
        node.settle()
        node.append()
        assert node.log().high_watermark == 2
        node.write(placed(replicas=(1,), partition_epoch=3))
        node.settle()
        assert node.role() == ("leads alone", 0)
        assert node.log().high_watermark == 4


def test_a_replica_that_was_moved_away_is_deleted(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed(), placed(index=1)) as node:
        node.start()
        node.write(placed(leader=2, replicas=(2, 3), epoch=1))
        node.settle()
        assert (node.role(), node.role(index=1)) == (("none", -1), ("leads", 0))
        assert node.directories_on_disk() == {"t-1"}


def test_a_replica_that_comes_back_is_empty(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed()) as node:
        node.start()
        node.append()
        node.write(placed(leader=2, replicas=(2, 3), epoch=1))
        node.settle()
        node.write(placed(leader=2, epoch=1, isr=(2, 3), partition_epoch=2))
        node.settle()
        assert node.role() == ("follows 2", 1)
        assert node.log().log_end_offset == 0


def test_partitions_of_a_deleted_topic_go_together(tmp_path: Path) -> None:
    states = [placed(index=index, leader=1 + index % 3) for index in range(30)]
    with node_with(tmp_path, topic(), *states) as node:
        node.start()
        assert len(node.directories_on_disk()) == 30
        node.write(gone())
        node.settle()
        assert node.directories_on_disk() == set()
        assert all(node.partition(index=index) is None for index in range(30))
        assert not node.follows
        assert len(node.leaders) == 0


@pytest.mark.parametrize("settled", [True, False], ids=["slowly", "at once"])
def test_a_topic_made_again_is_another_one(tmp_path: Path, settled: bool) -> None:
    with node_with(tmp_path, topic(), placed(), placed(index=1)) as node:
        node.start()
        node.append()
        node.write(gone())
        if settled:
            node.settle()
        node.write(topic(life=1), placed(life=1), placed(index=1, leader=2, life=1))
        node.settle()
        assert (node.role(), node.role(index=1)) == (("leads", 0), ("follows 2", 0))
        assert node.log().topic_id == id_of("t", 1)
        assert node.log().log_end_offset == 0


def test_a_topic_that_lives_shorter_than_its_roles_take_leaves_nothing(tmp_path: Path) -> None:
    with node_with(tmp_path) as node:
        node.start()
        for life in range(10):
            node.write(topic(life=life), placed(life=life))
            node.write(gone(life=life))
        node.settle()
        assert node.directories_on_disk() == set()
        assert node.partition() is None


def test_a_snapshot_may_leave_out_that_a_topic_was_deleted(tmp_path: Path) -> None:
    """Both lives in one change: the earlier log goes first."""
    with node_with(tmp_path, topic(), placed()) as node:
        node.start()
        node.append()
        node.write(gone(), topic(life=1), placed(life=1, epoch=4))
        node.settle()
        assert node.role() == ("leads", 4)
        assert node.log().log_end_offset == 0


# --- start ----------------------------------------------------------------------------------


def test_logs_take_their_roles_at_the_start(tmp_path: Path) -> None:
    states = [placed(), placed(index=1, leader=2), placed(index=2, leader=-1)]
    with node_with(tmp_path, topic(), *states) as node:
        node.start()
        node.append()
        node.append()
    with node_with(
        tmp_path, topic(), *(state._replace(leader_epoch=5) for state in states)
    ) as node:
        assert all(node.log(index=index).is_following for index in range(3))
        node.start()
        assert node.roles.is_settled
        roles = [node.role(index=index) for index in range(3)]
        assert roles == [("leads", 5), ("follows 2", 5), ("waits", 5)]
        assert node.log().log_end_offset == 4


def test_a_log_whose_replica_was_taken_away_meanwhile_is_deleted(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed()) as node:
        node.write(gone())  # between the opening of the logs and the first roles
        node.start()
        assert node.directories_on_disk() == set()


def test_a_log_of_another_topic_is_never_served(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed()) as node:
        node.start()
        node.append()
    with node_with(tmp_path, topic(life=1), placed(life=1)) as node:
        node.start()
        assert node.role() == ("leads", 0)
        assert node.log().log_end_offset == 0
        assert any(name.endswith("-stray") for name in node.directories_on_disk())


def test_a_wiped_replica_is_empty_and_follows(tmp_path: Path) -> None:
    state = placed(leader=2, directories=(ELSEWHERE, ELSEWHERE, ELSEWHERE))
    with node_with(tmp_path, topic(), state) as node:
        node.start()
        assert node.role() == ("follows 2", 0)
        assert eventually(lambda: len(node.assigned) == 1)


# --- directories ----------------------------------------------------------------------------


def unassigned(index: int) -> PartitionRecord:
    return placed(index=index, directories=(UUID(int=1), ELSEWHERE, ELSEWHERE))


def test_replicas_without_a_directory_are_assigned_to_this_one(tmp_path: Path) -> None:
    known = placed(index=2, directories=(DIRECTORY, ELSEWHERE, ELSEWHERE))
    with node_with(tmp_path, topic(), unassigned(0), unassigned(1), known) as node:
        node.start()
        assert eventually(lambda: node.assigned)
        asked = {
            partition["partition_index"]
            for body in node.assigned
            for partition in body["directories"][0]["topics"][0]["partitions"]
        }
        assert asked == {0, 1}
        body = node.assigned[0]
        assert (body["broker_id"], body["broker_epoch"]) == (1, 7)
        assert body["directories"][0]["id_"] == DIRECTORY


@pytest.mark.parametrize("error", [77, -999, StorageFailed("no controller answers")])
def test_a_refused_assignment_is_sent_again(
    tmp_path: Path, error: int | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 3

    def refuse(body: object) -> dict[int, int]:
        nonlocal tries
        tries -= 1
        if tries <= 0:
            return {}
        if isinstance(error, Exception):
            raise error
        return {0: error}

    node = node_with(tmp_path, topic(), unassigned(0))
    node.assigning = refuse
    with node:
        node.start()
        assert eventually(lambda: tries == 0)
        assert len(node.assigned) == 3
    assert sum("not assigned" in record.message for record in caplog.records) == 1


def test_an_assignment_that_is_over_is_not_sent_again(tmp_path: Path) -> None:
    node = node_with(tmp_path, topic(), unassigned(0))
    node.assigning = lambda body: {0: 77}
    with node:
        node.start()
        assert eventually(lambda: node.assigned)
        node.write(placed(directories=(DIRECTORY, ELSEWHERE, ELSEWHERE), partition_epoch=1))
        node.settle()
        assert eventually(lambda: not node.directories.is_sending)


# --- failures -------------------------------------------------------------------------------


def test_a_role_that_the_log_refuses_is_named_and_tried_again(tmp_path: Path) -> None:
    with node_with(tmp_path, topic(), placed(epoch=5)) as node:
        node.start()
        node.append()
    with node_with(tmp_path, topic(), placed(epoch=3), topic("u"), placed("u")) as node:
        node.start()
        assert node.log().is_following
        assert "epoch 5" in node.roles.complaints["t", 0]
        assert node.role("u") == ("leads", 0)
        node.write(placed(epoch=6))
        assert eventually(lambda: node.role() == ("leads", 6))
        assert not node.roles.complaints


def test_a_directory_that_is_in_the_way_holds_up_no_other(tmp_path: Path) -> None:
    states = [placed(index=index) for index in range(3)]
    with node_with(tmp_path) as node:
        node.start()
        (tmp_path / "t-1").mkdir()
        (tmp_path / "t-1" / "something").write_text("else")
        node.write(topic(), *states)
        assert eventually(lambda: list(node.roles.complaints) == [("t", 1)])
        assert eventually(lambda: node.role(index=0) == node.role(index=2) == ("leads", 0))
        (tmp_path / "t-1" / "something").unlink()
        (tmp_path / "t-1").rmdir()
        assert eventually(lambda: node.role(index=1) == ("leads", 0))


@pytest.mark.parametrize("seed", [3, 30, 59, 68])
def test_whatever_comes_in_between_the_last_state_counts(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    names, lives, partitions = ("t", "u"), dict.fromkeys(("t", "u"), -1), range(3)
    states: dict[tuple[str, int], PartitionRecord] = {}
    with node_with(tmp_path) as node:
        node.start()
        for _ in range(150):
            name = random.choice(names)
            its = [key for key in states if key[0] == name]
            if not its:
                lives[name] += 1
                new = [
                    placed(name, index, leader=random.choice((1, 2)), life=lives[name])
                    for index in partitions
                ]
                states |= {(name, state.partition): state for state in new}
                node.write(topic(name, lives[name]), *new)
            elif random.random() < 0.1:
                for key in its:
                    del states[key]
                node.write(gone(name, lives[name]))
            else:
                key = random.choice(its)
                replicas = random.choice([(1, 2, 3), (1, 2, 3), (1,), (2, 3)])
                leader = random.choice([*replicas, -1, states[key].leader])
                old = states[key]
                states[key] = old._replace(
                    replicas=replicas,
                    isr=replicas,
                    leader=leader,
                    leader_epoch=old.leader_epoch + (leader != old.leader),
                    partition_epoch=old.partition_epoch + 1,
                )
                node.write(states[key])
            if random.random() < 0.05:
                node.settle()
        node.settle()
        assert not node.roles.complaints
        for name in names:
            for index in partitions:
                state = states.get((name, index))
                expected = role_of(HERE, state)
                if state is None or expected is None:
                    assert node.role(name, index) == ("none", -1)
                    continue
                role, epoch = node.role(name, index)
                assert epoch == expected.leader_epoch
                assert node.log(name, index).topic_id == state.topic_id
                if expected.is_leader:
                    assert role == ("leads" if expected.is_replicated else "leads alone")
                else:
                    assert role == (f"follows {state.leader}" if state.leader >= 0 else "waits")
