"""Heartbeats of members of a consumer group: they join, stay, resubscribe and leave (KIP-848)."""

from typing import Final

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.consumers.change import GroupOperation, Now, hash_of, removal
from horolog.groups.consumers.conversion import becoming_classic, may_become_classic
from horolog.groups.consumers.group import (
    ConsumerGroup,
    has_left_for_now,
    metadata_bytes,
    no_member,
)
from horolog.groups.consumers.reconciliation import is_settled
from horolog.groups.consumers.topic_patterns import check_pattern
from horolog.groups.consumers.values import (
    LEAVES,
    LEAVES_FOR_NOW,
    Beat,
    Beaten,
    ConsumerMember,
    Current,
    GroupStep,
    Partitions,
    Timer,
    TimerKind,
    TopicLookup,
    partitions_of,
)
from horolog.schemas.group_records import (
    CurrentKey,
    GroupEpochKey,
    GroupEpochValue,
    MemberMetadataValue,
    PatternKey,
    TargetEpochKey,
    TargetEpochValue,
)

_SAYS: Final = slice(Beat._fields.index("rack_id"), Beat._fields.index("owned"))
_SAYS_NOTHING: Final = Beat("", 0)[_SAYS]


def heartbeat(group: ConsumerGroup, beat: Beat, topics: TopicLookup, now: Now) -> GroupStep:
    """Decide a heartbeat; the answer of the step is a `Beaten`.

    Raises:
        RequestRefused: as section 2 of KIP-848's errors has it: the group is full (81), the member
            is not known (25), was replaced (82), may not take a place yet (111) or has another
            epoch (110).
    """
    if beat.epoch in (LEAVES, LEAVES_FOR_NOW):
        return _leave(group, beat, topics)
    check_size(group, beat.member_id, beat.instance_id)
    change = GroupOperation(group, topics, now)
    before = _joining(change, beat) if beat.epoch == 0 else _staying(group, beat)
    is_new = before.member_id not in group.members and change.replaced is None
    if beat.regex and beat.regex not in group.regexes:
        check_pattern(beat.regex, topics.names())
    after = _updated(before, beat)
    if is_new or after is not before:
        _check_room(group, before if not is_new else None, after)
    change.subscribe(before, after, is_new=is_new)
    change.raise_epoch()
    change.assign()
    member = change.reconcile(beat.owned)
    times = group.times
    change.timers.append(Timer(TimerKind.SESSION, member.member_id, times.session_timeout_ms))
    assignment: Partitions | None = None
    if beat.is_full or member.current is not before.current:
        has = partitions_of(member.current.assigned)
        if beat.is_full or has != partitions_of(before.current.assigned):
            assignment = has
    interval_ms = times.heartbeat_interval_ms
    return change.step(Beaten(member.member_id, member.current.epoch, interval_ms, assignment))


def quiet(group: ConsumerGroup, beat: Beat, topics_version: int) -> GroupStep | None:
    """Return what `heartbeat` does if that changes nothing; None if it may change something.

    Most heartbeats only say that their member is alive.
    """
    member = group.members.get(beat.member_id)
    if member is None or group.epoch != group.assignment_epoch:
        return None
    its, current = member.metadata, member.current
    if beat.epoch != current.epoch or not is_settled(current, group.assignment_epoch):
        return None
    if beat[_SAYS] != _SAYS_NOTHING or group.checked_version != topics_version:
        return None
    same = its.instance_id, its.client_id, its.client_host
    instance_id = its.instance_id if beat.instance_id is None else beat.instance_id
    if member.is_classic or same != (instance_id, beat.client_id, beat.client_host):
        return None
    times = group.times
    answer = Beaten(member.member_id, current.epoch, times.heartbeat_interval_ms)
    return GroupStep(
        answer, timers=[Timer(TimerKind.SESSION, member.member_id, times.session_timeout_ms)]
    )


# --- which member ---------------------------------------------------------------------------


