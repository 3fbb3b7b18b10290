"""Job `restore`: writes logs from an archive into a log directory, which a broker then serves.

    plan      on the driver: the ranges of each partition in segments
    segments  in tasks: batches rebuilt, written, synced, read and compared with the manifest
    place     on the driver: a partition whose segments are all proved gets its name

Everything is written below `<target>/.restore-<id>`; a partition appears in the target as a whole,
by one rename. A run that was killed is run again with the same state: segments that are proved
are kept, and partitions that have their place are left alone. One that is not there as it was
restored is refused: the state is not believed over what is there.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from horolog.errors import Misconfigured, StorageFailed
from horolog.jobs.archives.manifest import ArchivedRange, require_manifest
from horolog.jobs.archives.segment_plan import (
    SegmentPlan,
    chosen_partitions,
    compacted_topics,
    lacking_partitions,
    planned_segments,
)
from horolog.jobs.archives.segments import BuildSegment, BuiltSegment, SegmentUnit
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.parameters.archive import Restore
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.shared import OnProgress
from horolog.jobs.selection import Selection
from horolog.jobs.spread import UnitProgress, spread
from horolog.jobs.state import DocumentsOnly, state_of
from horolog.metadata.replicated import refuse_directory_of_cluster
from horolog.record.timestamps import TimeRange
from horolog.results import Aside, Outcome, size
from horolog.sources.uris import local_path, shown
from horolog.storage import names
from horolog.storage.directory.checkpoints import (
    EpochStart,
    read_offsets,
    write_append_time_resets,
    write_epochs,
    write_offsets,
)
from horolog.storage.directory.lock import lock_log_dir
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_SPARE: Final = 1.2

_Done = Mapping[str, Mapping[str, Any]]
"""The finished units of a state."""


@dataclass(frozen=True, slots=True)
class Restored(Outcome):
    """Result of a run, or of a dry run."""

    target: str
    partitions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """First offset and log end offset of each partition."""
    segments: int = 0
    records: int = 0
    bytes: int = 0
    """Size of the logs; in a dry run, of the archived batches."""
    refused: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Sentences on partitions that the archive lacks, or may lack."""
    is_dry_run: bool = False

    @property
    def is_ok(self) -> bool:
        """True if no partition was refused."""
        return not self.refused

    def lines(self) -> Iterator[str]:
        """Yield lines on the restored partitions, notes, and the refused partitions."""
        what = "Would restore" if self.is_dry_run else "Restored and compared"
        yield (
            f"{what} {self.records} records of {len(self.partitions)} partitions in "
            f"{self.target}: {self.segments} segments, {size(self.bytes)}"
        )
        for partition, (start, end) in self.partitions.items():
            what = f"offsets {start} to {end - 1}" if start < end else f"empty, at offset {end}"
            yield f"  {partition}  {what}"
        yield from map(Aside, self.notes)
        yield from (Aside(f"{partition}: {why}") for partition, why in self.refused.items())


@on_spark(Restore)
def restore(spark: SparkSession, job: Restore) -> Restored:
    """Restore the logs of an archive, with the same records at the same offsets and times.

    Batches have the bounds, times, producers, epochs and codecs that they had; compressed bytes may
    differ. Logs of formats v0 and v1 come back in v2. A log ends where the archive ends, so that no
    offset is given out twice. No broker may use the target meanwhile. Of a range of time the other
    records leave gaps, as after a compaction. Partitions without records come back where they
    began.

    Raises:
        Misconfigured: an argument cannot be, or a broker or another run is at work there.
        CorruptFile: the manifest is damaged.
        StorageFailed: the archive or the target cannot be read or written.
    """
    if not job.dry_run:
        job.require_state()
    log_dir = local_path(os.fspath(job.target))
    if log_dir is None:
        raise Misconfigured(
            f"{shown(os.fspath(job.target))} is no path: logs are restored to disks"
        )
    chosen = Selection.of(
        source=Path(log_dir),
        topics=job.topics,
        topics_pattern=job.topics_pattern,
        from_=job.from_,
        to=job.to,
    )
    store, target = ArchiveStore.of(job.archive, job.settings), Path(log_dir)
    refuse_directory_of_cluster(target)
    with ExitStack() as held:
        state = held.enter_context(state_of(job, "restore"))
        if not job.dry_run:
            held.enter_context(closing(lock_log_dir(target)))
        plan = _RestorePlan(store, target, chosen, state)
        if state is None or job.dry_run:
            return plan.dry_run()
        files = held.enter_context(closing(Files()))
        return _RestoreRun(spark, plan, state, files, job.on_progress).run()


