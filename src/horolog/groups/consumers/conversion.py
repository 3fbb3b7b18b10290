"""Groups with members that change between the classic and the consumer protocol (KIP-848)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.groups.consumers.change import hash_of
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.values import (
    ConsumerMember,
    Current,
    GroupStep,
    Timer,
    TimerKind,
    TopicLookup,
)
from horolog.groups.embedded import (
    ClassicAssignment,
    NamedPartitions,
    assignment_bytes,
    read_assignment,
    read_subscription,
    version_of,
)
from horolog.groups.group import Group
from horolog.groups.members import Member
from horolog.groups.rows import GroupRecord, GroupRow
from horolog.schemas.group_records import (
    ClassicMetadata,
    ClassicProtocol,
    CurrentKey,
    GroupEpochKey,
    GroupEpochValue,
    MemberKey,
    MemberMetadataValue,
    PartitionMetadataKey,
    PatternKey,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetPartitions,
    TargetValue,
)
from horolog.schemas.offsets import MemberValue

# --- up -----------------------------------------------------------------------------------


def conversion_of(group: Group, to: ConsumerGroup, topics: TopicLookup) -> GroupStep:
    """Return the step that makes a consumer group of a classic group with members.

    Raises:
        RequestRefused: it may not change, or its members use the protocol in another way (69).
    """
    if not to.limits.policy.upgrade:
        raise _no_upgrade(group, "online upgrade is disabled")
    if group.protocol_type != to.protocol_type:
        raise _no_upgrade(group, "it does not use the consumer embedded protocol")
    if group.member_count > to.limits.max_size:
        raise _no_upgrade(group, "it has more members than group.consumer.max.size")
    group_id, epoch = group.group_id, group.generation
    metadata: list[GroupRecord] = []
    targets: list[GroupRecord] = []
    currents: list[GroupRecord] = []
    timers: list[Timer] = []
    subscribed: set[str] = set()
    for member in group.members:
        try:
            value, assigned = _read(member, topics)
        except CorruptBatch as error:
            raise _no_upgrade(group, f"the embedded consumer protocol is malformed: {error}") from (
                error
            )
        if assigned is None:
            raise _no_upgrade(group, "an unsupported custom assignor is in use")
        subscribed.update(value.topics)
        metadata.append((MemberKey(group_id, member.member_id), value))
        target = tuple(TargetPartitions(it, tuple(sorted(of))) for it, of in assigned.items())
        targets.append((TargetKey(group_id, member.member_id), TargetValue(target)))
        epochs = {topic_id: dict.fromkeys(of, epoch) for topic_id, of in assigned.items()}
        current = Current(epoch, epoch, assigned=epochs)
        currents.append((CurrentKey(group_id, member.member_id), current.value()))
        session_ms = member.join.session_timeout_ms
        timers.append(Timer(TimerKind.SESSION, member.member_id, session_ms))
    of_group = GroupEpochValue(epoch, hash_of(topics, subscribed))
    records: list[GroupRecord] = [*metadata, (GroupEpochKey(group_id), of_group), *targets]
    records += [(TargetEpochKey(group_id), TargetEpochValue(epoch)), *currents]
    return GroupStep(None, records, timers)


def _read(
    member: Member, topics: TopicLookup
) -> tuple[MemberMetadataValue, dict[UUID, tuple[int, ...]] | None]:
    """Return a member and its partitions; None if another assignor has to read them."""
    join = member.join
    subscription = read_subscription(bytes(join.protocols[0].metadata))
    assignment = read_assignment(bytes(member.assignment))
    assigned: dict[UUID, tuple[int, ...]] | None = None
    if not assignment.user_data:
        assigned = {}
        for name, partitions in assignment.topics:
            topic = topics.find(name)
            if topic is not None and partitions:
                assigned[topic.topic_id] = partitions
    protocols = tuple(ClassicProtocol(name, bytes(data)) for name, data in join.protocols)
    value = MemberMetadataValue(
        join.instance_id,
        subscription.rack_id,
        join.client_id,
        join.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        join.rebalance_timeout_ms,
        None,
        ClassicMetadata(join.session_timeout_ms, protocols),
    )
    return value, assigned


def _no_upgrade(group: Group, why: str) -> RequestRefused:
    return RequestRefused(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.",
    )


# --- down ---------------------------------------------------------------------------------


def may_become_classic(group: ConsumerGroup, left: Sequence[ConsumerMember]) -> bool:
    """Return True if members are to be a classic group."""
    limits = group.limits
    if not left or not limits.policy.downgrade or len(left) > limits.max_classic_size:
        return False
    return all(member.is_classic for member in left) and _common_protocol(left) is not None


def becoming_classic(
    group: ConsumerGroup,
    left: Sequence[ConsumerMember],
    topics: TopicLookup,
    step: GroupStep,
    *,
    rebalances: bool,
) -> GroupStep:
    """Return the step that makes a classic group of members that are to be one.

    Args:
        left: members that the group will have.
        step: what would be done otherwise.
        rebalances: False if a static member takes the place of the last other one, and has all
            that it is to have.
    """
    protocol = _common_protocol(left)
    assert protocol is not None
    epoch = max([group.epoch, *(member.current.epoch for member in left)])
    members = tuple(_value(member, protocol, topics) for member in left)
    row = GroupRow(
        group.group_id, group.protocol_type, None, epoch, protocol, left[0].member_id, members
    )
    return GroupStep(step.answer, _tombstones(group), becomes=row, rebalances=rebalances)


def _common_protocol(members: Sequence[ConsumerMember]) -> str | None:
    """Return the protocol that most members prefer of those that all speak."""
    speakers: Counter[str] = Counter()
    for member in members:
        speakers.update({name for name, _ in _protocols(member)})
    common = {name for name, count in speakers.items() if count == len(members)}
    votes = Counter(
        next(name for name, _ in _protocols(member) if name in common)
        for member in members
        if common
    )
    return max(votes, key=lambda name: votes[name], default=None)


def _protocols(member: ConsumerMember) -> Sequence[ClassicProtocol]:
    return () if member.metadata.classic is None else member.metadata.classic.protocols


def _value(member: ConsumerMember, protocol: str, topics: TopicLookup) -> MemberValue:
    metadata, classic = member.metadata, member.metadata.classic
    assert classic is not None
    subscription = next(data for name, data in classic.protocols if name == protocol)
    return MemberValue(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        subscription,
        classic_assignment(member.target or {}, topics, subscription),
    )


def classic_assignment(
    partitions: Mapping[UUID, Collection[int]], topics: TopicLookup, subscription: bytes
) -> bytes:
    """Return partitions as the classic protocol has them, in the version of a subscription."""
    named = [
        NamedPartitions(topic.name, tuple(sorted(of)))
        for topic_id, of in partitions.items()
        if (topic := topics.find_id(topic_id)) is not None
    ]
    return assignment_bytes(ClassicAssignment(tuple(named)), version_of(subscription))


def _tombstones(group: ConsumerGroup) -> list[GroupRecord]:
    """Return the records that remove a group with its members, in the order of Kafka's loader."""
    group_id, ids = group.group_id, list(group.members)
    records: list[GroupRecord] = [(CurrentKey(group_id, it), None) for it in ids]
    records += [(TargetKey(group_id, it), None) for it in ids]
    records.append((TargetEpochKey(group_id), None))
    records += [(MemberKey(group_id, it), None) for it in ids]
    records += [(PatternKey(group_id, regex), None) for regex in group.patterns]
    return [
        *records,
        (PartitionMetadataKey(group_id), None),
        (GroupEpochKey(group_id), None),
    ]
