"""Which topic the lines of Kafka's checkpoints were written for: a file of ours next to them.

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

from horolog.errors import CorruptFile
from horolog.storage.directory.checkpoints import decode_uuid, kafka_uuid
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

MAX_LOG_START = (1 << 63) - (1 << 32)
"""Beyond it a segment has no room for its offsets."""

_VERSION = "0"
_MAX_BYTES = 128 << 20  # a line for each of a million partitions
_logger = logging.getLogger(__name__)


class CheckpointId(NamedTuple):
    """For which topic the lines of a partition were written, and the log start written then."""

    topic_id: UUID
    log_start_offset: int


class Checkpointed(NamedTuple):
    """What the checkpoints say of one partition; None where they say nothing."""

    recovery_point: int | None = None
    log_start_offset: int | None = None
    """Kafka's line. Without `written_for` the topic id that it belongs to is unknown."""
    written_for: CheckpointId | None = None
    is_ours: bool = False
    """The file of log starts is as we wrote it."""

    def for_topic(self, topic_id: UUID | None) -> "Checkpointed":
        """What of it counts for the log of the topic with this id, None if it has no id.

        Lines that we wrote for another topic do not count.
        """
        other = self.written_for
        if other is None or other.topic_id == topic_id:
            return self
        if topic_id is None:
            return self._replace(written_for=None)
        return Checkpointed(log_start_offset=None if self.is_ours else self.log_start_offset)


class CheckpointIds(NamedTuple):
    """What the file says."""

    entries: Mapping[TopicPartition, CheckpointId]
    starts_written_ns: int
    """When the log starts that belong to it were written, by their file's time."""


NO_IDS = CheckpointIds({}, -1)


def read_checkpoint_ids(files: Files, path: str) -> CheckpointIds:
    """All entries; none if there is no such file. One that cannot be read is left out.

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
