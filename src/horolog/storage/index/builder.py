"""Builds the indexes of a segment from its batch headers in order.

The one rule for both ways an index comes to be: while batches are appended, and
when it is rebuilt from the log. A batch is indexed when more than
`index.interval.bytes` are between it and the last one that was; the time index
grows only with the largest timestamp. Tests compare the two.

Entries that are there already and are valid are kept, though the rule would not ask
for them: a close in the middle of a segment has written its largest time so far,
and another interval may have been in force.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from struct import Struct

from horolog.errors import CorruptBatch
from horolog.record.batch import LOG_APPEND_TIME_BIT, BatchHeader
from horolog.record.old_format.plain import PlainMessages, largest_of
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType
from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.directory.checkpoints import EpochStart
from horolog.storage.index.sparse import OffsetIndex, TimeIndex

_MAX_RELATIVE = (1 << 31) - 1  # of an offset or a position in an entry


class FoundEntries:
    """The existing entries of an index, compared with the log batch by batch."""

    def __init__(self, content: bytes, layout: Struct, offset_column: int) -> None:
        self.untrue = 0
        """How many of them are of no batch, or say something else than it does."""
        self._entries = layout.iter_unpack(content)
        self._offset_column = offset_column
        self._next: tuple[int, ...] | None = next(self._entries, None)

    def take(self, first: int, last: int, says: Callable[[tuple[int, ...]], bool]) -> bool:
        """Whether there is a true entry for the next batch, of these relative offsets."""
        is_there = False
        while self._next is not None and self._next[self._offset_column] <= last:
            is_true = self._next[self._offset_column] >= first and says(self._next)
            is_there |= is_true
            self.untrue += not is_true
            self._next = next(self._entries, None)
        return is_there

    @property
    def next_offset(self) -> int | None:
        """The relative offset of the next entry; None if there is none."""
        return None if self._next is None else self._next[self._offset_column]

    def finish(self) -> None:
        """Count what is left as untrue: the log has no such batches."""
        self.untrue += (self._next is not None) + sum(1 for _ in self._entries)
        self._next = None


class IndexBuilder:
    """Takes every batch of a segment once and knows the segment's facts at the end."""

    def __init__(
        self,
        base_offset: int,
        interval_bytes: int,
        found_offsets: bytes = b"",
        found_times: bytes = b"",
    ) -> None:
        self.next_offset = base_offset
        self.largest: TimeEntry | None = None
        self.first_timestamp: int | None = None
        self.last_append_time: int | None = None
        self.has_markers = False
        """Whether transactions ended in the segment."""
        self.epochs: list[EpochStart] = []
        self.last_entry_position = 0
        self.last_position = 0
        self.end = 0
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self._found_offsets = FoundEntries(found_offsets, OffsetIndex.LAYOUT, offset_column=0)
        self._found_times = FoundEntries(found_times, TimeIndex.LAYOUT, offset_column=1)
        self._has_found = bool(found_offsets or found_times)
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._last_time = NO_TIMESTAMP

    def add(self, position: int, header: BatchHeader) -> None:
        """Index the batch at `position`, which follows the batch added before.

        Raises:
            CorruptBatch: its offsets or its position do not fit into an index of this segment;
                the batch checksum does not cover the base offset. Nothing has been taken.
        """
        timestamp, last_offset = header.max_timestamp, header.last_offset
        first, last = header.base_offset - self._base_offset, last_offset - self._base_offset
        if first < 0 or last > _MAX_RELATIVE or position > _MAX_RELATIVE:
            raise CorruptBatch(
                f"the batch at byte {position} has the offsets {header.base_offset} to "
                f"{last_offset}, which a segment that begins at {self._base_offset} cannot hold"
            )
        if position == 0:
            self.first_timestamp = None if timestamp == NO_TIMESTAMP else timestamp
        is_largest = is_later(timestamp, self.largest)
        if is_largest:
            self.largest = TimeEntry(timestamp, last_offset)
        is_found = False
        if self._has_found:
            if self._found_times.take(first, last, lambda e: is_largest and e[0] == timestamp):
                self._add_time()
            is_found = self._found_offsets.take(first, last, lambda entry: entry[1] == position)
        if is_found or position - self.last_entry_position > self._interval_bytes:
            self.offset_entries += OffsetIndex.LAYOUT.pack(last, position)
            self._add_time()
            self.last_entry_position = position
        if header.attributes & LOG_APPEND_TIME_BIT:
            self.last_append_time = max(timestamp, self.last_append_time or timestamp)
        self.has_markers |= header.is_control
        if header.leader_epoch > (self.epochs[-1].epoch if self.epochs else -1):
            self.epochs.append(EpochStart(header.leader_epoch, header.base_offset))
        self.next_offset = last_offset + 1
        self.last_position, self.end = position, position + header.size

    def add_messages(self, position: int, listed: PlainMessages) -> None:
        """Take plain messages from `position` on, as `add` takes each of them.

        Most messages only move the largest timestamp; those that are indexed, or that an existing
        entry is about, are taken one by one.

        Raises:
            CorruptBatch: as `add`; the messages before the one that does not fit are taken.
        """
        positions, offsets, count = listed.positions, listed.offsets, len(listed.positions)
        shift, first = position - positions[0], 0
        fits = offsets[0] >= self._base_offset and (
            offsets[-1] - self._base_offset <= _MAX_RELATIVE
            and positions[-1] + shift <= _MAX_RELATIVE
        )
        while first < count:
            due = first
            if fits and position + positions[first] - positions[0] > 0:
                reach = self.last_entry_position + self._interval_bytes - shift
                due = bisect_right(positions, reach, first)
                for found in (self._found_offsets, self._found_times):
                    if found.next_offset is not None:
                        offset = self._base_offset + found.next_offset
                        due = min(due, bisect_left(offsets, offset, first))
            if due > first:
                self._add_between(shift, listed, first, due)
            if due < count:
                self.add(positions[due] + shift, listed.header_of(due))
            first = due + 1

    def _add_between(self, shift: int, listed: PlainMessages, first: int, end: int) -> None:
        """Update the facts by messages that get no index entry."""
        times = listed.times[first:end]
        largest = largest_of(times)
        if is_later(largest, self.largest):
            self.largest = TimeEntry(largest, listed.offsets[first + times.index(largest)])
        if listed.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            latest = max(times)
            self.last_append_time = max(latest, self.last_append_time or latest)
        self.next_offset = listed.offsets[end - 1] + 1
        self.last_position = shift + listed.positions[end - 1]
        self.end = shift + listed.end_of(end - 1)

    def add_all(
        self, stretches: Iterable[tuple[int, BatchHeader, PlainMessages | None]]
    ) -> "IndexBuilder":
        """Take all batches of a segment (`BatchReader.stretches`) and finish; itself.

        Raises:
            CorruptBatch: as `add`, or from the walk.
        """
        for position, header, listed in stretches:
            self.take(position, header, listed)
        self.finish()
        return self

    def take(self, position: int, header: BatchHeader, listed: PlainMessages | None) -> None:
        """Take a batch, or plain messages.

        Raises:
            CorruptBatch: as `add`.
        """
        if listed is None:
            self.add(position, header)
        else:
            self.add_messages(position, listed)

    def finish(self) -> None:
        """Add the last time entry, so that it holds the largest timestamp."""
        self._add_time()
        self._found_offsets.finish()
        self._found_times.finish()

    @property
    def untrue(self) -> int:
        """Number of existing entries that contradict the log."""
        return self._found_offsets.untrue + self._found_times.untrue

    def _add_time(self) -> None:
        if self.largest is not None and self.largest.timestamp > self._last_time:
            self._last_time, offset = self.largest
            self.time_entries += TimeIndex.LAYOUT.pack(self._last_time, offset - self._base_offset)


def is_later(timestamp: int, largest: TimeEntry | None) -> bool:
    """Return True if a batch's largest timestamp is a new largest; -1 is no timestamp."""
    if timestamp == NO_TIMESTAMP:
        return False
    return largest is None or timestamp > largest.timestamp
