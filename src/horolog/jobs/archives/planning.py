"""Plan of a run of `archive`: the offsets of each partition behind the archive, cut into units."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from horolog.client import AskCut, Client, PartitionCut
from horolog.errors import HorologError, Misconfigured
from horolog.jobs.archives.manifest import (
    ArchivedCut,
    ArchivedFile,
    ArchivedPartition,
    ArchivedRange,
    ArchivedTopic,
    Manifest,
)
from horolog.jobs.selection import Selection
from horolog.jobs.served import served_bounds
from horolog.jobs.spread import UnitOutcome
from horolog.offsets import Doubts
from horolog.record.batch import iter_headers
from horolog.sources.bounds import Bounds
from horolog.sources.broker_log import BrokerLog
from horolog.sources.cut_files import Cut, CutEntry
from horolog.sources.cuts import entries_as_of, inexact
from horolog.sources.file_log import FileLog
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch, SegmentStretch, Stretch
from horolog.sources.row_filter import RowFilter
from horolog.storage.directory.checkpoints import decode_uuid
from horolog.storage.names import TopicPartition
from horolog.times import format_moment

COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
UNIT_BYTES: Final = 128 << 20
LEAST_UNIT_BYTES = 8 << 20
_UNITS = 8  # of a small log: enough to keep a few cores busy
FEW_OFFSETS = 20_000  # that are one unit, however large their records are
_SAMPLE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ArchiveUnit:
    """Stretch of a partition that one task archives."""

    stretch: Stretch
    floor: int
    """End of the partition in the archive; earlier records are archived already."""

    @property
    def partition(self) -> TopicPartition:
        """Partition of the stretch."""
        return self.stretch.partition

    @property
    def offsets(self) -> int:
        """Number of offsets in the stretch."""
        return self.stretch.end - self.stretch.start

    @property
    def key(self) -> str:
        """Name of the unit in the state directory."""
        return f"{self.partition}@{self.stretch.start}"


@dataclass(slots=True)
class Plan:
    """Units to read, and partitions that cannot be read."""

    partitions: list[TopicPartition] = field(default_factory=list)
    units: list[ArchiveUnit] = field(default_factory=list)
    bounds: dict[TopicPartition, Bounds] = field(default_factory=dict)
    bytes: int = 0
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    topics: dict[str, ArchivedTopic] = field(default_factory=dict)
    cuts: dict[TopicPartition, ArchivedCut] = field(default_factory=dict)
    """Cuts of a run as of a time, up to which its partitions are archived."""
    with_append_times: bool = False
    ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics of the source."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Planner of runs of `archive` with the same arguments."""

    selection: Selection
    options: ReadOptions
    accept_gaps: bool
    relative: frozenset[str]
    """Ends of the range of time (`from`, `to`) that count from now."""

    def plan(self, manifest: Manifest) -> Plan:
        """Plan the units behind the end of the archive.

        Raises:
            Misconfigured: the archive has another range of time of a topic.
        """
        selection, options = self.selection, self.options
        plan = Plan(with_append_times=not selection.source.is_broker)
        log = BrokerLog(options) if selection.source.is_broker else FileLog(options)
        with log:
            partitions = plan.partitions = sorted(log.partitions())
            ids = plan.ids = {name: str(decode_uuid(its)) for name, its in log.topic_ids.items()}
            counts = {topic: number + 1 for topic, number in partitions}
            cluster_id = log.cluster_id()
            for name, count in counts.items():
                why = _recreated(manifest, name, ids.get(name))
                if why is None:
                    plan.topics[name] = self._topic(
                        manifest, name, ids.get(name), count, cluster_id
                    )
                else:
                    plan.refused |= {
                        partition: why for partition in partitions if partition.topic == name
                    }
            partitions = [partition for partition in partitions if partition not in plan.refused]
            cut = self._cut(log, partitions, plan)  # before the ends, which are behind it
            partitions = [partition for partition in partitions if partition not in plan.refused]
            bounds, unserved = served_bounds(log, partitions)
            plan.refused |= unserved
            stretches: list[Stretch] = []
            for partition, (start, end) in bounds.items():
                row_filter = RowFilter().within(plan.topics[partition.topic].times)
                try:
                    known = manifest.partition(partition)
                    if partition in cut:
                        end = _cut_end(known, start, end, cut[partition].committed_offset)
                    behind = self._behind(known, start, max(start, end))
                    if behind is not None:
                        plan.bounds[partition] = behind
                        stretches += log.stretches({partition: behind}, row_filter)
                except HorologError as error:
                    plan.refused[partition] = str(error)
        if selection.source.is_broker:
            stretches = self._with_sizes(stretches, plan)
        plan.bytes = sum(map(_weight, stretches))
        most = min(UNIT_BYTES, max(LEAST_UNIT_BYTES, plan.bytes // _UNITS))
        for stretch in stretches:
            floor = plan.bounds[stretch.partition].start
            plan.units += [ArchiveUnit(part, floor) for part in _cut(stretch, most)]
        return plan

    def _cut(
        self,
        log: BrokerLog | FileLog,
        partitions: Sequence[TopicPartition],
        plan: Plan,
    ) -> dict[TopicPartition, CutEntry]:
        """Return where partitions are cut as of a time; refuse those that cannot be cut.

        Raises:
            Misconfigured: the cut is of another cluster or topic.
        """
        as_of = self.options.as_of
        if as_of is None:
            return {}
        cut = entries_as_of(log, as_of, partitions)
        plan.refused |= {
            partition: inexact(as_of, partition, entry.why)
            for partition, entry in cut.items()
            if entry.why is not None
        }
        at_ms = as_of.at_ms if isinstance(as_of, Cut) else as_of
        plan.cuts = {
            partition: ArchivedCut(at_ms, entry.offset, entry.committed_offset)
            for partition, entry in cut.items()
        }
        return cut

    def look_back(self, plan: Plan) -> dict[TopicPartition, PartitionCut | str]:
        """Cut the partitions of a plan once more, after they were read.

        The answers tell what has happened to the logs meanwhile. They are empty for a source
        without append times.

        Raises:
            HorologError: the source cannot be asked.
        """
        unfinished = (
            TopicPartition(name, index)  # by a run that was killed
            for name, topic in plan.topics.items()
            for index, state in topic.partitions.items()
            if state.times is not None and state.times.end < state.end
        )
        present = set(plan.partitions).difference(plan.refused)
        partitions = {*plan.bounds, *plan.cuts, *present.intersection(unfinished)}
        if not (plan.with_append_times and partitions):
            return {}
        asks = {
            partition: AskCut(partition.partition, 0 if cut is None else cut.at_ms)
            for partition in partitions
            for cut in (plan.cuts.get(partition),)
        }
        options = self.options
        is_broker = self.selection.source.is_broker
        with BrokerLog(options) if is_broker else FileLog(options, is_cut=True) as log:
            present = set(log.partitions())
            ids = {name: str(decode_uuid(its)) for name, its in log.topic_ids.items()}
            anew = {
                key: f"{key.topic} was deleted and created again while it was archived"
                for key in asks
                if key not in present or ids.get(key.topic) not in (None, plan.ids.get(key.topic))
            }
            return {**log.cut({key: asks[key] for key in asks.keys() - anew}), **anew}

    def _topic(
        self,
        manifest: Manifest,
        name: str,
        topic_id: str | None,
        count: int,
        cluster_id: str | None,
    ) -> ArchivedTopic:
        """Return a topic as the archive knows it; partitions are those of the manifest.

        Raises:
            Misconfigured: the archive has another range of time of it.
        """
        selection = self.selection
        known = manifest.topics.get(name)
        if known is None or not known.partitions:
            return ArchivedTopic(
                topic_id, selection.from_ms, selection.to_ms, {}, count, cluster_id
            )
        for side, before, now in (
            ("from", known.from_ms, selection.from_ms),
            ("to", known.to_ms, selection.to_ms),
        ):
            # The first run has fixed what a relative moment is.
            if before != now and side not in self.relative:
                raise Misconfigured(
                    f"{name} is archived with {side} {_shown(before)}, and not {_shown(now)}: an "
                    "archive has one range of time of a topic"
                )
        return known.updated(topic_id, count, cluster_id)

    def _behind(self, known: ArchivedPartition | None, start: int, end: int) -> Bounds | None:
        """Return the offsets of a log behind its archive; None if there is nothing to record.

        Raises:
            Misconfigured: the log does not continue the archive.
        """
        if known is None:
            return Bounds(start, end)
        if known.end > end:
            raise Misconfigured(
                f"it ends at offset {end} and its archive at {known.end}: the log was cut, or "
                "the topic created again. Give another archive"
            )
        if known.end < start and not self.accept_gaps:
            raise Misconfigured(
                f"offsets {known.end} to {start - 1} were deleted before they were archived: "
                "accept gaps to continue after them"
            )
        start = max(start, known.end)
        return Bounds(start, end) if start < end else None

    def _with_sizes(self, stretches: Sequence[Stretch], plan: Plan) -> list[Stretch]:
        """Return the stretches with sizes in bytes, estimated from their first batches."""
        sized: list[Stretch] = []
        with self.selection.client() as client:
            plan.with_append_times = client.offsets.has_append_times()
            for stretch in stretches:
                assert isinstance(stretch, BrokerStretch)
                try:
                    sized.append(_with_size(client, stretch))
                except HorologError:  # the task that reads it says why
                    sized.append(stretch)
        return sized


def _cut_end(known: ArchivedPartition | None, start: int, end: int, cut: int) -> int:
    """Return where a partition ends that is archived as of a time.

    Raises:
        Misconfigured: the log, or the archive, does not end there.
    """
    if cut > end:
        raise Misconfigured(
            f"the cut is at offset {cut} and the log ends at {end}: the cut is of another log, or "
            "records were lost since"
        )
    if known is None and cut < start:
        raise Misconfigured(
            f"the cut is at offset {cut} and the log begins at {start}: what was known then is "
            "deleted"
        )
    if known is not None and known.end > cut:
        raise Misconfigured(
            f"the archive ends at offset {known.end} and the cut is at {cut}: an archive only "
            "grows. Give a later time"
        )
    return cut


def _with_size(client: Client, stretch: BrokerStretch) -> BrokerStretch:
    offsets = stretch.end - stretch.start
    if stretch.size is not None or offsets <= FEW_OFFSETS:
        return stretch
    fetched = client.fetch(
        *stretch.partition, stretch.start, max_bytes=_SAMPLE_BYTES, max_wait_ms=0
    )
    headers = [header for _, header in iter_headers(fetched.records)]
    if not headers:
        return stretch
    seen = max(1, headers[-1].next_offset - headers[0].base_offset)
    size = sum(header.size for header in headers) * offsets // seen
    return replace(stretch, size=max(1, size))


def _recreated(manifest: Manifest, name: str, topic_id: str | None) -> str | None:
    """Return the refusal of a topic that was created again since, or None."""
    known = manifest.topics.get(name)
    if known is None or None in (topic_id, known.topic_id) or topic_id == known.topic_id:
        return None
    return (
        "the topic was deleted and created again since it was archived: its offsets began anew. "
        "Give another archive"
    )


def _weight(stretch: Stretch) -> int:
    if isinstance(stretch, SegmentStretch):
        return stretch.weight
    return stretch.end - stretch.start if stretch.size is None else stretch.size


def _cut(stretch: Stretch, most: int) -> Iterator[Stretch]:
    """Cut a stretch into parts of about `most` bytes."""
    offsets = stretch.end - stretch.start
    parts = max(1, min(offsets, -(-_weight(stretch) // most)))
    cuts = [stretch.start + offsets * number // parts for number in range(parts + 1)]
    for start, end in pairwise(cuts):
        yield replace(stretch, start=start, end=end)


def _shown(moment_ms: int | None) -> str:
    return "none" if moment_ms is None else str(moment_ms)


@dataclass(frozen=True, slots=True)
class UnitDone:
    """Files that a task has written for a unit, and the ranges of offsets in them."""

    ranges: tuple[ArchivedRange, ...]
    files: tuple[ArchivedFile, ...]


@dataclass(slots=True)
class ManifestChanges:
    """Ranges and files that one commit adds to the manifest."""

    topics: Mapping[str, ArchivedTopic] = field(default_factory=dict)
    """Without what there is of their partitions already."""
    ranges: dict[TopicPartition, list[ArchivedRange]] = field(
        default_factory=lambda: defaultdict(list)
    )
    files: dict[TopicPartition, list[ArchivedFile]] = field(
        default_factory=lambda: defaultdict(list)
    )
    cuts: Mapping[TopicPartition, ArchivedCut] = field(default_factory=dict)
    """Cuts up to which partitions are archived with these changes."""
    doubts: Mapping[TopicPartition, tuple[int, Doubts]] = field(default_factory=dict)
    """Doubts about cuts before an offset."""

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
                updated = known.updated(topic.topic_id, topic.partition_count, topic.cluster_id)
                manifest = manifest.with_topic(name, updated)
        for partition, ranges in self.ranges.items():
            state = manifest.partition(partition) or ArchivedPartition((), (), ())
            try:
                state = state.extended(ranges, self.files.get(partition, ()))
            except Misconfigured as error:
                raise Misconfigured(f"{partition}: {error}") from None
            manifest = manifest.with_partition(partition, state)
        for partition in (*self.cuts, *self.doubts):
            held = manifest.partition(partition)
            if held is not None:
                manifest = manifest.with_partition(partition, self._noted(partition, held))
        return manifest

    def _noted(self, partition: TopicPartition, held: ArchivedPartition) -> ArchivedPartition:
        """Return a partition with its cut and its doubts."""
        cut, times = self.cuts.get(partition), held.times
        if cut is not None and (held.cut is None or held.cut.at_ms < cut.at_ms):
            held = replace(held, cut=cut)
        if partition not in self.doubts or times is None:
            return held
        end, doubts = self.doubts[partition]
        times = replace(times, end=max(times.end, end), doubts=times.doubts.joined(doubts))
        return replace(held, times=times)


class PlanProgress:
    """Progress of the units of a plan, which are committed in offset order."""

    def __init__(self, plan: Plan) -> None:
        self.refused = dict(plan.refused)
        self.records = self.bytes = self.files = self.file_bytes = 0
        self.grown: set[TopicPartition] = set()
        self._plan = plan
        self._positions: dict[TopicPartition, int] = {}
        self._known_ends = {
            TopicPartition(name, index): state.end
            for name, topic in plan.topics.items()
            for index, state in topic.partitions.items()
            if state.ranges
        }

    def take(
        self, wave: Iterable[UnitOutcome[ArchiveUnit, UnitDone]]
    ) -> tuple[ManifestChanges, list[str]]:
        """Return the additions of a wave's units, and the files that no manifest will list."""
        changes, unused = ManifestChanges(), []
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

    def rest(self, looked: Mapping[TopicPartition, PartitionCut | str]) -> ManifestChanges:
        """Return the remaining offsets, up to the ends: they hold no record in the range of time.

        A partition that the archive does not know is written down without any record, too.

        Args:
            looked: cuts of partitions after they were read.
        """
        changes = ManifestChanges()
        for partition, bounds in self._plan.bounds.items():
            if partition in self.refused:
                continue
            end = bounds.end
            is_new = partition not in self._positions and partition not in self._known_ends
            # A cut may be within a batch, behind records of it that compaction removed.
            is_cut = partition in self._plan.cuts
            if (
                self._follow(changes, partition, end, may_skip=is_cut)
                and is_new
                and not changes.ranges[partition]
            ):
                changes.ranges[partition].append(ArchivedRange(end, end))
        self._refuse_compacted(looked)
        changes.cuts = {
            partition: cut
            for partition, cut in self._plan.cuts.items()
            if partition not in self.refused
        }
        changes.doubts = {
            partition: (
                self._positions.get(partition, self._known_ends.get(partition, 0)),
                its.doubts,
            )
            for partition, its in looked.items()
            if not isinstance(its, str) and partition not in self.refused
        }
        return changes

    def _end(self, partition: TopicPartition) -> int:
        """Return where the archive of a partition ends with what was done."""
        known = self._known_ends.get(partition, 0)
        return self._positions.get(partition, known)

    def _refuse_compacted(self, looked: Mapping[TopicPartition, PartitionCut | str]) -> None:
        """Refuse partitions that the cleaner has passed while they were read as of a time."""
        for partition, cut in self._plan.cuts.items():
            its = looked.get(partition)
            if isinstance(its, str):
                self.refused.setdefault(partition, its)
            elif its is not None and (its.doubts.cleaner_point or 0) > cut.committed_offset > 0:
                self.refused.setdefault(
                    partition,
                    f"records that were known at {format_moment(cut.at_ms)} were compacted while "
                    "it was archived",
                )

    def _follow(
        self,
        changes: ManifestChanges,
        partition: TopicPartition,
        start: int,
        *,
        may_skip: bool = False,
    ) -> bool:
        """Fill the offsets without records up to `start`; False if the log changed meanwhile."""
        position = self._positions.get(partition)
        if position is None:
            planned = self._plan.bounds[partition].start
            known = self._known_ends.get(partition)
            if known is not None and known < planned:
                changes.ranges[partition].append(ArchivedRange(known, planned, is_lost=True))
            position = planned
        may_skip |= not self._plan.topics[partition.topic].times.is_everything
        if start < position or (start > position and not may_skip):
            self.refused[partition] = (
                f"its log changed while it was read: offset {position} was to follow, and "
                f"{start} came. Run this again"
            )
            return False
        if start > position:
            changes.ranges[partition].append(ArchivedRange(position, start))
        self._positions[partition] = start
        return True
