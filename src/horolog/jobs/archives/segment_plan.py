"""Plan of a run of `restore`: the ranges of partitions as segments of logs."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Final

from horolog.errors import CorruptFile, Misconfigured
from horolog.jobs.archives.manifest import (
    ArchivedPartition,
    ArchivedRange,
    Manifest,
    overlapping,
)
from horolog.jobs.archives.segments import SegmentUnit
from horolog.jobs.selection import Selection
from horolog.patterns import given_pattern
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.names import TopicPartition

SEGMENT_BYTES: Final = 256 << 20
_MOST_OFFSETS: Final = (1 << 31) - 1
_SHOWN: Final = 10  # numbers of partitions


@dataclass(slots=True)
class SegmentPlan:
    """Segments of a partition that is to be restored."""

    state: ArchivedPartition
    units: list[SegmentUnit]
    resets: list[AppendTimeReset]


def chosen_partitions(
    manifest: Manifest, chosen: Selection, archive: str
) -> dict[TopicPartition, ArchivedPartition]:
    """Return the chosen partitions of an archive.

    Raises:
        Misconfigured: a topic that is named is not in the archive, or none is chosen.
    """
    partitions = manifest.partitions()
    topics = {partition.topic for partition in partitions}
    missing = [name for name in chosen.topics if name not in topics]
    if missing:
        raise Misconfigured(f"The topic {missing[0]} is not in the archive {archive}")
    names = _chosen_topics(topics, chosen)
    asked = {
        partition: state for partition, state in partitions.items() if partition.topic in names
    }
    if not asked:
        raise Misconfigured(f"No topic that is asked for is in the archive {archive}")
    return asked


def lacking_partitions(manifest: Manifest, chosen: Selection) -> Iterator[str]:
    """Yield a sentence for each chosen topic whose partitions were not all archived."""
    for name in sorted(_chosen_topics(manifest.topics, chosen)):
        topic = manifest.topics[name]
        there = {index for index, state in topic.partitions.items() if state.ranges}
        count = topic.partition_count
        if len(there) < count:
            first = list(islice((number for number in range(count) if number not in there), _SHOWN))
            more = ", ..." if count - len(there) > _SHOWN else ""
            yield (
                f"{name} had {count} partitions, and {count - len(there)} were never archived: "
                f"{', '.join(map(str, first))}{more}"
            )


def compacted_topics(states: Mapping[TopicPartition, ArchivedPartition]) -> Iterator[str]:
    """Yield a sentence for each topic that was compacted before it was archived."""
    names = {
        partition.topic
        for partition, state in states.items()
        if state.times is not None and state.times.doubts.cleaner_point
    }
    for name in sorted(names):
        yield (
            f"{name} was compacted before it was archived, and its restored log does not know how "
            "far: to read it as of a time, cut the archive"
        )


def _chosen_topics(topics: Collection[str], chosen: Selection) -> set[str]:
    """Return the topics that are named or match the pattern; all without either."""
    if chosen.topics_pattern is not None:
        matches = given_pattern(chosen.topics_pattern, "topics-pattern").matches
        return {name for name in topics if matches(name)}
    return {name for name in topics if name in chosen.topics} if chosen.topics else set(topics)


def planned_segments(partition: TopicPartition, state: ArchivedPartition) -> SegmentPlan:
    """Group the ranges of a partition to segments, and note where its append times go back.

    Raises:
        CorruptFile: ranges do not lie side by side.
    """
    for before, after in pairwise(state.ranges):
        if before.end != after.start:
            raise CorruptFile(
                f"The manifest has {partition} to offset {before.end - 1} and from {after.start} on"
            )
    # The first batch may begin before the first offset.
    base = min([state.start, *(batch.first_offset for batch in state.batches)])
    bases: list[int] = []
    groups: list[list[ArchivedRange]] = [[]]
    resets: list[AppendTimeReset] = []
    size = 0
    last_ms: int | None = None
    for range_ in state.ranges:
        is_empty = not range_.records and not range_.batches
        first_ms = range_.first_append_ms
        goes_back = False
        if last_ms is not None and first_ms is not None and first_ms < last_ms:
            goes_back = True
            resets.append(AppendTimeReset(range_.start, last_ms, first_ms, first_ms))
        is_full = size + range_.bytes > SEGMENT_BYTES or range_.end - 1 - base > _MOST_OFFSETS
        if groups[-1] and not is_empty and (goes_back or is_full):
            groups.append([])
            size = 0
        if is_empty and not groups[-1]:
            continue
        if not groups[-1]:
            base = range_.start if bases else min(range_.start, base)
            bases.append(base)
        groups[-1].append(range_)
        size += range_.bytes
        last_ms = range_.last_append_ms if range_.last_append_ms is not None else last_ms
    units = [
        SegmentUnit(
            partition=partition,
            base_offset=base_offset,
            ranges=tuple(group),
            records=overlapping(state.records, group[0].start, group[-1].end),
            batches=overlapping(state.batches, group[0].start, group[-1].end),
        )
        for base_offset, group in zip(bases, groups, strict=False)
    ]
    return SegmentPlan(state, _with_end(partition, state, units), resets)


def _with_end(
    partition: TopicPartition, state: ArchivedPartition, units: list[SegmentUnit]
) -> list[SegmentUnit]:
    """Add an end to the units, so that the log ends where the archive ends."""
    start, end = state.start, state.end
    if not units:
        units = [SegmentUnit(partition, start, (ArchivedRange(start, start),), (), ())]
    if start == end:
        return units
    last = units[-1]
    if end - 1 - last.base_offset <= _MOST_OFFSETS:
        return [*units[:-1], replace(last, filler=end)]
    return [
        *units,
        SegmentUnit(partition, end - 1, (ArchivedRange(end - 1, end),), (), (), filler=end),
    ]
