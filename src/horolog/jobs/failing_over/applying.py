"""Commits the offsets of a plan at the survivor."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from horolog.client import EARLIEST, Client, CommittedOffset, NoAnswer
from horolog.client.topic_facts import topic_ids
from horolog.errors import Misconfigured, RequestRefused
from horolog.jobs.failing_over.planning import FailoverPlan
from horolog.jobs.parameters.failover import ApplyStep

_WITHOUT_MEMBERS = ("Empty", "Dead")

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Applied:
    """Result for one group."""

    group: str
    offsets: int
    before: int
    """Number of these partitions of which the group had committed another offset."""
    error: str | None = None
    """Reason why nothing was committed."""


def unproven(plan: FailoverPlan, groups: Collection[str]) -> list[Applied]:
    """Return a refusal for each group of which records could be missing."""
    notes: dict[str, str] = {}
    for start in plan.starts:
        if start.notes and start.group in groups:
            notes.setdefault(start.group, f"{start.topic}: {start.notes[0]}")
    return [
        Applied(group, 0, 0, f"records could be missing, {note} (--accept-unproven commits)")
        for group, note in notes.items()
    ]


def check_survivor(client: Client, plan: FailoverPlan) -> None:
    """Refuse a cluster or a topic other than those that the plan was made for.

    Raises:
        Misconfigured: the cluster is another one, or a topic was created again.
    """
    cluster_id = client.metadata([]).cluster_id
    if cluster_id != plan.cluster_id:
        raise Misconfigured(
            f"the plan is of the cluster {plan.cluster_id} ({plan.target}), and this one is "
            f"{cluster_id}: run plan again"
        )
    ids = topic_ids(client, plan.topic_ids) if plan.topic_ids else {}
    for name, known in sorted(plan.topic_ids.items()):
        if ids.get(name) not in (None, known):
            raise Misconfigured(
                f"{name} was deleted and created again since the plan was made: its offsets mean "
                "other records now. Run plan again"
            )


def committed_before(client: Client, offsets: Mapping[str, Offsets]) -> Iterator[Applied]:
    """Yield the groups that an earlier run has committed; missing commits are errors."""
    for group, group_offsets in sorted(offsets.items()):
        there = client.offset_fetch(group, group_offsets)
        gone = [
            f"{topic}-{number}"
            for topic, number in group_offsets
            if there.get((topic, number)) is None
        ]
        yield Applied(
            group,
            0,
            0,
            f"an earlier run committed the group, and it has no offset of {', '.join(gone)} now: "
            "--overwrite commits it again"
            if gone
            else None,
        )


def commit(client: Client, offsets: Mapping[str, Offsets], step: ApplyStep) -> Iterator[Applied]:
    """Commit the offsets of each group; a refused group leaves the others alone."""
    for group, group_offsets in sorted(offsets.items()):
        try:
            yield _commit(client, group, group_offsets, step)
        except (RequestRefused, NoAnswer) as error:
            yield Applied(group, 0, 0, str(error))


def _commit(client: Client, group: str, offsets: Offsets, step: ApplyStep) -> Applied:
    described = client.groups.describe([group]).get(group)
    state = "Dead" if described is None else described.state
    if state not in _WITHOUT_MEMBERS:
        return Applied(
            group, 0, 0, f"the group has members at the survivor (it is {state}): stop them first"
        )
    earliest = client.list_offsets(dict.fromkeys(offsets, EARLIEST))
    gone = [
        f"{topic}-{number}"
        for (topic, number), offset in offsets.items()
        if (start := earliest[topic, number]) is not None and start.offset > offset
    ]
    if gone:
        return Applied(
            group, 0, 0, f"records of the plan are deleted in {', '.join(gone)}: run plan again"
        )
    there = client.offset_fetch(group, offsets)
    others = {
        key: at.offset
        for key, offset in offsets.items()
        if (at := there.get(key)) is not None and at.offset != offset
    }
    if others and not step.overwrite:
        (topic, number), offset = min(others.items())
        return Applied(
            group,
            0,
            len(others),
            f"the group has committed other offsets at the survivor ({topic}-{number}: {offset}, "
            f"and the plan says {offsets[topic, number]}): --overwrite replaces them",
        )
    if not step.dry_run:
        client.offset_commit(
            group, {key: CommittedOffset(offset) for key, offset in offsets.items()}
        )
    return Applied(group, len(offsets), len(others))
