"""Inspects the files of a log, batch header by batch header, without writing anything.

Entries of indexes are counted, and not used: every segment is read from its first byte. Reading
ends at the first fault, which is reported.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import UUID

from horolog.errors import (
    CorruptBatch,
    CorruptFile,
    Damaged,
    Misconfigured,
    RequestRefused,
    StorageFailed,
)
from horolog.record.batch import UNKNOWN_COUNT, BatchHeader
from horolog.record.old_format.reading import true_header
from horolog.record.scan import timestamps
from horolog.record.timestamps import NO_TIMESTAMP, AppendTimeStretch, TimestampType
from horolog.storage import names
from horolog.storage.batches.reader import BatchReader
from horolog.storage.batches.whole import whole_batches
from horolog.storage.companion.kept_times import kept_times_of
from horolog.storage.directory.checkpoints import (
    EpochStart,
    read_epochs,
    read_offsets,
    read_topic_id,
)
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.removal.set_aside import set_aside_of
from horolog.storage.scan.walk import walk_headers
from horolog.storage.segments.reader import SegmentReader
from horolog.storage.verify import find_target

_MAX_OPENED_BYTES = 1 << 30
_T = TypeVar("_T")


class PlacedBatch(NamedTuple):
    """Batch header and its position in the file."""

    position: int
    header: BatchHeader
    first_ms: int | None
    """The timestamp of the first record; `None` if it has none."""

    @property
    def largest_ms(self) -> int | None:
        """Largest timestamp in the header; None without one."""
        return _time(self.header.max_timestamp)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which compaction may remove tombstones and markers (KIP-534); None if unset."""
        return self.header.base_timestamp if self.header.has_delete_horizon else None


@dataclass(slots=True)
class InspectedSegment:
    """Summary of one segment, from its batch headers.

    `first_ms` is the smallest timestamp of the first record of a batch, `largest_ms` the largest
    timestamp of a record; `whole_bytes` is the end of the last complete batch. The counts of index
    entries are `None` if an index is missing.
    """

    path: Path
    damage: str | None = None
    base_offset: int = field(init=False)
    next_offset: int = field(init=False)
    file_bytes: int = 0
    whole_bytes: int = 0
    batches: int = 0
    records: int = 0
    first_ms: int | None = None
    largest_ms: int | None = None
    codecs: Counter[str] = field(default_factory=Counter)
    formats: Counter[int] = field(default_factory=Counter)
    index_entries: int | None = None
    time_index_entries: int | None = None
    notes: list[str] = field(default_factory=list)
    append_time_of: Callable[[int], AppendTimeStretch] | None = None
    """The append time of the record with an offset, or when a follower saw it."""

    def __post_init__(self) -> None:
        """Take the base offset from the name of the file, which may have been set aside."""
        self.base_offset = self.next_offset = int(self.path.name[:20])

    def add(self, batch: PlacedBatch) -> None:
        """Add a batch to the summary."""
        header = batch.header
        self.whole_bytes = batch.position + header.size
        self.next_offset = header.next_offset
        self.batches += 1
        self.formats[header.magic] += 1
        if header.is_control:
            self.codecs["control"] += 1
            return
        self.records += header.records_count
        self.codecs[header.codec.name.lower()] += 1
        if not header.records_count:
            return  # Kafka's compaction keeps the time of the records that it removed
        for time in (batch.first_ms, batch.largest_ms):
            if time is not None:
                self.first_ms = time if self.first_ms is None else min(self.first_ms, time)
                self.largest_ms = time if self.largest_ms is None else max(self.largest_ms, time)


@dataclass(slots=True, kw_only=True)
class InspectedLog:
    """Partition directory: its own files, and the segments that were read."""

    path: Path
    topic_id: UUID | None
    log_start_offset: int | None
    recovery_point: int | None
    epochs: tuple[EpochStart, ...]
    notes: list[str]
    paths: list[Path]
    """Paths of the segments to read."""
    segments: list[InspectedSegment] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.path.name

    @property
    def topic_partition(self) -> tuple[str, int]:
        """Topic and partition from the directory's name; another name counts as partition 0."""
        return names.partition_of(self.name) or (self.name, 0)

    @property
    def first_offset(self) -> int | None:
        """Log start offset, or the first base offset if that is larger."""
        if not self.segments:
            return self.log_start_offset
        return max(self.segments[0].base_offset, self.log_start_offset or 0)

    @property
    def next_offset(self) -> int | None:
        """Log end offset; None without segments."""
        return self.segments[-1].next_offset if self.segments else None


def look_at(files: Files, path: Path) -> list[InspectedLog]:
    """List the logs at a path: a segment, a set-aside file, a partition or a log directory.

    Raises:
        StorageFailed: the path is none of these, or cannot be read.
    """
    path = path.absolute()
    if set_aside_of(path.name) is not None and path.is_file():
        return [_inspected(files, path.parent, [path])]
    try:
        target = find_target(path)
    except Misconfigured as error:
        raise StorageFailed(str(error)) from error
    return [_inspected(files, directory, paths) for directory, paths in target.by_partition(files)]


