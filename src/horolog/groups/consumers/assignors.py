"""Assignors of the consumer group protocol, member by member as Apache Kafka 4.4 has them.

Each divides the partitions of all topics among the members that are subscribed to them, and never
gives a partition to two. None looks at racks.

    range    for each topic alone: consecutive partitions, in the order of instance and member ids
    uniform  as even as can be over all topics; members keep what they had where that allows it

Source: KIP-848, KAFKA-17710, KAFKA-18688. Both are compared with the classes of Apache Kafka in
`tests/interop/test_interop_group_decisions.py`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from horolog.groups.consumers.java_order import (
    map_order,
    set_order,
    text_hash,
    text_key,
    uuid_hash,
    uuid_key,
)

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id, without topics that have none."""

Assignment: TypeAlias = dict[str, dict[UUID, frozenset[int]]]
"""Partitions by topic id, by member id. Each member is in it."""

_MOST_ROUNDS: Final = 16
_UNOWNED: Final = -1


class Subscriber(NamedTuple):
    """Member of a group, as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    """Topics to which it is subscribed."""
    previous: Partitions
    """Its target assignment until now."""


def assign(
    assignor: str,
    subscribers: Sequence[Subscriber],
    counts: Mapping[UUID, int],
    *,
    is_homogeneous: bool,
) -> Assignment:
    """Divide partitions among members.

    Args:
        assignor: a name of `ASSIGNORS`.
        subscribers: members of the group.
        counts: partitions of each topic that exists; other topics are left out.
        is_homogeneous: all members have the same subscription. Equal sets of topics alone do not
            make it so: two patterns may find the same topics.
    """
    return ASSIGNORS[assignor](subscribers, counts, is_homogeneous)


def _range(subscribers: Sequence[Subscriber], counts: Mapping[UUID, int], _: bool) -> Assignment:
    ordered = sorted(subscribers, key=_range_key)
    assigned: Assignment = {member.member_id: {} for member in ordered}
    held = list(assigned.values())
    for topic_id, numbers in _subscribers_by_topic(ordered, counts).items():
        size, extras = divmod(counts[topic_id], len(numbers))
        begin = 0
        for place, number in enumerate(numbers if size else numbers[:extras]):
            end = begin + size + (place < extras)
            held[number][topic_id] = frozenset(range(begin, end))
            begin = end
    return assigned


def _range_key(member: Subscriber) -> tuple[bool, bytes, bytes]:
    is_static = member.instance_id is not None
    return not is_static, text_key(member.instance_id or ""), text_key(member.member_id)


def _uniform(
    subscribers: Sequence[Subscriber], counts: Mapping[UUID, int], is_homogeneous: bool
) -> Assignment:
    if not subscribers:
        return {}
    ordered = map_order(subscribers, lambda member: text_hash(member.member_id))
    return (_Even if is_homogeneous else _Uneven)(ordered, counts).assignment()


# --- Uniform, where all have the same topics: quotas ------------------------------------


class _Even:
    """Quotas of members, and the partitions that are left while they are filled."""

    def __init__(self, members: Sequence[Subscriber], counts: Mapping[UUID, int]) -> None:
        topics = set_order(sorted(members[0].topics & counts.keys(), key=uuid_key), uuid_hash)
        self._members = members
        self._free: deque[tuple[UUID, int]] = deque()
        self._unclaimed = {topic_id: set[int]() for topic_id in topics}
        """Partitions that members had, and none has claimed yet."""
        for member in members:
            for topic_id in self._unclaimed.keys() & member.previous.keys():
                self._unclaimed[topic_id] |= member.previous[topic_id]
        for topic_id, had in self._unclaimed.items():
            numbers = range(counts[topic_id])
            self._free.extend((topic_id, number) for number in numbers if number not in had)
            had.intersection_update(numbers)
        self._partitions = sum(counts[topic_id] for topic_id in topics)

    def assignment(self) -> Assignment:
        """Give each member what it had, up to its quota, then partitions that are left."""
        minimum, extras = divmod(self._partitions, len(self._members))
        assigned: Assignment = {}
        unfilled: list[tuple[str, int]] = []
        for place, member in enumerate(self._members):
            takes_extra = extras > 0
            kept, left = self._claim(member.previous, minimum + takes_extra)
            assigned[member.member_id] = kept
            if left and takes_extra and len(self._members) - place > extras:
                takes_extra = False  # a later member may hold one already
                left -= 1
            extras -= takes_extra
            if left:
                unfilled.append((member.member_id, left))
        for member_id, left in unfilled:
            self._fill(assigned[member_id], left)
        return assigned

    def _claim(self, previous: Partitions, quota: int) -> tuple[dict[UUID, frozenset[int]], int]:
        """Return what a member keeps, and what is left of its quota."""
        kept = {}
        for topic_id in map_order(previous, uuid_hash):
            unclaimed = self._unclaimed.get(topic_id, set())
            owned = previous[topic_id] & unclaimed
            unclaimed -= owned
            if len(owned) > quota:
                ordered = set_order(sorted(owned), int)
                self._free.extend((topic_id, number) for number in ordered[quota:])
                owned = frozenset(ordered[:quota])
            if owned:
                kept[topic_id] = owned
                quota -= len(owned)
        return kept, quota

    def _fill(self, kept: dict[UUID, frozenset[int]], left: int) -> None:
        """Give a member the first of the partitions that are left."""
        taken: dict[UUID, list[int]] = {}
        for _ in range(left):
            topic_id, number = self._free.popleft()
            taken.setdefault(topic_id, []).append(number)
        for topic_id, numbers in taken.items():
            kept[topic_id] = kept.get(topic_id, frozenset()).union(numbers)


# --- Uniform, where subscriptions differ: dealt to the least loaded, then balanced -------


class _Uneven:
    """Owners of partitions while they are assigned.

    A member is a number here: its place among all. Its load is the number of its partitions.
    """

    def __init__(self, members: Sequence[Subscriber], counts: Mapping[UUID, int]) -> None:
        self._members = members
        self._loads = [0] * len(members)
        self._subscribers = _subscribers_by_topic(members, counts)
        self._owners = {topic_id: [_UNOWNED] * counts[topic_id] for topic_id in self._subscribers}
        self._topics = sorted(self._subscribers, key=self._topic_key)
        self._even: set[int] = set()  # ids of lists of subscribers, since the last change of a load

    def assignment(self) -> Assignment:
        for number, member in enumerate(self._members):
            self._keep(number, member)
        for topic_id in self._topics:
            self._deal(topic_id)
        self._balance([it for it in self._topics if len(self._subscribers[it]) > 1])
        assigned: Assignment = {member.member_id: {} for member in self._members}
        held = list(assigned.values())
        for topic_id, owners in self._owners.items():
            for number, partitions in _by_owner(owners).items():
                held[number][topic_id] = frozenset(partitions)
        return assigned

    def _topic_key(self, topic_id: UUID) -> tuple[float, int, tuple[int, int]]:
        subscribers = len(self._subscribers[topic_id])
        return -len(self._owners[topic_id]) / subscribers, subscribers, uuid_key(topic_id)

    def _keep(self, number: int, member: Subscriber) -> None:
        """Let a member keep its partitions of topics to which it is still subscribed."""
        for topic_id, partitions in member.previous.items():
            if topic_id not in member.topics or topic_id not in self._owners:
                continue
            owners = self._owners[topic_id]
            for partition in partitions:
                if 0 <= partition < len(owners) and owners[partition] == _UNOWNED:
                    self._give(owners, partition, number)

    def _deal(self, topic_id: UUID) -> None:
        """Give partitions without an owner to the least loaded subscribers."""
        owners = self._owners[topic_id]
        unowned = [partition for partition, owner in enumerate(owners) if owner == _UNOWNED]
        if unowned:
            takers = self._takers(self._by_load(topic_id))
            for partition, taker in zip(unowned, takers, strict=False):
                self._give(owners, partition, taker)

    def _balance(self, topics: Sequence[UUID]) -> None:
        """Move partitions to less loaded subscribers, until a round of all topics moves none."""
        last = -1
        for _ in range(_MOST_ROUNDS):
            for place, topic_id in enumerate(topics):
                if place == last:
                    return
                if self._balance_topic(topic_id) or last < 0:
                    last = place

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Move partitions of a topic; return True if there was one to move."""
        subscribers = self._subscribers[topic_id]
        if id(subscribers) in self._even:
            return False
        ordered = self._by_load(topic_id)
        if self._loads[ordered[-1]] - self._loads[ordered[0]] <= 1:
            self._even.add(id(subscribers))
            return False
        owners = self._owners[topic_id]
        owned = _by_owner(owners)
        has_moved = False
        for giver, taker in zip(self._givers(ordered, owned), self._takers(ordered), strict=False):
            if self._loads[giver] - self._loads[taker] <= 1:
                break
            self._give(owners, owned[giver].pop(), taker)
            has_moved = True
        return has_moved

    def _by_load(self, topic_id: UUID) -> list[int]:
        return sorted(self._subscribers[topic_id], key=self._loads.__getitem__)

    def _give(self, owners: list[int], partition: int, taker: int) -> None:
        """Change the owner of a partition."""
        if owners[partition] != _UNOWNED:
            self._loads[owners[partition]] -= 1
        owners[partition] = taker
        self._loads[taker] += 1
        self._even.clear()

    def _takers(self, ordered: Sequence[int]) -> Iterator[int]:
        """Yield members, the least loaded first, level by level, while each takes a partition.

        Args:
            ordered: members by load.
        """
        end, level = 0, self._loads[ordered[0]]
        while True:
            while end < len(ordered) and self._loads[ordered[end]] == level:
                end += 1
            yield from islice(ordered, end)
            level += 1

    def _givers(self, ordered: list[int], owned: Mapping[int, Sequence[int]]) -> Iterator[int]:
        """Yield members, the most loaded first, level by level, while each gives a partition.

        Args:
            ordered: members by load. Members without partitions are moved to the end.
            owned: partitions of the topic by owner.
        """
        begin = end = len(ordered)
        level = 0
        while begin or end:
            level = level - 1 if end > begin else self._loads[ordered[begin - 1]]
            while begin and self._loads[ordered[begin - 1]] == level:
                begin -= 1
            for place in reversed(range(begin, end)):
                giver = ordered[place]
                if owned.get(giver):
                    yield giver
                else:
                    end -= 1
                    ordered[place], ordered[end] = ordered[end], giver


