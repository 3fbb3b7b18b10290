"""Adding entries to the indexes of the segment that is appended to.

Readers of the segment use the same `Indexes`, and see what was added.
"""

from horolog.errors import StorageFailed
from horolog.storage.files import FileMissing, Files
from horolog.storage.index.builder import is_later
from horolog.storage.index.indexes import Indexes
from horolog.storage.index.time import TimeEntry


class IndexWriter:
    """Adds an entry to both indexes now and then, for the one thread that appends."""

    __slots__ = ("_bytes_since_entry", "_files", "_indexes", "_interval_bytes", "are_full")

    def __init__(
        self, files: Files, indexes: Indexes, interval_bytes: int, bytes_since_entry: int = 0
    ) -> None:
        self._files = files
        self._indexes = indexes
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = bytes_since_entry
        self.are_full = indexes.offsets.is_full or indexes.times.is_full
        """Whether one of them has no room for another entry, so that the segment must end."""

    @property
    def is_ready(self) -> bool:
        """Whether the next `add` finds the files open that it writes to."""
        indexes = self._indexes
        return self._bytes_since_entry <= self._interval_bytes or (
            self._files.is_open(indexes.offsets.entries.path)
            and self._files.is_open(indexes.times.entries.path)
        )

    def add(
        self, position: int, size: int, last_offset: int, max_timestamp: int
    ) -> TimeEntry | None:
        """Note the batch that was written at `position`; returns the largest timestamp so far.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        indexes = self._indexes
        largest = indexes.largest_seen
        if is_later(max_timestamp, largest):
            largest = TimeEntry(max_timestamp, last_offset)
        if self._bytes_since_entry > self._interval_bytes:
            try:
                self._add_entries(position, last_offset, largest)
                self.are_full = indexes.offsets.is_full or indexes.times.is_full
            except FileMissing:
                # The file was removed: the next append ends the segment, which rebuilds it.
                indexes.is_checked, self.are_full = False, True
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        indexes.largest_seen = largest
        return largest

    def _add_entries(self, position: int, last_offset: int, largest: TimeEntry | None) -> None:
        offsets, times = self._indexes.offsets, self._indexes.times
        count = len(offsets.entries)
        offsets.append(last_offset, position)
        if largest is not None:
            try:
                times.maybe_append(*largest)
            except StorageFailed:
                offsets.entries.keep(count)
                raise
