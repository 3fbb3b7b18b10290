"""Job `archive`: copies topics to Parquet by date and hour of their records' times.

    plan      on the driver (planning.py): of each partition the offsets from the manifest's end to
              the last stable offset, cut into units of about `UNIT_BYTES`
    units     in tasks: whole batches, decoded to columns, to files of their hours
    commit    on the driver (planning.py), after each wave of units: a manifest with the new files

A unit that fails stops its partition there, and leaves the others alone. Whatever is killed, the
manifest names whole units only, and the next run continues where it ends.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from horolog.client import PartitionCut
from horolog.clock import Moment, SystemClock
from horolog.errors import CorruptBatch, HorologError, Misconfigured
from horolog.jobs.archives.hours import Hours
from horolog.jobs.archives.manifest import (
    Manifest,
    commit_changes,
    create_archive,
    read_manifest,
    refuse_foreign,
)
from horolog.jobs.archives.parts import HourFiles
from horolog.jobs.archives.planning import (
    COMMITTED,
    ArchiveUnit,
    ManifestChanges,
    Plan,
    Planner,
    PlanProgress,
    UnitDone,
)
from horolog.jobs.archives.reading import RangeReader
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.counting import count
from horolog.jobs.parameters.archive import Archive, require_target_bytes
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.shared import OnProgress
from horolog.jobs.selection import Selection, as_of
from horolog.jobs.spread import UnitProgress, spread
from horolog.jobs.state import DocumentsOnly, state_of
from horolog.record.timestamps import TimeRange
from horolog.results import Aside, Outcome, size
from horolog.sources.ahead import ahead
from horolog.sources.complete import end_of_complete, wait_complete
from horolog.sources.options import ReadOptions
from horolog.sources.plan import SegmentStretch
from horolog.sources.planning import opened_log
from horolog.sources.row_filter import RowFilter
from horolog.sources.stretch_reader import StretchReader
from horolog.sources.uris import absolute
from horolog.storage.names import TopicPartition
from horolog.times import format_moment, parse_time


@dataclass(frozen=True, slots=True)
class Archived(Outcome):
    """Result of a run, or of a dry run."""

    archive: str
    manifest: int
    """The number of the manifest that names all of it."""
    partitions: int
    """Number of partitions with newly archived offsets."""
    records: int = 0
    bytes: int = 0
    """Size of the batches at the source; in a dry run, an estimate."""
    files: int = 0
    file_bytes: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    """The offset up to which each partition is archived now, or would be."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons why partitions are not archived up to their ends."""
    as_of_ms: Mapping[str, int | None] = field(default_factory=dict)
    """Append time as of which each topic is archived; None if it is unknown."""
    is_dry_run: bool = False

    @property
    def is_ok(self) -> bool:
        """True if all partitions are archived up to their ends, or would be."""
        return not self.refused

    def lines(self) -> Iterator[str]:
        """Yield what was archived, or would be, and the refused partitions."""
        size_text = size(self.bytes)
        if self.is_dry_run:
            yield (
                f"Would archive {self.partitions} partitions in {self.archive}, about {size_text}, "
                "up to:"
            )
            yield from (f"  {partition}  {end}" for partition, end in self.ends.items())
        else:
            yield (
                f"Archived {self.records} records of {self.partitions} partitions ({size_text}) in "
                f"{self.archive}: {self.files} files of records, {size(self.file_bytes)} in all, "
                f"manifest {self.manifest}"
            )
        for topic, until_ms in self.as_of_ms.items():
            if until_ms is not None:
                yield f"  {topic}  archived as of {format_moment(until_ms)}"
        yield from (Aside(f"{partition}: {why}") for partition, why in self.refused.items())


_ARCHIVE: Final = "archive"
"""The document of a state that has the id of the archive."""