def _by_owner(owners: Iterable[int]) -> dict[int, list[int]]:
    """Return the partitions of a topic by owner, ascending."""
    owned: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners):
        owned.setdefault(owner, []).append(partition)
    return owned


# --- Both -------------------------------------------------------------------------------


def _subscribers_by_topic(
    members: Iterable[Subscriber], counts: Mapping[UUID, int]
) -> dict[UUID, list[int]]:
    """Return the places of each topic's subscribers. Topics with the same ones share a list."""
    alike: dict[frozenset[UUID], list[int]] = {}
    for place, member in enumerate(members):
        alike.setdefault(member.topics, []).append(place)
    kinds: dict[UUID, list[int]] = {topic_id: [] for topic_id in counts}
    existing = frozenset(counts)
    for kind, topics in enumerate(alike):
        for topic_id in topics & existing:
            kinds[topic_id].append(kind)
    places = list(alike.values())
    shared: dict[tuple[int, ...], list[int]] = {}
    subscribers: dict[UUID, list[int]] = {}
    for topic_id, of_topic in kinds.items():
        if not of_topic:
            continue
        key = tuple(of_topic)
        if key not in shared:
            shared[key] = sorted(chain.from_iterable(places[kind] for kind in key))
        subscribers[topic_id] = shared[key]
    return subscribers


ASSIGNORS: Final[
    Mapping[str, Callable[[Sequence[Subscriber], Mapping[UUID, int], bool], Assignment]]
] = {"uniform": _uniform, "range": _range}
"""Assignors by name. The first is the default."""
