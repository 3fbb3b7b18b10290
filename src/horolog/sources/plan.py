"""Cutting a read into tasks, without Spark, files or brokers.

The stretches of a log are laid end to end in order and cut into equal shares, so that
small segments end up together and large ones apart. A cut that falls close to the
border of a stretch is moved there, since a cut inside costs a search.

A Python task costs about 65 ms of a slot, whatever it reads. Hence about 128 MB each,
and never more than four a core unless `minPartitions` or `maxRecordsPerPartition` ask.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, cycle, pairwise
from typing import NamedTuple, TypeVar

from horolog.record.timestamps import ALL_TIMES, TimeRange
from horolog.record.transactions import AbortedTransaction
from horolog.sources.segments import ListedSegment
from horolog.sources.uris import LogPath
from horolog.storage.names import TopicPartition

TASK_BYTES = 128 << 20
TASK_RECORDS = 1_000_000  # of a broker, which does not say how large records are
TASKS_PER_CORE = 4
_SMALLEST_SHARE = 8  # a log fills all cores once each gets a task's eighth
_SNAP = 0.2  # of a share


@dataclass(frozen=True, slots=True)
class BrokerStretch:
    """A stretch of one partition, `start` to before `end`, to be fetched from a broker.

    A plan may be executed again, and then sees the log as it is by then, as with Spark's
    Kafka source: where `is_from_earliest`, the log began at `start`, or nothing before it was to be
    read, and may begin later by then; where `until` is set, `end` was the log end, and the task
    reads up to the log end, but not past `until`.
    `times` are those of its rows, exactly.
    `topic_id` is that of the topic in the plan of a read as of a time, or of a table.
    `largest_ms` is the largest time before `start` as far as it is known, for `lateByMs`;
    `complete_ms` the value of `completeUntil`, None if that is unknown.
    """

    partition: TopicPartition
    start: int
    end: int
    is_from_earliest: bool = False
    until: int | None = None
    size: int | None = None
    """Bytes of the batches, if the broker gave them."""
    times: TimeRange = ALL_TIMES
    topic_id: str | None = None
    largest_ms: int | None = None
    complete_ms: int | None = None

    @property
    def weight(self) -> int:
        """Number of offsets, the only measure that a broker gives."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SegmentStretch:
    """A stretch of one segment file, of `weight` bytes more or less.

    `root` is the path given to `load()`. `times` is as in `BrokerStretch`.
    """

    root: LogPath
    segment: ListedSegment
    partition: TopicPartition
    start: int
    end: int
    weight: int
    aborted: tuple[AbortedTransaction, ...] = ()
    maps_from: int | None = None
    """Offset whose task makes a block map of the segment, if the segment has none."""
    times: TimeRange = ALL_TIMES
    topic_id: str | None = None
    """Id of the topic when the read was planned, as Kafka prints it."""
    limit: int | None = None
    """Offset that all offsets of the segment are below."""

    @property
    def path(self) -> str:
        """Path of the segment file within its file system."""
        return self.segment.path


Stretch = BrokerStretch | SegmentStretch
Task = tuple[Stretch, ...]


def from_offset(stretch: Stretch, offset: int) -> Stretch:
    """Return the part of a stretch at or behind an offset."""
    if offset <= stretch.start:
        return stretch
    if isinstance(stretch, BrokerStretch):
        return replace(stretch, start=offset, is_from_earliest=False)
    return replace(stretch, start=offset)


def offsets_in(task: Task) -> int:
    """Return the number of offsets that a task reads through."""
    return sum(stretch.end - stretch.start for stretch in task)


_Stretch = TypeVar("_Stretch", bound=Stretch)


def share_out(
    stretches: Sequence[_Stretch],
    *,
    task_weight: int,
    cores: int,
    min_tasks: int | None = None,
    max_records: int | None = None,
) -> list[tuple[_Stretch, ...]]:
    """Return the stretches of each task, in order; no task is empty.

    Args:
        stretches: stretches to read, in the order of topic, partition and offset.
        task_weight: what one task should read.
        cores: how many tasks run at a time.
        min_tasks: as many tasks at least, if there are as many offsets.
        max_records: as many offsets at most in one task.
    """
    left = [stretch for stretch in stretches if stretch.start < stretch.end]
    total = sum(stretch.weight for stretch in left)
    if not left:
        return []
    tasks = _task_count(total, task_weight, cores, min_tasks)
    shares = _cut(left, tasks)
    if max_records is not None:
        shares = [part for share in shares for part in _limited(share, max_records)]
    return shares


