"""Decides which offsets a recording reads: new records, and some near each group's offset.

Sums of the stretches of each partition are kept. So for a group that has moved only the rest of its
stretch is read again, whatever its distance to the log end.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from horolog.jobs.failing_over.looking import Key, Looked
from horolog.jobs.failing_over.marks import PartitionMarks, known
from horolog.jobs.failing_over.recorded import (
    GroupProgress,
    PartitionRead,
    ReadSums,
    Recorded,
)

MOST_STRETCHES: Final = 32
"""Most stretches kept of a partition; the smallest neighbours are joined."""
_CUTS: Final = 8  # of what one recording reads of a partition
LEAST_RECORDS: Final = 10_000  # fewer are read again sooner than they are told apart
MOST_RANGES: Final = 4  # of a partition: each is planned apart


class NeededLag(NamedTuple):
    """Facts needed about the unread records of a group in a partition."""

    since: int
    """First offset whose records are not counted in `known`."""
    until: int
    """End of the offsets to read; sums of stretches cover those behind it."""
    known: GroupProgress | None
    """Sums of records before `since`, if the group has committed nothing meanwhile."""


class Needed(NamedTuple):
    """Offsets to read of one partition."""

    before: PartitionRead
    """Sums of earlier recordings."""
    lags: Mapping[str, NeededLag]
    """Lags of the groups that read the topic."""
    marks: list[int]
    """Offsets at which sums begin; they include all other offsets here."""
    ranges: list[tuple[int, int]]
    """Offset ranges [start, end), in rising order, none of them empty."""

    def place(self, offset: int) -> int:
        """Return the index of a mark."""
        return self.marks.index(offset)


def needed(recorded: Recorded, looked: Looked) -> dict[Key, Needed]:
    """Return the offsets to read of each partition."""
    by_partition = {}
    for key, ends in looked.partitions.items():
        topic = recorded.read.get(key[0])
        before = None if topic is None else topic.partitions.get(key[1])
        if before is None:
            before = PartitionRead(ends.earliest, ends.leader_epoch)
        lags = {
            group: _lag_of(recorded, looked, group, key, before)
            for group in looked.commits
            if looked.reads(group, key[0])
        }
        step = max(LEAST_RECORDS, -(-(ends.end - before.end) // _CUTS))
        marks = {before.end, ends.end, *range(before.end, ends.end, step)}
        ranges = [(before.end, ends.end), *((lag.since, lag.until) for lag in lags.values())]
        marks.update(*((lag.since, lag.until) for lag in lags.values()))
        by_partition[key] = Needed(before, lags, sorted(marks), _joined(ranges))
    return by_partition


def _lag_of(
    recorded: Recorded, looked: Looked, group: str, key: Key, before: PartitionRead
) -> NeededLag:
    topic = recorded.groups.get(group, {}).get(key[0])
    then = None if topic is None else topic.partitions.get(key[1])
    if then is None or then.end is None or then.committed != looked.committed(group, key):
        then, since = None, looked.offset(group, key)
    else:
        since = then.end
    starts = [stretch.start for stretch in before.stretches if stretch.start >= since]
    return NeededLag(since, min(starts, default=max(since, before.end)), then)


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join offset ranges that overlap, and the nearest ones if there are too many."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    while len(joined) > MOST_RANGES:
        gaps = [after[0] - before[1] for before, after in pairwise(joined)]
        at = gaps.index(min(gaps))
        joined[at : at + 2] = [(joined[at][0], joined[at + 1][1])]
    return joined


def layers(needed: Mapping[Key, Needed]) -> list[dict[Key, tuple[int, int]]]:
    """Distribute the ranges over layers with at most one range of each partition."""
    most = max((len(partition.ranges) for partition in needed.values()), default=0)
    return [
        {
            key: partition.ranges[at]
            for key, partition in needed.items()
            if at < len(partition.ranges)
        }
        for at in range(most)
    ]


def stretches_with(part: Needed, end: int, sums: PartitionMarks) -> tuple[ReadSums, ...]:
    """Return the stretches of a partition with the new records as further stretches."""
    stretches = list(part.before.stretches)
    for start, until in pairwise(mark for mark in part.marks if part.before.end <= mark <= end):
        between = sums.from_mark(part.place(start), part.place(until))
        stretches.append(ReadSums(start, until, between.records, between.odd, between.min_ms))
    while len(stretches) > MOST_STRETCHES:
        sizes = [one.records + other.records for one, other in pairwise(stretches)]
        at = sizes.index(min(sizes))
        stretches[at : at + 2] = [_one_of(stretches[at], stretches[at + 1])]
    return tuple(stretches)


def _one_of(one: ReadSums, other: ReadSums) -> ReadSums:
    return ReadSums(
        one.start,
        other.end,
        one.records + other.records,
        one.odd + other.odd,
        min(known([one.min_ms, other.min_ms]), default=None),
    )
