"""Topic ids of the lines in Kafka's checkpoints: a file of ours beside them.

Kafka's lines name a topic and a partition. A topic that is deleted and created again has the
same name, and a partition's directory can be replaced by a backup while no broker runs; so
`horolog-checkpoint-ids` says, for each partition that is ours, the topic id (that of
`partition.metadata`) and the log start offset that was written down:

    0
    <when log-start-offset-checkpoint was written, in nanoseconds by its file system>
    <topic> <partition> <topic id> <log start offset>

It is not in Kafka's files, which have no place for it (three columns, or Kafka refuses the
file), nor in the partition's directory, which is restored together with what it holds.
It is put in place before Kafka's log starts, so its log starts are never behind them. A file of
log starts that was written at another time is not ours: a Kafka has been here since, which gives
a topic another id where it did not know it.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from horolog.errors import CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.directory.checkpoints import decode_uuid, kafka_uuid, read_offsets
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

MAX_LOG_START = (1 << 63) - (1 << 32)
"""Beyond it a segment has no room for its offsets."""

_VERSION = "0"
_MAX_BYTES = 128 << 20  # a line for each of a million partitions
_logger = logging.getLogger(__name__)


class CheckpointId(NamedTuple):
    """Topic id of a partition's checkpoint lines, and the log start written with them."""

    topic_id: UUID
    log_start_offset: int


class LogStart(NamedTuple):
    """Log start offset, as far as the checkpoints know it."""

    offset: int
    ignored: int | None = None
    """Log start in Kafka's line that does not count, because it is beyond the log's end."""


class Checkpointed(NamedTuple):
    """Checkpoints of one partition; None for a missing line."""

    recovery_point: int | None = None
    log_start_offset: int | None = None
    """Kafka's line. Without `written_for` the topic id that it belongs to is unknown."""
    written_for: CheckpointId | None = None
    is_ours: bool = False
    """The file of log starts is as we wrote it."""
    high_watermark: int | None = None
    cleaner_point: int | None = None
    """Up to which the log was cleaned."""

    def for_topic(self, topic_id: UUID | None) -> "Checkpointed":
        """Return the checkpoints that are valid for a topic id; None is a topic without an id.

        Lines that we wrote for another topic do not count.
        """
        other = self.written_for
        if other is None or other.topic_id == topic_id:
            return self
        if topic_id is None:
            return self._replace(written_for=None)
        return Checkpointed(log_start_offset=None if self.is_ours else self.log_start_offset)

    def log_start(self, end: int | None) -> LogStart:
        """Return the start of a log that ends before `end`; None for a log without segments.

        A start beyond the log's end is used only if we have written it for this topic: then
        the directory is older than the checkpoint, and what it holds was deleted. Any other is an
        error of its writer; obeying it would lose all records.
        """
        ours = 0 if self.written_for is None else self.written_for.log_start_offset
        line = self.log_start_offset or 0
        if ours < line and (ours if end is None else end) < line:
            return LogStart(ours, line)
        return LogStart(max(line, ours))


class CheckpointIds(NamedTuple):
    """Contents of the file."""

    entries: Mapping[TopicPartition, CheckpointId]
    starts_written_ns: int
    """When the log starts that belong to it were written, by their file's time."""

    def are_of(self, files: Files, log_starts: str) -> bool:
        """Return True if the log start checkpoint is unchanged since these were written."""
        return files.modified_ns(log_starts) == self.starts_written_ns


NO_IDS = CheckpointIds({}, -1)


def read_checkpoint_ids(files: Files, path: str) -> CheckpointIds:
    """Read all entries that can be read; without the file the result is empty.

    Raises:
        StorageFailed: it cannot be read at all, or is too long.
    """
    data = files.read_whole(path, _MAX_BYTES)
    if not data:
        return NO_IDS
    version, written_ns, *lines = [*data.decode("utf-8", "replace").splitlines(), ""]
    if version != _VERSION:
        _logger.warning("%s is of another version: no line of a checkpoint has a topic id", path)
        return NO_IDS
    found = {}
    for line in filter(None, lines):
        try:
            topic, partition, topic_id, log_start = line.split()
            if not (partition.isascii() and partition.isdigit()):
                raise ValueError
            entry = CheckpointId(decode_uuid(topic_id), _log_start(log_start))
        except (ValueError, CorruptFile):
            _logger.warning("%s: %.80r is no entry and is left out", path, line)
        else:
            found[TopicPartition(topic, int(partition))] = entry
    is_time = written_ns.isascii() and written_ns.isdigit() and len(written_ns) < 20
    return CheckpointIds(found, int(written_ns) if is_time else -1)


class LogStarts:
    """Log start offsets of a log directory, for tools that read its files."""

    def __init__(self, files: Files, log_dir: str) -> None:
        """Read the checkpoints; of a damaged one the lines count that can be read."""
        path = f"{log_dir}/{names.LOG_START_OFFSETS}"
        self.notes: list[str] = []
        """Sentences about what is wrong with the checkpoints."""
        self._lines: Mapping[TopicPartition, int] = {}
        self._ids = NO_IDS
        try:
            self._lines = read_offsets(files, path, self.notes)
            self._ids = read_checkpoint_ids(files, f"{log_dir}/{names.CHECKPOINT_IDS}")
        except StorageFailed as error:
            self.notes.append(str(error))
        self._are_ours = self._ids.are_of(files, path)

    def of(self, partition: TopicPartition, topic_id: UUID | None, first: int, end: int) -> int:
        """Return the first offset that consumers can read.

        Beyond the log's end where a broker would set aside all that is there.

        Args:
            topic_id: in its `partition.metadata`, None if there is none.
            first: the base offset of its first segment.
            end: the offset after its last record.
        """
        line, ours = self._lines.get(partition), self._ids.entries.get(partition)
        start = Checkpointed(None, line, ours, self._are_ours).for_topic(topic_id).log_start(end)
        if start.ignored is not None:
            self.notes.append(
                f"{names.LOG_START_OFFSETS} says that {partition} starts at offset "
                f"{start.ignored}, and its log ends at {end}: the line is ignored"
            )
        elif start.offset > end:
            self.notes.append(
                f"{partition} started at offset {start.offset} when it was last served, and this "
                f"log ends at {end}: it is an older state, whose records were deleted since"
            )
        return max(start.offset, first)


def write_checkpoint_ids(
    files: Files, path: str, entries: Mapping[TopicPartition, CheckpointId], starts_written_ns: int
) -> None:
    """Replace all entries.

    Raises:
        StorageFailed: the disk refused; the earlier content stays.
    """
    lines = [
        f"{topic} {partition} {kafka_uuid(entry.topic_id)} {entry.log_start_offset}"
        for (topic, partition), entry in entries.items()
    ]
    files.replace(path, "\n".join([_VERSION, str(starts_written_ns), *lines, ""]).encode())


def _log_start(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_LOG_START):
        raise ValueError
    return int(text)
