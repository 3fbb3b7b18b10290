"""The members of one group, its leader and the protocols that all members support."""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.groups.rows import GroupRow
from horolog.groups.values import (
    Join,
    JoinedMember,
    MemberDescription,
    Protocol,
    Waiter,
    member_bytes,
)
from horolog.schemas.offsets import MemberValue

CONSUMER_PROTOCOL_TYPE = "consumer"

# Decoding this many names takes some 20 ms; larger subscriptions are treated as unknown.
MAX_SUBSCRIBED_NAMES = 50_000


@dataclass(slots=True)
class Member:
    """A member of a group; a waiter is set while its Join or Sync is unanswered.

    `deadline_ms` is when its session expires, on the event loop's clock. It is ignored while a
    request of the member waits, except if the member `is_new`.
    """

    member_id: str
    join: Join
    """The member's last Join, with copies of its protocols, and without their type."""
    deadline_ms: int
    held_bytes: int
    assignment: bytes = b""
    is_new: bool = True
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None

    @classmethod
    def joining(cls, member_id: str, join: Join, deadline_ms: int) -> "Member":
        """Make a new member from its Join."""
        # The group has the type once: each member's would be memory that nobody counts.
        kept = replace(join, protocol_type="", protocols=_kept(join.protocols))
        return cls(member_id, kept, deadline_ms, member_bytes(join))

    @classmethod
    def restored(cls, value: MemberValue, row: GroupRow, now_ms: int) -> "Member":
        """Make a member of a stored group, with the protocol that the group has settled on."""
        join = Join(
            member_id=value.member_id,
            protocol_type=row.protocol_type,
            protocols=(Protocol(row.protocol or "", value.subscription),),
            session_timeout_ms=value.session_timeout_ms,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            instance_id=value.instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
        )
        member = cls.joining(value.member_id, join, now_ms + value.session_timeout_ms)
        member.is_new = False
        return member

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it supports another."""
        return next(
            (bytes(p.metadata) for p in self.join.protocols if p.name == protocol_name), b""
        )

    @property
    def session_runs(self) -> bool:
        """True if the session can expire: no request of the member waits, or the member is new."""
        return self.is_new or (self.join_waiter is None and self.sync_waiter is None)

    def session_is_over(self, now_ms: int) -> bool:
        """Return True if the session has expired."""
        return now_ms >= self.deadline_ms and self.session_runs


class Members:
    """The members in order of arrival; the first is the leader until it leaves.

    `held_bytes` is their memory; `joined` counts members with a waiting Join.
    """

    def __init__(self) -> None:
        self.leader: str | None = None
        self.held_bytes = 0
        self.joined = 0
        self._by_id: dict[str, Member] = {}
        self._id_of_instance: dict[str, str] = {}
        self._speakers: Counter[str] = Counter()  # supporting members by protocol name

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def get(self, member_id: str) -> Member | None:
        """Return the member with an id, or None."""
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str) -> Member | None:
        """Return the static member (KIP-345) with an instance id, or None."""
        member_id = self._id_of_instance.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def find(self, member_id: str, instance_id: str | None) -> "Member | ErrorCode":
        """Return the member of these ids, or UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is None:
            return self._by_id.get(member_id, ErrorCode.unknown_member_id)
        static = self.of_instance(instance_id)
        if static is None:
            return ErrorCode.unknown_member_id
        return static if static.member_id == member_id else ErrorCode.fenced_instance_id

    def known(self, member_id: str, instance_id: str | None) -> Member:
        """Return the requesting member, or raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        member = self.find(member_id, instance_id)
        if isinstance(member, Member):
            return member
        if member is ErrorCode.fenced_instance_id:
            raise RequestRefused(
                member, f"another member now holds the instance id {instance_id!r}"
            )
        raise unknown_member(member_id if instance_id is None else instance_id)

    def add(self, member: Member) -> None:
        """Add a member."""
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if member.join.instance_id is not None:
            self._id_of_instance[member.join.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.held_bytes += member.held_bytes
        self._speakers.update(_names(member.join.protocols))

    def restore(self, row: GroupRow, now_ms: int) -> Iterator[Member]:
        """Add the members of a stored group to an empty one, and yield each after it was added.

        Raises:
            CorruptBatch: no group can have such members; some may have been added.
        """
        if not row.protocol_type or row.protocol is None:
            raise CorruptBatch("the group has members, and no protocol")
        for value in row.members:
            is_known = value.instance_id is not None and value.instance_id in self._id_of_instance
            if not value.member_id or value.member_id in self._by_id or is_known:
                raise CorruptBatch(f"two members are {value.member_id!r}, or one has no id")
            member = Member.restored(value, row, now_ms)
            self.add(member)
            self.assign(member, value.assignment)
            yield member
        if row.leader in self._by_id:
            self.leader = row.leader

    def values(
        self, protocol_name: str | None, assignments: Mapping[str, bytes | memoryview]
    ) -> tuple[MemberValue, ...]:
        """Return the members as they are stored, with assignments by member id."""
        return tuple(
            MemberValue(
                m.member_id,
                m.join.instance_id,
                m.join.client_id,
                m.join.client_host,
                m.join.rebalance_timeout_ms,
                m.join.session_timeout_ms,
                m.metadata(protocol_name),
                bytes(assignments.get(m.member_id, b"")),
            )
            for m in self._by_id.values()
        )

    def remove(self, member: Member) -> None:
        """Remove a member without waiting requests; elect another leader if it was the leader."""
        assert member.join_waiter is None
        del self._by_id[member.member_id]
        if member.join.instance_id is not None:
            self._id_of_instance.pop(member.join.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), None)
        self.held_bytes -= member.held_bytes
        self._forget_protocols(member)

    def rejoin(self, member: Member, join: Join) -> None:
        """Update a member from its new Join."""
        held_bytes = member_bytes(join) + len(member.assignment)
        self.held_bytes += held_bytes - member.held_bytes
        self._forget_protocols(member)
        self._speakers.update(_names(join.protocols))
        member.held_bytes = held_bytes
        is_same = member.join.protocols == join.protocols
        protocols = member.join.protocols if is_same else _kept(join.protocols)
        # A static member may name itself by its member id alone.
        member.join = replace(
            join, protocol_type="", protocols=protocols, instance_id=member.join.instance_id
        )

    def assign(self, member: Member, assignment: bytes | memoryview) -> None:
        """Replace a member's assignment."""
        growth = len(assignment) - len(member.assignment)
        member.assignment = bytes(assignment)
        member.held_bytes += growth
        self.held_bytes += growth

    def wait_for_join(self, member: Member, waiter: Waiter) -> None:
        """Store the waiter of the member's Join."""
        assert member.join_waiter is None
        member.join_waiter = waiter
        self.joined += 1

    def take_join_waiter(self, member: Member) -> Waiter | None:
        """Remove and return the waiter of the member's Join."""
        waiter, member.join_waiter = member.join_waiter, None
        self.joined -= waiter is not None
        return waiter

    def _forget_protocols(self, member: Member) -> None:
        for name in _names(member.join.protocols):
            self._speakers[name] -= 1
            if not self._speakers[name]:
                del self._speakers[name]

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new member id; it keeps its position and leadership."""
        assert member.join.instance_id is not None
        old_id = member.member_id
        member.member_id = member_id
        self._by_id = {m.member_id: m for m in self._by_id.values()}
        self._id_of_instance[member.join.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def elect_among_joined(self) -> bool:
        """Elect a leader among members with a waiting Join; return False without one."""
        leader = None if self.leader is None else self._by_id.get(self.leader)
        if leader is None or leader.join_waiter is None:
            joined = (m.member_id for m in self._by_id.values() if m.join_waiter is not None)
            self.leader = next(joined, self.leader)
        return self.joined > 0

    def common_protocols(self) -> set[str]:
        """Return the names of the protocols that every member supports."""
        count = len(self._by_id)
        return {name for name, speakers in self._speakers.items() if speakers == count}

    def speak_in_common(self, names: set[str], besides: Member | None) -> bool:
        """Return True if all members but `besides` support one of `names`."""
        others = len(self._by_id) - (besides is not None)
        own = set() if besides is None else _names(besides.join.protocols)
        return not others or any(self._speakers[name] - (name in own) == others for name in names)

    def favourite_protocol(self) -> str:
        """Return the protocol with the most votes; a member votes for its first common one."""
        candidates = self.common_protocols()
        assert candidates, "members join only with a common protocol"
        votes = Counter(
            next(p.name for p in member.join.protocols if p.name in candidates)
            for member in self._by_id.values()
        )
        return votes.most_common(1)[0][0]

    def rebalance_timeout_ms(self) -> int:
        """Return the largest rebalance timeout of the members, in milliseconds."""
        return max((m.join.rebalance_timeout_ms for m in self._by_id.values()), default=0)

    def session_deadlines_ms(self) -> Iterator[int]:
        """Return when running sessions expire, in milliseconds of the event loop's clock."""
        return (m.deadline_ms for m in self._by_id.values() if m.session_runs)

    def for_leader(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return the members and metadata from which the leader assigns partitions."""
        return tuple(
            JoinedMember(m.member_id, m.join.instance_id, m.metadata(protocol_name))
            for m in self._by_id.values()
        )

    def described(self, protocol_name: str | None) -> tuple[MemberDescription, ...]:
        """Return the members for DescribeGroups."""
        return tuple(
            MemberDescription(
                m.member_id,
                m.join.instance_id,
                m.join.client_id,
                m.join.client_host,
                m.metadata(protocol_name),
                m.assignment,
            )
            for m in self._by_id.values()
        )

    def subscribed_topics(self, protocol_name: str | None) -> set[str] | None:
        """Return the subscribed topics of all consumers; None if undecodable or too many."""
        topics: set[str] = set()
        names_left = MAX_SUBSCRIBED_NAMES
        for member in self._by_id.values():
            of_member = _subscription(member.metadata(protocol_name), names_left)
            if of_member is None:
                return None
            topics.update(of_member)
            names_left -= len(of_member)
        return topics


def unknown_member(who: str) -> RequestRefused:
    """Return the refusal for a member id or an instance id that the group does not have."""
    return RequestRefused(ErrorCode.unknown_member_id, f"{who!r} is not a member of the group")


def _kept(protocols: tuple[Protocol, ...]) -> tuple[Protocol, ...]:
    return tuple(protocol.kept() for protocol in protocols)


def _names(protocols: tuple[Protocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}


def _subscription(metadata: bytes, most: int) -> list[str] | None:
    """Return the topics in a consumer's subscription: version i16, then an array of strings."""
    topics = []
    try:
        (count,) = struct.unpack_from(">2xi", metadata)
        if count > most:
            return None
        position = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + size]
            if size < 0 or len(name) < size:
                return None
            topics.append(name.decode())
            position += 2 + size
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
