"""A segment as planners and tasks pass it on, and the reader of it."""

from typing import NamedTuple

from horolog.storage import names
from horolog.storage.files import Files
from horolog.storage.segment_reader import SegmentReader


class Segment(NamedTuple):
    """One `.log` file as it was listed; its size in bytes.

    Only the bytes that it had then are read. Its indexes, which another broker may have
    written, are used as far as their batches prove them: to read all headers first would
    take as long as to scan the log, so a time entry is trusted about batches before it.
    """

    path: str
    base_offset: int
    size: int

    def open(self, files: Files) -> SegmentReader:
        """Read it; nothing is opened before that is needed."""
        return SegmentReader(files, self.path.removesuffix(names.LOG), self.base_offset, self.size)
