"""Records in the order of their times as Python objects, for commands; no Arrow."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from horolog.errors import Damaged, StorageFailed
from horolog.record.timestamps import NO_TIMESTAMP, RecordClock
from horolog.sources.ordered import Overlap, TimedStretch, WithoutTime, in_order, untimed_refused
from horolog.sources.plan import Stretch
from horolog.sources.records import ReadRecord, RecordLog
from horolog.storage.names import TopicPartition

__all__ = ["OrderedRecords"]

PlacedRecord: TypeAlias = tuple[TopicPartition, ReadRecord]
"""A record with its partition."""

_RECORD_BYTES: Final = 400
"""Bytes that a record takes beside its key, value and headers."""
_HEADER_BYTES: Final = 150
"""Bytes that a header takes beside its key and value."""


class OrderedRecords:
    """The records of a log in the order of their times by one clock.

    Args:
        log: the log; it does not read ahead.
        clock: the clock of the order.
        memory: how many bytes of records that overlap in time may be held.
        without_time: the place of records that have no time by the clock.
        on_damage: called once for each partition that is damaged; what is before the damage in a
            block is given out, and no other block of the partition is read.
        on_looked: called with the number of offsets whose times are found, before the first record.
    """

    def __init__(
        self,
        log: RecordLog,
        clock: RecordClock,
        *,
        memory: int,
        without_time: WithoutTime,
        on_damage: Callable[[TopicPartition, Damaged | StorageFailed], None],
        on_looked: Callable[[int], None] = lambda offsets: None,
    ) -> None:
        self._log = log
        self._clock = clock
        self._memory = memory
        self._without_time = without_time
        self._on_damage = on_damage
        self._on_looked = on_looked
        self._damaged: set[TopicPartition] = set()
        self._heap: list[tuple[int, TopicPartition, int, ReadRecord]] = []
        self._largest_ms: int | None = None
        self._given_ms: int | None = None
        self._until_ms: int | None = None
        self.size = 0
        """Bytes of the records that are held."""
        self.late = 0
        """Live records that were given out after later ones."""
        self.done = 0
        """Offsets that were read."""

    def read(
        self,
        stretches: Iterable[Stretch],
        *,
        untimed: Sequence[Stretch] | None = None,
        lateness_ms: int | None = None,
        until_ms: int | None = None,
    ) -> Iterator[PlacedRecord]:
        """Give out the records of stretches in order.

        Args:
            untimed: where to look for records without a time, if not in the same stretches.
            lateness_ms: of a log that is followed: what is not older than the latest record by so
                much is held back for `follow`; then records without a time come first, or never.
            until_ms: of a log that is followed exactly: what is not earlier is held back for
                `follow_complete`.
        """
        wanted = list(stretches)
        timed = self._log.timed(wanted, self._clock, self._memory, self._on_looked)
        if untimed is None or untimed == wanted:
            looked_through = timed
        else:
            looked_through = self._log.timed(untimed, self._clock, self._memory, self._on_looked)
        if self._without_time is not WithoutTime.LAST:
            yield from self._untimed(looked_through)
        self._until_ms = until_ms
        held_back: Callable[[], int] | None = None
        if lateness_ms is not None:
            held_back = partial(self._watermark, lateness_ms)
        elif until_ms is not None:
            held_back = partial(int, until_ms)
        yield from in_order(timed, self._records, self, self._memory, held_back=held_back)
        if self._without_time is WithoutTime.LAST:
            yield from self._untimed(looked_through)

    def follow(self, coming: Iterable[PlacedRecord], lateness_ms: int) -> Iterator[PlacedRecord]:
        """Give out records that are appended meanwhile, those in order that are not too late.

        A record that is older than one that was given out comes at once, and is counted in `late`.

        Raises:
            Overlap: more would have to be held.
        """
        for partition, read in coming:
            if self._holds_back(partition, read):
                yield from self.release(self._watermark(lateness_ms))
                if self.size > self._memory:
                    raise Overlap(self.size, self._memory)
            else:
                yield partition, read

    def follow_complete(
        self, coming: Iterable[tuple[int | None, Iterable[PlacedRecord]]]
    ) -> Iterator[PlacedRecord]:
        """Give out records that are appended meanwhile in their exact order.

        Each time comes with records, after which none comes that is earlier. Only where such a time
        was withdrawn a record may come too late; it is given out at once, and counted in `late`.

        Raises:
            Overlap: more would have to be held.
        """
        for until_ms, records in coming:
            for partition, read in records:
                if not self._holds_back(partition, read):
                    yield partition, read
                elif self.size > self._memory:
                    raise Overlap(self.size, self._memory)
            if until_ms is not None:
                self._until_ms = until_ms
                yield from self.release(until_ms)

    def _holds_back(self, partition: TopicPartition, read: ReadRecord) -> bool:
        """Hold a live record back for its place; return False if it has none any more."""
        ms = self.time_of(read)
        if ms is None:
            if self._without_time is WithoutTime.REFUSE:
                raise untimed_refused(str(partition), f"offset {read.offset}")
            return False
        if self._given_ms is not None and ms < self._given_ms:
            self.late += 1
            return False
        self._push(ms, partition, read)
        return True

    def time_of(self, read: ReadRecord) -> int | None:
        """Return the time that orders a record; None without one."""
        if self._clock is RecordClock.APPEND:
            return read.appended_ms
        ms = read.record.timestamp
        return None if ms == NO_TIMESTAMP else ms

    # As `ordered.Buffer`.

    def add(self, stretch: Stretch, item: ReadRecord) -> None:
        """Add a record, unless it has no time."""
        ms = self.time_of(item)
        if ms is not None:
            self._push(ms, stretch.partition, item)

    def release(self, before_ms: int | None) -> Iterator[PlacedRecord]:
        """Give out the records that are earlier than a time; all of them if that is None."""
        heap = self._heap
        if before_ms is not None:
            if self._until_ms is not None:
                before_ms = min(before_ms, self._until_ms)
            self._given_ms = max(before_ms, before_ms if self._given_ms is None else self._given_ms)
        while heap and (before_ms is None or heap[0][0] < before_ms):
            _, partition, _, read = heapq.heappop(heap)
            self.size -= _bytes_of(read)
            yield partition, read

    def _push(self, ms: int, partition: TopicPartition, read: ReadRecord) -> None:
        if self._largest_ms is None or ms > self._largest_ms:
            self._largest_ms = ms
        self.size += _bytes_of(read)
        heapq.heappush(self._heap, (ms, partition, read.offset, read))

    def _watermark(self, lateness_ms: int) -> int:
        return -(1 << 63) if self._largest_ms is None else self._largest_ms - lateness_ms

    def _untimed(self, timed: Iterable[TimedStretch]) -> Iterator[PlacedRecord]:
        for stretch, _, _, has_untimed in timed:
            for read in self._records(stretch) if has_untimed else ():
                if self.time_of(read) is not None:
                    continue
                if self._without_time is WithoutTime.REFUSE:
                    raise untimed_refused(str(stretch.partition), f"offset {read.offset}")
                yield stretch.partition, read

    def _records(self, stretch: Stretch) -> Iterator[ReadRecord]:
        if stretch.partition in self._damaged:
            return
        try:
            for _, records in self._log.read(stretch):
                yield from records
        except (Damaged, StorageFailed) as error:
            self._damaged.add(stretch.partition)
            self._on_damage(stretch.partition, error)
        self.done += stretch.end - stretch.start


def _bytes_of(read: ReadRecord) -> int:
    record = read.record
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_BYTES + len(name) + len(value or b"")
    return size
