"""Adding entries to the indexes of the segment that is appended to.

Readers of the segment use the same `Indexes`, and see what was added.
"""

from bisect import bisect_right
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.record.old_format.plain import PlainMessages, largest_of
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.builder import is_later
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

    @property
    def spacing(self) -> tuple[int, int]:
        """The most bytes before what gets the next entry, and between that and the one behind."""
        return self._interval_bytes - self._bytes_since_entry, self._interval_bytes

    def add(
        self, position: int, size: int, last_offset: int, max_timestamp: int
    ) -> TimeEntry | None:
        """Note the batch that was written at `position`; returns the largest timestamp so far.

        An entry is added if there is room: else the next append ends the segment.

        Raises:
            StorageFailed: the disk refused; nothing was noted.
        """
        indexes = self._indexes
        largest = indexes.largest_seen
        if max_timestamp != NO_TIMESTAMP and (
            largest is None or max_timestamp > largest.timestamp
        ):  # as `is_later`
            largest = _new_time((max_timestamp, last_offset))
        if self._bytes_since_entry > self._interval_bytes and not self.are_full:
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

    def add_all(self, batches: Iterable[tuple[int, int, int, int]]) -> TimeEntry | None:
        """Note several batches, whose entries are written together.

        Args:
            batches: the position, size, last offset and largest timestamp of each.

        Raises:
            StorageFailed: the disk refused; `go_back` to what was noted before.
        """
        indexes, largest, since = self._indexes, self._indexes.largest_seen, self._bytes_since_entry
        offsets, times = indexes.offsets, indexes.times
        room = offsets.entries.capacity - len(offsets.entries)
        room = 0 if self.are_full else min(room, times.entries.capacity - len(times.entries) - 1)
        positions: list[OffsetPosition] = []
        latest: list[TimeEntry] = []
        for position, size, last_offset, max_timestamp in batches:
            if is_later(max_timestamp, largest):
                largest = TimeEntry(max_timestamp, last_offset)
            if since > self._interval_bytes and len(positions) < room:
                positions.append(OffsetPosition(last_offset, position))
                if largest is not None and (not latest or largest.timestamp > latest[-1][0]):
                    latest.append(largest)
                since = 0
            since += size
        try:
            offsets.append_all(positions)
            times.append_all(latest)
            self.are_full = offsets.is_full or times.is_full
        except FileMissing:
            indexes.is_checked, self.are_full = False, True
        self._bytes_since_entry, indexes.largest_seen = since, largest
        return largest

    def add_messages(self, position: int, listed: PlainMessages) -> TimeEntry | None:
        """Note plain messages that were written from `position` on; as `add` for each of them.

        Entries are added as long as there is room: the next append ends the segment.

        Raises:
            StorageFailed: the disk refused; `go_back` to what was noted before.
        """
        indexes = self._indexes
        offsets, times = indexes.offsets, indexes.times
        positions, messages = listed.positions, len(listed.positions)
        shift, first = position - positions[0], 0
        largest, since = indexes.largest_seen, self._bytes_since_entry
        is_missing = False
        while first < messages:
            # The first of those left that is indexed, or the end.
            reach = positions[first] + self._interval_bytes - since
            entry = bisect_right(positions, reach, first)
            through = min(entry + 1, messages)
            largest = _largest_of(listed, first, through, largest)
            following = positions[through] if through < messages else listed.end
            if entry == messages:
                since += listed.end - positions[first]
            else:
                since = following - positions[entry]
                if not (self.are_full or is_missing):
                    try:
                        self._add_entries(positions[entry] + shift, listed.offsets[entry], largest)
                    except FileMissing:
                        is_missing = True
                    self.are_full = offsets.is_full or times.is_full
            first = through
        if is_missing:
            indexes.is_checked, self.are_full = False, True
        self._bytes_since_entry = since
        indexes.largest_seen = largest
        return largest

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


def _largest_of(
    listed: PlainMessages, first: int, end: int, largest: TimeEntry | None
) -> TimeEntry | None:
    """The largest timestamp so far, with the first message that has it."""
    time = largest_of(listed.times[first:end])
    if is_later(time, largest):
        return TimeEntry(time, listed.offsets[listed.times.index(time, first)])
    return largest
