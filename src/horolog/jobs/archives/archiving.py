"""`archive`: topics to Parquet by date and hour of their records' times, and a manifest.

    plan      on the driver: of each partition the offsets from the manifest's end to the last
              stable offset, cut into units of about `UNIT_BYTES`
    units     in tasks: whole batches, decoded to columns, to files of their hours
    commit    on the driver, after each wave of units: a manifest that names the new files

A unit that fails stops its partition there, and leaves the others alone. Whatever is killed, the
manifest names whole units only, and the next run goes on where it ends.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Protocol
from uuid import UUID

from pyspark.sql import SparkSession

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.errors import CorruptBatch, ErrorCode, HorologError, Misconfigured, RequestRefused
from horolog.jobs.archives.hours import Hours
from horolog.jobs.archives.manifest import (
    ArchivedFile,
    ArchivedPartition,
    ArchivedTopic,
    Manifest,
    commit,
    create_archive,
    read_manifest,
    refuse_foreign,
)
from horolog.jobs.archives.parts import TARGET_BYTES, HourFiles
from horolog.jobs.archives.reading import Range
from horolog.jobs.archives.sources import COMMITTED, Unit, open_pieces, reader_of
from horolog.jobs.archives.store import ArchiveStore
from horolog.jobs.selection import Moment, Selection
from horolog.jobs.spread import Outcome, spread
from horolog.jobs.state import JobState
from horolog.record.batch import iter_headers
from horolog.spark.bounds import Bounds
from horolog.spark.broker_log import BrokerLog
from horolog.spark.file_log import FileLog
from horolog.spark.object_stores import StoreOptions, shown
from horolog.spark.options import ReadOptions
from horolog.spark.plan import OffsetRange, SegmentRange
from horolog.spark.row_times import narrowed
from horolog.spark.uris import absolute
from horolog.spark.wanted import EVERYTHING, Interval, Wanted
from horolog.storage.names import TopicPartition
from horolog.times import parse_time

UNIT_BYTES: Final = 128 << 20
_LEAST_UNIT_BYTES = 8 << 20
_UNITS = 8  # of a small log: enough to keep a few cores busy
_FEW_OFFSETS = 20_000  # that are one unit, however large their records are
_SAMPLE_BYTES = 256 << 10
_TRIES = 20


class Progress(Protocol):
    """Is called with how many units are done, of how many."""

    def __call__(self, done: int, total: int) -> None:
        """So many units are done."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run has done, or would do."""

    archive: str
    manifest: int
    """The number of the manifest that names all of it."""
    partitions: int
    """That got further, or would."""
    records: int = 0
    bytes: int = 0
    """Of batches at the source; of a dry run as far as it is known."""
    files: int = 0
    file_bytes: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    """The offset up to which each partition is archived now, or would be."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why partitions are not archived up to their ends."""
    is_dry_run: bool = False


