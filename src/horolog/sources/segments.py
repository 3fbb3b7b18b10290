"""A segment as planners and tasks pass it on, and the reader of it."""

from typing import NamedTuple

from horolog.sources.file_systems import Root
from horolog.sources.plan import SegmentStretch
from horolog.storage import names
from horolog.storage.companion.block_cache import BlockCache
from horolog.storage.directory.checkpoints import kafka_uuid, topic_id_in
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.removal.leftovers import segments_in
from horolog.storage.segments.reader import SegmentReader


class ListedSegment(NamedTuple):
    """One `.log` file as it was listed; its size in bytes.

    Only the bytes that it had then are read. Its indexes, which another broker may have
    written, are used as far as their batches prove them: to read all headers first would
    take as long as to scan the log, so a time entry is trusted about batches before it.
    """

    path: str
    base_offset: int
    size: int
    inode: int = 0
    """Of the file, where the file system says it."""
    listed_size: int = 0
    """Bytes of the file when it was listed: a torn end is not in `size`."""
    is_being_replaced: bool = False
    """Whether files of it had the names of a replacement that had not ended."""

    def open(self, files: Files, block_cache: BlockCache | None = None) -> SegmentReader:
        """Read it; nothing is opened before that is needed, and nothing written next to it."""
        stem = self.path.removesuffix(names.LOG)
        reader = SegmentReader(files, stem, self.base_offset, self.size, block_cache=block_cache)
        reader.log.inode = self.inode
        reader.companion.deleted_path = reader.companion.path + names.DELETED
        return reader


def opened(root: Root, stretch: SegmentStretch) -> SegmentReader:
    """The segment of a stretch, in a task.

    Raises:
        FileMissing: it is gone, or another of the same name is in its place.
    """
    directory = stretch.path.rpartition("/")[0]
    if stretch.is_being_replaced:
        segments_in(root.files, directory, root.files.names_in(directory))
    segment = ListedSegment(stretch.path, stretch.base_offset, stretch.size, stretch.inode)
    reader = segment.open(root.files, root.block_cache)
    reader.log.limit = stretch.limit
    # First: a file that is open stays that of its topic.
    reader.log.held = file = reader.log.open()
    if not stretch.inode and root.files.length(file) != stretch.listed_size:
        raise FileMissing(f"{stretch.path} is another file than when it was listed")
    present = topic_id_in(root.files, directory, [])
    if present and stretch.topic_id and kafka_uuid(present) != stretch.topic_id:
        raise FileMissing(f"{stretch.path} is gone: the topic was deleted and created again")
    return reader
