"""One segment of a restored log, from the archive to a directory of its own; runs in a task.

    <staging>/<topic>-<partition>.<base>.<token>/<base>.log and its companions

The disk takes what was written while the rest is made. Before the task is done, all of it is read
again and compared with the manifest, and is on disk. The driver moves the files of one attempt;
those of others are removed with the staging directory.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from horolog.errors import StorageFailed
from horolog.jobs.archives.digests import NO_APPEND_TIME
from horolog.jobs.archives.manifest import ArchivedFile
from horolog.jobs.archives.ranges import ArchivedRange
from horolog.jobs.archives.reading import RangeReader
from horolog.jobs.archives.rebuilding import Rebuilder, Rebuilt, filler_at
from horolog.jobs.archives.rows import OrderedRows, read_facts
from horolog.jobs.archives.store import ArchiveStore
from horolog.record.batch import CONTROL_BIT
from horolog.sources.batches import Batches
from horolog.sources.object_stores import StoreOptions
from horolog.storage import names
from horolog.storage.append_times.file import AppendTimeEntry
from horolog.storage.batches.identity import IDENTITY_SIZE
from horolog.storage.batches.reader import EVERYTHING
from horolog.storage.files import Files
from horolog.storage.index.builder import IndexBuilder
from horolog.storage.names import TopicPartition
from horolog.storage.segments.finished import write_companions
from horolog.storage.segments.reader import SegmentReader

_INTERVAL_BYTES: Final = 4096
SYNC_BYTES: Final = 32 << 20
"""A sync begins after so much, while more is made: or the disk would idle, and then the task."""


@dataclass(frozen=True, slots=True)
class SegmentUnit:
    """A segment to be made: `start` to before `end`, which are whole ranges of the manifest."""

    partition: TopicPartition
    base_offset: int
    ranges: tuple[ArchivedRange, ...]
    records: tuple[ArchivedFile, ...]
    batches: tuple[ArchivedFile, ...]
    filler: int | None = None
    """An offset that the log has to end behind, with an empty batch if need be."""

    @property
    def start(self) -> int:
        """Of the first range."""
        return self.ranges[0].start

    @property
    def end(self) -> int:
        """Of the last range."""
        return self.ranges[-1].end

    @property
    def archived_records(self) -> int:
        """How many records there are in its ranges."""
        return sum(each.records for each in self.ranges)

    @property
    def key(self) -> str:
        """Its name; another one where it has other ranges."""
        return f"{self.partition}@{self.base_offset}:{self.start}-{self.end}"


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A segment that was made and proved."""

    directory: str
    """Within the staging directory."""
    records: int
    bytes: int
    epochs: tuple[tuple[int, int], ...]
    """Leader epochs and their first offsets."""


@dataclass(frozen=True, slots=True)
class BuildSegment:
    """What a task does with a segment; goes to workers."""

    uri: str
    store: StoreOptions
    staging: str
    from_ms: int | None
    to_ms: int | None

    def __call__(self, unit: SegmentUnit) -> BuiltSegment:
        """Make the segment, and prove it.

        Raises:
            CorruptFile: the archive is damaged.
            StorageFailed: it or the target cannot be read or written, or they differ.
        """
        name = f"{unit.partition}.{unit.base_offset}.{uuid.uuid4().hex[:12]}"
        path = f"{self.staging}/{name}"
        files = Files()
        try:
            files.make_directory(path)
            with _Log(files, f"{path}/{unit.base_offset:020d}", unit.base_offset) as log:
                built = self._built(unit, files, log, name)
        except BaseException:
            files.close()
            with suppress(OSError):
                shutil.rmtree(path)
            raise
        files.close()
        return built

    def _built(self, unit: SegmentUnit, files: Files, log: "_Log", name: str) -> BuiltSegment:
        store = ArchiveStore(self.uri, self.store)
        facts = read_facts(store, unit.batches, unit.start, unit.end)
        rows = OrderedRows(store, unit.records, unit.start, unit.end)
        rebuilder = Rebuilder(rows, from_ms=self.from_ms, to_ms=self.to_ms)
        for rebuilt in rebuilder.batches(facts):
            log.add(rebuilt)
        end = unit.end
        if unit.filler is not None and log.builder.next_offset < unit.filler:
            end = unit.filler - 1  # of what was archived
            log.add(filler_at(unit.filler - 1, log.leader_epoch))
        log.begin_sync()
        reader = SegmentReader(files, log.stem, unit.base_offset, log.size)
        write_companions(files, reader, _INTERVAL_BYTES, log.append_times, log.builder)
        written = SegmentReader(files, log.stem, unit.base_offset, log.size)
        self._prove(unit, end, rebuilder, written)
        log.wait_until_synced()
        path = os.path.dirname(log.stem)
        for each in os.listdir(path):
            files.sync_path(f"{path}/{each}")
        files.sync_path(path)
        return BuiltSegment(
            directory=name,
            records=rebuilder.records,
            bytes=log.size,
            epochs=tuple((each.epoch, each.start_offset) for each in log.builder.epochs),
        )

    def _prove(
        self, unit: SegmentUnit, end: int, rebuilder: Rebuilder, reader: SegmentReader
    ) -> None:
        """Read what was written before an offset, and compare it with the manifest.

        Raises:
            StorageFailed: they differ.
        """
        reader.end = reader.whole_end()
        if self.from_ms is not None or self.to_ms is not None:
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
        for each in unit.ranges:
            if each.records or each.batches:
                _compare(unit.partition, each, _read(reader, each.start, min(each.end, end)))


