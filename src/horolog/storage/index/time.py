"""From which offset to start looking for a moment (KIP-33). Sparse; 12 bytes an entry.

    0   8  timestamp, milliseconds
    8   4  offset, relative to the segment's base offset

An entry says: the largest timestamp so far is `timestamp`, and the batch that ends
with `offset` was the first to reach it. So timestamps strictly grow, offsets never
shrink, whatever is later than `timestamp` is after `offset`, and the last entry
of a finished segment holds its largest timestamp.

What is below zero is never written: neither the -1 of a record without a time nor
a time before 1970 (KIP-228), which Kafka could not have written either. Without
any entry a lookup begins at the segment's base, which is always right.

Files stay Kafka's to the byte. One thread appends, any number look up.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.index.entries import SegmentIndex


class TimeEntry(NamedTuple):
    """A timestamp, and the absolute last offset of the batch that first reached it."""

    timestamp: int
    offset: int


class TimeIndex(SegmentIndex):
    """From moments to offsets, for one segment."""

    __slots__ = ("_last",)

    LAYOUT = Struct(">qi")
    _last: TimeEntry | None

    @property
    def is_full(self) -> bool:
        """Whether only the slot is left that the last entry of the segment needs."""
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
        """Add the largest time seen so far, unless it is no later than the last entry."""
        if timestamp <= self.last.timestamp:
            return
        self.entries.append(timestamp, offset - self.base_offset)
        self._last = TimeEntry(timestamp, offset)

    def append_all(self, found: Sequence[TimeEntry]) -> None:
        """As `maybe_append` of each, in one write; each is later than the one before."""
        found = [each for each in found if each.timestamp > self.last.timestamp]
        if found:
            self.entries.append_all([(time, offset - self.base_offset) for time, offset in found])
            self._last = found[-1]

    def lookup(self, timestamp: int) -> TimeEntry:
        """The last entry not after `timestamp`; a search may start at its offset."""
        found = self.entries.last_at(timestamp)
        if found is None:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        return TimeEntry(found[0], self.base_offset + found[1])

    def last_before(self, offset: int) -> TimeEntry:
        """The last entry of a batch that ends before `offset`."""
        return self[self.entries.search(1, offset - self.base_offset - 1) - 1]

    def keep(self, count: int) -> None:
        """Forget all entries from number `count` on."""
        self.entries.keep(count)
        self._last = None

    def reload(self) -> None:
        """Read the file's length again: it has been replaced."""
        super().reload()
        self._last = None
