"""`restore`: an archive, or a part of it, into a log directory that a broker then serves.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from horolog.errors import Misconfigured, StorageFailed
from horolog.jobs.archives.manifest import Manifest, require_manifest
from horolog.jobs.archives.ranges import ArchivedRange
from horolog.jobs.archives.segment_plan import (
    SegmentPlan,
    chosen_partitions,
    lacking_partitions,
    planned_segments,
)
from horolog.jobs.archives.segments import BuildSegment, BuiltSegment, SegmentUnit
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.parameters.archive import Restore
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.option import pinned
from horolog.jobs.parameters.shared import OnProgress
from horolog.jobs.selection import Selection
from horolog.jobs.spread import UnitProgress, spread
from horolog.jobs.state import DocumentsOnly, JobState, look_at_state
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
    """Of each the first offset and the log end offset."""
    segments: int = 0
    records: int = 0
    bytes: int = 0
    """Of logs; of a dry run, of the batches that were archived."""
    refused: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Which partitions of the topics the archive lacks, or may lack."""
    is_dry_run: bool = False

    @property
    def is_ok(self) -> bool:
        """True if no partition was refused."""
        return not self.refused

    def lines(self) -> Iterator[str]:
        """The restored partitions, notes, and the refused partitions."""
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
    store = ArchiveStore.of(job.archive, job.settings)
    run = _RestoreRun(spark, store, Path(log_dir), chosen, job.on_progress)
    if job.dry_run:
        known = None if job.state is None else look_at_state(job.state, "restore", pinned(job))
        return run.planned(known)
    with JobState(job.require_state(), "restore", pinned(job)) as kept:
        return run.done(kept)


