"""Adding entries to the indexes of the segment that is appended to.

Readers of the segment use the same `Indexes`, and see what was added.
"""

from collections.abc import Iterable
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.indexes import Indexes
from horolog.storage.index.sparse import OffsetPosition


class Noted(NamedTuple):
    """State of an `IndexWriter`, to return to after a failure."""

    offset_entries: int
    time_entries: int
    until_entry: int
    largest: TimeEntry | None
    are_full: bool


class _NewEntries(NamedTuple):
    """Entries that are written together."""

    positions: list[OffsetPosition]
    times: list[TimeEntry]
    room: int
    """The most that there can be."""


class IndexWriter:
    """Adds an entry to both indexes now and then, for the one thread that appends."""

    __slots__ = ("_files", "_indexes", "_interval_bytes", "are_full", "until_entry")

    def __init__(
        self, files: Files, indexes: Indexes, interval_bytes: int, bytes_since_entry: int = 0
    ) -> None:
        self._files = files
        self._indexes = indexes
        self._interval_bytes = interval_bytes
        self.until_entry = interval_bytes - bytes_since_entry
        """Bytes before the next batch that gets an entry; below zero it is the next one."""
        self.are_full = indexes.offsets.is_full or indexes.times.is_full
        """Whether one of them has no room for another entry, so that the segment must end."""

    def are_open(self) -> bool:
        """Return True if the files of both indexes are open."""
        indexes, files = self._indexes, self._files
        return files.is_open(indexes.offsets.entries.path) and files.is_open(
            indexes.times.entries.path
        )

    @property
    def spacing(self) -> tuple[int, int]:
        """Bytes before the next entry, and bytes between the entries that follow."""
        return self.until_entry, self._interval_bytes

    def add(self, batches: Iterable[tuple[int, int, int, int]]) -> TimeEntry | None:
        """Note batches that were written; returns the largest timestamp so far.

        Entries are added as long as there is room: otherwise the next append ends the segment.

        Args:
            batches: the position, size, last offset and largest timestamp of each.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        indexes, left = self._indexes, self.until_entry
        largest = indexes.largest_seen
        entries: _NewEntries | None = None  # until there is one
        for position, size, last_offset, max_timestamp in batches:
            if max_timestamp != NO_TIMESTAMP and (
                largest is None or max_timestamp > largest.timestamp
            ):  # as `is_later`
                largest = tuple.__new__(TimeEntry, (max_timestamp, last_offset))
            if left < 0:
                entries = entries or _NewEntries([], [], self._room())
                if len(entries.positions) < entries.room:
                    entries.positions.append(OffsetPosition(last_offset, position))
                    times = entries.times
                    if largest is not None and (not times or largest.timestamp > times[-1][0]):
                        times.append(largest)
                    left = self._interval_bytes
            left -= size
        if entries is not None:
            self._add_entries(entries)
        self.until_entry, indexes.largest_seen = left, largest
        return largest

    def _room(self) -> int:
        """Return how many entries fit into both indexes."""
        if self.are_full:
            return 0
        offsets, times = self._indexes.offsets.entries, self._indexes.times.entries
        return min(offsets.capacity - len(offsets), times.capacity - len(times) - 1)

    def _add_entries(self, new: "_NewEntries") -> None:
        indexes = self._indexes
        offsets, times = indexes.offsets, indexes.times
        count = len(offsets.entries)
        try:
            offsets.append_all(new.positions)
            times.append_all(new.times)
            self.are_full = offsets.is_full or times.is_full
        except FileMissing:
            # The file was removed: the next append ends the segment, which rebuilds it.
            indexes.is_checked, self.are_full = False, True
        except StorageFailed:
            offsets.entries.keep(count)
            raise

    def noted(self) -> Noted:
        """Return the current state, for `go_back`."""
        indexes = self._indexes
        counts = len(indexes.offsets.entries), len(indexes.times.entries)
        return Noted(*counts, self.until_entry, indexes.largest_seen, self.are_full)

    def go_back(self, noted: Noted) -> None:
        """Return to an earlier state, after the disk refused a write."""
        indexes = self._indexes
        indexes.offsets.entries.keep(noted.offset_entries)
        indexes.times.keep(noted.time_entries)
        self.until_entry, self.are_full = noted.until_entry, noted.are_full
        indexes.largest_seen = noted.largest
