"""Measures the lag of consumer groups: in offsets, records, time, and records that will be lost.

    committed      start                  end
    ────┼────────────┼─────────────────────┼──
        │   lost     │    unread           │       offsets behind: from committed to end
                     │ first unread

**Lag in time.** By append time it is the age of the first unread record. By create time it is the
age of the oldest record among the unread ones, not of the first: behind it older ones may follow
(KIP-33).

**Retention.** Unread records count as lost if retention deletes them before the group reaches them
at its recent pace. A group of unknown pace counts as standing still. Later appends are not
considered.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.scheduling.turns import TimeSlice
from horolog.clock import Clock
from horolog.config import LONG_MAX, TopicConfig
from horolog.groups.offsets import CommittedOffsets
from horolog.offsets import commits_positions
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.logs.view import LogView, segments_from
from horolog.storage.removal.retention_report import SegmentRetention
from horolog.wire.questions import GroupPartitionLag, LagClock

SAMPLE_INTERVAL_MS: Final = 30_000
_SAMPLES: Final = 3
_IN_A_SLICE: Final = 100
_MOST_SAMPLED: Final = 200_000  # committed offsets; clients choose how many there are


class Key(NamedTuple):
    """A group and a partition that it has committed an offset of."""

    group: str
    topic: str
    partition: int


class Behind(NamedTuple):
    """Position of a group in a partition, at one moment."""

    key: Key
    committed: int
    start: int
    """Log start offset."""
    end: int
    """End of the readable records: the high watermark, or the last stable offset."""
    log: ReadableLog
    is_committed: bool
    """Whether it reads up to the last stable offset."""

    def at(self, view: LogView) -> "Behind":
        """Return the position at the moment of a view of its log."""
        end = view.last_stable_offset if self.is_committed else view.high_watermark
        return self._replace(start=view.log_start_offset, end=end)

    @property
    def offsets(self) -> int:
        """Lag in offsets, as Kafka's tools count it: lost ones included."""
        return max(0, self.end - self.committed)

    @property
    def lost(self) -> int:
        """Offsets that were deleted before the group read them."""
        return max(0, min(self.start, self.end) - self.committed)

    @property
    def first_unread(self) -> int:
        """First offset to read, if that is before `end`."""
        return max(self.committed, self.start)

    @property
    def has_unread(self) -> bool:
        """True if there is anything to read."""
        return self.first_unread < self.end


class Paces(NamedTuple):
    """Recent paces in records a millisecond of the clock; None if unknown."""

    commits: float | None
    appends: float | None

    def catch_up_ms(self, behind: int) -> int | None:
        """Return the time until the group reaches the end; None if never, or if unknown."""
        if not behind:
            return 0
        if self.commits is None or self.appends is None or self.commits <= self.appends:
            return None
        return round(behind / (self.commits - self.appends))


class Doomed(NamedTuple):
    """Unread records that retention deletes."""

    records: int = 0
    first_ms: int | None = None
    """Deletion time of the first of them in milliseconds; a past time means the next check."""


class _Sample(NamedTuple):
    now_ms: int
    committed: dict[Key, int]
    ends: dict[tuple[str, int], int]


class GroupLags:
    """Lags of a broker's groups.

    For the event loop's thread only.

    What may wait for the disk are functions of this module that any thread may call.
    """

    def __init__(self, partitions: Partitions, offsets: CommittedOffsets, clock: Clock) -> None:
        self._partitions = partitions
        self._offsets = offsets
        self._clock = clock
        self._samples: list[_Sample] = []

    def behind(
        self, groups: Iterable[str] | None = None, *, committed: bool = False
    ) -> Iterator[Behind]:
        """Yield the positions of groups in served partitions; of all readers if no group is named.

        Args:
            groups: their ids; one without committed offsets is in no partition.
            committed: the groups read up to the last stable offset.
        """
        for group in self._readers() if groups is None else groups:
            for (topic, index), row in self._offsets.of_group(group).items():
                partition = self._partitions.find(topic, index)
                if partition is not None:
                    key = Key(group, topic, index)
                    yield _behind(key, row.committed, partition, committed_only=committed)

    async def behind_in(self, partition: Partition, turns: TimeSlice) -> AsyncIterator[Behind]:
        """Yield the positions of all reading groups in one partition.

        Raises:
            ClientGone: as of `turns`.
        """
        where = partition.topic, partition.index
        for number, group in enumerate(self._readers()):
            if number % _IN_A_SLICE == 0:
                await turns.checkpoint()
            row = self._offsets.get(group, *where)
            if row is not None:
                key = Key(group, *where)
                yield _behind(key, row.committed, partition, committed_only=False)

    def _readers(self) -> Iterator[str]:
        return filter(commits_positions, self._offsets.group_ids())

    def paces(self, behind: Behind) -> Paces:
        """Return the paces of the group and the partition since the oldest sample of both."""
        now_ms, key = self._clock.now_ms(), behind.key
        for sample in self._samples:
            elapsed_ms, before = now_ms - sample.now_ms, sample.committed.get(key)
            end = sample.ends.get(key[1:])
            if elapsed_ms > 0 and before is not None and end is not None:
                return Paces(
                    max(0, behind.committed - before) / elapsed_ms,
                    max(0, behind.end - end) / elapsed_ms,
                )
        return Paces(None, None)

    async def sample(self) -> None:
        """Sample the positions of groups and logs, for `paces`."""
        turns, sample = TimeSlice(), _Sample(self._clock.now_ms(), {}, {})
        for number, position in enumerate(islice(self.behind(), _MOST_SAMPLED)):
            sample.committed[position.key] = position.committed
            sample.ends[position.key[1:]] = position.end
            if number % _IN_A_SLICE == 0:
                await turns.pause()
        self._samples = [*self._samples[1 - _SAMPLES :], sample]


