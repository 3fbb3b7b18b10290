"""Which step a change of the metadata asks of a broker."""

from uuid import UUID

import pytest

from horolog.replication.roles import Role, Step, needs_directory, role_of, step
from horolog.schemas.metadata import PartitionRecord

HERE = UUID(int=1_000)
ELSEWHERE = UUID(int=2_000)


def partition(
    leader: int = 2,
    replicas: tuple[int, ...] = (1, 2, 3),
    leader_epoch: int = 5,
    directories: tuple[UUID, ...] = (),
) -> PartitionRecord:
    return PartitionRecord(
        0, UUID(int=7), replicas, replicas, (), (), leader, 0, leader_epoch, 10, directories
    )


def between(before: PartitionRecord | None, after: PartitionRecord | None) -> Step:
    return step(role_of(1, before), role_of(1, after))


LEADS = partition(leader=1)
FOLLOWS = partition()
LEADERLESS = partition(leader=-1)
MOVED = partition(replicas=(2, 3, 4))


def later(record: PartitionRecord) -> PartitionRecord:
    return record._replace(leader_epoch=record.leader_epoch + 1, partition_epoch=11)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, LEADS, Step.LEAD),
        (None, FOLLOWS, Step.FOLLOW),
        (None, LEADERLESS, Step.PAUSE),
        (None, MOVED, Step.STAY),
        (None, None, Step.STAY),
        (LEADS, LEADS, Step.UPDATE),
        (LEADS, LEADS._replace(isr=(1,), partition_epoch=11), Step.UPDATE),
        (LEADS, later(LEADS), Step.LEAD),
        (LEADS, later(FOLLOWS), Step.FOLLOW),
        (LEADS, later(LEADERLESS), Step.PAUSE),
        (LEADS, MOVED, Step.DELETE),
        (LEADS, None, Step.DELETE),
        (FOLLOWS, FOLLOWS._replace(isr=(1, 2), partition_epoch=11), Step.STAY),
        (FOLLOWS, later(FOLLOWS), Step.FOLLOW),
        (FOLLOWS, later(partition(leader=3)), Step.FOLLOW),
        (FOLLOWS, later(LEADS), Step.LEAD),
        (FOLLOWS, later(LEADERLESS), Step.PAUSE),
        (FOLLOWS, MOVED, Step.DELETE),
        (LEADERLESS, LEADERLESS, Step.STAY),
        (LEADERLESS, later(LEADS), Step.LEAD),
        (later(FOLLOWS), LEADS, Step.STAY),
        (MOVED, FOLLOWS, Step.FOLLOW),
        (MOVED, None, Step.STAY),
    ],
)
def test_steps(
    before: PartitionRecord | None, after: PartitionRecord | None, expected: Step
) -> None:
    assert between(before, after) == expected


def test_a_sole_replica_is_not_replicated() -> None:
    assert role_of(1, partition(leader=1, replicas=(1,))) == Role(1, 5, True, False)


@pytest.mark.parametrize(
    ("directories", "needed"),
    [
        ((HERE, ELSEWHERE, ELSEWHERE), False),
        ((ELSEWHERE, HERE, HERE), True),
        ((UUID(int=0), HERE, HERE), True),  # migrating
        ((UUID(int=1), HERE, HERE), True),  # unassigned
        ((UUID(int=2), HERE, HERE), True),  # lost
        ((), False),
        ((ELSEWHERE,), False),
    ],
)
def test_a_replica_in_another_directory_than_the_metadata_say_is_assigned(
    directories: tuple[UUID, ...], needed: bool
) -> None:
    assert needs_directory(1, HERE, partition(directories=directories)) is needed


def test_a_partition_without_a_replica_here_needs_no_directory() -> None:
    elsewhere = partition(replicas=(2, 3), directories=(ELSEWHERE, ELSEWHERE))
    assert not needs_directory(1, HERE, elsewhere)
