"""Build one segment of a restored log in a directory of its own; runs in a task.

    <staging>/<topic>-<partition>.<base>.<token>/<base>.log and its companions

The disk takes what was written while the rest is made. Before the task is done, all of it is read
again and compared with the manifest, and is on disk. The driver moves the files of one attempt;
those of others are removed with the staging directory.
"""

import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.jobs.archives.facts import NO_APPEND_TIME
from horolog.jobs.archives.manifest import ArchivedFile, ArchivedRange
from horolog.jobs.archives.reading import RangeReader
from horolog.jobs.archives.rebuilding import Rebuilder, Rebuilt, filler_at
from horolog.jobs.archives.rows import OrderedRows, read_facts
from horolog.jobs.archives.store import ArchiveStore
from horolog.record.timestamps import TimeRange
from horolog.sources.batches import Batches
from horolog.storage import names
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.files import Files
from horolog.storage.logs.writer import LogWriter, new_segment
from horolog.storage.names import TopicPartition
from horolog.storage.segments.numbered import Numbered, as_it_is
from horolog.storage.segments.reader import SegmentReader

_CONFIG: Final = TopicConfig(segment_bytes=(1 << 31) - 1)  # segments are planned
SYNC_BYTES: Final = 32 << 20
"""A sync begins after this much, while more is made: or the disk would idle, then the task."""


@dataclass(frozen=True, slots=True)
class SegmentUnit:
    """Segment to be built, from whole ranges of the manifest."""

    partition: TopicPartition
    base_offset: int
    ranges: tuple[ArchivedRange, ...]
    records: tuple[ArchivedFile, ...]
    batches: tuple[ArchivedFile, ...]
    filler: int | None = None
    """An offset that the log has to end behind, with an empty batch if need be."""

    @property
    def start(self) -> int:
        """Start of the first range."""
        return self.ranges[0].start

    @property
    def end(self) -> int:
        """End of the last range."""
        return self.ranges[-1].end

    @property
    def archived_records(self) -> int:
        """Number of archived records in the ranges."""
        return sum(range_.records for range_ in self.ranges)

    @property
    def key(self) -> str:
        """Name of the unit in the state directory; other ranges give another name."""
        return f"{self.partition}@{self.base_offset}:{self.start}-{self.end}"


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """Segment that was built, synced and compared with the manifest."""

    directory: str
    """Within the staging directory."""
    records: int
    bytes: int
    epochs: tuple[tuple[int, int], ...]
    """Leader epochs and their first offsets."""


@dataclass(frozen=True, slots=True)
class BuildSegment:
    """Build a segment in a task. Spark sends it to workers."""

    store: ArchiveStore
    staging: str
    times: TimeRange
    """Range of time of the records that are restored."""

    def __call__(self, unit: SegmentUnit) -> BuiltSegment:
        """Build the segment, and compare it with the manifest.

        Raises:
            CorruptFile: the archive is damaged.
            StorageFailed: it or the target cannot be read or written, or they differ.
        """
        name = f"{unit.partition}.{unit.base_offset}.{uuid.uuid4().hex[:12]}"
        path = f"{self.staging}/{name}"
        files = Files()
        try:
            files.make_directory(path)
            with _Log(files, path, unit.base_offset) as log:
                built = self._built(unit, files, log, name)
        except BaseException:
            files.close()
            with suppress(OSError):
                shutil.rmtree(path)
            raise
        files.close()
        return built

    def _built(self, unit: SegmentUnit, files: Files, log: "_Log", name: str) -> BuiltSegment:
        facts = read_facts(self.store, unit.batches, unit.start, unit.end)
        rows = OrderedRows(self.store, unit.records, unit.start, unit.end)
        rebuilder = Rebuilder(rows, self.times)
        for rebuilt in rebuilder.batches(facts):
            log.add(rebuilt)
        end = unit.end
        if unit.filler is not None and log.next_offset < unit.filler:
            end = unit.filler - 1  # of what was archived
            log.add(filler_at(unit.filler - 1, log.leader_epoch))
        log.begin_sync()
        log.writer.finish()
        stem = f"{self.staging}/{name}/{names.segment_file(unit.base_offset, '')}"
        self._prove(unit, end, rebuilder, SegmentReader(files, stem, unit.base_offset, log.size))
        log.wait_until_synced()
        return BuiltSegment(
            directory=name, records=rebuilder.records, bytes=log.size, epochs=tuple(log.epochs)
        )

    def _prove(
        self, unit: SegmentUnit, end: int, rebuilder: Rebuilder, reader: SegmentReader
    ) -> None:
        """Read the new segment up to an offset, and compare it with the manifest.

        Raises:
            StorageFailed: they differ.
        """
        reader.end = reader.whole_end()
        if not self.times.is_everything:
            written = ArchivedRange(
                start=unit.start,
                end=unit.end,
                records=rebuilder.records,
                batches=rebuilder.batch_digest.batches,
                digest=rebuilder.digest.text(),
                batch_digest=rebuilder.batch_digest.text(),
            )
            _compare(unit.partition, written, _read(reader, unit.start, end))
            return
        for range_ in unit.ranges:
            if range_.records or range_.batches:
                _compare(unit.partition, range_, _read(reader, range_.start, min(range_.end, end)))


