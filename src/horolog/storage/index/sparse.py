"""Kafka's two indexes of a segment: from offsets to positions, and from times to offsets (KIP-33).

Both are sparse. An entry of `.index` takes 8 bytes:

    0   4  offset, relative to the segment's base offset
    4   4  position in the `.log` file

It says: the batch that begins at `position` ends with `offset`. Offsets strictly grow, and so do
positions; so a search from the entry at or before an offset never begins behind its batch.

An entry of `.timeindex` takes 12 bytes:

    0   8  timestamp, milliseconds
    8   4  offset, relative to the segment's base offset

It says: the largest timestamp so far is `timestamp`, and the batch that ends with `offset` was the
first to reach it. So timestamps strictly grow, offsets never shrink, whatever is later than
`timestamp` is after `offset`, and the last entry of a finished segment holds its largest timestamp.

Times below zero are never written: neither the -1 of a record without a time nor a time before
1970 (KIP-228), which Kafka could not have written either. Without any entry a lookup begins at the
segment's base, which is always right.

Files stay Kafka's to the byte. One thread appends, any number look up.
"""

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, NamedTuple

from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.batches.log_file import LogFile, TimeEntry
from horolog.storage.entries import Entries
from horolog.storage.files import Files


class _SegmentIndex:
    """Entries of one index of a segment, with offsets relative to the segment's base offset."""

    __slots__ = ("base_offset", "entries")

    LAYOUT: ClassVar[Struct]

    def __init__(
        self,
        files: Files,
        path: str,
        base_offset: int,
        max_bytes: int,
        log: LogFile | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.entries = Entries(files, path, self.LAYOUT, max_bytes, log=log)
        self.reload()

    def reload(self) -> None:
        """Read the file's length again: it has been replaced."""
        self.entries.recount()


class OffsetPosition(NamedTuple):
    """An absolute offset, and the file position of the batch that ends with it."""

    offset: int
    position: int


class OffsetIndex(_SegmentIndex):
    """Index from offsets to positions of one segment."""

    __slots__ = ()

    LAYOUT = Struct(">ii")

    @property
    def is_full(self) -> bool:
        """True if the segment must end before another entry is added."""
        return len(self.entries) >= self.entries.capacity

    @property
    def last(self) -> OffsetPosition:
        """The last entry; of an empty index the segment's beginning."""
        return self[len(self.entries) - 1]

    def __getitem__(self, index: int) -> OffsetPosition:
        if index < 0:
            return OffsetPosition(self.base_offset, 0)
        offset, position = self.entries[index]
        return OffsetPosition(self.base_offset + offset, position)

    def append(self, offset: int, position: int) -> None:
        """Index the batch at `position` that ends with `offset`."""
        self.entries.append(offset - self.base_offset, position)

    def append_all(self, found: Sequence[OffsetPosition]) -> None:
        """Index several batches in one write."""
        if found:
            self.entries.append_all([(offset - self.base_offset, at) for offset, at in found])

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry not after `offset`, where a search may start."""
        found = self.entries.last_at(offset - self.base_offset)
        if found is None:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + found[0], found[1])

    def position_after(self, offset: int) -> int | None:
        """Return the position of the next entry's batch, if it is known without another read."""
        found = self.entries.first_behind(offset - self.base_offset)
        return None if found is None else found[1]

    def last_before(self, position: int) -> OffsetPosition:
        """Return the last entry of a batch that begins before `position`."""
        return self[self.entries.search(1, position - 1) - 1]


class TimeIndex(_SegmentIndex):
    """Index from timestamps to offsets of one segment."""

    __slots__ = ("_last",)

    LAYOUT = Struct(">qi")
    _last: TimeEntry | None

    @property
    def is_full(self) -> bool:
        """True if only the slot for the segment's last entry is left."""
        return len(self.entries) >= self.entries.capacity - 1

    @property
    def last(self) -> TimeEntry:
        """The last entry; of an empty index "no time, at the segment's beginning"."""
        if self._last is None:
            self._last = self[len(self.entries) - 1]
        return self._last

    def __getitem__(self, index: int) -> TimeEntry:
        if index < 0:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        timestamp, offset = self.entries[index]
        return TimeEntry(timestamp, self.base_offset + offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Append the largest timestamp so far if it is later than the last entry."""
        if timestamp <= self.last.timestamp:
            return
        self.entries.append(timestamp, offset - self.base_offset)
        self._last = TimeEntry(timestamp, offset)

    def append_all(self, found: Sequence[TimeEntry]) -> None:
        """Add several entries in one write; each is later than the one before."""
        found = [entry for entry in found if entry.timestamp > self.last.timestamp]
        if found:
            self.entries.append_all([(time, offset - self.base_offset) for time, offset in found])
            self._last = found[-1]

    def lookup(self, timestamp: int) -> TimeEntry:
        """Return the last entry not after `timestamp`, where a search may start."""
        found = self.entries.last_at(timestamp)
        if found is None:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        return TimeEntry(found[0], self.base_offset + found[1])

    def last_before(self, offset: int) -> TimeEntry:
        """Return the last entry of a batch that ends before `offset`."""
        return self[self.entries.search(1, offset - self.base_offset - 1) - 1]

    def keep(self, count: int) -> None:
        """Forget all entries from number `count` on."""
        self.entries.keep(count)
        self._last = None

    def reload(self) -> None:
        """Read the file's length again: it has been replaced."""
        super().reload()
        self._last = None
