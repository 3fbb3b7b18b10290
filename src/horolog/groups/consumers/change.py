"""One operation of a member on its group while it is decided: what changes, and the records of it.

The steps, in the order of the records: the member and its subscription; the epoch of the group, if
members have to be assigned anew; the target assignment, if its time has come; and what the member
has next. The state of the group is read, and stays as it is.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from horolog.groups.consumers.assignment import is_large, job_of, target_value
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.reconciliation import is_settled, reconciled
from horolog.groups.consumers.topic_hash import metadata_hash, topic_hash
from horolog.groups.consumers.values import (
    ConsumerMember,
    Current,
    GroupStep,
    MemberState,
    Partitions,
    Timer,
    TimerKind,
    TopicLookup,
)
from horolog.groups.rows import GroupRecord
from horolog.schemas.group_records import (
    CurrentKey,
    GroupEpochKey,
    GroupEpochValue,
    MemberKey,
    PatternKey,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
)


class Now(NamedTuple):
    """The time of the event loop and of records, in milliseconds."""

    loop_ms: int
    clock_ms: int


class GroupOperation:
    """An operation while it is decided: the changes so far, and their records."""

    def __init__(self, group: ConsumerGroup, topics: TopicLookup, now: Now) -> None:
        """Begin a change that changes nothing."""
        self.group = group
        self.records: list[GroupRecord] = []
        self.timers: list[Timer] = []
        self.replaced: str | None = None
        """Id of the static member whose place the member takes."""
        self._topics = topics
        self._now = now
        self._epoch = group.epoch
        self._assignment_epoch = group.assignment_epoch
        self._checked_version: int | None = None
        self._before: ConsumerMember | None = None
        self._after: ConsumerMember | None = None
        self._bumps = False
        self._resubscribed = False

    def step(self, answer: object) -> GroupStep:
        """Return the whole operation."""
        return GroupStep(answer, self.records, self.timers, self._checked_version)

    # --- members ------------------------------------------------------------------------

    def replace(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give the place of a static member to another id; it begins at member epoch 0."""
        group_id = self.group.group_id
        new = old._replace(
            member_id=member_id, current=old.current._replace(epoch=0, previous_epoch=0)
        )
        self.replaced = old.member_id
        self.records += removal(group_id, old.member_id)
        self.records += [
            (MemberKey(group_id, member_id), new.metadata),
            (TargetKey(group_id, member_id), target_value(new.target or {})),
            (CurrentKey(group_id, member_id), new.current.value()),
        ]
        return new

    def subscribe(self, before: ConsumerMember, after: ConsumerMember, *, is_new: bool) -> None:
        """Note a member as it was and as it is now."""
        group = self.group
        self._before, self._after = before, after
        if is_new or after.metadata != before.metadata:
            self.records.append((MemberKey(group.group_id, after.member_id), after.metadata))
        names_changed = after.topics != before.topics
        regex_changed = after.regex != before.regex
        self._resubscribed = names_changed or regex_changed
        if regex_changed:
            self._drop_pattern(before)
        to_known = regex_changed and (not after.regex or after.regex in group.patterns)
        self._bumps = names_changed or to_known
        if after.metadata.assignor != before.metadata.assignor:
            self._bumps |= group.preferred_assignor() != self._preferred()

    def _drop_pattern(self, before: ConsumerMember) -> None:
        """Forget the topics of a pattern whose last member leaves it."""
        if before.regex in self.group.patterns and self.group.regexes[before.regex] == 1:
            self.records.append((PatternKey(self.group.group_id, before.regex), None))

    def members(self) -> Iterator[ConsumerMember]:
        """Yield the members that the group will have."""
        after, seen = self._after, False
        for member in self.group.members.values():
            if after is not None and member.member_id == after.member_id:
                seen = True
                yield after
            elif member.member_id != self.replaced:
                yield member
        if after is not None and not seen:
            yield after

    def _preferred(self) -> str:
        return self.group.preferred_assignor(self._before, self._after)

    # --- epochs -------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        """True if the members have to be assigned anew."""
        return self._epoch > self._assignment_epoch

    def raise_epoch(self) -> None:
        """Raise the epoch of the group if its members have to be assigned anew."""
        group, version = self.group, self._topics.version
        if not self._bumps and group.checked_version == version:
            return
        subscribed = group.subscribed_topics(self._before, self._after)
        found = hash_of(self._topics, subscribed)
        self._checked_version = version
        if self._bumps or found != group.metadata_hash:
            self._epoch += 1
            value = GroupEpochValue(self._epoch, found)
            self.records.append((GroupEpochKey(group.group_id), value))

    def assign(self) -> None:
        """Assign partitions to all members, if they are to be assigned anew and may be now.

        What takes long is left to `assignment.large_job`.
        """
        group = self.group
        if not self.is_stale or not group.assignment_is_due(self._now.loop_ms):
            return
        subscribed = group.subscribed_topics(self._before, self._after)
        if is_large(group.member_count, subscribed, self._topics):
            return
        job = job_of(group, self._epoch, self._preferred(), self.members(), self._topics)
        targets = job.targets()
        self.records += job.records(targets)
        if self._after is not None:
            its = targets.get(self._after.member_id, {})
            self._after = self._after._replace(target=its)
        self._assignment_epoch = self._epoch
        of_epoch = TargetEpochValue(self._epoch, self._now.clock_ms)
        self.records.append((TargetEpochKey(group.group_id), of_epoch))

    # --- partitions ---------------------------------------------------------------------

    def reconcile(self, owned: Partitions | None) -> ConsumerMember:
        """Give the member what it may have now, and return it.

        Args:
            owned: what it says that it has; None if it does not say.

        Raises:
            RequestRefused: it has to join again without partitions (110).
        """
        member = self._after
        assert member is not None
        before = member.current
        if not self._resubscribed and is_settled(before, self._assignment_epoch):
            return member
        subscribed = self._ids(self.group.topics_of(member))
        after = reconciled(
            before,
            self._assignment_epoch,
            member.target or {},
            subscribed,
            self._is_held,
            owned,
            resubscribed=self._resubscribed,
        )
        if after == before:
            return member
        self._note_current(member, after)
        self._after = member._replace(current=after)
        return self._after

    def _is_held(self, topic_id: UUID, partition: int) -> bool:
        assert self._after is not None
        owner = self.group.owner(topic_id, partition)
        return owner not in (None, self._after.member_id, self.replaced)

    def _ids(self, names: set[str]) -> frozenset[UUID]:
        shapes = map(self._topics.find, names)
        return frozenset(shape.topic_id for shape in shapes if shape is not None)

    def _note_current(self, member: ConsumerMember, current: Current) -> None:
        key = CurrentKey(self.group.group_id, member.member_id)
        self.records.append((key, current.value()))
        if member.is_classic:
            return
        unrevoked = current.state is MemberState.UNREVOKED_PARTITIONS
        after_ms = member.metadata.rebalance_timeout_ms if unrevoked else None
        self.timers.append(Timer(TimerKind.REBALANCE, member.member_id, after_ms))


def removal(group_id: str, member_id: str) -> list[GroupRecord]:
    """Return the records that remove a member, in the order in which Kafka loads them."""
    return [
        (CurrentKey(group_id, member_id), None),
        (TargetKey(group_id, member_id), None),
        (MemberKey(group_id, member_id), None),
    ]


def hash_of(topics: TopicLookup, names: set[str]) -> int:
    """Return the metadata hash of topics; those that do not exist are left out."""
    shapes = map(topics.find, names)
    return metadata_hash(
        {
            shape.name: _hash(shape.topic_id, shape.name, len(shape.partitions), topics.rack)
            for shape in shapes
            if shape is not None
        }
    )


@lru_cache(maxsize=16_384)
def _hash(topic_id: UUID, name: str, partitions: int, rack: str | None) -> int:
    return topic_hash(topic_id, name, partitions, () if rack is None else ((rack,),) * partitions)
