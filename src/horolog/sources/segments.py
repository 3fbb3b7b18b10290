"""A segment as planners pass it on to tasks."""

from typing import NamedTuple

from horolog.storage import names
from horolog.storage.companion.block_cache import BlockCache
from horolog.storage.files import Files
from horolog.storage.segments.reader import SegmentReader


class ListedSegment(NamedTuple):
    """One `.log` file as it was listed; only the bytes that it had then are read.

    Another broker may have written its indexes: an entry counts as far as its batch proves it.
    """

    path: str
    base_offset: int
    size: int
    inode: int = 0
    """Inode number of the file; 0 if the file system has none."""
    listed_size: int = 0
    """Bytes of the file when it was listed; `size` leaves out a torn end."""
    is_being_replaced: bool = False
    """True if its files had the names of a replacement that had not ended."""

    def open(self, files: Files, block_cache: BlockCache | None = None) -> SegmentReader:
        """Return a reader that opens files when they are needed and writes none."""
        # To read all headers takes as long as the log: a time entry counts for batches before it.
        stem = self.path.removesuffix(names.LOG)
        reader = SegmentReader(files, stem, self.base_offset, self.size, block_cache=block_cache)
        reader.log.inode = self.inode
        reader.companion.deleted_path = reader.companion.path + names.DELETED
        return reader
