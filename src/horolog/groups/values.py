"""What goes into a consumer group and what comes out of it, as plain values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from horolog.errors import ErrorCode

NO_GENERATION = -1

# Whoever waits for an answer; the group only hands it back.
Waiter = object


class GroupState(StrEnum):
    """Where a group stands, in the words of ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The broker settings a group obeys; times in milliseconds.

    `max_bytes` bounds what its members' protocols and assignments occupy together.
    `new_member_timeout_ms` bounds the wait of a member that has never had an answer:
    its client may be gone, and no heartbeat of it would tell.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    max_bytes: int = 16 << 20
    max_protocols: int = 100
    new_member_timeout_ms: int = 300_000


class Protocol(NamedTuple):
    """An assignment strategy that a member can follow, with what it tells the leader.

    In a request it may be a view of the request; a group keeps a copy.
    """

    name: str
    metadata: bytes | memoryview

    def kept(self) -> "Protocol":
        """The same, without the request that it came in."""
        return Protocol(self.name, bytes(self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A member's wish to belong.

    `expects_member_id`: the client (JoinGroup 4 and later) takes a refusal that carries
    its new id and asks again with it (KIP-394). `may_skip_assignment`: it understands a
    leader that need not assign anything (JoinGroup 9, KIP-814).
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
    """A member asks for its assignment; the leader brings everybody's."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes | memoryview], ...] = ()


# What a member or a protocol occupies besides the bytes that its client sends.
_MEMBER_BYTES = 1024
_PROTOCOL_BYTES = 128


def member_bytes(join: Join) -> int:
    """What a member occupies in memory, roughly, before it is assigned anything."""
    strings = len(join.client_id) + len(join.client_host) + len(join.instance_id or "")
    protocols = sum(len(p.name) + len(p.metadata) + _PROTOCOL_BYTES for p in join.protocols)
    return _MEMBER_BYTES + strings + protocols


class JoinedMember(NamedTuple):
    """What the leader learns of each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a Join."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    """The answer to a Sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Answer(NamedTuple):
    """To be given now to one who waits."""

    waiter: Waiter
    value: Joined | Synced


class MemberDescription(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group as DescribeGroups shows it."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]