class _RestorePlan:
    """Segments of the partitions that are asked for, and what earlier runs did with them."""

    def __init__(
        self,
        store: ArchiveStore,
        target: Path,
        chosen: Selection,
        state: DocumentsOnly | None,
    ) -> None:
        """Plan a run, or the rest of the runs that a state has begun.

        Raises:
            Misconfigured: the archive is not the one that the state began to restore.
        """
        self.store, self.target = store, target
        manifest = require_manifest(store)
        self.done: _Done = {} if state is None else state.done
        states = chosen_partitions(manifest, chosen, store.name)
        self.notes = (*lacking_partitions(manifest, chosen), *compacted_topics(states))
        pinned = _pinned(
            state,
            "pinned",
            {
                "archive": manifest.id,
                "ranges": {
                    str(partition): [asdict(range_) for range_ in its.ranges]
                    for partition, its in states.items()
                },
                "from_ms": chosen.from_ms,
                "to_ms": chosen.to_ms,
            },
        )
        if pinned["archive"] != manifest.id:
            raise Misconfigured(
                f"{store.name} is another archive than that which this state began to "
                "restore: it was created again since. Give another --state"
            )
        self.times = TimeRange.between(pinned["from_ms"], pinned["to_ms"])
        name = _pinned(state, "staging", {"name": f".restore-{uuid.uuid4().hex[:12]}"})["name"]
        self.staging = target / name
        # Ranges grow with the archive; the pinned ones are in today's files, too.
        ranges = pinned["ranges"]
        self.segments = {
            partition: planned_segments(
                partition,
                replace(its, ranges=tuple(ArchivedRange(**range_) for range_ in known)),
            )
            for partition, its in states.items()
            if (known := ranges.get(str(partition)))
        }
        missing = sorted(set(ranges) - {str(partition) for partition in self.segments})
        if missing:
            raise Misconfigured(f"{missing[0]} is no longer in the archive {store.name}")
        self.refused = {
            partition: why
            for partition in self.segments
            if (why := self._refusal(partition)) is not None
        }

    def place(self, partition: TopicPartition) -> Path:
        """Return the directory that a partition gets."""
        return self.target / str(partition)

    def has_its_place(self, partition: TopicPartition) -> bool:
        """True if a partition was renamed to its place, even if the state does not say so yet."""
        if f"placed:{partition}" in self.done:
            return True
        ready, place = self.staging / str(partition), self.place(partition)
        return f"placing:{partition}" in self.done and place.exists() and not ready.exists()

    def exists(self, partition: TopicPartition) -> str:
        """Return the refusal of a partition that the target has already."""
        return f"{self.place(partition)} is there already: remove it, or give another target"

    def built(self, unit: SegmentUnit) -> BuiltSegment | None:
        """Return a segment that an earlier run, or this one, has proved."""
        known = self.done.get(f"segment:{unit.key}")
        return None if known is None else BuiltSegment(**known["built"])

    def _refusal(self, partition: TopicPartition) -> str | None:
        """Return why a partition cannot be restored, or is not as it was restored."""
        place = self.place(partition)
        if not self.has_its_place(partition):
            return self.exists(partition) if place.exists() else None
        if not place.is_dir():
            return (
                f"{place} was restored with this state, and is gone since: give another --state to "
                "restore it again"
            )
        expected = {
            names.segment_file(unit.base_offset, names.LOG): built.bytes
            for unit in self.segments[partition].units
            if (built := self.built(unit)) is not None
        }
        if {path.name: path.stat().st_size for path in place.glob("*" + names.LOG)} != expected:
            return (
                f"{place} is not as it was restored with this state: a broker has written to it "
                "since, or it was created again. To restore it again remove it, and give another "
                "--state"
            )
        return None

    def dry_run(self) -> Restored:
        """Return what a run would restore."""
        left = {
            partition: segments
            for partition, segments in self.segments.items()
            if partition in self.refused or not self.has_its_place(partition)
        }
        ranges = [range_ for segments in left.values() for range_ in segments.state.ranges]
        size, free = sum(range_.bytes for range_ in ranges), _free_bytes(self.target)
        refused = self._shown_refusals()
        if size * _SPARE > free:
            refused["disk"] = f"about {size} bytes are needed and {free} free at {self.target}"
        return Restored(
            target=str(self.target),
            partitions=_bounds(left),
            segments=sum(len(segments.units) for segments in left.values()),
            records=sum(range_.records for range_ in ranges),
            bytes=size,
            refused=refused,
            notes=self.notes,
            is_dry_run=True,
        )

    def result(self) -> Restored:
        """Return what has been restored."""
        done = {
            partition: segments
            for partition, segments in self.segments.items()
            if partition not in self.refused
        }
        built = [
            segment
            for segments in done.values()
            for unit in segments.units
            if (segment := self.built(unit)) is not None
        ]
        return Restored(
            target=str(self.target),
            partitions=_bounds(done),
            segments=len(built),
            records=sum(segment.records for segment in built),
            bytes=sum(segment.bytes for segment in built),
            refused=self._shown_refusals(),
            notes=self.notes,
        )

    def _shown_refusals(self) -> dict[str, str]:
        return {str(partition): why for partition, why in self.refused.items()}