class _Log:
    """Writer of a segment, which syncs it in a thread."""

    def __init__(self, files: Files, directory: str, base_offset: int) -> None:
        self._active = new_segment(files, directory, base_offset, _CONFIG, 0)
        self.writer = LogWriter(files, directory, self._active)
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs and their first offsets."""
        self._files = files
        self._append_ms: int | None = None
        """Append or seen time of the last batch; markers without one have that of the one before
        them."""
        self._is_seen = False
        """True if `_append_ms` is a seen time."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="horolog-sync")
        self._syncs: list[Future[None]] = []
        self._sync_begun = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    @property
    def size(self) -> int:
        return self._active.segment.size

    @property
    def next_offset(self) -> int:
        return self._active.segment.end.next_offset

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def add(self, rebuilt: Rebuilt) -> None:
        """Append batches."""
        self.writer.append(self._numbered(rebuilt), _CONFIG)
        if self.size - self._sync_begun >= SYNC_BYTES:
            self.begin_sync()

    def _numbered(self, rebuilt: Rebuilt) -> Iterator[Numbered]:
        parts, times_ms, seen = rebuilt.parts, rebuilt.append_ms.tolist(), rebuilt.is_seen.tolist()
        for place, header in enumerate(rebuilt.headers.headers()):
            ms = times_ms[place]
            if ms != NO_APPEND_TIME or (header.records_count and not header.is_control):
                known = ms != NO_APPEND_TIME and self._active.segment.append_times.fits(ms)
                self._append_ms, self._is_seen = (ms, seen[place]) if known else (None, False)
            if header.leader_epoch > self.leader_epoch:
                self.epochs.append((header.leader_epoch, header.base_offset))
            its = parts[2 * place : 2 * place + 2]
            yield as_it_is(header, its, self._append_ms, is_seen=self._is_seen)

    def begin_sync(self) -> None:
        self._sync_begun = self.size
        self._syncs.append(self._thread.submit(self._files.sync, self._active.segment.log.open()))

    def wait_until_synced(self) -> None:
        for sync in self._syncs:  # each: the kernel reports a failure once
            sync.result()
        self.writer.sync()


def _read(reader: SegmentReader, start: int, end: int) -> Iterator[ArchivedRange]:
    reader_of_range = RangeReader(start, end)
    times = None
    if reader.has_append_times:
        times = partial(reader.append_times.stretches, seen=True)
    buffers = reader.log.batches(reader.size, EVERYTHING).selected(
        reader.position_for(None, start), end, None
    )
    for _ in reader_of_range.rows(Batches(buffer, start, end, times) for buffer in buffers):
        pass
    yield from reader_of_range.ranges


def _compare(
    partition: TopicPartition, expected: ArchivedRange, read: Iterator[ArchivedRange]
) -> None:
    restored, *more = read
    same = (
        not more
        and restored.records == expected.records
        and restored.batches == expected.batches
        and restored.digest == expected.digest
        and restored.batch_digest == expected.batch_digest
    )
    if not same:
        raise StorageFailed(
            f"{partition}, offsets {expected.start} to {expected.end - 1}: what was restored has "
            f"{restored.records} records in {restored.batches} batches and not the checksum of the "
            f"{expected.records} records in {expected.batches} batches that were archived"
        )