def _inspected(files: Files, path: Path, segments: Sequence[Path]) -> InspectedLog:
    """Read the partition's own files. Unreadable ones become notes."""
    notes: list[str] = []
    partition = names.partition_of(path.name)

    def read(reader: Callable[[Files, str], _T], file: Path) -> _T | None:
        try:
            return reader(files, str(file))
        except (CorruptFile, StorageFailed) as error:
            notes.append(str(error))
            return None

    topic_id = read(read_topic_id, path / names.PARTITION_METADATA)
    epochs = read(read_epochs, path / names.LEADER_EPOCHS)
    starts = read(read_offsets, path.parent / names.LOG_START_OFFSETS)
    recovered = read(read_offsets, path.parent / names.RECOVERY_POINTS)
    deleted = sum(1 for entry in path.iterdir() if entry.name.endswith(names.LOG + names.DELETED))
    if deleted:
        notes.append(f"{deleted} deleted segments are not removed yet")
    return InspectedLog(
        path=path,
        topic_id=topic_id,
        log_start_offset=starts.get(partition) if starts and partition else None,
        recovery_point=recovered.get(partition) if recovered and partition else None,
        epochs=tuple(epochs or ()),
        notes=notes,
        paths=list(segments),
    )


def open_segment(files: Files, path: Path) -> tuple[InspectedSegment, BatchReader]:
    """Return the empty summary of a segment, and its log.

    Raises:
        FileMissing: the file was deleted.
        StorageFailed: it cannot be read.
    """
    facts = InspectedSegment(path)
    base_offset = facts.base_offset
    if set_aside_of(path.name) is not None:
        log = BatchReader.of_file(files, str(path))
        kept = kept_times_of(files, str(path), base_offset)
        facts.append_time_of = None if kept is None else kept.at
        facts.notes.append("set aside by recovery; incomplete batches are skipped")
    else:
        reader = SegmentReader.at(files, str(path), base_offset)
        append_times = reader.append_times
        facts.append_time_of = lambda offset, _=reader: append_times.at_or_seen(offset)
        log = reader.batches()
        _count_entries(reader, facts)
    facts.file_bytes = log.size
    return facts, log


def walk_segment(facts: InspectedSegment, log: BatchReader) -> Iterator[PlacedBatch]:
    """Yield the batches up to the first invalid one, and add them to the summary."""
    is_set_aside = set_aside_of(facts.path.name) is not None
    try:
        batches = whole_batches(log) if is_set_aside else _headers(log)
        for position, header in batches:
            if header.records_count == UNKNOWN_COUNT:
                header = _opened(log, position, header)
            batch = PlacedBatch(position, header, _first_time(log, position, header))
            facts.add(batch)
            yield batch
    except CorruptBatch as error:
        rest = facts.file_bytes - facts.whole_bytes
        if log.is_zeros(facts.whole_bytes):
            facts.notes.append(f"{rest} bytes of zeros at the end, as preallocation leaves them")
            return
        facts.damage = (
            f"stopped at byte {facts.whole_bytes}, before offset {facts.next_offset}: "
            f"{error.reason}; {rest} bytes are not read"
        )


def _headers(log: BatchReader) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every batch up to the first fault."""
    for batch in walk_headers(log):
        for one in batch.singly(log):
            yield one.position, one.header


def _first_time(log: BatchReader, position: int, header: BatchHeader) -> int | None:
    """Return the timestamp of the first record, from the header if that has it."""
    if not header.records_count:
        return None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return _time(header.max_timestamp)
    if not header.has_delete_horizon:
        return _time(header.base_timestamp)
    try:
        times = timestamps(log.batch(position, header), header, max_bytes=_MAX_OPENED_BYTES)
    except (CorruptBatch, RequestRefused):  # inspection checks no records
        return None
    return _time(times[0])


def _opened(log: BatchReader, position: int, header: BatchHeader) -> BatchHeader:
    """Return the header of a compressed message of v0 or v1 with its true base offset."""
    try:
        return true_header(log.batch(position, header), header, max_bytes=_MAX_OPENED_BYTES)
    except (CorruptBatch, RequestRefused) as error:
        raise CorruptBatch(
            f"the batch that ends with offset {header.last_offset}: {error}"
        ) from None


def _count_entries(reader: SegmentReader, facts: InspectedSegment) -> None:
    counts = list[int | None]()
    for index, what in ((reader.indexes.offsets, "offset"), (reader.indexes.times, "time")):
        count = None
        with suppress(Damaged, FileMissing):  # then they are not counted
            if reader.log.files.exists(index.entries.path):
                count = len(index.entries)
            else:
                facts.notes.append(f"no {what} index")
        counts.append(count)
    facts.index_entries, facts.time_index_entries = counts


def _time(timestamp: int) -> int | None:
    return None if timestamp == NO_TIMESTAMP else timestamp
