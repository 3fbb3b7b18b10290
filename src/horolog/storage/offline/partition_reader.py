"""Partition directory that is read without a broker.

Commands that answer from files use it. A running broker's later appends are not seen, and a segment
that it deletes is missing when it is read. Nothing is written in the directory. Missing block maps
go to the user's cache.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from horolog.errors import CorruptFile
from horolog.storage import names
from horolog.storage.batches.log_file import SegmentEnd
from horolog.storage.companion.block_cache import BlockCache
from horolog.storage.directory.checkpoint_ids import LogStarts
from horolog.storage.directory.checkpoints import (
    AppendTimeReset,
    read_append_time_resets,
    topic_id_in,
)
from horolog.storage.directory.contents import files_of
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.listing import segment_names
from horolog.storage.names import TopicPartition
from horolog.storage.removal.leftovers import current_bases, segments_in, stable_look
from horolog.storage.segments.reader import SegmentReader


class PartitionReader:
    """Segments of a partition when it was opened. Not thread-safe."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        segment: Path | None = None,
        cache: BlockCache | None = None,
    ) -> None:
        """Open the segments of a directory.

        Args:
            files: the way to the disk; read-only.
            directory: of the partition; another name than topic-0 is a topic's with partition 0.
            segment: the only one to be read; the others are as if they were not there.
            cache: for block maps that are not next to their logs.

        Raises:
            StorageFailed: the disk refused, or something that is no regular file has the name of
                one that is read.
        """
        self.directory = directory
        self.partition = names.partition_of(directory.name) or TopicPartition(directory.name, 0)
        self.notes: list[str] = []
        """Sentences about files that cannot be read."""
        self._files = files
        present = {segment.name} if segment is not None else None
        readers = stable_look(lambda: _opened(files, str(directory), present, cache))
        for one, following in pairwise(readers):
            one.end = SegmentEnd(one.size, following.base_offset)
            one.log.limit = following.base_offset
        if readers:
            readers[-1].end = readers[-1].whole_end()
        self.segments: tuple[SegmentReader, ...] = tuple(readers)
        """Segments, oldest first. The last one ends with its last whole batch."""
        first = readers[0].base_offset if readers else 0
        end = self.log_end_offset if segment is None else log_end(files, str(directory))
        starts = LogStarts(files, str(directory.parent))
        topic_id = topic_id_in(files, str(directory), self.notes)
        start = starts.of(self.partition, topic_id, first, end)
        self.log_start_offset = min(start, max(first, self.log_end_offset))
        """The first offset that consumers read."""
        self.notes += starts.notes

    @property
    def log_end_offset(self) -> int:
        """Offset after the last record; 0 without segments."""
        return self.segments[-1].end.next_offset if self.segments else 0

    def resets(self) -> Sequence[AppendTimeReset]:
        """Return the resets of append times, in offset order."""
        try:
            path = str(self.directory / names.APPEND_TIME_RESETS)
            return read_append_time_resets(self._files, path)
        except CorruptFile as error:
            self.notes.append(f"where append times were reset is unknown: {error}")
            return ()


def _opened(
    files: Files, directory: str, chosen: set[str] | None, cache: BlockCache | None
) -> list[SegmentReader]:
    """Open the segments of a directory.

    Raises:
        FileMissing: one is gone, or another, since the directory was listed.
    """
    listed = files_of(directory) if chosen is None else chosen
    readers = []
    for base_offset in segments_in(files, directory, listed):
        path = names.log_path(directory, base_offset)
        stem = path.removesuffix(names.LOG)
        reader = SegmentReader(files, stem, base_offset, files.size(path), block_cache=cache)
        reader.log.inode = files.inode_of(reader.log.open())
        readers.append(reader)
    # Names come and go meanwhile: a listing has all of them only if the next one has the same.
    if chosen is None and segment_names(files_of(directory)) != segment_names(listed):
        raise FileMissing(f"{directory} has changed while it was read")
    return readers


def log_end(files: Files, directory: str) -> int:
    """Return the log end offset of a partition directory.

    Raises:
        StorageFailed: the disk refused.
    """
    for base_offset in reversed(current_bases(files, directory)):
        path = names.log_path(directory, base_offset)
        with suppress(FileMissing):  # retention has deleted it since the directory was listed
            return SegmentReader.at(files, path, base_offset).whole_end().next_offset
    return 0
