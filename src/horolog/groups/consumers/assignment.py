"""Target assignments of consumer groups: which partitions each member is to have in the end.

A small one is made by the operation that finds it due. One that takes longer is made by a thread of
the group as it was at one moment, while its members go on with the one before, as they do between
two assignments anyway. It counts once its records are in the log.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from horolog.groups.consumers.assignors import Subscriber, assign
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.values import ConsumerMember, GroupStep, Partitions, TopicLookup
from horolog.groups.rows import GroupRecord
from horolog.schemas.group_records import (
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetPartitions,
    TargetValue,
)

_MOST_AT_ONCE: Final = 2_000
"""Members and partitions that are assigned on the event loop, at most."""


class AssignmentJob(NamedTuple):
    """Members to assign partitions to; any thread may do it."""

    group_id: str
    epoch: int
    assignor: str
    members: Sequence[ConsumerMember]
    subscribed: Mapping[tuple[frozenset[str], str], frozenset[UUID]]
    """Ids of topics, by the names and the pattern of those that subscribe to them."""
    counts: Mapping[UUID, int]

    def targets(self) -> Mapping[str, Partitions]:
        """Return the partitions of each member."""
        subscribers = [
            Subscriber(
                member.member_id,
                member.instance_id,
                self.subscribed[member.topics, member.regex],
                member.target or {},
            )
            for member in self.members
        ]
        is_mixed = any(names and regex for names, regex in self.subscribed)
        is_homogeneous = len(self.subscribed) <= 1 and not is_mixed
        return assign(self.assignor, subscribers, self.counts, is_homogeneous=is_homogeneous)

    def records(self, targets: Mapping[str, Partitions]) -> list[GroupRecord]:
        """Return the records of members that are to have others than before."""
        return [
            (TargetKey(self.group_id, member.member_id), target_value(target))
            for member in self.members
            if (target := targets.get(member.member_id, {})) != member.target
        ]

    def made(self) -> list[GroupRecord]:
        """Return these records, with the assignment made."""
        return self.records(self.targets())


def job_of(
    group: ConsumerGroup,
    epoch: int,
    assignor: str,
    members: Iterable[ConsumerMember],
    topics: TopicLookup,
) -> AssignmentJob:
    """Return the assignment of an epoch of a group."""
    counts: dict[UUID, int] = {}
    subscribed: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    members = list(members)
    for member in members:
        subscription = (member.topics, member.regex)
        if subscription not in subscribed:
            found = map(topics.find, group.topics_of(member))
            there = {shape.topic_id: len(shape.partitions) for shape in found if shape is not None}
            counts.update(there)
            subscribed[subscription] = frozenset(there)
    return AssignmentJob(group.group_id, epoch, assignor, members, subscribed, counts)


def is_large(members: int, subscribed: Iterable[str], topics: TopicLookup) -> bool:
    """Return True if an assignment takes too long for the event loop."""
    left = _MOST_AT_ONCE - members
    for shape in map(topics.find, subscribed if left >= 0 else ()):
        left -= 0 if shape is None else len(shape.partitions)
        if left < 0:
            break
    return left < 0


def large_job(group: ConsumerGroup, topics: TopicLookup, now_ms: int) -> AssignmentJob | None:
    """Return the assignment that a group waits for; None if an operation makes it, or none is due.

    Args:
        now_ms: the time of the event loop, in milliseconds.
    """
    if group.epoch <= group.assignment_epoch or not group.assignment_is_due(now_ms):
        return None
    if not is_large(group.member_count, group.subscribed_topics(), topics):
        return None
    members = group.members.values()
    return job_of(group, group.epoch, group.preferred_assignor(), members, topics)


def assigned(
    group: ConsumerGroup, job: AssignmentJob, records: Iterable[GroupRecord], clock_ms: int
) -> GroupStep:
    """Return the step by which an assignment counts; it changes nothing if it does not any more.

    Members that have come meanwhile get partitions with the next one, for which their coming has
    raised the epoch of the group. But a static member may have given its place to another id.

    Args:
        records: what the job has made.
        clock_ms: the time of records.
    """
    is_same = group.members.keys() == {member.member_id for member in job.members}
    if job.epoch <= group.assignment_epoch or (job.epoch == group.epoch and not is_same):
        return GroupStep(None)
    there = [
        (key, value)
        for key, value in records
        if isinstance(key, TargetKey) and key.member in group.members
    ]
    epoch = TargetEpochKey(group.group_id), TargetEpochValue(job.epoch, clock_ms)
    return GroupStep(None, [*there, epoch])


def target_value(target: Partitions) -> TargetValue:
    """Return a target as the value of its record."""
    return TargetValue(
        tuple(TargetPartitions(topic_id, tuple(sorted(of))) for topic_id, of in target.items())
    )
