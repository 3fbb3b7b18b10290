"""Looking at a log directory, a partition or a segment from outside, without changing a byte.

For tools and for reading files without a broker: of Kafka's directories, of backups, and of
ones that a broker is writing to right now. The last segment is taken up to its last whole
batch; whatever is missing or damaged beside a `.log` only makes looking slower.
"""

import os
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.checkpoints import EpochStart, read_epochs, read_offsets, read_topic_id
from horolog.storage.files import Files
from horolog.storage.leftovers import base_offsets
from horolog.storage.names import TopicPartition
from horolog.storage.segment import Segment
from horolog.storage.segment_end import SegmentEnd


class PartitionFiles(NamedTuple):
    """A partition's directory as it is found; `notes` say what of it could not be read."""

    directory: Path
    partition: TopicPartition
    topic_id: UUID | None
    log_start_offset: int
    """From the log directory's checkpoint, or else the first segment's base offset."""
    epochs: tuple[EpochStart, ...]
    segments: tuple[Segment, ...]
    """To be read with `headers`, `read_batch`, `locate`, `largest`; the last knows its end."""
    notes: tuple[str, ...]

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""
        return self.segments[-1].end.next_offset if self.segments else self.log_start_offset


def list_partitions(log_dir: Path) -> list[Path]:
    """The partition directories in a log directory, in order of their names.

    Raises:
        StorageFailed: it cannot be read.
    """
    try:
        return sorted(
            path
            for path in log_dir.iterdir()
            if not path.is_symlink() and path.is_dir() and names.partition_of(path.name) is not None
        )
    except OSError as error:
        raise StorageFailed(f"Cannot read {log_dir}: {error.strerror}") from error


def open_partition(directory: Path, files: Files | None = None) -> PartitionFiles:
    """Everything that a partition's directory tells without its records being read.

    Raises:
        StorageFailed: it is no partition's directory, or cannot be read.
    """
    files = files or Files(read_only=True)
    partition = names.partition_of(directory.name)
    if partition is None:
        raise StorageFailed(f"{directory} is not named as a partition's directory: topic-number")
    notes: list[str] = []
    topic_id, epochs, starts = None, [], {}
    try:
        topic_id = read_topic_id(files, str(directory / names.PARTITION_METADATA))
    except CorruptFile as error:
        notes.append(str(error))
    try:
        epochs = read_epochs(files, str(directory / names.LEADER_EPOCHS))
    except CorruptFile as error:
        notes.append(str(error))
    try:
        starts = read_offsets(files, str(directory.parent / names.LOG_START_OFFSETS))
    except CorruptFile as error:
        notes.append(str(error))
    segments = _segments(files, directory)
    first = segments[0].base_offset if segments else 0
    return PartitionFiles(
        directory,
        partition,
        topic_id,
        max(first, starts.get(partition, 0)),
        tuple(epochs),
        segments,
        tuple(notes),
    )


def open_segment(log_path: Path, files: Files | None = None) -> Segment:
    """One segment by its `.log` file, up to its last whole batch.

    Raises:
        StorageFailed: it is no segment's file, or cannot be read.
    """
    base_offset = names.base_offset_of(log_path.name, names.LOG)
    if base_offset is None:
        raise StorageFailed(f"{log_path} is not named as a segment: 20 digits and .log")
    segment = _segment(files or Files(read_only=True), log_path.parent, base_offset)
    segment.end = _whole_end(segment)
    return segment


def _segments(files: Files, directory: Path) -> tuple[Segment, ...]:
    try:
        bases = base_offsets(os.listdir(directory), names.LOG)
    except OSError as error:
        raise StorageFailed(f"Cannot read {directory}: {error.strerror}") from error
    segments = tuple(_segment(files, directory, base) for base in bases)
    if segments:
        segments[-1].end = _whole_end(segments[-1])
    return segments


def _segment(files: Files, directory: Path, base_offset: int) -> Segment:
    size = files.size(str(directory / names.segment_file(base_offset, names.LOG)))
    config = TopicConfig()  # only for writing
    return Segment(files, str(directory), base_offset, config, size=size, created_ms=0)


def _whole_end(segment: Segment) -> SegmentEnd:
    """Where the last whole batch ends: a writer may be at work behind it, or may have died."""
    start = segment.indexes.position_before(1 << 62, segment.size)
    end = SegmentEnd(0, segment.base_offset)
    for begin in dict.fromkeys((start, 0)):  # the last entry may be of the very batch that is torn
        try:
            for position, header in segment.headers(begin, segment.size):
                end = SegmentEnd(position + header.size, header.next_offset)
        except CorruptBatch:
            pass  # the tail that recovery would cut off
        if end.size:
            break
    return end
