"""State of one consumer group, as its records tell it (KIP-848).

The state changes by records only: `replay` takes one, from a log that is loaded or from an
operation whose records are written. Operations are decided in `heartbeats` and `classic_members`,
which read the state and return a `Step`; `apply` takes it once its records are in the log. Timers
are the only other state.

Three epochs: of the group, which rises whenever members have to be assigned anew; of the target
assignment; and of each member, which gets to that of the target once it has given up what it has
to. Times are milliseconds of the event loop's clock, but for those in records.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.capacity import Capacity
from horolog.groups.consumers.timers import Timers
from horolog.groups.consumers.values import (
    FIRST_EPOCH,
    LEAVES_FOR_NOW,
    ConsumerLimits,
    ConsumerMember,
    Current,
    Epochs,
    GroupStep,
    GroupTimes,
    MemberState,
    Partitions,
    Timer,
    TimerKind,
)
from horolog.groups.rows import GroupRecord
from horolog.groups.values import GroupState
from horolog.schemas.group_records import (
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    MemberKey,
    MemberMetadataValue,
    PartitionMetadataKey,
    PatternKey,
    PatternValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)

_GROUP_BYTES: Final = 2048
_MEMBER_BYTES: Final = 2048
_NAME_BYTES: Final = 64
_PARTITION_BYTES: Final = 96
"""Rough size in memory of a partition that a member has: in its target, by epoch, by owner."""


class ConsumerGroup:
    """One consumer group. For the event loop's thread only."""

    kind: Final = "consumer"
    protocol_type: Final = "consumer"

    def __init__(
        self,
        group_id: str,
        limits: ConsumerLimits,
        capacity: Capacity,
        times: Callable[[], GroupTimes],
    ) -> None:
        """Make a group without members.

        Args:
            times: returns the settings of the group as they are now.
        """
        self.group_id = group_id
        self.limits = limits
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.members: dict[str, ConsumerMember] = {}
        self.patterns: dict[str, PatternValue] = {}
        """Topics of each pattern that was resolved."""
        self.owes_tombstone = False
        """True if a record of Kafka before 4.1 with topics of the group is in the log."""
        self.checked_version: int | None = None
        """Version of the topics when the metadata hash was last compared with them."""
        self.resolved_at_ms: int | None = None
        """When patterns were resolved last, in milliseconds of the event loop's clock."""
        self.resolved_version = 0
        """Version of the topics that they were resolved to."""
        self.timers = Timers()
        self._times = times
        self._share = capacity.share()
        self._assigned_at_ms: int | None = None  # of the event loop's clock
        self._static: dict[str, str] = {}
        self._topics: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._assignors: Counter[str | None] = Counter()
        self._owners: dict[UUID, dict[int, str]] = {}
        self._member_bytes = 0
        self._owned = 0
        self._is_dead = False

    # --- records ------------------------------------------------------------------------

    def restore(self, records: Iterable[GroupRecord], now_ms: int, clock_ms: int) -> None:
        """Take the stored records of the group, in any order; all sessions begin now.

        Args:
            now_ms: the time of the event loop.
            clock_ms: the time of records, in milliseconds since 1970.
        """
        ordered = sorted(records, key=lambda record: not isinstance(record[0], MemberKey))
        for key, value in ordered:
            if isinstance(key, TargetEpochKey) and isinstance(value, TargetEpochValue):
                elapsed_ms = max(clock_ms - value.timestamp_ms, 0)
                self.replay(key, value, now_ms - elapsed_ms)
            else:
                self.replay(key, value, now_ms)
        for member in self.members.values():
            self._begin_timers(member, now_ms)
        self._share.charge(self.held_bytes)

    def _begin_timers(self, member: ConsumerMember, now_ms: int) -> None:
        classic = member.metadata.classic
        session_ms = self.times.session_timeout_ms
        self.timers.set(Timer(TimerKind.SESSION, member.member_id, session_ms), now_ms)
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and classic is None:
            after_ms = member.metadata.rebalance_timeout_ms
            self.timers.set(Timer(TimerKind.REBALANCE, member.member_id, after_ms), now_ms)

    def apply(self, step: GroupStep, now_ms: int) -> None:
        """Take a step whose records are in the log."""
        for key, value in step.records:
            self.replay(key, value, now_ms)
        for timer in step.timers:
            if timer.member_id in self.members:
                self.timers.set(timer, now_ms)
        if step.checked_version is not None:
            self.checked_version = step.checked_version
        if step.records:
            self._share.charge(self.held_bytes)

    def replay(self, key: object, value: object, now_ms: int) -> None:
        """Take one record; `value` is None if it removes what the key names."""
        match key:
            case MemberKey():
                assert value is None or isinstance(value, MemberMetadataValue)
                self._replay_member(key.member, value)
            case CurrentKey():
                assert value is None or isinstance(value, CurrentValue)
                current = Current() if value is None else Current.of(value)
                self._replay_current(key.member, current)
            case TargetKey():
                assert value is None or isinstance(value, TargetValue)
                self._replay_target(key.member, value)
            case GroupEpochKey():
                assert value is None or isinstance(value, GroupEpochValue)
                self.epoch = FIRST_EPOCH if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case TargetEpochKey():
                assert value is None or isinstance(value, TargetEpochValue)
                self.assignment_epoch = FIRST_EPOCH if value is None else value.epoch
                is_timed = value is not None and value.timestamp_ms > 0
                self._assigned_at_ms = now_ms if is_timed else None
            case PatternKey():
                assert value is None or isinstance(value, PatternValue)
                former = self.patterns.pop(key.regex, None)
                if former is not None:
                    self._member_bytes -= pattern_bytes(key.regex, former)
                if value is not None:
                    self.patterns[key.regex] = value
                    self._member_bytes += pattern_bytes(key.regex, value)
            case PartitionMetadataKey():
                self.owes_tombstone = value is not None
            case _:  # of the classic group that it was
                pass

    def _replay_member(self, member_id: str, metadata: MemberMetadataValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._count(before, -1)
        if metadata is None:
            if before is not None:
                self._replay_current(member_id, Current())
                del self.members[member_id]
                self.timers.drop(member_id)
            return
        topics = frozenset(metadata.topics)
        if before is None:
            after = ConsumerMember(member_id, metadata, topics)
        else:
            after = before._replace(metadata=metadata, topics=topics)
        self.members[member_id] = after
        self._count(after, 1)

    def _count(self, member: ConsumerMember, sign: int) -> None:
        for counts, key in [
            *((self._topics, topic) for topic in member.topics),
            *([(self._regexes, member.regex)] if member.regex else []),
        ]:
            counts[key] += sign
            if not counts[key]:
                del counts[key]
        self._assignors[member.metadata.assignor] += sign
        self._member_bytes += sign * metadata_bytes(member.member_id, member.metadata)
        instance_id = member.instance_id
        if instance_id is None:
            return
        if sign > 0:
            self._static[instance_id] = member.member_id
        elif self._static.get(instance_id) == member.member_id:
            del self._static[instance_id]

    def _replay_current(self, member_id: str, current: Current) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        for topic_id, partition in _held(member.current):
            self._owned -= 1
            owners = self._owners.get(topic_id, {})
            if owners.get(partition) == member_id:
                del owners[partition]
                if not owners:
                    del self._owners[topic_id]
        for topic_id, partition in _held(current):
            self._owned += 1
            self._owners.setdefault(topic_id, {})[partition] = member_id
        self.members[member_id] = member._replace(current=current)

    def _replay_target(self, member_id: str, value: TargetValue | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        target: Partitions | None = None
        if value is not None:
            target = {of.topic_id: frozenset(of.partitions) for of in value.topics if of.partitions}
        self.members[member_id] = member._replace(target=target)

    # --- queries ------------------------------------------------------------------------

    @property
    def times(self) -> GroupTimes:
        """Settings of the group."""
        return self._times()

    @property
    def state(self) -> GroupState:
        """State as ListGroups and ConsumerGroupDescribe name it."""
        if self._is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        for member in self.members.values():
            current = member.current
            is_stable = current.state is MemberState.STABLE
            if not is_stable or current.epoch != self.assignment_epoch:
                return GroupState.RECONCILING
        return GroupState.STABLE

    @property
    def member_count(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def is_idle(self) -> bool:
        """True if the group has no members."""
        return not self.members

    def of_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the static member of an instance id."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """Return the member that has a partition, to be given up or not."""
        return self._owners.get(topic_id, {}).get(partition)

    def subscriptions(self) -> Callable[[str], bool]:
        """Return a predicate: is a topic subscribed?"""
        return self.subscribed_topics().__contains__

    def subscribed_topics(
        self,
        before: ConsumerMember | None = None,
        after: ConsumerMember | None = None,
        patterns: Mapping[str, PatternValue] | None = None,
    ) -> set[str]:
        """Return the names of the topics that members subscribe to.

        Args:
            before, after: a member as it was and as it will be.
            patterns: the topics of patterns, if they are to be others.
        """
        patterns = self.patterns if patterns is None else patterns
        topics, regexes = set(self._topics), set(self._regexes)
        if before is not None:
            topics.difference_update(name for name in before.topics if self._topics[name] == 1)
            if self._regexes[before.regex] == 1:
                regexes.discard(before.regex)
        if after is not None:
            topics |= after.topics
            regexes |= {after.regex}
        for regex in regexes:
            if regex in patterns:
                topics.update(patterns[regex].topics)
        return topics

    def topics_of(self, member: ConsumerMember) -> set[str]:
        """Return the names of the topics that a member subscribes to."""
        resolved = self.patterns.get(member.regex)
        return set(member.topics) if resolved is None else {*member.topics, *resolved.topics}

    @property
    def regexes(self) -> Mapping[str, int]:
        """Number of members of each pattern."""
        return self._regexes

    def preferred_assignor(
        self, before: ConsumerMember | None = None, after: ConsumerMember | None = None
    ) -> str:
        """Return the assignor that most members name; the default if none names one.

        Args:
            before, after: a member as it was and as it will be.
        """
        named = self._assignors
        if before is not None and after is not None:
            named = Counter(named)
            named[before.metadata.assignor] -= 1
            named[after.metadata.assignor] += 1
        # Of several that as many members name, Kafka's hash table has `uniform` first.
        known = sorted(self.limits.assignors, reverse=True)
        preferred = max(known, key=lambda name: named[name])
        return preferred if named[preferred] else self.limits.assignors[0]

    def assignment_is_due(self, now_ms: int) -> bool:
        """Return True if members may be assigned anew, in milliseconds of the event loop."""
        if self._assigned_at_ms is None:
            return True
        return now_ms - self._assigned_at_ms >= self.times.assignment_interval_ms

    # --- offsets ------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when to look for members to fence; may be too early."""
        return self.timers.wake_at_ms

    def dropped(self) -> list[GroupRecord]:
        """Return the records that remove the group, which has no members."""
        return [
            (TargetEpochKey(self.group_id), None),
            (PartitionMetadataKey(self.group_id), None),
            (GroupEpochKey(self.group_id), None),
        ]

    def kill(self) -> None:
        """Mark the group, which has no members, as deleted."""
        assert not self.members
        self._is_dead = True
        self._share.charge(0)

    # --- memory -------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the group, without committed offsets."""
        owned_bytes = self._owned * _PARTITION_BYTES
        return _GROUP_BYTES + len(self.group_id) + self._member_bytes + owned_bytes

    def check_room(self, growth_bytes: int) -> bool:
        """Return True if members may hold so many more bytes.

        Raises:
            RequestRefused: all groups together hold too much (COORDINATOR_NOT_AVAILABLE).
        """
        if growth_bytes <= 0:
            return True
        self._share.check(self.held_bytes + growth_bytes)
        return self.held_bytes + growth_bytes <= self.limits.max_bytes


def no_member(group_id: str, member_id: str) -> RequestRefused:
    """Return the refusal of a member that a group does not have (25)."""
    return RequestRefused(
        ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}."
    )


def metadata_bytes(member_id: str, metadata: MemberMetadataValue) -> int:
    """Return roughly the memory of a member without its partitions."""
    size = _MEMBER_BYTES + len(member_id) + len(metadata.client_id) + len(metadata.client_host)
    size += len(metadata.instance_id or "") + len(metadata.rack_id or "")
    size += len(metadata.regex or "") + sum(_NAME_BYTES + len(name) for name in metadata.topics)
    if metadata.classic is not None:
        protocols = metadata.classic.protocols
        size += sum(_NAME_BYTES + len(name) + len(data) for name, data in protocols)
    return size


def pattern_bytes(regex: str, value: PatternValue) -> int:
    """Return roughly the memory of the topics that a pattern has found."""
    return len(regex) + _NAME_BYTES * (1 + len(value.topics))


def _held(current: Current) -> Iterator[tuple[UUID, int]]:
    """Yield the partitions that a member has, to be given up or not."""
    parts: tuple[Epochs, Epochs] = (current.assigned, current.pending)
    for epochs in parts:
        for topic_id, of_topic in epochs.items():
            for partition in of_topic:
                yield topic_id, partition


def has_left_for_now(member: ConsumerMember) -> bool:
    """Return True if a static member has left, and keeps its partitions for a while."""
    return member.current.epoch == LEAVES_FOR_NOW
