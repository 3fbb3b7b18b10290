"""Many small batches of v2 at once, as columns: what the writer of a log takes of compaction."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from horolog.buffers import Buffer
from horolog.record.batch import parse_header
from horolog.record.kernels.crc_rows import crc32c_of_rows
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.companion.proof import IDENTITY_SIZE
from horolog.storage.companion.time_columns import ChangedTimes, Int64Array
from horolog.storage.segments.numbered import Numbered, as_it_is

_LEAST: Final = -(1 << 63)


class NumberedRun(NamedTuple):
    """Consecutive batches in memory, at least one, whose append times do not decrease."""

    data: Buffer
    starts: Int64Array
    """The position of each."""
    base_offsets: Int64Array
    next_offsets: Int64Array
    """The offset behind each."""
    max_timestamps: Int64Array
    append_ms: Int64Array | None
    """In milliseconds; None where they are unknown, of all."""
    is_seen: bool
    """True if the append times of all batches are seen times."""

    @property
    def size(self) -> int:
        """Bytes of all."""
        return len(self.data)

    @property
    def last_offset(self) -> int:
        """Last offset of all batches."""
        return int(self.next_offsets[-1]) - 1

    @property
    def first(self) -> Numbered:
        """The first of them."""
        return next(self.each())

    def each(self) -> Iterator[Numbered]:
        """Yield the batches one by one."""
        view, starts = memoryview(self.data), self.starts.tolist()
        times = [None] * len(starts) if self.append_ms is None else self.append_ms.tolist()
        for start, end, ms in zip(starts, [*starts[1:], len(view)], times, strict=True):
            yield as_it_is(parse_header(view, start), [view[start:end]], ms, is_seen=self.is_seen)

    def rows(
        self, position: int, until_entry: int, interval_bytes: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield the index rows of batches that are written at a position.

        A row for each that gets an entry, and one for all between two of these: its last offset is
        that of the first with its largest timestamp.

        Args:
            until_entry: the bytes before the first that gets an entry, at most.
            interval_bytes: the same between one with an entry and the next.
        """
        starts = self.starts.tolist()
        indexed, following = [], bisect_right(starts, starts[0] + until_entry)
        while following < len(starts):
            indexed.append(following)
            following = bisect_right(starts, starts[following] + interval_bytes, following + 1)
        begins = np.unique([0, *indexed, *(number + 1 for number in indexed)])
        begins = begins[begins < len(starts)]
        times = self.max_timestamps
        order = np.where(times < NO_TIMESTAMP, times + 1, times)  # no timestamp is before all
        order[times == NO_TIMESTAMP] = _LEAST
        counts = np.diff(begins, append=len(starts))
        are_largest = order == np.repeat(np.maximum.reduceat(order, begins), counts)
        largest = np.flatnonzero(are_largest)
        largest = largest[np.searchsorted(largest, begins)]
        sizes = np.diff(self.starts[begins], append=self.size)
        columns = position + self.starts[begins], sizes, self.next_offsets[largest] - 1
        yield from zip(*(column.tolist() for column in (*columns, times[largest])), strict=True)

    def changes(self, last_ms: int | None, *, is_seen: bool) -> ChangedTimes | None:
        """Return the batches whose append time differs from that of the batch before.

        Args:
            last_ms: the append time before the first; None if that is unknown.
            is_seen: whether that is when a follower saw it.
        """
        if self.append_ms is None:
            return None
        are_new = np.diff(self.append_ms, prepend=0) != 0
        are_new[0] = (int(self.append_ms[0]), self.is_seen) != (last_ms, is_seen)
        if not are_new.any():
            return None
        heads = self.starts[are_new][:, None] + np.arange(IDENTITY_SIZE)
        return ChangedTimes(
            self.base_offsets[are_new],
            self.append_ms[are_new],
            crc32c_of_rows(np.frombuffer(self.data, np.uint8)[heads]),
            self.is_seen,
        )
