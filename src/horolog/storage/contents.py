"""What lies in a log directory, as far as the names and kinds of its entries say.

A symbolic link is never followed: it could lead out of the log directory.
"""

import os
from pathlib import Path
from typing import NamedTuple

from horolog.storage import names
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
    """List a log directory without opening anything in it."""
    found = Contents([], [], {}, [], has_moved=False)
    has_moved = False
    with os.scandir(log_dir) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
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
