"""What lies in a log directory and in a partition's, as far as names and kinds of entries say.

A symbolic link is never followed: it could lead out of the log directory.
"""

import os
from pathlib import Path
from typing import NamedTuple

from horolog.storage import names
from horolog.storage.files import NotRegular, failed_to
from horolog.storage.names import TopicPartition


class Contents(NamedTuple):
    """Partitions in the order of their names. An entry with a name of no known form is ignored."""

    partitions: list[TopicPartition]
    """Directories to be opened."""
    internal: list[TopicPartition]
    """Directories of Kafka's internal topics, which are never opened."""
    blocked: dict[TopicPartition, str]
    """Names of partitions that something other than a directory has, and what that is."""
    deleted: list[str]
    """Paths of partitions whose topic was deleted, and which wait to be removed."""
    has_moved: bool
    """There are partitions that a Kafka was moving to another disk (-future), or set aside."""


def contents_of(log_dir: Path) -> Contents:
    """List a log directory without opening anything in it.

    Raises:
        StorageFailed: it cannot be listed.
    """
    found = Contents([], [], {}, [], has_moved=False)
    has_moved = False
    for entry in _entries(str(log_dir)):
        partition = names.partition_of(entry.name)
        if not entry.is_dir(follow_symlinks=False):
            if partition is not None:
                what = "a symbolic link" if entry.is_symlink() else "not a directory"
                found.blocked[partition] = f"{entry.path} is {what}"
        elif names.is_deleted_directory(entry.name):
            found.deleted.append(entry.path)
        elif partition is None:
            has_moved |= names.is_moved_partition(entry.name)
        elif partition.topic in names.INTERNAL_TOPICS:
            found.internal.append(partition)
        else:
            found.partitions.append(partition)
    return found._replace(has_moved=has_moved)


def files_of(directory: str) -> set[str]:
    """The names in a partition's directory.

    Raises:
        StorageFailed: it cannot be listed, or something that is no regular file has a name that
            is read, written or removed there.
    """
    found = set()
    for entry in _entries(directory):
        if not entry.is_file(follow_symlinks=False) and names.is_known_file(entry.name):
            what = "a symbolic link" if entry.is_symlink() else "not a regular file"
            raise NotRegular(f"{entry.path} is {what}")
        found.add(entry.name)
    return found


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise failed_to("list", directory, error) from error
