"""Readers' view of the log of one partition: offsets, batches, and lookups by time.

Invariant: the tuple of segments is replaced, never mutated. A reader takes it once, and its
segments stay readable after retention has deleted them. Reads never go beyond the log end offset,
which advances only after a batch is completely in the file.

Any thread may read while one appends (logs/appendable.py).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.timestamps import AppendTimeStretch, TimeRange
from horolog.storage.batches.slices import Slice
from horolog.storage.directory.checkpoints import EpochStart
from horolog.storage.files import Files
from horolog.storage.logs.append_time_floor import AppendTimes
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.logs.view import LogView, segments_from
from horolog.storage.lookup.by_append_time import AppendedAt
from horolog.storage.lookup.by_timestamp import (
    LookupWay,
    TimestampOffset,
    find_by_timestamp,
    find_max_timestamp,
    offsets_before,
    way_to,
)
from horolog.storage.lookup.index_checks import IndexChecks
from horolog.storage.lookup.replay import replay_segments
from horolog.storage.lookup.time_ranges import TimeBlocks, TimeRanges, time_blocks, time_ranges
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import (
    CompletedTransaction,
    Producers,
    Unended,
    first_unread,
)
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.segment import Segment
from horolog.storage.validation.validate import MAX_UNCOMPRESSED_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """The parts of one log; each is open."""

    files: Files
    directory: str
    partition: TopicPartition
    config: TopicConfig
    segments: Sequence[Segment]
    """In offset order, at least one."""
    active: ActiveSegment
    """Appends to the last of them."""
    topic_id: UUID | None
    producers: Producers
    """Up to the log end offset."""
    epochs: LeaderEpochs
    append_times: AppendTimes
    leader_epoch: int = 0
    is_following: bool = False
    """The role of the log: whether it takes the batches of a source, and none of producers."""
    high_watermark: int | None = None
    """Up to where consumers read; None where that is the log end, as of a log without replicas."""
    log_start_offset: int = 0
    cleaner_point: int | None = None
    """All records before this offset were cleaned; None if it never was."""
    cleaning_to: int = 0
    """Offset in front of which a pass that did not end may have removed records."""
    recovery_point: int = 0
    """All records before this offset are flushed."""
    retention_exempt: bool = False
    """The log is adopted."""
    is_settled: bool = False
    """All files are as `Log.finish` leaves them."""
    is_in_doubt: bool = False
    """An earlier process has seen a sync fail, and none succeed since."""
    max_batch_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES
    """A lookup decompresses no more of one batch."""
    set_aside: Sequence[str] = ()
    """Names of files that recovery has set aside in the directory."""


class ReadableLog:
    """A log for readers.

    Only `Log` replaces the segments and the log start offset.

    Methods raise StorageFailed where the disk refuses.
    """

    __slots__ = (
        "_max_batch_bytes",
        "_name",
        "config",
        "ended",
        "epoch_start_offset",
        "epochs",
        "files",
        "first_open",
        "floor",
        "has_transactions",
        "index_checks",
        "is_following",
        "known_high_watermark",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "retention_exempt",
        "said_unended",
        "segments",
        "topic",
        "unended",
    )

    def __init__(self, parts: LogParts) -> None:
        self.topic, self.partition = self._name = parts.partition
        self.files = parts.files
        """The way to the disk, which logs share."""
        self.segments: tuple[Segment, ...] = tuple(parts.segments)
        """In offset order, never empty; replaced, never mutated."""
        self.log_start_offset = parts.log_start_offset
        """The first readable offset; at most the log end offset."""
        self.config = parts.config
        """The effective settings; replaced at any time."""
        self.retention_exempt = parts.retention_exempt
        """Adopted: no retention and no rolling by time."""
        self.leader_epoch = parts.leader_epoch
        """The epoch that appended batches get."""
        self.epoch_start_offset = parts.segments[-1].end.next_offset
        """Where its own epoch as a leader began: the log end when it became the leader."""
        self.epochs = parts.epochs
        """The start offsets of all leader epochs in the log."""
        self.floor = parts.append_times
        self.is_following = parts.is_following
        """The role of the log: whether it takes the batches of a source, and none of producers."""
        self.known_high_watermark = parts.high_watermark  # None where it is the log end
        # The writer replaces both, a transaction that ends in `ended` first. A reader takes them in
        # the other order, so that it always finds the transaction in one of them.
        self.first_open: int | None = None
        self.ended: tuple[CompletedTransaction, ...] = ()
        """Transactions whose markers may be at or behind the high watermark."""
        # Transactions that another broker left open, and that no marker will end.
        self.unended: tuple[Unended, ...] = ()
        if parts.retention_exempt:
            self.unended = tuple(Unended(*transaction) for transaction in parts.producers.unended())
        self.has_transactions = (
            self.is_following
            or any(segment.has_aborted for segment in self.segments)
            or bool(parts.producers.unended())
        )
        """Whether there may be an open or aborted transaction."""
        # Of a log that follows: what the source said of transactions without a marker, also of
        # those that are not here yet.
        self.said_unended: frozenset[Unended] = frozenset()
        self.index_checks = IndexChecks()
        self._max_batch_bytes = parts.max_batch_uncompressed_bytes

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will have."""
        return self.segments[-1].end.next_offset

    @property
    def high_watermark(self) -> int:
        """Offset up to which consumers read, because all replicas have these records.

        Without replicas it is the log end. Otherwise `Log.move_high_watermark` moves it.
        """
        end_offset, told = self.log_end_offset, self.known_high_watermark
        return end_offset if told is None or told > end_offset else told

    @property
    def last_stable_offset(self) -> int:
        """Offset up to which consumers of committed records read: no open transaction is before it.

        A transaction that another broker left open counts as committed or aborted. In a log that
        follows it counts so once the source has said so. If the first records of an open
        transaction were deleted, the offset is the log start.
        """
        stable, unstable = self.high_watermark, self.first_open
        ended = self.ended
        if ended:
            unstable = first_unread(ended, stable, unstable)
        return stable if unstable is None else min(stable, max(unstable, self.log_start_offset))

    @property
    def has_open_transactions(self) -> bool:
        """True while readers of committed records wait for the end of a transaction."""
        return self.first_open is not None

    def readable_end(self, *, committed: bool) -> int:
        """Return the end offset for a consumer, by its isolation level."""
        return self.last_stable_offset if committed else self.high_watermark

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    @property
    def is_empty(self) -> bool:
        """True if no record can be read, though deleted records may still be in the file."""
        return self.log_start_offset >= self.log_end_offset

    # Batches.

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        up_to: int | None = None,
    ) -> Slice:
        """Return the stretch of a file that answers a fetch from `offset`.

        It begins with the batch that holds the offset, or with the next one where
        compaction has left a gap, and ends within a segment, at the high watermark, or before the
        batch that holds the offset `up_to` (such as the last stable offset). Where
        a gap reaches to the log end, it is a batch without records that ends there: answered
        with nothing, a consumer would ask for the same offset for ever.

        Raises:
            RequestRefused: the offset is out of range (1).
            CorruptBatch: the file is damaged there.
        """
        return self.look().read(offset, max_bytes, min_one_batch=min_one_batch, up_to=up_to)

    def look(self, *, to_end: bool = False) -> LogView:
        """Return a view of the log as it is now, for all parts of one answer.

        Args:
            to_end: the reader is a replica. It reads to the log end, and batches of the log alone.
        """
        while True:
            segments, end_offset = self.segments, self.log_end_offset
            # First: the start is at most the high watermark, which may rise (KAFKA-7104).
            start, resets = self.log_start_offset, self.floor.resets
            has_limit = self.known_high_watermark is not None and not to_end
            high_watermark, stable = self.high_watermark, self.last_stable_offset
            unended = self.unended  # first: one that a marker ends meanwhile is in a segment then
            if segments is self.segments:  # else what was said may be of others
                break
        return LogView(
            self.files,
            self._name,
            segments,
            max(start, segments[0].base_offset),
            end_offset,
            high_watermark,
            min(stable, high_watermark),
            unended,
            self.has_transactions,
            has_limit,
            to_end,
            resets,
            self.config,
            self.retention_exempt,
            self._max_batch_bytes,
        )

    def replay(self, take: Callable[[Buffer], None]) -> Iterator[str]:
        """Pass each batch of the log to `take`, in order; see `replay_segments`."""
        return replay_segments(self.segments, self.log_start_offset, take)

    def replay_latest(self, take: Callable[[Buffer], None]) -> Iterator[str]:
        """Replay like `replay`, without superseded batches; see cleaning/latest.py.

        Loads the kernels that it needs first.
        """
        from horolog.record.cleaning import load_kernels  # noqa: PLC0415 - numpy, once it is needed
        from horolog.storage.cleaning.latest import replay_latest  # noqa: PLC0415 - the same

        load_kernels()
        return replay_latest(self.segments, self.log_start_offset, take)

    def is_news(self, said: Iterable[Unended]) -> bool:
        """Return True if the log was not yet told of all these transactions."""
        return not self.said_unended.issuperset(said)

    # Leader epochs.

    @property
    def earliest(self) -> EpochStart:
        """The log start offset and its leader epoch, -1 if that is not known.

        Where the log is empty, it is that of the record that comes next.
        """
        start = self.log_start_offset
        epoch = self.epochs.epoch_at(start)
        if start == self.log_end_offset:
            epoch = max(self.leader_epoch, epoch)
        return EpochStart(epoch, start)

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client whose leader epoch is not current; -1 means that it knows no epoch.

        Raises:
            RequestRefused: it is older (74) or newer (75) than the epoch of this leader.
        """
        if epoch in (-1, self.leader_epoch):
            return
        code = ErrorCode.unknown_leader_epoch
        if epoch < self.leader_epoch:
            code = ErrorCode.fenced_leader_epoch
        raise RequestRefused(code, f"{self} is led in epoch {self.leader_epoch}, not in {epoch}")

    def end_of_epoch(self, epoch: int) -> EpochStart | None:
        """Return the largest epoch up to `epoch`, and where the next one starts."""
        end_offset = self.log_end_offset  # first: what is appended later may be of a later epoch
        if epoch == self.leader_epoch:
            found: EpochStart | None = EpochStart(epoch, end_offset)
        else:
            found = self.epochs.end_offset_for(epoch, end_offset)
        if found is None:
            return None
        # A truncation shortens the log before it forgets epochs.
        return found._replace(start_offset=min(found.start_offset, self.log_end_offset))

    # Lookups by time.

    def append_time_ahead_ms(self, now_ms: int) -> int:
        """Return by how much the next append time would be ahead of the clock."""
        last_ms = self.floor.last
        if last_ms is None or self.is_empty:
            return 0
        return max(0, last_ms - now_ms)

    def find_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Find the record with the smallest offset at or after a timestamp."""
        start = self.log_start_offset
        segments = self.segments_from(start)
        if timestamp >= 0 and len(segments) > 1:
            times = self.index_checks.largest_times_of(segments[:-1])
            segments = segments[times.first_reaching(timestamp) :]
        found = find_by_timestamp(segments, timestamp, start, self._max_batch_bytes)
        return None if found is None or self._is_hidden(found.offset) else found

    def find_by_append_time(self, ms: int) -> AppendedAt | None:
        """Find the first record that was appended at or after `ms`.

        Append times decrease only at resets (`floor.resets`): behind a reset, records may have
        been appended before `ms` again.

        Raises:
            CorruptBatch: the log is damaged where it has to be read.
        """
        found = self.look().find_by_append_time(ms)
        return None if found is None or self._is_hidden(found.offset) else found

    def append_times(
        self, from_offset: int, to_offset: int, *, seen: bool = False
    ) -> list[AppendTimeStretch]:
        """Return the known append times of records, in order of offsets.

        With `seen` also when a follower saw those of which that is unknown.

        Raises:
            CorruptBatch: the log is damaged where append times have to be read from it.
        """
        return self.look().append_times(from_offset, to_offset, seen=seen)

    def way_to(self, timestamp: int) -> LookupWay:
        """Explain how `find_by_timestamp` finds its answer; it may wait for the disk."""
        start = self.log_start_offset
        return way_to(self.segments_from(start), timestamp, start, self._max_batch_bytes)

    def time_ranges(self, window: TimeRange, from_offset: int, limit: int) -> TimeRanges:
        """Return the offsets that may hold a record in a time window."""
        end_offset = self.high_watermark
        start = max(from_offset, self.log_start_offset)
        found = time_ranges(self.segments_from(start), window, start, end_offset, limit)
        if found.lacks_maps:
            self.index_checks.want_maps()
        return found

    def time_blocks(self, from_offset: int, limit: int, *, of_append: bool) -> TimeBlocks:
        """List the blocks from an offset on with the earliest time of each; see `time_ranges`."""
        end_offset = self.high_watermark
        start = max(from_offset, self.log_start_offset)
        found = time_blocks(
            self.segments_from(start), start, end_offset, limit, of_append=of_append
        )
        if found.lacks_maps:
            self.index_checks.want_maps()
        return found

    def offsets_before(self, ms: int, count: int, now_ms: int) -> list[int]:
        """Return base offsets of segments that were last changed at or before `ms`."""
        start = self.log_start_offset
        segments = self.segments_from(start)
        end_offset = self.high_watermark
        found = offsets_before(segments, ms, count, start, end_offset, now_ms)
        return [offset for offset in found if offset <= end_offset]

    def find_max_timestamp(self, *, committed: bool = False) -> TimestampOffset | None:
        """Find the first record with the largest timestamp.

        In a cluster only what a consumer of the isolation level can read counts, so that all
        replicas find the same.
        """
        start, end_offset = self.log_start_offset, None
        if self.known_high_watermark is not None:
            end_offset = self.readable_end(committed=committed)
        segments = self.segments_from(start)
        self.index_checks.need_no_check(segments[:-1])
        found = find_max_timestamp(segments, start, self._max_batch_bytes, end_offset)
        return None if found is None or self._is_hidden(found.offset) else found

    @property
    def wants_index_check(self) -> bool:
        """True if lookups use indexes that `check_indexes` has not checked yet."""
        return self.index_checks.are_due

    def check_indexes(self) -> bool:
        """Check the next unsealed indexes against their log; return whether more remain.

        May run at any time, in another thread; reads all batch headers of one segment.
        """
        return self.index_checks.check_next(self.segments[:-1])

    def _is_hidden(self, offset: int) -> bool:
        """Return True if an offset is not yet readable for consumers."""
        return self.known_high_watermark is not None and offset >= self.high_watermark

    def segments_from(self, offset: int) -> tuple[Segment, ...]:
        """Return the segment with an offset, and all later segments."""
        return segments_from(self.segments, offset)
