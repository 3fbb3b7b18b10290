"""What a recording has to read: what is new, and where a group is amid what was read before.

What was read of a partition is kept as sums of stretches of it. So of a group that has moved only
the rest of the stretch is read again that it is in, however much is behind it.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from horolog.jobs.failing_over.looking import Key, Looked
from horolog.jobs.failing_over.marks import PartitionMarks
from horolog.jobs.failing_over.recorded import (
    GroupProgress,
    PartitionRead,
    ReadStretch,
    Recorded,
)

MOST_STRETCHES: Final = 32
"""Kept of a partition; the smallest neighbours become one."""
_CUTS: Final = 8  # of what one recording reads of a partition
LEAST_RECORDS: Final = 10_000  # fewer are read again sooner than they are told apart
MOST_RANGES: Final = 4  # of a partition: each is planned apart

Range = tuple[int, int]
"""From an offset to before another."""


class Needed(NamedTuple):
    """What is read of one partition."""

    marks: list[int]
    """The offsets from which on it is summed up."""
    ranges: list[Range]
    """In rising order, none of them empty."""


class Place(NamedTuple):
    """What has to be known of what a group has not read."""

    since: int
    """From here on records are new to what is known."""
    until: int
    """Up to here they are read; from here on stretches are known, up to what is new."""
    known: GroupProgress | None
    """Of the records before `since`: of a group that has committed nothing meanwhile."""


def read_before(recorded: Recorded, key: Key) -> PartitionRead | None:
    """What was read of a partition."""
    topic = recorded.read.get(key[0])
    return None if topic is None else topic.partitions.get(key[1])


def read_to(recorded: Recorded, looked: Looked, key: Key) -> int:
    """The offset up to which it was read."""
    before = read_before(recorded, key)
    return looked.partitions[key].earliest if before is None else before.end


def place_of(recorded: Recorded, looked: Looked, group: str, key: Key) -> Place:
    """Where a group is in a partition."""
    topic = recorded.groups.get(group, {}).get(key[0])
    known = None if topic is None else topic.partitions.get(key[1])
    if known is None or known.end is None or known.committed != looked.committed(group, key):
        known, since = None, looked.offset(group, key)
    else:
        since = known.end
    before = read_before(recorded, key)
    starts = [each.start for each in before.stretches] if before is not None else []
    end = max(since, read_to(recorded, looked, key))
    return Place(since, min((each for each in starts if each >= since), default=end), known)


def needed(recorded: Recorded, looked: Looked) -> dict[Key, Needed]:
    """What has to be read of each partition."""
    found = {}
    for key, ends in looked.partitions.items():
        new = read_to(recorded, looked, key)
        step = max(LEAST_RECORDS, -(-(ends.end - new) // _CUTS))
        marks, ranges = {new, *range(new, ends.end, step)}, [(new, ends.end)]
        for group in looked.commits:
            if looked.reads(group, key[0]):
                since, until, _ = place_of(recorded, looked, group, key)
                marks |= {since, until}
                ranges.append((since, until))
        found[key] = Needed(sorted(marks), _joined(ranges))
    return found


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in few ranges; more of them only where there are too many."""
    joined: list[Range] = []
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


def layers(needed: Mapping[Key, Needed]) -> list[dict[Key, Range]]:
    """The ranges so that each layer has at most one of a partition."""
    most = max((len(each.ranges) for each in needed.values()), default=0)
    return [
        {key: each.ranges[at] for key, each in needed.items() if at < len(each.ranges)}
        for at in range(most)
    ]


def stretches_with(
    before: PartitionRead | None, new: int, end: int, marks: list[int], found: PartitionMarks
) -> tuple[ReadStretch, ...]:
    """The stretches of a partition, and what is new in it as further ones."""
    stretches = list(before.stretches if before else ())
    cuts = [mark for mark in marks if new <= mark < end]
    for start, until in pairwise([*cuts, end]):
        between = found.from_mark(
            marks.index(start), None if until not in marks else marks.index(until)
        )
        stretches.append(ReadStretch(start, until, between.records, between.odd, between.min_ms))
    while len(stretches) > MOST_STRETCHES:
        sizes = [one.records + other.records for one, other in pairwise(stretches)]
        at = sizes.index(min(sizes))
        stretches[at : at + 2] = [_one_of(stretches[at], stretches[at + 1])]
    return tuple(stretches)


def _one_of(one: ReadStretch, other: ReadStretch) -> ReadStretch:
    times = [each.min_ms for each in (one, other) if each.min_ms is not None]
    return ReadStretch(
        one.start,
        other.end,
        one.records + other.records,
        one.odd + other.odd,
        min(times, default=None),
    )
