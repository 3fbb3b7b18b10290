"""Checks of those who commit offsets of a consumer group (KIP-848, KIP-1251)."""

from collections.abc import Callable, Sequence
from uuid import UUID

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.consumers.group import ConsumerGroup, no_member
from horolog.groups.consumers.values import ConsumerMember
from horolog.groups.rows import OffsetRow
from horolog.groups.values import Committer

_NIL = UUID(int=0)


def check_commit(
    group: ConsumerGroup, by: Committer, rows: Callable[[], Sequence[OffsetRow]]
) -> None:
    """Refuse a commit of a member that has lost what it commits for.

    A member whose epoch has just passed may commit for partitions that it has had since then.

    Args:
        rows: returns the offsets to commit.

    Raises:
        RequestRefused: not a member (25); its epoch is another (113, and 22 of a classic member);
            a member of the consumer protocol cannot say its epoch (35).
    """
    if by.generation < 0 and not group.members:
        return  # a client that assigns its own partitions
    member = _member(group, by)
    if not member.is_classic and not by.says_epoch:
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"Member {by.member_id} uses the consumer protocol, whose commits say its epoch: "
            "OffsetCommit 9 or later.",
        )
    _check_epoch(member, by, rows)


def check_transactional_commit(
    group: ConsumerGroup, by: Committer, rows: Callable[[], Sequence[OffsetRow]]
) -> None:
    """Refuse offsets that a producer commits for a member of another epoch (KIP-447).

    Raises:
        RequestRefused: as `check_commit`; before TxnOffsetCommit 6 another epoch is always 22.
    """
    names_none = not by.member_id and by.instance_id is None
    if by.generation < 0 and (names_none or not group.members):
        return
    _check_epoch(_member(group, by), by, rows)


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Refuse to tell a member of another epoch the committed offsets.

    Raises:
        RequestRefused: not a member (25), or another epoch (113).
    """
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise no_member(group.group_id, member_id or "")
    if member.current.epoch != epoch:
        raise _stale(member, epoch)


def _member(group: ConsumerGroup, by: Committer) -> ConsumerMember:
    member = group.members.get(by.member_id)
    if member is None:
        raise no_member(group.group_id, by.member_id)
    return member


def _check_epoch(
    member: ConsumerMember, by: Committer, rows: Callable[[], Sequence[OffsetRow]]
) -> None:
    current, epoch = member.current, by.generation
    if epoch == current.epoch:
        return
    refused = _stale(member, epoch)
    if member.is_classic or not by.says_epoch:
        refused = RequestRefused(ErrorCode.illegal_generation, str(refused))
    if member.is_classic or epoch < 0 or epoch > current.epoch:
        raise refused
    for row in rows():
        since = current.since(row.topic_id or _NIL, row.partition)
        if since is None or since > epoch:
            raise refused


def _stale(member: ConsumerMember, epoch: int) -> RequestRefused:
    return RequestRefused(
        ErrorCode.stale_member_epoch,
        f"The member {member.member_id} has epoch {member.current.epoch}, not {epoch}.",
    )
