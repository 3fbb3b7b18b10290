"""Partitions that the controllers of a cluster have assigned to a log directory.

Topic ids decide before any log is opened. A directory of another topic id, or of a partition that
is not assigned here, is a *stray*: it gets Kafka's name for one, and is neither served nor deleted.
Nothing is adopted.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from horolog.errors import CorruptFile, StorageFailed
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_topic_id
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)


class AssignedPartitions(NamedTuple):
    """Partitions of a log directory whose ids are those of the controllers."""

    here: list[TopicPartition]
    """Directories to be opened."""
    unreadable: dict[TopicPartition, str]
    """Directories that may be of the assigned partition and are not opened, and why."""


def set_strays_aside(
    files: Files,
    path: Path,
    present: Iterable[TopicPartition],
    assigned: Mapping[TopicPartition, UUID],
) -> AssignedPartitions:
    """Rename the directories that are not of an assigned partition.

    Args:
        path: the log directory.
        present: its partitions by the names of their directories.
        assigned: topic ids of the partitions that the controllers have assigned to it.

    Raises:
        StorageFailed: the disk refused.
    """
    found, has_strays = AssignedPartitions([], {}), False
    for partition in present:
        directory, expected = f"{path}/{partition}", assigned.get(partition)
        why = None
        try:
            topic_id = read_topic_id(files, f"{directory}/{names.PARTITION_METADATA}")
        except CorruptFile as error:
            topic_id, why = None, str(error)
        if expected is not None and topic_id == expected:
            found.here.append(partition)
        elif expected is not None and topic_id is None and _has_records(directory):
            found.unreadable[partition] = (
                f"{why or f'{directory} names no topic id'}: it is not known to be of the topic. "
                "Move it away, and the replica is filled by the leader"
            )
        else:
            stray = names.stray_directory(partition, uuid4())
            files.rename(directory, f"{path}/{stray}")
            has_strays = True
            _logger.warning(
                "%s is renamed to %s and not served: %s",
                directory,
                stray,
                "the partition is not assigned to this broker"
                if expected is None
                else f"it is of topic id {topic_id}, and the topic has the id {expected}",
            )
    if has_strays:
        files.sync_path(str(path))
    return found


def _has_records(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(
                entry.name.endswith(names.LOG) and entry.stat(follow_symlinks=False).st_size > 0
                for entry in entries
            )
    except OSError as error:
        raise StorageFailed(f"Cannot list {directory}: {error}") from error
