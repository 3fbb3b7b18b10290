"""The members of one group: who belongs, who leads, which protocol all of them speak."""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from horolog.groups.values import (
    Join,
    JoinedMember,
    MemberDescription,
    Protocol,
    Waiter,
    member_bytes,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

# Reading so many names takes some 20 ms; the subscriptions of a group with more are not read.
MAX_SUBSCRIBED_NAMES = 50_000


@dataclass(slots=True)
class Member:
    """One member; a waiter is set while its Join or Sync is unanswered.

    `deadline_ms` is when its session ends, on the loop's own clock. It does not count
    while a request of the member waits here, except for a member that `is_new`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    deadline_ms: int
    held_bytes: int
    assignment: bytes = b""
    is_new: bool = True
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None

    @classmethod
    def joining(cls, member_id: str, join: Join, deadline_ms: int) -> "Member":
        """The member that a Join brings into being."""
        return cls(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocols=_kept(join.protocols),
            deadline_ms=deadline_ms,
            held_bytes=member_bytes(join),
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member says under one protocol; empty if it does not speak it."""
        return next((bytes(p.metadata) for p in self.protocols if p.name == protocol_name), b"")

    def session_is_over(self, now_ms: int) -> bool:
        """Whether the member has been silent too long."""
        if now_ms < self.deadline_ms:
            return False
        return self.is_new or (self.join_waiter is None and self.sync_waiter is None)


class Members:
    """The members in the order they came; the first leads unless it is lost.

    `held_bytes` is what they occupy together; `joined` counts those whose Join waits here.
    """

    def __init__(self) -> None:
        self.leader: str | None = None
        self.held_bytes = 0
        self.joined = 0
        self._by_id: dict[str, Member] = {}
        self._id_of_instance: dict[str, str] = {}
        self._speakers: Counter[str] = Counter()  # members that speak a protocol, by its name

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def get(self, member_id: str) -> Member | None:
        """The member of that id."""
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str) -> Member | None:
        """The static member (KIP-345) of that name."""
        member_id = self._id_of_instance.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def add(self, member: Member) -> None:
        """Take a member in."""
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._id_of_instance[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.held_bytes += member.held_bytes
        self._speakers.update(_names(member.protocols))

    def remove(self, member: Member) -> None:
        """Remove a member that waits for nothing; another leads if it was the leader."""
        assert member.join_waiter is None
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            self._id_of_instance.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), None)
        self.held_bytes -= member.held_bytes
        self._forget_protocols(member)

    def rejoin(self, member: Member, join: Join) -> None:
        """Take over what a member says of itself this time."""
        held_bytes = member_bytes(join) + len(member.assignment)
        self.held_bytes += held_bytes - member.held_bytes
        self._forget_protocols(member)
        self._speakers.update(_names(join.protocols))
        member.held_bytes = held_bytes
        if member.protocols != join.protocols:
            member.protocols = _kept(join.protocols)
        member.client_id = join.client_id
        member.client_host = join.client_host
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms

    def assign(self, member: Member, assignment: bytes | memoryview) -> None:
        """Keep a member's part, instead of the one before."""
        growth = len(assignment) - len(member.assignment)
        member.assignment = bytes(assignment)
        member.held_bytes += growth
        self.held_bytes += growth

    def wait_for_join(self, member: Member, waiter: Waiter) -> None:
        """The member's Join waits here."""
        assert member.join_waiter is None
        member.join_waiter = waiter
        self.joined += 1

    def take_join_waiter(self, member: Member) -> Waiter | None:
        """The waiter of the member's Join, which waits here no longer."""
        waiter, member.join_waiter = member.join_waiter, None
        self.joined -= waiter is not None
        return waiter

    def _forget_protocols(self, member: Member) -> None:
        for name in _names(member.protocols):
            self._speakers[name] -= 1
            if not self._speakers[name]:
                del self._speakers[name]

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under a new id; its place and its lead stay."""
        assert member.instance_id is not None
        old_id = member.member_id
        member.member_id = member_id
        self._by_id = {m.member_id: m for m in self._by_id.values()}
        self._id_of_instance[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def elect_among_joined(self) -> bool:
        """Have a leader whose Join waits here; False if nobody's does."""
        leader = None if self.leader is None else self._by_id.get(self.leader)
        if leader is None or leader.join_waiter is None:
            joined = (m.member_id for m in self._by_id.values() if m.join_waiter is not None)
            self.leader = next(joined, self.leader)
        return self.joined > 0

    def common_protocols(self) -> set[str]:
        """The names of the protocols that every member speaks."""
        count = len(self._by_id)
        return {name for name, speakers in self._speakers.items() if speakers == count}

    def speak_in_common(self, names: set[str], besides: Member | None) -> bool:
        """Whether all members, `besides` apart, speak one of these; True if there are none."""
        others = len(self._by_id) - (besides is not None)
        own = set() if besides is None else _names(besides.protocols)
        return not others or any(self._speakers[name] - (name in own) == others for name in names)

    def favourite_protocol(self) -> str:
        """Every member votes for the first of its protocols that all speak."""
        candidates = self.common_protocols()
        assert candidates, "members are only let in with a protocol in common"
        votes = Counter(
            next(p.name for p in member.protocols if p.name in candidates)
            for member in self._by_id.values()
        )
        return votes.most_common(1)[0][0]

    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: as long as the slowest member allows."""
        return max((m.rebalance_timeout_ms for m in self._by_id.values()), default=0)

    def for_leader(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """What the leader is told to make its assignment from."""
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(protocol_name))
            for m in self._by_id.values()
        )

    def described(self, protocol_name: str | None) -> tuple[MemberDescription, ...]:
        """The members as DescribeGroups shows them."""
        return tuple(
            MemberDescription(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.metadata(protocol_name),
                m.assignment,
            )
            for m in self._by_id.values()
        )

    def subscribed_topics(self, protocol_name: str | None) -> set[str] | None:
        """The topics that consumers subscribe to; None if illegible, or too many to read."""
        topics: set[str] = set()
        names_left = MAX_SUBSCRIBED_NAMES
        for member in self._by_id.values():
            of_member = _subscription(member.metadata(protocol_name), names_left)
            if of_member is None:
                return None
            topics.update(of_member)
            names_left -= len(of_member)
        return topics


def _kept(protocols: tuple[Protocol, ...]) -> tuple[Protocol, ...]:
    return tuple(protocol.kept() for protocol in protocols)


def _names(protocols: tuple[Protocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}


def _subscription(metadata: bytes, most: int) -> list[str] | None:
    """The topics in a consumer's subscription: version i16, then an array of strings."""
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