@on_spark(Archive)
def archive(spark: SparkSession, job: Archive) -> Archived:
    """Archive committed records of topics, from where the archive ends to where the logs end.

    As of a time they end where their cut is.

    What is archived of a topic keeps one range of time for good.

    Raises:
        Misconfigured: an argument cannot be, another run is at work on `state`, or the archive is
            of another range of time.
        CorruptFile: the manifest is damaged.
        StorageFailed, NoAnswer, RequestRefused: the archive or the broker.
    """
    if job.source is None:
        raise Misconfigured("give --source, the broker or the segment files to archive")
    if not job.dry_run:
        job.require_state()
    clock = SystemClock()
    hours = Hours.parse(job.window, clock.now_ms())
    require_target_bytes(job.target_bytes)
    selection = Selection.of(
        source=job.source,
        topics=job.topics,
        topics_pattern=job.topics_pattern,
        from_=job.from_,
        to=job.to,
        settings=job.settings,
    )
    options = _exact(selection)
    cut = as_of(job.as_of, options)
    options = replace(options, as_of=None)  # tasks do not need it
    if job.complete:
        _wait_complete(options, is_as_of=cut is not None, timeout_ms=job.complete_timeout_ms)
    store = ArchiveStore(absolute(os.fspath(job.archive)), options.store)
    relative = frozenset(
        side for side, moment in (("from", job.from_), ("to", job.to)) if _is_relative(moment)
    )
    planner = Planner(selection, replace(options, as_of=cut), job.accept_gaps, relative)
    with state_of(job, "archive") as state:
        if state is None or job.dry_run:
            return _planned(planner, store, state)
        task = _ArchiveTask(options, store, hours, job.target_bytes)
        return _archived(spark, planner, task, state, job.on_progress)


def _wait_complete(options: ReadOptions, *, is_as_of: bool, timeout_ms: int) -> None:
    """Wait until no record of the archive's range can come any more.

    Raises:
        Misconfigured: it is never known, or the range has no end.
        NotComplete: it is not so within the timeout.
    """
    until_ms = end_of_complete(options.times.range, is_as_of=is_as_of)
    with opened_log(options) as log:
        wait_complete(log, until_ms, committed=True, timeout_ms=timeout_ms)


def _exact(selection: Selection) -> ReadOptions:
    """Return the options to read the source with, which may leave out no record.

    Raises:
        Misconfigured: the settings would have records left out.
    """
    options = selection.read_options(**COMMITTED)
    if not options.fail_on_data_loss:
        raise Misconfigured(
            "failOnDataLoss=false would leave records out of the archive for good; --accept-gaps "
            "continues behind records that the source has deleted"
        )
    path, advice = selection.source.path, None
    if path is not None:
        advice = f"`horolog log verify {path.uri}` says what is damaged and how to repair it"
    return replace(options, loss_option=None, loss_advice=advice)


def _is_relative(moment: Moment | None) -> bool:
    if not isinstance(moment, str):
        return False
    return parse_time(moment, now_ms=0) != parse_time(moment, now_ms=1)


@dataclass(frozen=True, slots=True)
class _ArchiveTask:
    """Archive a unit in a task. Spark sends it to workers."""

    options: ReadOptions
    store: ArchiveStore
    hours: Hours
    target_bytes: int
    with_append_times: bool = False
    times: Mapping[str, TimeRange] = field(default_factory=dict)

    def __call__(self, unit: ArchiveUnit) -> UnitDone:
        times = self.times[unit.partition.topic]
        files = HourFiles(self.store, unit.partition, self.hours, target_bytes=self.target_bytes)
        stretch = unit.stretch
        ranges = RangeReader(stretch.start, stretch.end, floor=unit.floor, times=times)
        try:
            with StretchReader(self.options, reuses_memory=False) as reader:
                pieces = reader.batches(
                    stretch,
                    RowFilter().within(TimeRange.between(times.from_ms, None)),
                    with_append_times=self.with_append_times,
                    with_markers=True,
                )
                is_file = isinstance(stretch, SegmentStretch)
                with nullcontext(pieces) if is_file else ahead(pieces) as batches:
                    for rows in ranges.rows(batches):
                        files.add(rows)
                        count(rows.num_rows)
            written = files.close()
            files.add_facts(ranges.facts)
        except BaseException as error:
            with suppress(HorologError, OSError):
                files.abandon()
            if isinstance(error, CorruptBatch):
                where = stretch.path if isinstance(stretch, SegmentStretch) else stretch.partition
                raise CorruptBatch(f"{where} cannot be read: {error}") from None
            raise
        return UnitDone(tuple(ranges.ranges), tuple(written))


