"""Members of the classic protocol in a consumer group, while a group changes over (KIP-848).

Their partitions come from the broker as those of others do. JoinGroup is the heartbeat with which
such a member says what it owns, SyncGroup tells it what it may have, and Heartbeat whether it has
to join again. All are answered at once.
"""

from collections.abc import Sequence
from uuid import UUID

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.groups.consumers.change import GroupOperation, Now
from horolog.groups.consumers.conversion import (
    becoming_classic,
    classic_assignment,
    may_become_classic,
)
from horolog.groups.consumers.group import ConsumerGroup
from horolog.groups.consumers.heartbeats import check_size, known, new_member, removed
from horolog.groups.consumers.values import (
    ConsumerMember,
    GroupStep,
    MemberState,
    Partitions,
    Timer,
    TimerKind,
    TopicLookup,
)
from horolog.groups.embedded import (
    Subscription,
    read_subscription,
)
from horolog.groups.values import Join, Joined, Sync, Synced
from horolog.schemas.group_records import ClassicMetadata, ClassicProtocol, MemberMetadataValue

_CONSUMER = "consumer"


def join(
    group: ConsumerGroup,
    asked: Join,
    new_id: str,
    topics: TopicLookup,
    now: Now,
) -> GroupStep:
    """Decide a JoinGroup; the answer of the step is a `Joined`.

    Args:
        new_id: id for a member without one.

    Raises:
        RequestRefused: the group is full (81), has no protocol in common with it (23), does not
            know it (25), or gave its instance id to another (82).
    """
    member_id = asked.member_id or new_id
    check_size(group, member_id, asked.instance_id)
    subscription = _subscription(group, asked, member_id)
    if not asked.member_id and asked.instance_id is None and asked.expects_member_id:
        return GroupStep(Joined(ErrorCode.member_id_required, member_id))
    change = GroupOperation(group, topics, now)
    before = _before(change, asked, member_id)
    is_new = before.member_id not in group.members and change.replaced is None
    after = _joined(before, asked, subscription)
    change.subscribe(before, after, is_new=is_new)
    change.raise_epoch()
    downgrades = change.replaced is not None and may_become_classic(group, list(change.members()))
    if not downgrades:
        change.assign()
    rebalances = downgrades and change.is_stale
    member = after if rebalances else change.reconcile(_owned(subscription, topics))
    change.timers += [
        Timer(TimerKind.JOIN, member_id),
        Timer(TimerKind.SESSION, member_id, asked.session_timeout_ms),
        Timer(TimerKind.SYNC, member_id, asked.rebalance_timeout_ms),
    ]
    protocol = asked.protocols[0].name
    answer = Joined(ErrorCode.none, member_id, member.current.epoch, _CONSUMER, protocol)
    step = change.step(answer)
    if not downgrades:
        return step
    return becoming_classic(group, list(change.members()), topics, step, rebalances=rebalances)


def _subscription(group: ConsumerGroup, asked: Join, member_id: str) -> Subscription:
    """Return what a member subscribes to, if it speaks a protocol of all classic members."""
    names = {protocol.name for protocol in asked.protocols}
    for member in group.members.values():
        classic = member.metadata.classic
        if classic is not None and member.member_id != member_id:
            names &= {protocol.name for protocol in classic.protocols}
    if asked.protocol_type != _CONSUMER or not names:
        raise RequestRefused(
            ErrorCode.inconsistent_group_protocol,
            f"Member {member_id}'s protocols are not supported.",
        )
    try:
        return read_subscription(bytes(asked.protocols[0].metadata))
    except CorruptBatch as error:
        raise RequestRefused(ErrorCode.inconsistent_group_protocol, str(error)) from error


def _before(change: GroupOperation, asked: Join, member_id: str) -> ConsumerMember:
    group = change.group
    if asked.instance_id is not None:
        if asked.member_id:
            return known(group, member_id, asked.instance_id)
        static = group.of_instance(asked.instance_id)
        if static is not None:
            return change.replace(static, member_id)
    return group.members.get(member_id) or new_member(member_id)


