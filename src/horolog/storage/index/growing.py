"""Adding entries to the indexes of the segment that is appended to.

Readers of the segment use the same `Indexes`, and see what was added.
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.indexes import Indexes
from horolog.storage.index.sparse import OffsetPosition

# A named tuple's own `__new__` takes three times as long.
_new_time = partial(tuple.__new__, TimeEntry)


class Noted(NamedTuple):
    """How much an `IndexWriter` has taken."""

    offset_entries: int
    time_entries: int
    bytes_since_entry: int
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

    def is_ready(self) -> bool:
        """Return True if the next `add` finds the files open that it writes to."""
        indexes = self._indexes
        return self._bytes_since_entry <= self._interval_bytes or (
            self._files.is_open(indexes.offsets.entries.path)
            and self._files.is_open(indexes.times.entries.path)
        )

    @property
    def spacing(self) -> tuple[int, int]:
        """The most bytes before what gets the next entry, and between that and the one behind."""
        return self._interval_bytes - self._bytes_since_entry, self._interval_bytes

    def add(self, batches: Iterable[tuple[int, int, int, int]]) -> TimeEntry | None:
        """Note batches that were written; returns the largest timestamp so far.

        Entries are added as long as there is room: otherwise the next append ends the segment.

        Args:
            batches: the position, size, last offset and largest timestamp of each.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        indexes, interval_bytes = self._indexes, self._interval_bytes
        largest, since = indexes.largest_seen, self._bytes_since_entry
        entries: _NewEntries | None = None  # until there is one
        for position, size, last_offset, max_timestamp in batches:
            if max_timestamp != NO_TIMESTAMP and (
                largest is None or max_timestamp > largest.timestamp
            ):  # as `is_later`
                largest = _new_time((max_timestamp, last_offset))
            if since > interval_bytes:
                entries = entries or _NewEntries([], [], self._room())
                if len(entries.positions) < entries.room:
                    entries.positions.append(OffsetPosition(last_offset, position))
                    times = entries.times
                    if largest is not None and (not times or largest.timestamp > times[-1][0]):
                        times.append(largest)
                    since = 0
            since += size
        if entries is not None:
            self._add_entries(entries)
        self._bytes_since_entry, indexes.largest_seen = since, largest
        return largest

    def _room(self) -> int:
        """How many entries fit into both indexes."""
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
        """The state to go back to."""
        indexes = self._indexes
        counts = len(indexes.offsets.entries), len(indexes.times.entries)
        return Noted(*counts, self._bytes_since_entry, indexes.largest_seen, self.are_full)

    def go_back(self, noted: Noted) -> None:
        """Forget what was noted since."""
        indexes = self._indexes
        indexes.offsets.entries.keep(noted.offset_entries)
        indexes.times.keep(noted.time_entries)
        self._bytes_since_entry, self.are_full = noted.bytes_since_entry, noted.are_full
        indexes.largest_seen = noted.largest