def left_open(
    tasks: Sequence[tuple[BrokerStretch, ...]],
    open_starts: Collection[TopicPartition],
    open_ends: Mapping[TopicPartition, BrokerStretch],
) -> list[tuple[BrokerStretch, ...]]:
    """Return the tasks with first and last stretches that follow the log's start and end.

    A partition may begin later than planned, which only its rows show. So all of its stretches in
    its first task count as first ones until one has given a row.

    Args:
        open_starts: partitions that are read from the log start offset on.
        open_ends: an empty stretch at the present end of each partition that is read up to it.
    """
    starts = set(open_starts)
    opened = [list(task) for task in tasks]
    last_in = {stretch.partition: task for task in opened for stretch in task}
    if open_ends and not opened:
        opened.append([])
    unread = cycle(opened)
    for partition, end in open_ends.items():
        task = last_in.get(partition)
        if task is None:
            next(unread).append(end)
            continue
        last = max(place for place, stretch in enumerate(task) if stretch.partition == partition)
        if task[last].end >= end.start:
            task[last] = replace(task[last], until=end.until)
        else:
            task.append(end)
    for task in opened:
        first_here = starts & {stretch.partition for stretch in task}
        starts -= first_here
        task[:] = [
            replace(stretch, is_from_earliest=True) if stretch.partition in first_here else stretch
            for stretch in task
        ]
    return [tuple(task) for task in opened]


def _task_count(total: int, task_weight: int, cores: int, min_tasks: int | None) -> int:
    by_size = -(-total // task_weight)
    by_core = min(cores, -(-total * _SMALLEST_SHARE // task_weight))
    tasks = min(max(by_size, by_core, 1), cores * TASKS_PER_CORE)
    return tasks if min_tasks is None else max(tasks, min_tasks)


class _PlanCut(NamedTuple):
    """Begin of a task: an offset of the stretch at a place."""

    place: int
    offset: int


def _cut(stretches: Sequence[_Stretch], tasks: int) -> list[tuple[_Stretch, ...]]:
    """Cut the stretches, laid end to end, into equal shares."""
    ends = list(accumulate(stretch.weight for stretch in stretches))
    share = ends[-1] / tasks
    cuts = [_PlanCut(0, stretches[0].start)]
    for number in range(1, tasks):
        cut = _nearest_cut(stretches, ends, number * share, _SNAP * share)
        if cut > cuts[-1] and cut.place < len(stretches):
            cuts.append(cut)
    cuts.append(_PlanCut(len(stretches), 0))
    return [tuple(_between(stretches, first, last)) for first, last in pairwise(cuts)]


def _nearest_cut(
    stretches: Sequence[_Stretch], ends: Sequence[int], target: float, snap: float
) -> _PlanCut:
    place = min(bisect_right(ends, target), len(ends) - 1)
    stretch = stretches[place]
    begin = ends[place] - stretch.weight
    fraction = (target - begin) / max(stretch.weight, 1)
    offset = stretch.start + round(fraction * (stretch.end - stretch.start))
    if target - begin <= snap:
        return _PlanCut(place, stretch.start)
    if ends[place] - target <= snap or offset >= stretch.end:
        following = stretches[place + 1].start if place + 1 < len(stretches) else 0
        return _PlanCut(place + 1, following)
    return _PlanCut(place, offset)


def _between(stretches: Sequence[_Stretch], first: _PlanCut, last: _PlanCut) -> Iterator[_Stretch]:
    for index in range(first.place, min(last.place + 1, len(stretches))):
        stretch = stretches[index]
        start = first.offset if index == first.place else stretch.start
        end = last.offset if index == last.place else stretch.end
        part = _part(stretch, start, end)
        if part is not None:
            yield part


def _part(stretch: _Stretch, start: int, end: int) -> _Stretch | None:
    if start >= end:
        return None
    if isinstance(stretch, BrokerStretch):
        size = stretch.size
        if size is not None:
            size = -(-size * (end - start) // (stretch.end - stretch.start))
        return replace(stretch, start=start, end=end, size=size)
    weight = stretch.weight * (end - start) // (stretch.end - stretch.start)
    return replace(stretch, start=start, end=end, weight=weight)


def _limited(share: tuple[_Stretch, ...], max_records: int) -> list[tuple[_Stretch, ...]]:
    """Cut a share into tasks of at most `max_records` offsets."""
    tasks: list[tuple[_Stretch, ...]] = []
    current: list[_Stretch] = []
    room = max_records
    for stretch in share:
        start = stretch.start
        while start < stretch.end:
            if room == 0:
                tasks.append(tuple(current))
                current, room = [], max_records
            end = min(stretch.end, start + room)
            part = _part(stretch, start, end)
            assert part is not None
            current.append(part)
            room -= end - start
            start = end
    tasks.append(tuple(current))
    return tasks