def _joined(before: ConsumerMember, asked: Join, subscription: Subscription) -> ConsumerMember:
    was = before.metadata
    protocols = tuple(
        ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in asked.protocols
    )
    topics = frozenset(subscription.topics)
    metadata = MemberMetadataValue(
        was.instance_id if asked.instance_id is None else asked.instance_id,
        was.rack_id if subscription.rack_id is None else subscription.rack_id,
        asked.client_id,
        asked.client_host,
        was.topics if topics == before.topics else tuple(sorted(topics)),
        "",
        asked.rebalance_timeout_ms,
        was.assignor,
        ClassicMetadata(asked.session_timeout_ms, protocols),
    )
    return before._replace(metadata=metadata, topics=topics)


def _owned(subscription: Subscription, topics: TopicLookup) -> Partitions:
    owned: dict[UUID, frozenset[int]] = {}
    for name, partitions in subscription.owned:
        topic = topics.find(name)
        if topic is not None:
            owned[topic.topic_id] = frozenset(partitions)
    return owned


# --- the other requests -----------------------------------------------------------------


def sync(group: ConsumerGroup, asked: Sync, topics: TopicLookup) -> GroupStep:
    """Decide a SyncGroup; the answer of the step is a `Synced`, with what the member may have.

    Raises:
        RequestRefused: it is not a classic member (25), in another generation (22), means another
            protocol (23), or has to join again (27).
    """
    member, protocol = _classic(group, asked.member_id, asked.instance_id, asked.generation)
    meant = (asked.protocol_type, asked.protocol_name)
    for given, ours in zip(meant, (_CONSUMER, protocol.name), strict=True):
        if given is not None and given != ours:
            raise RequestRefused(
                ErrorCode.inconsistent_group_protocol,
                f"The protocol {given} of member {member.member_id} is not {ours}.",
            )
    unrevoked = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.assignment_epoch > member.current.epoch and not unrevoked:
        return GroupStep(Synced(ErrorCode.rebalance_in_progress), timers=[_rejoins(member)])
    assignment = classic_assignment(member.current.assigned, topics, protocol.metadata)
    timers = [Timer(TimerKind.SYNC, member.member_id), _session(member)]
    return GroupStep(Synced(ErrorCode.none, *meant, assignment), timers=timers)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> GroupStep:
    """Decide a Heartbeat; the answer of the step is an error code: 27 if it has to join again.

    Raises:
        RequestRefused: it is not a classic member (25), or in another generation (22).
    """
    member, _ = _classic(group, member_id, instance_id, generation)
    current = member.current
    must_join = (
        current.epoch < group.assignment_epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member))
    )
    if must_join:
        return GroupStep(
            ErrorCode.rebalance_in_progress, timers=[_session(member), _rejoins(member)]
        )
    return GroupStep(ErrorCode.none, timers=[_session(member)])


def leave(
    group: ConsumerGroup, members: Sequence[tuple[str, str | None]], topics: TopicLookup
) -> GroupStep:
    """Decide a LeaveGroup; the answer of the step is the error of each member."""
    errors: list[ErrorCode] = []
    gone: dict[str, ConsumerMember] = {}
    for member_id, instance_id in members:
        error = ErrorCode.none
        if instance_id is None:
            member = group.members.get(member_id)
        else:
            member = group.of_instance(instance_id)
        if member is None:
            error = ErrorCode.unknown_member_id
        elif instance_id is not None and member_id not in ("", member.member_id):
            error = ErrorCode.fenced_instance_id
        else:
            gone[member.member_id] = member
        errors.append(error)
    if not gone:
        return GroupStep(errors)
    return removed(group, list(gone.values()), topics, errors)


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicProtocol]:
    member = known(group, member_id, instance_id)
    classic = member.metadata.classic
    if classic is None or not classic.protocols:
        raise RequestRefused(
            ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol."
        )
    if member.current.epoch != generation:
        raise RequestRefused(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch "
            f"{member.current.epoch} of member {member_id}.",
        )
    return member, classic.protocols[0]


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return True if another member has a partition that is to be this member's."""
    return any(
        group.owner(topic_id, partition) not in (None, member.member_id)
        for topic_id, partitions in (member.target or {}).items()
        for partition in partitions
    )


def _session(member: ConsumerMember) -> Timer:
    assert member.metadata.classic is not None
    session_ms = member.metadata.classic.session_timeout_ms
    return Timer(TimerKind.SESSION, member.member_id, session_ms)


def _rejoins(member: ConsumerMember) -> Timer:
    after_ms = member.metadata.rebalance_timeout_ms
    return Timer(TimerKind.JOIN, member.member_id, after_ms, if_none=True)
