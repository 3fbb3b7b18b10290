"""How Kafka's controller changes a partition: ISR, ELR (KIP-966), leader, reassignment.

`change_of` gives the record by which a partition comes to be as it is wanted, or None.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from horolog.schemas.metadata import NO_CHANGE, PartitionChange, PartitionRecord

NO_LEADER = -1
RECOVERED, RECOVERING = 0, 1


class Election(Enum):
    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass
class Wanted:
    """How a partition should be; None is as it is."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    recovery_state: int | None = None
    directories: Sequence[UUID] | None = None  # one a replica of the target
    unclean: Collection[int] = ()
    """Brokers whose last shutdown was unclean: they leave the ELR."""


class Rules(NamedTuple):
    """What an election depends on besides the partition."""

    can_lead: Callable[[int], bool]
    directory_of: Callable[[int], UUID]
    min_isr: int
    has_elr: bool
    election: Election = Election.ONLINE


def change_of(old: PartitionRecord, wanted: Wanted, rules: Rules) -> PartitionChange | None:
    """The record of a change, after an election where it is due; None if nothing changes."""
    isr = list(old.isr if wanted.isr is None else wanted.isr)
    replicas = list(old.replicas if wanted.replicas is None else wanted.replicas)
    removing = list(old.removing if wanted.removing is None else wanted.removing)
    adding = list(old.adding if wanted.adding is None else wanted.adding)
    if removing or adding:
        staying, staying_isr = _without(replicas, removing), _without(isr, removing)
        if staying and staying_isr and set(staying) <= set(staying_isr):
            isr, replicas, removing, adding = staying_isr, staying, [], []
    elr = _elr(old, isr, wanted.unclean, rules)
    leader, is_unclean = _elected(old, replicas, isr, elr, rules)
    recovery = -1
    if leader != old.leader:
        if is_unclean:
            isr, elr = [leader], []
            recovery = RECOVERING if old.recovery_state != RECOVERING else -1
        elif leader in elr:
            isr, elr = [leader], _without(elr, [leader])
    if wanted.recovery_state is not None and wanted.recovery_state != old.recovery_state:
        recovery = wanted.recovery_state
    bumps = leader != old.leader or not set(old.replicas) <= set(replicas)
    directories = wanted.directories
    if directories is None:
        known = dict(zip(old.replicas, old.directories, strict=False))
        directories = [known.get(it) or rules.directory_of(it) for it in replicas]
    changes_isr = (isr or rules.has_elr) and isr != list(old.isr)
    change = PartitionChange(
        old.partition,
        old.topic_id,
        isr=tuple(isr) if changes_isr else None,
        leader=leader if bumps else NO_CHANGE,
        replicas=_changed(old.replicas, replicas),
        removing=_changed(old.removing, removing),
        adding=_changed(old.adding, adding),
        recovery_state=recovery,
        directories=_changed_ids(old.directories, directories),
        elr=_changed(old.elr or (), elr),
        last_known_elr=_last_known(old, isr if changes_isr else None, leader, rules),
    )
    return None if change == PartitionChange(old.partition, old.topic_id) else change


def _elr(
    old: PartitionRecord, isr: Sequence[int], unclean: Collection[int], rules: Rules
) -> list[int]:
    if not rules.has_elr or len(isr) >= rules.min_isr:
        return []
    members = {*(old.elr or ()), *old.isr} - set(isr) - set(unclean)
    return sorted(members)


def _elected(
    old: PartitionRecord,
    replicas: Sequence[int],
    isr: Sequence[int],
    elr: Sequence[int],
    rules: Rules,
) -> tuple[int, bool]:
    """The leader, and whether it may lack committed records."""

    def may(replica: int) -> bool:
        return replica in (isr or elr) and rules.can_lead(replica)

    first = [old.leader]
    if rules.election is Election.PREFERRED:
        first = [replicas[0], old.leader]
    for replica in (*first, *replicas):
        if may(replica):
            return replica, False
    last = old.last_known_elr or ()
    if rules.has_elr and not isr and not elr and len(last) == 1 and rules.can_lead(last[0]):
        return last[0], True
    if rules.election is Election.UNCLEAN:
        for replica in replicas:
            if rules.can_lead(replica):
                return replica, True
    return NO_LEADER, False


def _last_known(
    old: PartitionRecord, isr: Sequence[int] | None, leader: int, rules: Rules
) -> tuple[int, ...] | None:
    """The last known leader of a partition whose ISR becomes empty; removed once it has one."""
    last = old.last_known_elr or ()
    if not rules.has_elr:
        return None
    if isr is not None and not isr and last != (old.leader,):
        return (old.leader,)
    return () if leader >= 0 and last else None


def _without(these: Sequence[int], those: Collection[int]) -> list[int]:
    return [it for it in these if it not in those]


def _changed(old: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    return None if list(old) == list(new) else tuple(new)


def _changed_ids(old: Sequence[UUID], new: Sequence[UUID]) -> tuple[UUID, ...] | None:
    return None if list(old) == list(new) else tuple(new)
