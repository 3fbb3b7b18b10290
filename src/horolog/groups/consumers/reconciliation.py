"""The next step of a member on its way to its target assignment (KIP-848).

A member gives up partitions before it gets others, and gets those only that no other member has
any more. `reconciled` returns the next step of this way; each heartbeat takes at most one.
"""

from collections.abc import Callable, Mapping, Set
from uuid import UUID

from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.consumers.values import Current, MemberState, Partitions

HeldByOther = Callable[[UUID, int], bool]
"""Tells whether another member has a partition, or has not given it up yet."""


def reconciled(
    current: Current,
    target_epoch: int,
    target: Partitions,
    subscribed: Set[UUID],
    is_held: HeldByOther,
    owned: Partitions | None,
    *,
    resubscribed: bool,
) -> Current:
    """Return what a member has after a heartbeat.

    Args:
        target: what it is to have at `target_epoch`.
        subscribed: topics that it subscribes to now, which may be fewer than those of the target.
        owned: what the member says that it has; None if it does not say.
        resubscribed: its subscription changes with this heartbeat.

    Raises:
        RequestRefused: its state is of a later release, and it has to join again without
            partitions (110).
    """
    if current.state is MemberState.UNKNOWN and owned != {}:
        raise RequestRefused(
            ErrorCode.fenced_member_epoch,
            "the member is in an unknown state: it must abandon all its partitions and rejoin",
        )
    still_owns = current.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, current.pending)
    if still_owns or is_settled(current, target_epoch):
        return _without_unsubscribed(current, subscribed, owned) if resubscribed else current
    keep: dict[UUID, dict[int, int]] = {}
    revoke: dict[UUID, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        for partition, since in epochs.items():
            to = keep if partition in wanted else revoke
            to.setdefault(topic_id, {})[partition] = since
    if revoke and _owns(owned, revoke):
        unrevoked = MemberState.UNREVOKED_PARTITIONS
        return Current(current.epoch, current.epoch, unrevoked, keep, revoke)
    waits = False
    for topic_id, wanted in target.items():
        if topic_id not in subscribed:
            continue
        had = current.assigned.get(topic_id, {})
        for partition in sorted(wanted):
            if partition in had:
                continue
            if is_held(topic_id, partition):
                waits = True
            else:
                keep.setdefault(topic_id, {})[partition] = target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return Current(target_epoch, current.epoch, state, keep)


def is_settled(current: Current, target_epoch: int) -> bool:
    """Return True if a member has what it is to have, and waits for nothing."""
    return current.state is MemberState.STABLE and current.epoch == target_epoch


def _without_unsubscribed(
    current: Current, subscribed: Set[UUID], owned: Partitions | None
) -> Current:
    """Take away the partitions of topics that a member subscribes to no more (KAFKA-19431)."""
    gone = current.assigned.keys() - subscribed
    if not gone and (subscribed or current.pending):
        return current
    current = current._replace(previous_epoch=current.epoch)
    keep = {topic_id: it for topic_id, it in current.assigned.items() if topic_id in subscribed}
    pending = {topic_id: dict(epochs) for topic_id, epochs in current.pending.items()}
    for topic_id in gone:
        pending.setdefault(topic_id, {}).update(current.assigned[topic_id])
    if pending and _owns(owned, pending):
        unrevoked = MemberState.UNREVOKED_PARTITIONS
        return current._replace(state=unrevoked, assigned=keep, pending=pending)
    return current._replace(assigned=keep)


def _owns(owned: Partitions | None, pending: Mapping[UUID, Mapping[int, int]]) -> bool:
    """Return True unless a member has said that it has none of these."""
    if owned is None:
        return True
    return any(
        not owned.get(topic_id, frozenset()).isdisjoint(of) for topic_id, of in pending.items()
    )
