"""Which step a change of the metadata asks of a broker."""

from uuid import UUID

import pytest

from horolog.replication.roles import Role, RoleStep, needs_directory, role_of, step
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


def between(before: PartitionRecord | None, after: PartitionRecord | None) -> RoleStep:
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
        (None, LEADS, RoleStep.LEAD),
        (None, FOLLOWS, RoleStep.FOLLOW),
        (None, LEADERLESS, RoleStep.PAUSE),
        (None, MOVED, RoleStep.STAY),
        (None, None, RoleStep.STAY),
        (LEADS, LEADS, RoleStep.UPDATE),
        (LEADS, LEADS._replace(isr=(1,), partition_epoch=11), RoleStep.UPDATE),
        (LEADS, later(LEADS), RoleStep.LEAD),
        (LEADS, later(FOLLOWS), RoleStep.FOLLOW),
        (LEADS, later(LEADERLESS), RoleStep.PAUSE),
        (LEADS, MOVED, RoleStep.DELETE),
        (LEADS, None, RoleStep.DELETE),
        (FOLLOWS, FOLLOWS._replace(isr=(1, 2), partition_epoch=11), RoleStep.STAY),
        (FOLLOWS, later(FOLLOWS), RoleStep.FOLLOW),
        (FOLLOWS, later(partition(leader=3)), RoleStep.FOLLOW),
        (FOLLOWS, later(LEADS), RoleStep.LEAD),
        (FOLLOWS, later(LEADERLESS), RoleStep.PAUSE),
        (FOLLOWS, MOVED, RoleStep.DELETE),
        (LEADERLESS, LEADERLESS, RoleStep.STAY),
        (LEADERLESS, later(LEADS), RoleStep.LEAD),
        (later(FOLLOWS), LEADS, RoleStep.STAY),
        (MOVED, FOLLOWS, RoleStep.FOLLOW),
        (MOVED, None, RoleStep.STAY),
    ],
)
def test_steps(
    before: PartitionRecord | None, after: PartitionRecord | None, expected: RoleStep
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
