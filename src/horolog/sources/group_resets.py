"""Setting the committed offsets of a group to a cut, exactly or not at all.

A consumer that starts behind a cut gets every record that was not known then, once. Records in
front of the cut are not read, so that their compaction does not matter.

Where a transaction was open at the cut, its offset and its committed offset differ. Records of the
transaction in front of the offset come at the marker for readers of committed records, who must
start at the committed offset; for others they would come twice. A group does not say how it reads.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from horolog.client import Client, CommittedOffset
from horolog.errors import ErrorCode, RequestRefused, listed
from horolog.offsets import Inexact
from horolog.sources.broker_log import BrokerLog
from horolog.sources.cut_files import Cut, CutEntry
from horolog.sources.cuts import entries_as_of, entries_in
from horolog.storage.names import TopicPartition

_NAMED = 3  # members in a message
_GOT_MEMBERS = (ErrorCode.unknown_member_id, ErrorCode.illegal_generation)


class PositionReset(NamedTuple):
    """Committed offset of a partition before and after a reset."""

    topic: str
    partition: int
    before: int | None
    """None where the group had committed nothing."""
    after: int | None
    """None if it is refused."""
    refused: str | None
    """Reason why the partition cannot be reset exactly; None if it can."""


def plan_reset(
    log: BrokerLog,
    cut: Cut,
    before: Mapping[tuple[str, int], CommittedOffset | None],
    *,
    read_committed: bool | None,
) -> list[PositionReset]:
    """Plan the reset of all partitions of a log to a cut.

    Args:
        before: what the group has committed.
        read_committed: whether the group reads committed records; None if that is not known.

    Raises:
        Misconfigured: the cut is of another cluster, has not a topic, or it was re-created since.
        RequestRefused, NoAnswer: the brokers refuse, or do not answer. Those of Apache Kafka cannot
            tell whether a partition that the cut does not have was added since.
    """
    partitions = log.partitions()
    entries, given = entries_in(cut, log, partitions), cut.by_partition()
    if added := [key for key in partitions if key not in given]:
        entries |= entries_as_of(log, cut, added)
    served = [key for key in partitions if key not in log.leaderless]
    earliest, latest = log.earliest(served), log.latest(served)
    planned = []
    for key, entry in entries.items():
        after = entry.committed_offset if read_committed else entry.offset
        if key in log.leaderless:
            refused: str | None = "it has no leader"
        else:
            refused = _inexact(entry, read_committed) or _outside(after, earliest[key], latest[key])
        committed = before.get(key)
        was = None if committed is None else committed.offset
        planned.append(PositionReset(*key, was, None if refused else after, refused))
    return planned


def _inexact(entry: CutEntry, read_committed: bool | None) -> str | None:
    """Return why an entry does not say exactly where a group continues; None if it does."""
    if entry.why is not None and not entry.why.startswith(Inexact.COMPACTED):
        return entry.why
    if entry.offset != entry.committed_offset and read_committed is None:
        return (
            f"transactions were open: {entry.committed_offset} with --read-committed, "
            f"{entry.offset} with --read-uncommitted"
        )
    return None


def _outside(offset: int, first: int, end: int) -> str | None:
    """Return why an offset is not one of the log; None if it is."""
    if offset > end:
        return f"the log ends at {end}: it is another one, or records were lost since"
    if offset < first:
        return f"the log begins at {first}: records behind the cut are deleted"
    return None


def members_of(client: Client, group: str) -> str | None:
    """Return a sentence about a group that has members; None if it has none, or does not exist.

    Raises:
        RequestRefused, NoAnswer: the coordinator refuses, or does not answer.
    """
    described = client.groups.describe([group])[group]
    if described.state == "Empty" or not described.exists:
        return None
    names = sorted({member.client_id for member in described.members or ()})
    clients = f" with members {listed(names, _NAMED)}" if names else ""
    return (
        f"group {group} is {described.state}{clients}: stop them first, because offsets are "
        "set of groups without members only (NON_EMPTY_GROUP)"
    )


def set_offsets(log: BrokerLog, group: str, planned: Sequence[PositionReset]) -> None:
    """Commit the offsets of a plan, in which nothing is refused.

    Raises:
        RequestRefused: the group has members by now, or the coordinator refuses a partition.
        NoAnswer: it does not answer.
    """
    offsets = {
        TopicPartition(its.topic, its.partition): its.after
        for its in planned
        if its.after is not None
    }
    try:
        log.commit(group, offsets, by_id=True)
    except RequestRefused as error:
        if error.code in _GOT_MEMBERS:
            raise RequestRefused(
                error.code, f"group {group} has members by now, and is not reset: stop them first"
            ) from None
        raise RequestRefused(
            error.code, f"{error}. Other partitions may be set: see horolog groups describe {group}"
        ) from None
