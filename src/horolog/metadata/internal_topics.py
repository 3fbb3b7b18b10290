"""Replay of internal topics from the partition directories of a log directory.

Nothing is written, and a broker may be at work there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import StorageFailed
from horolog.storage import names
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.lookup.replay import replay_segments
from horolog.storage.offline.partition_reader import PartitionReader


class ReplayedPartition(NamedTuple):
    """Outcome of replaying one partition."""

    directory: Path
    damage: tuple[str, ...]
    """Sentences about skipped bytes."""
    error: StorageFailed | None
    """Why the rest of the partition could not be read."""


def replay_topic(
    files: Files, log_dir: Path, topic: str, take: Callable[[Buffer], None]
) -> Iterator[ReplayedPartition]:
    """Give the batches of a topic to `take`, one partition after the other.

    Symbolic links are left alone, as by a broker.

    Raises:
        StorageFailed: the log directory cannot be listed.
    """
    for name in sorted(files.names_in(str(log_dir))):
        partition, directory = names.partition_of(name), log_dir / name
        if partition is None or partition.topic != topic or directory.is_symlink():
            continue
        damage: list[str] = []
        try:
            segments = PartitionReader(files, directory).segments
            damage.extend(replay_segments(segments, 0, take))
        except FileMissing as error:  # compaction has replaced a segment meanwhile
            damage.append(str(error))
        except StorageFailed as error:
            yield ReplayedPartition(directory, tuple(damage), error)
            continue
        yield ReplayedPartition(directory, tuple(damage), None)