@dataclass(slots=True)
class _RestoreRun:
    spark: SparkSession
    store: ArchiveStore
    target: Path
    chosen: Selection
    progress: OnProgress
    files: Files = field(default_factory=Files)

    def planned(self, known: DocumentsOnly | None) -> Restored:
        """Plan a run, after the runs of a state if there is one."""
        manifest = require_manifest(self.store)
        plan, done = self._pinned(known, manifest), {} if known is None else known.done
        staging = self.target / self._staging(known)
        refused = self._refused(plan, done, staging)
        left = {
            each: parts
            for each, parts in plan.items()
            if each in refused or not self._has_its_place(each, done, staging)
        }
        ranges = [range_ for parts in left.values() for range_ in parts.state.ranges]
        size, free = sum(range_.bytes for range_ in ranges), _free_bytes(self.target)
        lacks_room = size * _SPARE > free
        why = f"about {size} bytes are needed and {free} free at {self.target}"
        return Restored(
            target=str(self.target),
            partitions=_bounds(left),
            segments=sum(len(parts.units) for parts in left.values()),
            records=sum(range_.records for range_ in ranges),
            bytes=size,
            refused={str(each): its for each, its in refused.items()}
            | ({"disk": why} if lacks_room else {}),
            notes=tuple(lacking_partitions(manifest, self.chosen)),
            is_dry_run=True,
        )

    def done(self, job: JobState) -> Restored:
        """Restore what is not restored yet."""
        with self._locked():
            manifest = require_manifest(self.store)
            plan = self._pinned(job, manifest)
            staging = self.target / self._staging(job)
            refused = self._refused(plan, job.done, staging)
            todo = {
                each: parts
                for each, parts in plan.items()
                if each not in refused and not self._finish_placing(job, staging, each)
            }
            if todo and not staging.exists():
                self.files.make_directory(str(staging))
                self.files.sync_path(str(self.target))
            built = self._build(job, staging, todo, refused)
            for partition, parts in todo.items():
                if partition not in refused:
                    self._place(job, staging, partition, parts, built)
            if not refused:
                self.files.remove_tree(str(staging))
            done = {each: parts for each, parts in plan.items() if each not in refused}
            segments = [
                segment
                for parts in done.values()
                for unit in parts.units
                if (segment := _built(job.done, unit)) is not None
            ]
            return Restored(
                target=str(self.target),
                partitions=_bounds(done),
                segments=len(segments),
                records=sum(each.records for each in segments),
                bytes=sum(each.bytes for each in segments),
                refused={str(each): why for each, why in refused.items()},
                notes=tuple(lacking_partitions(manifest, self.chosen)),
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = lock_log_dir(self.target)
        try:
            yield
        finally:
            lock.close()
            self.files.close()

    # Planning.

    def _pinned(
        self, job: JobState | DocumentsOnly | None, manifest: Manifest
    ) -> dict[TopicPartition, SegmentPlan]:
        """The plan; of a run that continues one, with the ranges and times that the first had."""
        found = chosen_partitions(manifest, self.chosen, self.store.name)
        pinned = None if job is None else job.read("pinned")
        if pinned is not None and pinned.get("archive", manifest.id) != manifest.id:
            raise Misconfigured(
                f"{self.store.name} is another archive than that which this state began to "
                "restore: it was created again since. Give another --state"
            )
        if pinned is None:
            pinned = {
                "archive": manifest.id,
                "ranges": {
                    str(each): [asdict(range_) for range_ in state.ranges]
                    for each, state in found.items()
                },
                "from_ms": self.chosen.from_ms,
                "to_ms": self.chosen.to_ms,
            }
            if isinstance(job, JobState):
                job.write("pinned", pinned)
        self.chosen = replace(self.chosen, from_ms=pinned["from_ms"], to_ms=pinned["to_ms"])
        plans = {}
        for partition, state in found.items():
            # Ranges grow with the archive; those of then are in the files of now all the same.
            ranges = tuple(
                ArchivedRange(**each) for each in pinned["ranges"].get(str(partition), ())
            )
            if ranges:
                plans[partition] = planned_segments(partition, replace(state, ranges=ranges))
        missing = sorted(set(pinned["ranges"]) - {str(plan) for plan in plans})
        if missing:
            raise Misconfigured(f"{missing[0]} is no longer in the archive {self.store.name}")
        return plans

    def _there(self, partition: TopicPartition) -> str:
        return f"{self.target / str(partition)} is there already: remove it, or give another target"

    def _staging(self, job: JobState | DocumentsOnly | None) -> str:
        """The name of the directory in which segments are made."""
        document = None if job is None else job.read("staging")
        if document is None:
            document = {"name": f".restore-{uuid.uuid4().hex[:12]}"}
            if isinstance(job, JobState):
                job.write("staging", document)
        return str(document["name"])

    def _refused(
        self, plan: Mapping[TopicPartition, SegmentPlan], done: _Done, staging: Path
    ) -> dict[TopicPartition, str]:
        """Why partitions cannot be restored, or are not as they were restored."""
        refused = {}
        for each, parts in plan.items():
            place = self.target / str(each)
            if self._has_its_place(each, done, staging):
                why = _changed(place, parts, done)
            else:
                why = self._there(each) if place.exists() else None
            if why is not None:
                refused[each] = why
        return refused

    # Segments.

    def _build(
        self,
        job: JobState,
        staging: Path,
        todo: Mapping[TopicPartition, SegmentPlan],
        refused: dict[TopicPartition, str],
    ) -> dict[str, BuiltSegment]:
        """All segments, made and proved."""
        built: dict[str, BuiltSegment] = {}
        units: list[SegmentUnit] = []
        for partition, parts in todo.items():
            for unit in parts.units:
                segment = _built(job.done, unit)
                if segment is not None and self._is_there(staging, partition, segment, unit):
                    built[unit.key] = segment
                else:
                    units.append(unit)
        task = BuildSegment(self.store, str(staging), self.chosen.times)
        progress = UnitProgress[SegmentUnit](
            self.progress,
            lambda unit: unit.archived_records,
            done=sum(segment.records for segment in built.values()),
        )
        for wave in spread(self.spark, units, task, progress=progress):
            news = []
            for outcome in wave:
                if outcome.result is None:
                    why = outcome.error or "its task failed"
                    refused.setdefault(outcome.unit.partition, why)
                    continue
                built[outcome.unit.key] = outcome.result
                news.append((f"segment:{outcome.unit.key}", {"built": asdict(outcome.result)}))
            job.record(news)
        return built

    def _is_there(
        self, staging: Path, partition: TopicPartition, built: BuiltSegment, unit: SegmentUnit
    ) -> bool:
        """Whether the log of a segment that was proved is where it was written, or was moved to."""
        name = names.segment_file(unit.base_offset, names.LOG)
        return any(
            path.is_file() and path.stat().st_size == built.bytes
            for directory in (built.directory, str(partition))
            for path in [staging / directory / name]
        )

    # Placing.

    def _has_its_place(self, partition: TopicPartition, done: _Done, staging: Path) -> bool:
        """Whether a partition was renamed to its place, also where that was not written down."""
        if f"placed:{partition}" in done:
            return True
        ready, place = staging / str(partition), self.target / str(partition)
        return f"placing:{partition}" in done and place.exists() and not ready.exists()

    def _finish_placing(self, job: JobState, staging: Path, partition: TopicPartition) -> bool:
        """Whether a partition has its place; a rename that was not written down is, now."""
        if not self._has_its_place(partition, job.done, staging):
            return False
        if f"placed:{partition}" not in job.done:
            self.files.sync_path(str(self.target))
            job.record([(f"placed:{partition}", {})])
        return True

    def _place(
        self,
        job: JobState,
        staging: Path,
        partition: TopicPartition,
        parts: SegmentPlan,
        built: Mapping[str, BuiltSegment],
    ) -> None:
        """Give a partition its directory, with its segments and checkpoints."""
        ready = staging / str(partition)
        if not ready.exists():
            self.files.make_directory(str(ready))
        epochs: list[EpochStart] = []
        for unit in parts.units:
            segment = built[unit.key]
            self._move(staging / segment.directory, ready)
            for epoch, start in segment.epochs:
                begun = max(start, parts.state.start)
                if epochs and epochs[-1].start_offset == begun:
                    epochs.pop()  # no record of it is left
                if not epochs or epoch > epochs[-1].epoch:
                    epochs.append(EpochStart(epoch, begun))
        path = str(ready)
        if epochs:
            write_epochs(self.files, f"{path}/{names.LEADER_EPOCHS}", epochs)
        if parts.resets:
            write_append_time_resets(self.files, f"{path}/{names.APPEND_TIME_RESETS}", parts.resets)
        self.files.sync_path(path)
        self.files.sync_path(str(staging))
        if parts.units[0].base_offset < parts.state.start:
            self._write_start(partition, parts.state.start)
        job.record([(f"placing:{partition}", {})])
        place = self.target / str(partition)
        if place.exists():
            raise StorageFailed(self._there(partition))
        self.files.rename(path, str(place))
        self.files.sync_path(str(self.target))
        job.record([(f"placed:{partition}", {})])

    def _move(self, source: Path, ready: Path) -> None:
        """Move the files of a segment; some of them may have been moved already, the log last."""
        if not source.exists():
            return
        for name in sorted(os.listdir(source), key=lambda each: each.endswith(names.LOG)):
            self.files.rename(f"{source}/{name}", f"{ready}/{name}")
        os.rmdir(source)

    def _write_start(self, partition: TopicPartition, offset: int) -> None:
        """Let the log begin within its first batch."""
        path = str(self.target / names.LOG_START_OFFSETS)
        offsets = {**read_offsets(self.files, path), partition: offset}
        write_offsets(self.files, path, offsets)
        self.files.sync_path(str(self.target))


def _bounds(plan: Mapping[TopicPartition, SegmentPlan]) -> dict[str, tuple[int, int]]:
    """The first offset of each partition and its log end offset."""
    return {str(each): (parts.state.start, parts.state.end) for each, parts in plan.items()}


def _built(done: _Done, unit: SegmentUnit) -> BuiltSegment | None:
    """Return a segment as the state records it."""
    known = done.get(f"segment:{unit.key}")
    return None if known is None else BuiltSegment(**known["built"])


def _changed(place: Path, parts: SegmentPlan, done: _Done) -> str | None:
    """Why a partition that was restored is not as it was; None if it is."""
    if not place.is_dir():
        return (
            f"{place} was restored with this state, and is gone since: give another --state to "
            "restore it again"
        )
    expected = {
        names.segment_file(unit.base_offset, names.LOG): built.bytes
        for unit in parts.units
        if (built := _built(done, unit)) is not None
    }
    if {path.name: path.stat().st_size for path in place.glob("*" + names.LOG)} != expected:
        return (
            f"{place} is not as it was restored with this state: a broker has written to it since, "
            "or it was created again. To restore it again remove it, and give another --state"
        )
    return None


def _free_bytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