class _Log:
    """A `.log` that is being written, and synced in a thread of its own."""

    def __init__(self, files: Files, stem: str, base_offset: int) -> None:
        self.stem = stem
        self.size = 0
        self.builder = IndexBuilder(base_offset, _INTERVAL_BYTES)
        self.leader_epoch = -1
        self._files = files
        self._file = files.create(stem + names.LOG)
        self._appended: list[AppendTimeEntry] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="horolog-sync")
        self._syncs: list[Future[None]] = []
        self._sync_begun = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def add(self, rebuilt: Rebuilt) -> None:
        """Write batches behind those before."""
        headers, position = rebuilt.headers, self.size
        for header in headers.headers():
            self.builder.add(position, header)
            position += header.size
        for place in _changes(rebuilt, self._appended[-1].ms if self._appended else None):
            ms = int(rebuilt.append_ms[place])
            self._appended.append(
                AppendTimeEntry(
                    int(headers.columns["base_offset"][place]),
                    None if ms == NO_APPEND_TIME else ms,
                    bytes(rebuilt.parts[2 * place][:IDENTITY_SIZE]),
                )
            )
        self.leader_epoch = max(self.leader_epoch, int(headers.columns["leader_epoch"].max()))
        self._files.write_at(self._file, rebuilt.parts, self.size)
        self.size = position
        if self.size - self._sync_begun >= SYNC_BYTES:
            self.begin_sync()

    def begin_sync(self) -> None:
        self._sync_begun = self.size
        self._syncs.append(self._thread.submit(self._files.sync, self._file))

    def wait_until_synced(self) -> None:
        for each in self._syncs:  # each: the kernel reports a failure once
            each.result()

    def append_times(self, end: int) -> list[AppendTimeEntry]:
        return self._appended


def _changes(rebuilt: Rebuilt, before: int | None) -> list[int]:
    """The places of batches whose append time is another than that of the records before."""
    headers = rebuilt.headers
    is_control = headers.numbers("attributes") & CONTROL_BIT != 0
    places = np.flatnonzero((headers.numbers("records_count") != 0) & ~is_control)
    append_ms = rebuilt.append_ms[places]
    first = NO_APPEND_TIME if before is None else before
    changed: list[int] = places[append_ms != np.append(first, append_ms[:-1])].tolist()
    return changed


def _read(reader: SegmentReader, start: int, end: int) -> Iterator[ArchivedRange]:
    found = RangeReader(start, end)
    times = reader.append_times.stretches if reader.has_append_times else None
    buffers = reader.log.batches(reader.size, EVERYTHING).wanted(
        reader.position_for(None, start), end, None
    )
    for _ in found.rows(Batches(buffer, start, end, times) for buffer in buffers):
        pass
    yield from found.ranges


def _compare(
    partition: TopicPartition, expected: ArchivedRange, found: Iterator[ArchivedRange]
) -> None:
    each, *more = found
    same = (
        not more
        and each.records == expected.records
        and each.batches == expected.batches
        and each.digest == expected.digest
        and each.batch_digest == expected.batch_digest
    )
    if not same:
        raise StorageFailed(
            f"{partition}, offsets {expected.start} to {expected.end - 1}: what was restored has "
            f"{each.records} records in {each.batches} batches and not the checksum of the "
            f"{expected.records} records in {expected.batches} batches that were archived"
        )
