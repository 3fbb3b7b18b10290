"""Whole batches, the form in which a stretch of any log is read."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.record.timestamps import LOG_APPEND_TIME, AppendTimeStretch
from horolog.record.transactions import AbortedTransaction, BatchWalk, WalkedBatch


class Batches(NamedTuple):
    """Whole batches of one partition, in the order of their offsets."""

    data: Buffer
    start: int
    """First offset to read; the first batch may begin before it."""
    end: int
    """Offset after the last one to read; the last batch may end behind it."""
    append_times: Callable[[int, int], Sequence[AppendTimeStretch]] | None
    """Gives them in order, for offsets from the first up to the second; perhaps not those of
    batches that are stamped with LogAppendTime. Where a follower saw records whose append times are
    unknown, they are when it did (`is_seen`). None where nothing else is known."""
    aborted: Sequence[AbortedTransaction] | None = None
    """Aborted transactions among the batches, whose records are left out; None without any."""

    def walk(self) -> BatchWalk:
        """Yield the batches that have an offset from `start` to before `end`."""
        return BatchWalk(self.data, self.aborted, start=self.start, end=self.end)

    def walk_appended(self) -> Iterator[tuple[WalkedBatch, AppendTimeStretch]]:
        """Yield the batches of `walk`, each with the append time of its first record."""
        known: Sequence[AppendTimeStretch] = ()
        if self.append_times is not None:
            known = self.append_times(self.start, self.end)
        starts = [stretch.offset for stretch in known]
        for batch in self.walk():
            header = batch.header
            place = bisect_right(starts, max(self.start, header.base_offset)) - 1
            appended = known[place] if place >= 0 else AppendTimeStretch(header.base_offset, None)
            if appended.known_ms is None and header.timestamp_type is LOG_APPEND_TIME:
                appended = AppendTimeStretch(header.base_offset, header.max_timestamp)
            yield batch, appended
