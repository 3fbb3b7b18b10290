"""What lies in a log directory, as far as the names of the directories in it tell."""

import os
from pathlib import Path
from typing import NamedTuple

from horolog.storage import names
from horolog.storage.names import TopicPartition

CLUSTER_METADATA = "__cluster_metadata"
_INTERNAL_TOPICS = frozenset(
    {
        CLUSTER_METADATA,
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
    }
)


class Contents(NamedTuple):
    """Each in the order of the names. What has a name of another kind is not ours to judge."""

    partitions: list[TopicPartition]
    """To be opened."""
    internal: list[TopicPartition]
    """Of a Kafka's own topics, which are never opened."""
    deleted: list[str]
    """Paths of partitions whose topic was deleted, and which wait to be removed."""
    has_moved: bool
    """There are partitions that a Kafka was moving to another disk (-future), or set aside."""


def contents_of(log_dir: Path) -> Contents:
    """Look at the names, and into nothing."""
    partitions, internal, deleted, has_moved = [], [], [], False
    for entry in sorted(os.scandir(log_dir), key=lambda entry: entry.name):
        if not entry.is_dir():
            continue
        partition = names.partition_of(entry.name)
        if names.is_deleted_directory(entry.name):
            deleted.append(entry.path)
        elif partition is None:
            has_moved |= names.is_moved_partition(entry.name)
        elif partition.topic in _INTERNAL_TOPICS:
            internal.append(partition)
        else:
            partitions.append(partition)
    return Contents(partitions, internal, deleted, has_moved)