def archive(
    spark: SparkSession,
    *,
    source: str | os.PathLike[str],
    archive: str | os.PathLike[str],
    topics: str | Iterable[str] | None = None,
    topics_pattern: str | None = None,
    from_: Moment | None = None,
    to: Moment | None = None,
    settings: Mapping[str, str] | None = None,
    state: str | os.PathLike[str] | None = None,
    window: str | None = None,
    target_bytes: int = TARGET_BYTES,
    accept_gaps: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Archived:
    """Archive committed records of topics, from where the archive ends to where the logs end.

    Args:
        spark: the session.
        source: `host:port` of a broker, or a path of segment files.
        archive: a directory that all workers see, or a URI in an object store.
        topics: the names; or `topics_pattern`, a regular expression.
        topics_pattern: as in the option `subscribePattern`.
        from_: only records with a time at or after this one (milliseconds, or as text).
        to: and before this one. What is archived of a topic keeps one such range for good.
        settings: of clients (`kafka.*`) and object stores.
        state: a directory for the lock and the arguments; needed unless it is a dry run.
        window: `FROM..TO`: records with other times get a partition of their own.
        target_bytes: a file that has reached it is closed, and another one begun.
        accept_gaps: go on behind records that the source deleted before they were archived.
        dry_run: write nothing, and say what would be archived and what refused.
        progress: is called with how many units are done, of how many.

    Raises:
        Misconfigured: an argument cannot be, another run is at work on `state`, or the archive is
            of another range of time.
        CorruptFile: the manifest is damaged.
        StorageFailed, NoAnswer, RequestRefused: the archive or the broker.
    """
    clock = SystemClock()
    hours = Hours.parse(window, clock.now_ms())
    if target_bytes < 1 << 20:
        raise Misconfigured(f"target size {target_bytes} is below a megabyte: files would be tiny")
    selection = Selection.of(
        source=source,
        topics=topics,
        topics_pattern=topics_pattern,
        from_=from_,
        to=to,
        settings=settings,
    )
    uri = absolute(os.fspath(archive))
    options = ReadOptions.parse(selection.options(**COMMITTED))
    store = ArchiveStore(uri, options.store)
    arguments = {
        "source": shown(os.fspath(source)),
        "archive": store.name,
        "topics": list(selection.topics),
        "topics_pattern": topics_pattern,
        "from": _said(from_),
        "to": _said(to),
        "window": window,
    }
    relative = frozenset(
        side for side, moment in (("from", from_), ("to", to)) if _is_relative(moment)
    )
    run = _Run(
        spark, selection, options, store, hours, target_bytes, accept_gaps, progress, relative
    )
    if dry_run:
        return run.planned()
    if state is None:
        raise Misconfigured("an archive needs state, a directory where its lock is")
    with JobState(state, "archive", arguments) as job:
        return run.done(job)


def _said(moment: Moment | None) -> str | None:
    return None if moment is None else str(moment)


def _is_relative(moment: Moment | None) -> bool:
    if not isinstance(moment, str):
        return False
    return parse_time(moment, now_ms=0) != parse_time(moment, now_ms=1)


@dataclass(frozen=True, slots=True)
class UnitDone:
    """What a task has written of a unit."""

    ranges: tuple[Range, ...]
    files: tuple[ArchivedFile, ...]


@dataclass(frozen=True, slots=True)
class _Task:
    """What a task does with a unit; goes to workers."""

    options: ReadOptions
    uri: str
    store: StoreOptions
    hours: Hours
    target_bytes: int
    with_append_times: bool
    times: Mapping[str, tuple[int | None, int | None]]

    def __call__(self, unit: Unit) -> UnitDone:
        from_ms, to_ms = self.times[unit.partition.topic]
        store = ArchiveStore(self.uri, self.store)
        files = HourFiles(store, unit.partition, self.hours, target_bytes=self.target_bytes)
        reader = reader_of(unit, from_ms, to_ms)
        try:
            with ExitStack() as stack:
                pieces = open_pieces(
                    stack,
                    unit,
                    self.options,
                    with_append_times=self.with_append_times,
                    from_ms=from_ms,
                )
                for rows in reader.rows(pieces):
                    files.add(rows)
            written = files.close()
            files.add_facts(reader.facts)
        except CorruptBatch as error:
            with suppress(HorologError, OSError):
                files.abandon()
            where = unit.stretch.path if isinstance(unit.stretch, SegmentRange) else unit.partition
            raise CorruptBatch(f"{where} cannot be read: {error}") from None
        except BaseException:
            with suppress(HorologError, OSError):
                files.abandon()
            raise
        return UnitDone(tuple(reader.ranges), tuple(written))


@dataclass(slots=True)
class _Plan:
    partitions: list[TopicPartition] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    bytes: int = 0
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    topics: dict[str, ArchivedTopic] = field(default_factory=dict)
    with_append_times: bool = False


@dataclass(slots=True)
class _Run:
    spark: SparkSession
    selection: Selection
    options: ReadOptions
    store: ArchiveStore
    hours: Hours
    target_bytes: int
    accept_gaps: bool
    progress: Progress | None
    relative: frozenset[str] = frozenset()
    """Which ends of the range of time count from now."""

    def planned(self) -> Archived:
        """What a run would do."""
        manifest = read_manifest(self.store)
        if manifest is None:
            refuse_foreign(self.store)
            manifest = Manifest(0, "")
        plan = self._plan(manifest)
        return Archived(
            archive=self.store.name,
            manifest=manifest.number,
            partitions=len({unit.partition for unit in plan.units}),
            bytes=plan.bytes,
            ends={str(each): end for each, end in plan.ends.items()},
            refused={str(each): why for each, why in plan.refused.items()},
            is_dry_run=True,
        )

    def done(self, job: JobState) -> Archived:
        """Archive what there is."""
        manifest = create_archive(self.store)
        plan = self._plan(manifest)
        manifest = self._commit(manifest, _Changes(topics=plan.topics))
        task = _Task(
            self.options,
            self.store.uri,
            self.options.store,
            self.hours,
            self.target_bytes,
            plan.with_append_times,
            {name: (topic.from_ms, topic.to_ms) for name, topic in plan.topics.items()},
        )
        progress = _Written(plan)
        done = 0
        waves = spread(self.spark, plan.units, task)
        for wave in _told(waves, plan.units, self.progress):
            changes, unused = progress.take(wave)
            for path in unused:
                with suppress(HorologError):
                    self.store.remove(path)
            manifest = self._commit(manifest, changes)
            done += len(wave)
            job.record(
                (outcome.unit.key, {"manifest": manifest.number, "error": outcome.error})
                for outcome in wave
            )
        manifest = self._commit(manifest, progress.rest())
        return Archived(
            archive=self.store.name,
            manifest=manifest.number,
            partitions=len(progress.grown),
            records=progress.records,
            bytes=progress.bytes,
            files=progress.files,
            file_bytes=progress.file_bytes,
            ends={
                str(each): state.end
                for each in plan.partitions
                if (state := manifest.partition(each)) is not None
            },
            refused={str(each): why for each, why in sorted(progress.refused.items())},
        )

    def _commit(self, manifest: Manifest, changes: "_Changes") -> Manifest:
        """Commit changes; repeated on the manifest of a run that committed in between."""
        for _ in range(_TRIES):
            changed = changes.applied(manifest)
            if changed == manifest:
                return manifest
            done = commit(self.store, changed)
            if done is not None:
                return done
            manifest = create_archive(self.store)
        raise Misconfigured(f"Other runs write to {self.store.name} all the time: run this again")

    # Planning.

    def _plan(self, manifest: Manifest) -> _Plan:
        plan = _Plan()
        selection, options = self.selection, self.options
        log = BrokerLog(options) if selection.source.is_broker else FileLog(options)
        with log:
            partitions = plan.partitions = sorted(log.partitions())
            ids = self._topic_ids({each.topic for each in partitions})
            for name in sorted({each.topic for each in partitions}):
                why = _recreated(manifest, name, ids.get(name))
                if why is None:
                    plan.topics[name] = self._topic(manifest, name, ids.get(name))
                else:
                    plan.refused |= {each: why for each in partitions if each.topic == name}
            partitions = [each for each in partitions if each not in plan.refused]
            earliest, latest = log.earliest(partitions), log.latest(partitions)
            for partition in partitions:
                why = self._place(plan, manifest, partition, earliest, latest)
                if why is not None:
                    plan.refused[partition] = why
            ranges: list[OffsetRange | SegmentRange] = []
            for partition in plan.starts:
                bounds = {partition: Bounds(plan.starts[partition], plan.ends[partition])}
                topic = plan.topics[partition.topic]
                wanted = narrowed(Wanted(), _interval(topic))
                try:
                    ranges += log.ranges(bounds, wanted)
                except HorologError as error:
                    plan.refused[partition] = str(error)
        if selection.source.is_broker:
            ranges = self._with_sizes(ranges, plan)
        plan.bytes = sum(map(_weight, ranges))
        most = min(UNIT_BYTES, max(_LEAST_UNIT_BYTES, plan.bytes // _UNITS))
        for each in ranges:
            floor = plan.starts[each.partition]
            for part in _cut(each, most):
                plan.units.append(Unit(each.partition, part.start, part.end, floor, part))
        return plan

    def _topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        if not self.selection.source.is_broker:
            return {}
        with self.selection.client() as client:
            found = client.metadata(tuple(topics)).topics
            return {
                topic.name: str(topic.topic_id)
                for topic in found.values()
                if topic.topic_id not in (None, UUID(int=0))
            }

    def _topic(self, manifest: Manifest, name: str, topic_id: str | None) -> ArchivedTopic:
        """What is known of a topic; partitions are those of the manifest.

        Raises:
            Misconfigured: the archive has another range of time of it.
        """
        selection = self.selection
        known = manifest.topics.get(name)
        if known is None or not known.partitions:
            return ArchivedTopic(topic_id, selection.from_ms, selection.to_ms)
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
        return replace(known, topic_id=known.topic_id or topic_id)

    def _place(
        self,
        plan: _Plan,
        manifest: Manifest,
        partition: TopicPartition,
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> str | None:
        """Where a partition is to be read; or why it is not."""
        known = manifest.partition(partition)
        start, end = earliest[partition], max(earliest[partition], latest[partition])
        if known is not None:
            if known.end > end:
                return (
                    f"it ends at offset {end} and its archive at {known.end}: the log was cut, or "
                    "the topic created again. Give another archive"
                )
            if known.end < start and not self.accept_gaps:
                return (
                    f"offsets {known.end} to {start - 1} were deleted before they were archived: "
                    "accept gaps to go on after them"
                )
            start = max(start, known.end)
        if start < end or known is None:
            plan.starts[partition], plan.ends[partition] = start, end
        return None

    def _with_sizes(
        self, ranges: Sequence[OffsetRange | SegmentRange], plan: _Plan
    ) -> list[OffsetRange | SegmentRange]:
        """The ranges with their sizes in bytes, as their first batches suggest."""
        found: list[OffsetRange | SegmentRange] = []
        if not ranges:
            return found
        with self.selection.client() as client:
            for each in ranges:
                assert isinstance(each, OffsetRange)
                topic, partition = each.partition
                if not found:
                    plan.with_append_times = _keeps_append_times(client, each)
                offsets = each.end - each.start
                if each.size is None and offsets > _FEW_OFFSETS:
                    fetched = client.fetch(
                        topic, partition, each.start, max_bytes=_SAMPLE_BYTES, max_wait_ms=0
                    )
                    headers = [header for _, header in iter_headers(fetched.records)]
                    if headers:
                        seen = max(1, headers[-1].next_offset - headers[0].base_offset)
                        size = sum(header.size for header in headers) * offsets // seen
                        found.append(replace(each, size=max(1, size)))
                        continue
                found.append(each)
        return found


def _recreated(manifest: Manifest, name: str, topic_id: str | None) -> str | None:
    """Why a topic is not the one that is archived; None if it may be."""
    known = manifest.topics.get(name)
    if known is None or None in (topic_id, known.topic_id) or topic_id == known.topic_id:
        return None
    return (
        "the topic was deleted and created again since it was archived: its offsets began anew. "
        "Give another archive"
    )


def _keeps_append_times(client: Client, first: OffsetRange) -> bool:
    """Whether the broker is horolog, and says when records were appended."""
    try:
        client.fetch(
            *first.partition, first.start, max_bytes=1, max_wait_ms=0, with_append_times=True
        )
    except RequestRefused as error:
        if error.code != ErrorCode.unsupported_version:
            raise
        return False
    return True


def _interval(topic: ArchivedTopic) -> Interval:
    return Interval(
        EVERYTHING.first if topic.from_ms is None else topic.from_ms,
        EVERYTHING.last if topic.to_ms is None else topic.to_ms - 1,
    )


def _weight(stretch: OffsetRange | SegmentRange) -> int:
    if isinstance(stretch, SegmentRange):
        return stretch.weight
    return stretch.end - stretch.start if stretch.size is None else stretch.size


def _cut(stretch: OffsetRange | SegmentRange, most: int) -> Iterator[OffsetRange | SegmentRange]:
    """A stretch in parts of about so many bytes."""
    offsets = stretch.end - stretch.start
    parts = max(1, min(offsets, -(-_weight(stretch) // most)))
    cuts = [stretch.start + offsets * number // parts for number in range(parts + 1)]
    for start, end in pairwise(cuts):
        yield replace(stretch, start=start, end=end)


def _shown(moment_ms: int | None) -> str:
    return "none" if moment_ms is None else str(moment_ms)


def _told(
    waves: Iterator[list[Outcome[Unit, UnitDone]]], units: Sequence[Unit], tell: Progress | None
) -> Iterator[list[Outcome[Unit, UnitDone]]]:
    done = 0
    if tell is not None:
        tell(0, len(units))
    for wave in waves:
        yield wave
        done += len(wave)
        if tell is not None:
            tell(done, len(units))


@dataclass(slots=True)
class _Changes:
    """What a commit adds."""

    topics: Mapping[str, ArchivedTopic] = field(default_factory=dict)
    """Without what there is of their partitions already."""
    ranges: dict[TopicPartition, list[Range]] = field(default_factory=lambda: defaultdict(list))
    files: dict[TopicPartition, list[ArchivedFile]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def applied(self, manifest: Manifest) -> Manifest:
        """The manifest with them.

        Raises:
            Misconfigured: another run has written to the same partitions.
        """
        for name, topic in self.topics.items():
            known = manifest.topics.get(name)
            if known is None or not known.partitions:
                manifest = manifest.with_topic(name, topic)
            elif (known.from_ms, known.to_ms) != (topic.from_ms, topic.to_ms):
                raise Misconfigured(f"Another run archives {name} with another range of time")
        for partition, ranges in self.ranges.items():
            state = manifest.partition(partition) or ArchivedPartition()
            try:
                state = state.extended(ranges, self.files.get(partition, ()))
            except Misconfigured as error:
                raise Misconfigured(f"{partition}: {error}") from None
            manifest = manifest.with_partition(partition, state)
        return manifest


class _Written:
    """What has become of the units of a plan, in order."""

    def __init__(self, plan: _Plan) -> None:
        self.refused = dict(plan.refused)
        self.records = self.bytes = self.files = self.file_bytes = 0
        self.grown: set[TopicPartition] = set()
        self._plan = plan
        self._positions: dict[TopicPartition, int] = {}
        self._known_ends = {
            each: state.ranges[-1].end
            for name, topic in plan.topics.items()
            for index, state in topic.partitions.items()
            if state.ranges and (each := TopicPartition(name, index)) in plan.starts
        }

    def take(self, wave: Iterable[Outcome[Unit, UnitDone]]) -> tuple[_Changes, list[str]]:
        """What a commit adds after a wave; and files that it does not name."""
        changes, unused = _Changes(), []
        for outcome in wave:
            partition, done = outcome.unit.partition, outcome.result
            if partition in self.refused:
                unused += [file.path for file in done.files] if done is not None else []
                continue
            if done is None:
                self.refused[partition] = outcome.error or "its task failed"
                continue
            if not self._follow(changes, partition, done.ranges[0].start):
                unused += [file.path for file in done.files]
                continue
            changes.ranges[partition] += [each for each in done.ranges if each.start < each.end]
            changes.files[partition] += done.files
            self._positions[partition] = done.ranges[-1].end
            self._count(partition, done)
        return changes, unused

    def rest(self) -> _Changes:
        """What is left: offsets up to the ends that hold nothing that is wanted."""
        changes = _Changes()
        for partition, end in self._plan.ends.items():
            if partition not in self.refused:
                self._follow(changes, partition, end)
        return changes

    def _follow(self, changes: _Changes, partition: TopicPartition, start: int) -> bool:
        """Let the next range begin at an offset: fill what holds nothing before it."""
        position = self._positions.get(partition)
        if position is None:
            planned = self._plan.starts[partition]
            known = self._known_ends.get(partition)
            if known is not None and known < planned:
                changes.ranges[partition].append(Range(known, planned, is_lost=True))
            position = planned
        is_limited = self._is_limited(partition)
        if start < position or (start > position and not is_limited):
            self.refused[partition] = (
                f"its log changed while it was read: offset {position} was to follow, and "
                f"{start} came. Run this again"
            )
            return False
        if start > position:
            changes.ranges[partition].append(Range(position, start))
        self._positions[partition] = start
        return True

    def _is_limited(self, partition: TopicPartition) -> bool:
        topic = self._plan.topics[partition.topic]
        return topic.from_ms is not None or topic.to_ms is not None

    def _count(self, partition: TopicPartition, done: UnitDone) -> None:
        self.grown.add(partition)
        self.records += sum(each.records for each in done.ranges)
        self.bytes += sum(each.bytes for each in done.ranges)
        self.files += sum(1 for each in done.files if each.hour is not None)
        self.file_bytes += sum(each.size for each in done.files)
