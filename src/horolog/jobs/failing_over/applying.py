"""Commits a plan at the survivor."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from horolog.client import EARLIEST, Client, CommittedOffset, NoAnswer
from horolog.errors import Misconfigured, RequestRefused
from horolog.jobs.failing_over.planning import Plan

_WITHOUT_MEMBERS = ("Empty", "Dead")

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a group."""

    group: str
    offsets: int
    before: int
    """Of these partitions, those that it had committed another offset of."""
    error: str | None = None
    """Why nothing was committed."""


def offsets_of(plan: Plan) -> dict[str, dict[tuple[str, int], int]]:
    """The offsets of each group."""
    found: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
    for each in plan.starts:
        for number, offset in each.offsets.items():
            found[each.group][each.topic, number] = offset
    return dict(found)


def check_cluster(client: Client, plan: Plan) -> None:
    """Refuse to commit to another cluster than the plan is of.

    Raises:
        Misconfigured: it is another.
    """
    cluster_id = client.metadata([]).cluster_id
    if cluster_id != plan.cluster_id:
        raise Misconfigured(
            f"the plan is of the cluster {plan.cluster_id} ({plan.target}), and this one is "
            f"{cluster_id}: run plan again"
        )


def commit(client: Client, offsets: Mapping[str, Offsets], *, dry_run: bool) -> Iterator[Applied]:
    """Commit group by group; one that has members, or is refused, leaves the others alone."""
    for group, its in sorted(offsets.items()):
        try:
            yield _commit(client, group, its, dry_run=dry_run)
        except (RequestRefused, NoAnswer) as error:
            yield Applied(group, 0, 0, str(error))


def _commit(client: Client, group: str, offsets: Offsets, *, dry_run: bool) -> Applied:
    state = client.group_states([group]).get(group, "Dead")
    if state not in _WITHOUT_MEMBERS:
        return Applied(
            group, 0, 0, f"the group has members at the survivor (it is {state}): stop them first"
        )
    earliest = client.list_offsets(dict.fromkeys(offsets, EARLIEST))
    gone = [
        f"{topic}-{number}"
        for (topic, number), offset in offsets.items()
        if (found := earliest[topic, number]) is not None and found.offset > offset
    ]
    if gone:
        return Applied(
            group, 0, 0, f"records of the plan are deleted in {', '.join(gone)}: run plan again"
        )
    there = client.offset_fetch(group, offsets)
    before = sum(
        1 for key, offset in offsets.items() if (at := there.get(key)) and at.offset != offset
    )
    if not dry_run:
        client.offset_commit(
            group, {key: CommittedOffset(offset) for key, offset in offsets.items()}
        )
    return Applied(group, len(offsets), before)