@dataclass(frozen=True, slots=True)
class _RestoreRun:
    spark: SparkSession
    plan: _RestorePlan
    state: DocumentsOnly
    files: Files
    progress: OnProgress

    def run(self) -> Restored:
        """Restore the partitions that have no place yet."""
        plan = self.plan
        todo = [
            partition
            for partition in plan.segments
            if partition not in plan.refused and not self._finish_placing(partition)
        ]
        if todo and not plan.staging.exists():
            self.files.make_directory(str(plan.staging))
            self.files.sync_path(str(plan.target))
        self._build(todo)
        for partition in todo:
            if partition not in plan.refused:
                self._place(partition, plan.segments[partition])
        if not plan.refused:
            self.files.remove_tree(str(plan.staging))
        return plan.result()

    def _build(self, partitions: Sequence[TopicPartition]) -> None:
        """Build and prove the segments that are not there."""
        units, done = [], 0
        for partition in partitions:
            for unit in self.plan.segments[partition].units:
                segment = self.plan.built(unit)
                if segment is not None and self._is_there(segment, unit):
                    done += segment.records
                else:
                    units.append(unit)
        task = BuildSegment(self.plan.store, str(self.plan.staging), self.plan.times)
        progress = UnitProgress[SegmentUnit](
            self.progress, lambda unit: unit.archived_records, done=done
        )
        for wave in spread(self.spark, units, task, progress=progress):
            for outcome in wave:
                if outcome.result is None:
                    why = outcome.error or "its task failed"
                    self.plan.refused.setdefault(outcome.unit.partition, why)
            self.state.record(
                (f"segment:{outcome.unit.key}", {"built": asdict(outcome.result)})
                for outcome in wave
                if outcome.result is not None
            )

    def _is_there(self, built: BuiltSegment, unit: SegmentUnit) -> bool:
        """True if the log of a proved segment is where it was written, or where it was moved."""
        name = names.segment_file(unit.base_offset, names.LOG)
        return any(
            path.is_file() and path.stat().st_size == built.bytes
            for directory in (built.directory, str(unit.partition))
            for path in [self.plan.staging / directory / name]
        )

    def _finish_placing(self, partition: TopicPartition) -> bool:
        """Record a rename that a killed run made; True if the partition has its place."""
        if not self.plan.has_its_place(partition):
            return False
        if f"placed:{partition}" not in self.plan.done:
            self.files.sync_path(str(self.plan.target))
            self.state.record([(f"placed:{partition}", {})])
        return True

    def _place(self, partition: TopicPartition, segments: SegmentPlan) -> None:
        """Give a partition its directory, with its segments and checkpoints."""
        ready, start = self.plan.staging / str(partition), segments.state.start
        if not ready.exists():
            self.files.make_directory(str(ready))
        epochs: list[EpochStart] = []
        for unit in segments.units:
            segment = self.plan.built(unit)
            assert segment is not None
            self._move(self.plan.staging / segment.directory, ready)
            for epoch, first_offset in segment.epochs:
                begun = max(first_offset, start)
                if epochs and epochs[-1].start_offset == begun:
                    epochs.pop()  # no record of it is left
                if not epochs or epoch > epochs[-1].epoch:
                    epochs.append(EpochStart(epoch, begun))
        path = str(ready)
        if epochs:
            write_epochs(self.files, f"{path}/{names.LEADER_EPOCHS}", epochs)
        if segments.resets:
            resets = f"{path}/{names.APPEND_TIME_RESETS}"
            write_append_time_resets(self.files, resets, segments.resets)
        self.files.sync_path(path)
        self.files.sync_path(str(self.plan.staging))
        if segments.units[0].base_offset < start:  # the log begins within its first batch
            starts = str(self.plan.target / names.LOG_START_OFFSETS)
            write_offsets(
                self.files, starts, {**read_offsets(self.files, starts), partition: start}
            )
            self.files.sync_path(str(self.plan.target))
        self.state.record([(f"placing:{partition}", {})])
        place = self.plan.place(partition)
        if place.exists():
            raise StorageFailed(self.plan.exists(partition))
        self.files.rename(path, str(place))
        self.files.sync_path(str(self.plan.target))
        self.state.record([(f"placed:{partition}", {})])

    def _move(self, source: Path, ready: Path) -> None:
        """Move the files of a segment; some of them may have been moved already, the log last."""
        if not source.exists():
            return
        for name in sorted(os.listdir(source), key=lambda name: name.endswith(names.LOG)):
            self.files.rename(f"{source}/{name}", f"{ready}/{name}")
        os.rmdir(source)


def _pinned(state: DocumentsOnly | None, name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that the first run of a state has written, or write it."""
    known: dict[str, Any] | None = None if state is None else state.read(name)
    if known is None and state is not None:
        state.write(name, document)
    return document if known is None else known


def _bounds(plan: Mapping[TopicPartition, SegmentPlan]) -> dict[str, tuple[int, int]]:
    """Return the first offset and the log end offset of each partition."""
    return {
        str(partition): (parts.state.start, parts.state.end) for partition, parts in plan.items()
    }


def _free_bytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
