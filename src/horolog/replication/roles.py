"""Role of a broker for a partition, by the metadata log, and the step that leads to it.

Topics are known by id: a topic that was deleted and made again is another one.
"""

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from horolog.schemas.metadata import PartitionRecord

__all__ = ["Role", "RoleStep", "needs_directory", "role_of", "step"]


class Role(NamedTuple):
    """Task of a broker that has a replica of a partition."""

    leader: int
    """Id of the broker that leads; -1 for none."""
    leader_epoch: int
    is_leader: bool
    """True if it is this broker."""
    is_replicated: bool
    """True if other brokers have replicas."""


class RoleStep(Enum):
    """Way from one role to the next."""

    STAY = "stay"
    LEAD = "lead"
    """Begin a leader epoch."""
    UPDATE = "update"
    """Lead on; replicas, in-sync replicas or the partition epoch may have changed."""
    FOLLOW = "follow"
    """Fetch from the leader, in its epoch."""
    PAUSE = "pause"
    """Keep the log, and fetch nothing: there is no leader."""
    DELETE = "delete"
    """Delete the log: the topic is gone, or the replica was moved to another broker."""


def role_of(node_id: int, partition: PartitionRecord | None) -> Role | None:
    """Return the role of a broker; None without a replica there.

    Args:
        partition: state of the partition; None if its topic is gone.
    """
    if partition is None or node_id not in partition.replicas:
        return None
    return Role(
        partition.leader,
        partition.leader_epoch,
        partition.leader == node_id,
        len(partition.replicas) > 1,
    )


def step(before: Role | None, after: Role | None) -> RoleStep:
    """Return the step from one role to the next.

    A leader epoch that is lower than before comes late: the replica stays what it is.
    """
    if after is None:
        return RoleStep.STAY if before is None else RoleStep.DELETE
    if before is not None and after.leader_epoch < before.leader_epoch:
        return RoleStep.STAY
    is_same = before is not None and before[:2] == after[:2]
    if after.is_leader:
        return RoleStep.UPDATE if is_same else RoleStep.LEAD
    if is_same:
        return RoleStep.STAY
    return RoleStep.FOLLOW if after.leader >= 0 else RoleStep.PAUSE


def needs_directory(node_id: int, directory_id: UUID, partition: PartitionRecord) -> bool:
    """Return True if the controllers have to be told that a replica is in this directory.

    They know none for a replica that they have just placed, or one that was lost (KIP-858). Before
    metadata.version 3.7-IV2 no directory is known.
    """
    if len(partition.directories) != len(partition.replicas):
        return False
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    return known.get(node_id, directory_id) != directory_id
