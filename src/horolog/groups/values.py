"""Inputs and results of the group state machine, as plain values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.rows import GroupRow

NO_GENERATION = -1

# Identifies a waiting request; opaque to the group, which returns it with the result.
Waiter = object


class GroupState(StrEnum):
    """The state of a group, as ListGroups and DescribeGroups name it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    """A consumer group whose members are to be assigned anew (KIP-848)."""
    RECONCILING = "Reconciling"
    """A consumer group of whose members some do not have what they were assigned."""
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The broker settings for groups; times in milliseconds.

    `max_bytes` limits the memory of the members' protocols and assignments.
    `new_member_timeout_ms` limits the wait of a member before its first response: it sends no
    heartbeats yet, so a lost client would not be noticed otherwise.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    max_bytes: int = 16 << 20
    max_protocols: int = 100
    new_member_timeout_ms: int = 300_000

    def check(self, join: "Join") -> None:
        """Refuse a session timeout or protocols outside of the limits.

        Raises:
            RequestRefused: INVALID_SESSION_TIMEOUT or INCONSISTENT_GROUP_PROTOCOL.
        """
        least_ms, most_ms = self.min_session_timeout_ms, self.max_session_timeout_ms
        if not least_ms <= join.session_timeout_ms <= most_ms:
            raise RequestRefused(
                ErrorCode.invalid_session_timeout,
                f"session timeout of {join.session_timeout_ms} ms, allowed {least_ms} to {most_ms}",
            )
        if not join.protocol_type or not 0 < len(join.protocols) <= self.max_protocols:
            raise RequestRefused(
                ErrorCode.inconsistent_group_protocol,
                f"a member must have 1 to {self.max_protocols} protocols of one type",
            )


class Protocol(NamedTuple):
    """An assignment strategy that a member supports, with its metadata for the leader.

    In a request `metadata` may be a view of the request; a group stores a copy.
    """

    name: str
    metadata: bytes | memoryview

    def kept(self) -> "Protocol":
        """Return a copy that does not refer to the request's buffer."""
        return Protocol(self.name, bytes(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request of a member.

    `expects_member_id`: the client (JoinGroup 4 and later) accepts a refusal with its new id, and
    joins again with it (KIP-394). `may_skip_assignment`: the client understands a leader that need
    not assign partitions (JoinGroup 9, KIP-814).
    """

    member_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    expects_member_id: bool = False
    may_skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup request of a member; the leader's contains all assignments."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes | memoryview], ...] = ()


# The memory of a member and of a protocol beyond the bytes that its client sends.
_MEMBER_BYTES = 1024
_PROTOCOL_BYTES = 128


def member_bytes(join: Join) -> int:
    """Return the approximate memory of a member without an assignment."""
    strings = len(join.client_id) + len(join.client_host) + len(join.instance_id or "")
    protocols = sum(len(p.name) + len(p.metadata) + _PROTOCOL_BYTES for p in join.protocols)
    return _MEMBER_BYTES + strings + protocols


class JoinedMember(NamedTuple):
    """A member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The result of a Join."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    """The result of a Sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Completed(NamedTuple):
    """A waiting request that is now complete, and its result."""

    waiter: Waiter
    value: Joined | Synced | list[ErrorCode]


class Renamed(NamedTuple):
    """A static member with a new id: the waiter for it, its answer, and the member as it was."""

    waiter: Waiter
    joined: Joined
    former_id: str
    former: Join


@dataclass(frozen=True, slots=True, eq=False)
class Storing:
    """A row that must be in the log before the members concerned are answered.

    It contains the assignments of a generation, or the new id of a static member. `Group.stored` or
    `Group.not_stored` takes the outcome.
    """

    row: GroupRow
    renamed: Renamed | None = None


class MemberDescription(NamedTuple):
    """A member for DescribeGroups."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """A group for DescribeGroups."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


class Committer(NamedTuple):
    """The sender of a commit: a member of a generation, or a standalone consumer with -1."""

    member_id: str
    instance_id: str | None
    generation: int
    """Of a member of the consumer protocol its epoch."""
    says_epoch: bool = False
    """True if the request has errors for epochs (KIP-848)."""