def check_size(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Refuse one more member than the group may have.

    Raises:
        RequestRefused: the group is full (81).
    """
    if group.member_count < group.limits.max_size or member_id in group.members:
        return
    if group.of_instance(instance_id) is None:
        raise RequestRefused(
            ErrorCode.group_max_size_reached,
            "The consumer group has reached its maximum capacity of "
            f"{group.limits.max_size} members.",
        )


def _joining(change: GroupOperation, beat: Beat) -> ConsumerMember:
    """Return the member that joins, as it was before."""
    group = change.group
    static = group.of_instance(beat.instance_id)
    if static is None:
        return group.members.get(beat.member_id) or new_member(beat.member_id)
    if not static.is_classic and not has_left_for_now(static):
        raise RequestRefused(
            ErrorCode.unreleased_instance_id,
            f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the "
            "group because the instance id is owned by another member that has not left it.",
        )
    return change.replace(static, beat.member_id)


def _staying(group: ConsumerGroup, beat: Beat) -> ConsumerMember:
    """Return the member of a heartbeat with an epoch."""
    member = known(group, beat.member_id, beat.instance_id)
    epoch, its = beat.epoch, member.current
    if epoch > its.epoch:
        raise _fenced("greater", epoch, its.epoch)
    if epoch < its.epoch and (epoch != its.previous_epoch or not _is_part(beat.owned, its)):
        raise _fenced("smaller", epoch, its.epoch)
    return member


def known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return a member by its id, and by its instance id if it says one.

    Raises:
        RequestRefused: it is not known (25), or another member has its instance id (82).
    """
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise no_member(group.group_id, member_id)
        return member
    static = group.of_instance(instance_id)
    if static is None:
        raise RequestRefused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if static.member_id != member_id:
        raise RequestRefused(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{static.member_id}.",
        )
    return static


def new_member(member_id: str) -> ConsumerMember:
    """Return a member that has said nothing yet."""
    return ConsumerMember(
        member_id, MemberMetadataValue(None, None, "", "", (), "", -1, None, None)
    )


def _updated(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """Return a member with what a heartbeat says of it; None leaves what it said before."""
    was = member.metadata
    topics = member.topics if beat.topics is None else beat.topics
    metadata = MemberMetadataValue(
        was.instance_id if beat.instance_id is None else beat.instance_id,
        was.rack_id if beat.rack_id is None else beat.rack_id,
        beat.client_id,
        beat.client_host,
        was.topics if topics == member.topics else tuple(sorted(topics)),
        was.regex if beat.regex is None else beat.regex,
        was.rebalance_timeout_ms if beat.rebalance_timeout_ms == -1 else beat.rebalance_timeout_ms,
        was.assignor if beat.assignor is None else beat.assignor,
        None,
    )
    return member if metadata == was else member._replace(metadata=metadata, topics=topics)


def _check_room(group: ConsumerGroup, before: ConsumerMember | None, after: ConsumerMember) -> None:
    had = 0 if before is None else metadata_bytes(before.member_id, before.metadata)
    if not group.check_room(metadata_bytes(after.member_id, after.metadata) - had):
        raise RequestRefused(
            ErrorCode.group_max_size_reached,
            f"the members of the group occupy {group.held_bytes} bytes, and more exceed "
            f"horolog.group.max.bytes={group.limits.max_bytes}",
        )


def _is_part(owned: Partitions | None, current: Current) -> bool:
    """Return True if a member says that it owns a part of what it was assigned."""
    if owned is None:
        return False
    assigned = current.assigned
    return all(of <= assigned.get(topic_id, {}).keys() for topic_id, of in owned.items())


def _fenced(which: str, epoch: int, known_epoch: int) -> RequestRefused:
    return RequestRefused(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({known_epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


# --- leaving --------------------------------------------------------------------------------


def _leave(group: ConsumerGroup, beat: Beat, topics: TopicLookup) -> GroupStep:
    member = known(group, beat.member_id, beat.instance_id)
    answer = Beaten(beat.member_id, beat.epoch)
    if beat.epoch == LEAVES:
        return removed(group, [member], topics, answer)
    its = member.current
    assigned = {
        topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in its.assigned.items()
    }
    left = Current(LEAVES_FOR_NOW, its.previous_epoch, its.state, assigned)
    record = (CurrentKey(group.group_id, member.member_id), left.value())
    return GroupStep(answer, [record], [Timer(TimerKind.REBALANCE, member.member_id)])


def removed(
    group: ConsumerGroup, members: list[ConsumerMember], topics: TopicLookup, answer: object = None
) -> GroupStep:
    """Return the step that removes members, which leave or are fenced."""
    group_id = group.group_id
    gone = {member.member_id for member in members}
    left = [member for member in group.members.values() if member.member_id not in gone]
    records = [record for member in members for record in removal(group_id, member.member_id)]
    regexes = {member.regex for member in left}
    records += [
        (PatternKey(group_id, regex), None) for regex in group.patterns if regex not in regexes
    ]
    subscribed: set[str] = set()
    for topics_of in {(member.topics, member.regex): member for member in left}.values():
        subscribed |= group.topics_of(topics_of)
    epoch = group.epoch + 1
    records.append((GroupEpochKey(group_id), GroupEpochValue(epoch, hash_of(topics, subscribed))))
    if not left:
        records.append((TargetEpochKey(group_id), TargetEpochValue(epoch)))
    step = GroupStep(answer, records, checked_version=topics.version)
    if not may_become_classic(group, left):
        return step
    return becoming_classic(group, left, topics, step, rebalances=True)


def expired(group: ConsumerGroup, topics: TopicLookup, now_ms: int) -> GroupStep | None:
    """Return the step that removes the members whose time is over; None if there are none."""
    due = group.timers.due(now_ms)
    members = [group.members[member_id] for member_id in due if member_id in group.members]
    return removed(group, members, topics) if members else None