def _behind(key: Key, committed: int, partition: Partition, *, committed_only: bool) -> Behind:
    log = partition.log
    end = log.last_stable_offset if committed_only else log.high_watermark
    return Behind(key, committed, log.log_start_offset, end, log, committed_only)


def partition_lag(behind: Behind, paces: Paces, clock: LagClock, now_ms: int) -> GroupPartitionLag:
    """Measure the lag of a group in a partition.

    Any thread may ask; it may wait for the disk.

    Args:
        behind: position of the group; the log is looked at again, at one moment.
        clock: create times or append times, for the lag in time.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    view = behind.log.look()
    behind = behind.at(view)
    first, end = behind.first_unread, behind.end
    found = unknown_lag(behind, paces, clock)
    if not behind.has_unread:
        return found._replace(records_behind=0)
    aborted = view.aborted_transactions(first, end) if behind.is_committed else []
    unread, record = view.unread(first, end, aborted), view.first_record(first, end, aborted)
    if record is None or unread.records == 0:  # but markers, and what was aborted
        return found._replace(records_behind=0, lag_ms=0, catch_up_ms=0, unread_deleted=0)
    deleted = doomed(behind, deletions(view, first, now_ms), paces.commits, now_ms, view)
    since_ms = unread.oldest_create_ms if clock is LagClock.CREATE else append_time_of(view, record)
    return found._replace(
        records_behind=unread.records,
        lag_ms=None if since_ms is None else min(max(0, now_ms - since_ms), LONG_MAX),
        unread_deleted=deleted.records,
        first_deleted_ms=deleted.first_ms,
    )


def unknown_lag(behind: Behind, paces: Paces, clock: LagClock) -> GroupPartitionLag:
    """Return the lag of a log that cannot be read."""
    return GroupPartitionLag(
        *behind.key,
        behind.committed,
        behind.start,
        behind.end,
        behind.offsets,
        None,
        behind.lost,
        None if behind.has_unread else 0,
        clock,
        paces.catch_up_ms(max(0, behind.end - behind.first_unread)),
        paces.commits is not None,
        None if behind.has_unread else 0,
        None,
    )


def append_time_of(log: ReadableLog | LogView, offset: int) -> int | None:
    """Return the append time of the record at or after an offset; None if it is unknown.

    Any thread may ask; it may wait for the disk.

    Raises:
        StorageFailed, CorruptBatch: as `ReadableLog.append_times`.
    """
    found = log.append_times(offset, offset + 1)
    return found[0].ms if found else None


def deletions(
    view: LogView, first_unread: int, now_ms: int, config: TopicConfig | None = None
) -> list[SegmentRetention]:
    """Report retention of the segments with unread records; see `retention_report`."""
    base_offset = segments_from(view.segments, first_unread)[0].base_offset
    return list(view.retention_report(now_ms, config, first_offset=base_offset))


def doomed(
    behind: Behind,
    segments: Sequence[SegmentRetention],
    pace: float | None,
    now_ms: int,
    view: LogView | None = None,
) -> Doomed:
    """Count the unread records that these segments lose before the group, at its pace, reads them.

    They are counted by the block maps of a view, or by offsets where no block map counts them. Any
    thread may call it.

    Raises:
        StorageFailed: the disk refused.
    """
    records, first_ms = 0, None
    for segment in segments:
        if segment.goes_ms is None:
            break  # what follows stays as long
        read_to = behind.first_unread + int((pace or 0) * max(0, segment.goes_ms - now_ms))
        first = max(segment.base_offset, read_to)
        last = behind.end if segment.is_active else min(segment.end_offset, behind.end)
        if first >= last:
            continue
        count = None if view is None else view.unread(first, last).records
        records += last - first if count is None else count
        first_ms = segment.goes_ms if first_ms is None else first_ms
    return Doomed(records, first_ms)