def _planned(planner: Planner, store: ArchiveStore, state: DocumentsOnly | None) -> Archived:
    """Return what a run would archive, after the runs of a state if there is one."""
    manifest = _known_manifest(store, state)
    if manifest is None:
        refuse_foreign(store)
        manifest = Manifest(0, "", {})
    plan = planner.plan(manifest)
    return Archived(
        archive=store.name,
        manifest=manifest.number,
        partitions=len({unit.partition for unit in plan.units}),
        bytes=plan.bytes,
        ends={str(partition): bounds.end for partition, bounds in plan.bounds.items()},
        refused={str(partition): why for partition, why in plan.refused.items()},
        is_dry_run=True,
    )


def _known_manifest(store: ArchiveStore, state: DocumentsOnly | None) -> Manifest | None:
    """Return the newest manifest; None if there is none.

    Raises:
        Misconfigured: the archive was lost or created again since a run with this state wrote to
            it: what is archived and no longer at the source would be missing.
    """
    manifest = read_manifest(store)
    known = None if state is None else state.read(_ARCHIVE)
    if manifest is None:
        is_same = known is None and (state is None or not state.done)
    else:
        is_same = known is None or manifest.id == known["id"]
    if not is_same:
        raise Misconfigured(
            f"{store.name} {'is gone' if manifest is None else 'is another archive'} "
            "since a run with this state wrote to it: what it held is not there. Give another "
            "--state to archive what the source still has"
        )
    return manifest


def _looked_back(planner: Planner, plan: Plan) -> Mapping[TopicPartition, PartitionCut | str]:
    """Return what has happened to the logs while they were read; a run as of a time needs it."""
    try:
        return planner.look_back(plan)
    except HorologError:
        if plan.cuts:
            raise
        return {}


def _archived(
    spark: SparkSession,
    planner: Planner,
    task: _ArchiveTask,
    state: DocumentsOnly,
    on_progress: OnProgress,
) -> Archived:
    """Archive what the source has behind the archive, and commit each wave of units."""
    store = task.store
    _known_manifest(store, state)
    manifest = create_archive(store)
    plan = planner.plan(manifest)
    state.write(_ARCHIVE, {"id": manifest.id})
    manifest = commit_changes(store, manifest, ManifestChanges(topics=plan.topics).applied)
    task = replace(
        task,
        with_append_times=plan.with_append_times,
        times={name: topic.times for name, topic in plan.topics.items()},
    )
    progress = PlanProgress(plan)
    counted = UnitProgress[ArchiveUnit](on_progress, lambda unit: unit.offsets)
    for wave in spread(spark, plan.units, task, progress=counted):
        changes, unused = progress.take(wave)
        for path in unused:
            with suppress(HorologError):
                store.remove(path)
        manifest = commit_changes(store, manifest, changes.applied)
        state.record(
            (outcome.unit.key, {"manifest": manifest.number, "error": outcome.error})
            for outcome in wave
        )
    looked = _looked_back(planner, plan)
    manifest = commit_changes(store, manifest, progress.rest(looked).applied)
    return Archived(
        archive=store.name,
        manifest=manifest.number,
        partitions=len(progress.grown),
        records=progress.records,
        bytes=progress.bytes,
        files=progress.files,
        file_bytes=progress.file_bytes,
        ends={
            str(partition): known.end
            for partition in plan.partitions
            if (known := manifest.partition(partition)) is not None
        },
        refused={str(partition): why for partition, why in sorted(progress.refused.items())},
        as_of_ms={name: manifest.topics[name].as_of_ms for name in plan.topics},
    )
