"""Commits of a run of `archive`: adds finished units in order, partition by partition."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from horolog.errors import Misconfigured
from horolog.jobs.archives.manifest import (
    ArchivedFile,
    ArchivedPartition,
    ArchivedTopic,
    Manifest,
)
from horolog.jobs.archives.planning import ArchiveUnit, Plan
from horolog.jobs.archives.ranges import ArchivedRange
from horolog.jobs.spread import UnitOutcome
from horolog.storage.names import TopicPartition


@dataclass(frozen=True, slots=True)
class UnitDone:
    """Files that a task has written for a unit, and the ranges of offsets in them."""

    ranges: tuple[ArchivedRange, ...]
    files: tuple[ArchivedFile, ...]


@dataclass(slots=True)
class Changes:
    """Ranges and files that one commit adds to the manifest."""

    topics: Mapping[str, ArchivedTopic] = field(default_factory=dict)
    """Without what there is of their partitions already."""
    ranges: dict[TopicPartition, list[ArchivedRange]] = field(
        default_factory=lambda: defaultdict(list)
    )
    files: dict[TopicPartition, list[ArchivedFile]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def applied(self, manifest: Manifest) -> Manifest:
        """Return a manifest with these changes.

        Raises:
            Misconfigured: another run has written to the same partitions.
        """
        for name, topic in self.topics.items():
            known = manifest.topics.get(name)
            if known is None or not known.partitions:
                manifest = manifest.with_topic(name, topic)
            elif known.times != topic.times:
                raise Misconfigured(f"Another run archives {name} with another range of time")
            else:
                updated = known.updated(topic.topic_id, topic.partition_count)
                manifest = manifest.with_topic(name, updated)
        for partition, ranges in self.ranges.items():
            state = manifest.partition(partition) or ArchivedPartition((), (), ())
            try:
                state = state.extended(ranges, self.files.get(partition, ()))
            except Misconfigured as error:
                raise Misconfigured(f"{partition}: {error}") from None
            manifest = manifest.with_partition(partition, state)
        return manifest


class PlanProgress:
    """Progress of the units of a plan, which are committed in offset order."""

    def __init__(self, plan: Plan) -> None:
        self.refused = dict(plan.refused)
        self.records = self.bytes = self.files = self.file_bytes = 0
        self.grown: set[TopicPartition] = set()
        self._plan = plan
        self._positions: dict[TopicPartition, int] = {}
        self._known_ends = {
            each: state.ranges[-1].end
            for name, topic in plan.topics.items()
            for index, state in topic.partitions.items()
            if state.ranges and (each := TopicPartition(name, index)) in plan.bounds
        }

    def take(self, wave: Iterable[UnitOutcome[ArchiveUnit, UnitDone]]) -> tuple[Changes, list[str]]:
        """Return the additions of a wave's units, and the files that no manifest will list."""
        changes, unused = Changes(), []
        for outcome in wave:
            partition, done = outcome.unit.partition, outcome.result
            if done is None:
                self.refused.setdefault(partition, outcome.error or "its task failed")
                continue
            start = done.ranges[0].start
            if partition in self.refused or not self._follow(changes, partition, start):
                unused += [file.path for file in done.files]
                continue
            changes.ranges[partition] += [
                range_ for range_ in done.ranges if range_.start < range_.end
            ]
            changes.files[partition] += done.files
            self._positions[partition] = done.ranges[-1].end
            self.grown.add(partition)
            self.records += sum(range_.records for range_ in done.ranges)
            self.bytes += sum(range_.bytes for range_ in done.ranges)
            self.files += sum(1 for file in done.files if file.hour is not None)
            self.file_bytes += sum(file.size for file in done.files)
        return changes, unused

    def rest(self) -> Changes:
        """Return the remaining offsets, up to the ends: they hold no record in the range of time.

        A partition that the archive does not know is written down without any record, too.
        """
        changes = Changes()
        for partition, bounds in self._plan.bounds.items():
            if partition in self.refused:
                continue
            end = bounds.end
            is_new = partition not in self._positions and partition not in self._known_ends
            if self._follow(changes, partition, end) and is_new and not changes.ranges[partition]:
                changes.ranges[partition].append(ArchivedRange(end, end))
        return changes

    def _follow(self, changes: Changes, partition: TopicPartition, start: int) -> bool:
        """Fill the offsets without records up to `start`; False if the log changed meanwhile."""
        position = self._positions.get(partition)
        if position is None:
            planned = self._plan.bounds[partition].start
            known = self._known_ends.get(partition)
            if known is not None and known < planned:
                changes.ranges[partition].append(ArchivedRange(known, planned, is_lost=True))
            position = planned
        is_limited = not self._plan.topics[partition.topic].times.is_everything
        if start < position or (start > position and not is_limited):
            self.refused[partition] = (
                f"its log changed while it was read: offset {position} was to follow, and "
                f"{start} came. Run this again"
            )
            return False
        if start > position:
            changes.ranges[partition].append(ArchivedRange(position, start))
        self._positions[partition] = start
        return True
