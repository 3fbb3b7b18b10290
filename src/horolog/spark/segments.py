"""A segment as planners and tasks pass it on, and the reader of it."""

from typing import NamedTuple

from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.index.block_cache import BlockCache
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

    def open(self, files: Files, block_cache: BlockCache | None = None) -> SegmentReader:
        """Read it; nothing is opened before that is needed, and nothing written next to it."""
        stem = self.path.removesuffix(names.LOG)
        return SegmentReader(files, stem, self.base_offset, self.size, block_cache=block_cache)
