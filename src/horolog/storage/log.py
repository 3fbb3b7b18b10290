"""The log of one partition: segments, offsets, and lookups by time.

One writer at a time (ensured by the caller, and asserted), any number of readers. The tuple of
segments is replaced, never mutated: a reader takes it once, and its segments stay readable after
retention has deleted them. Reads never go beyond the log end offset, which advances only after a
batch is completely in the file.

Only `flush`, and appends that `append_nowait` declines, wait for the disk. Follow-up work is
returned to the caller: a flush after a roll, the removal of files after a deletion.
"""

import logging
import os
import random
import threading
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import UUID

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused, StorageFailed
from horolog.record.batch import restamp
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP
from horolog.storage import names, retention
from horolog.storage.active_segment import ActiveSegment, Arrival
from horolog.storage.append_time_file import Stretch
from horolog.storage.append_time_lookup import (
    AppendedAt,
    append_times,
    find_by_append_time,
    with_ends,
)
from horolog.storage.append_times import AppendTimes
from horolog.storage.attempts import Repeat
from horolog.storage.checkpoints import AppendTimeReset
from horolog.storage.epochs import NO_EPOCH, LeaderEpochs
from horolog.storage.files import Files, SyncFailed
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.index.blocks import Window
from horolog.storage.leftovers import base_offsets
from horolog.storage.lookup import (
    LargestTimes,
    LookupWay,
    TimestampOffset,
    find_by_timestamp,
    find_max_timestamp,
    offsets_before,
    way_to,
)
from horolog.storage.names import TopicPartition
from horolog.storage.producer_replay import replay
from horolog.storage.producers import Producers, WrittenBatch, remove_snapshot
from horolog.storage.retention import expired_ms
from horolog.storage.segment import Segment
from horolog.storage.set_aside import set_aside_of
from horolog.storage.slices import Slice
from horolog.storage.time_ranges import TimeRanges, time_ranges
from horolog.storage.validate import MAX_UNCOMPRESSED_BYTES, Prepared

_PIECE_BYTES = 8 << 20
_CHECKED_INLINE_BYTES = 64 << 20  # of log whose headers a lookup reads before it answers

_logger = logging.getLogger(__name__)


class Appended(NamedTuple):
    """What became of a batch."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 on a CreateTime topic; of a duplicate, the largest timestamp of the original."""
    log_start_offset: int
    rolled: bool
    """The segments before the active one need a `flush_rolled`, which may be in another thread."""
    duplicate: bool
    ahead_ms: int
    """How far the append time is ahead of the clock, because the clock went back."""
    records_ahead_ms: int
    """How far the latest record is ahead of the clock; 0 where append times replace theirs."""
    size: int
    """Bytes of the batch."""
    expired_ms: int = 0
    """For how long the latest record would have been deleted by `retention.ms` already."""


class DeletedSegment(NamedTuple):
    """A segment that retention took away, and why."""

    base_offset: int
    size: int
    reason: str


class Log:
    """See the module. `config` and `leader_epoch` may be replaced at any time."""

    def __init__(
        self,
        files: Files,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        segments: Sequence[Segment],
        active: ActiveSegment,
        *,
        topic_id: UUID | None,
        producers: Producers,
        epochs: LeaderEpochs,
        append_times: AppendTimes,
        leader_epoch: int = 0,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        retention_exempt: bool = False,
        is_settled: bool = False,
        is_in_doubt: bool = False,
        max_batch_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
        set_aside: Sequence[str] = (),
    ) -> None:
        self.topic, self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.directory = directory
        self.segments: tuple[Segment, ...] = tuple(segments)
        """In offset order, never empty; replaced, never mutated."""
        self.active = active
        """Appends to the last segment."""
        self.log_start_offset = log_start_offset
        """The first readable offset; at most the log end offset."""
        self.recovery_point = recovery_point
        """All records before this offset are flushed."""
        self.leader_epoch = leader_epoch
        """The epoch that appended batches get."""
        self.epochs = epochs
        """The start offsets of all leader epochs in the log."""
        self.producers = producers
        """The state of idempotent producers, up to the log end offset."""
        self._unended = producers.unended()
        self._largest_times = LargestTimes(())  # only of segments with a valid seal
        self._wants_maps = False  # a search for a time has met segments without block maps
        self.wants_index_check = False
        """Whether lookups use indexes that `check_indexes` has not checked yet."""
        self.retention_exempt = retention_exempt
        """Adopted: no retention and no rolling by time."""
        self._append_times = append_times
        self._files = files
        self.is_in_doubt = is_in_doubt
        """Whether a flush failed: appends are refused until one succeeds."""
        self._max_batch_bytes = max_batch_uncompressed_bytes
        self._is_settled = is_settled  # all files are as `close` leaves them
        self._flushed_ms: int | None = None
        self._new_names = True
        self._to_remove: list[tuple[int, str]] = []
        self._set_aside = list(set_aside)  # names of files that recovery set aside
        self._writing = threading.Lock()
        self._flushing = threading.Lock()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will have."""
        return self.segments[-1].end.next_offset

    @property
    def start_epoch(self) -> int:
        """The leader epoch at the log start offset, -1 if it is not known.

        Where the log is empty, that of the record that comes next.
        """
        start = self.log_start_offset
        epoch = self.epochs.epoch_at(start)
        return self.leader_epoch if epoch == NO_EPOCH and start == self.log_end_offset else epoch

    @property
    def high_watermark(self) -> int:
        """Consumers read up to here: all replicas have it. Without replicas, the log end offset."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Consumers of committed records read up to here: no transaction is open before it.

        The high watermark, since none is begun here, and one that another broker left open
        counts as aborted or committed (`aborted_transactions`).
        """
        return self.high_watermark

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_append_time_ms(self) -> int | None:
        """The last append time that was given out; no later record gets an earlier one."""
        return self._append_times.last

    @property
    def append_time_resets(self) -> tuple[AppendTimeReset, ...]:
        """Where append times were lowered, in order of offsets."""
        return self._append_times.resets

    def append_time_ahead_ms(self, now_ms: int) -> int:
        """How far ahead of the clock the next record would be stamped; 0 if it would not be."""
        last_ms = self._append_times.last
        if last_ms is None or self.is_empty:
            return 0
        return max(0, last_ms - now_ms)

    @property
    def is_empty(self) -> bool:
        """Whether no record can be read, though deleted ones may still be in the file."""
        return self.log_start_offset >= self.log_end_offset

    # Appending.

    def append(self, prepared: Prepared, now_ms: int) -> Appended:
        """Give a batch its offsets, and its append time where the topic wants that; write it.

        Raises:
            BatchRefused: an idempotent producer is out of sequence (45) or fenced (47); an attempt
                of an exactly-once sink differs from an earlier one (`Attempts.find_repeat`).
            StorageFailed: the disk refused. The log is as it was, unless it was the flush that
                `flush.messages` asks for: then the batch is in the log, as in Kafka, and a retry
                of it is refused like everything else until a flush succeeds.
        """
        appended = self._append(prepared, now_ms, nowait=False)
        assert appended is not None
        return appended

    def append_nowait(self, prepared: Prepared, now_ms: int) -> Appended | None:
        """Append without blocking; None, without any effect, if it must open or sync files."""
        return self._append(prepared, now_ms, nowait=True)

    def _append(self, prepared: Prepared, now_ms: int, *, nowait: bool) -> Appended | None:
        if not self._writing.acquire(blocking=False):
            raise AssertionError(f"two writers of {self} at a time")
        try:
            return self._append_alone(prepared, now_ms, nowait)
        finally:
            self._writing.release()

    def _append_alone(self, prepared: Prepared, now_ms: int, nowait: bool) -> Appended | None:
        self._refuse_in_doubt()
        header = prepared.header
        if header.producer_id >= 0:
            # Before any roll, which in Kafka even a duplicate may cause.
            written: WrittenBatch | Repeat | None
            if prepared.digest is None:
                written = self.producers.find_duplicate(header)
            else:
                written = self.producers.attempts.find_repeat(header, prepared.digest)
            if written is not None:
                return Appended(
                    written.base_offset,
                    written.last_offset,
                    written.timestamp,
                    self.log_start_offset,
                    rolled=False,
                    duplicate=True,
                    ahead_ms=0,
                    records_ahead_ms=prepared.ahead_ms,
                    size=header.size,
                )
        active = self.active
        append_time = self._append_times.next(now_ms)
        base_offset = active.segment.end.next_offset
        resets = append_time > now_ms and self.log_start_offset >= base_offset
        is_ready = active.is_ready
        if nowait and (resets or not is_ready):
            return None
        if resets:  # no record that can be read carries the floor
            self._reset_append_time(now_ms)
            active, append_time = self.active, now_ms
        if resets or not is_ready:
            self._is_settled = False
            active.make_ready(append_time)
        stamps = prepared.timestamp_type is LOG_APPEND_TIME
        timestamp = append_time if stamps else prepared.max_timestamp
        last_offset = base_offset + header.last_offset_delta
        flushes = last_offset + 1 - self.recovery_point >= self.config.flush_messages
        size = header.size
        rolled = self._must_roll(active, size, last_offset, timestamp, append_time, now_ms)
        epoch = self.leader_epoch
        is_new_epoch = self.epochs.latest != epoch
        if nowait and (rolled or flushes or is_new_epoch):
            return None
        self._is_settled = False
        if rolled:
            self._roll(now_ms)
            active = self.active
            active.make_ready(append_time)
        rolled |= resets
        if is_new_epoch:
            self.epochs.assign(epoch, base_offset)
        stamped = restamp(
            header,
            prepared.batch,
            base_offset=base_offset,
            leader_epoch=epoch,
            timestamp_type=prepared.timestamp_type,
            max_timestamp=timestamp,
        )
        arrival = Arrival(prepared.facts, append_time, stamps)
        active.append(stamped, prepared.records, last_offset, timestamp, arrival)
        self._append_times.gave(append_time)
        if prepared.digest is not None:
            attempts = self.producers.attempts
            attempts.update(header, prepared.digest, last_offset, timestamp)
        elif header.producer_id >= 0:
            self.producers.update(header, last_offset, timestamp, now_ms)
        if flushes:
            self.flush()
        return Appended(
            base_offset,
            last_offset,
            timestamp if stamps else NO_TIMESTAMP,
            self.log_start_offset,
            rolled,
            False,
            append_time - now_ms,
            prepared.ahead_ms,
            size,
            0
            if stamps or now_ms - timestamp <= self.config.retention_ms or self.retention_exempt
            else expired_ms(self.config, timestamp, now_ms),
        )

    def _must_roll(
        self,
        active: ActiveSegment,
        size: int,
        last_offset: int,
        timestamp: int,
        append_time: int,
        now_ms: int,
    ) -> bool:
        """Whether a batch of this size, last offset and largest timestamp begins a segment."""
        end, config = active.segment.end, self.config
        if end.size == 0:
            return False
        if end.next_offset == self._append_times.reset_offset:
            return True  # its records are from before the reset
        if not active.has_room(size, last_offset, config.segment_bytes, append_time):
            return True
        return (
            not self.retention_exempt
            and (
                active.waited_ms(timestamp, now_ms)
                if config.horolog_roll_by == "first-time"
                else active.age_ms(config.horolog_roll_by, timestamp, append_time, now_ms)
            )
            > config.segment_ms - active.jitter_ms
        )

    def _roll_idle(self, now_ms: int) -> None:
        """Roll the active segment if its time is over, though nothing is appended."""
        active, config = self.active, self.config
        if self.retention_exempt or not config.horolog_roll_idle or not active.segment.size:
            return
        age_ms = active.age_ms(config.horolog_roll_by, now_ms, now_ms, now_ms)
        if age_ms > config.segment_ms - active.jitter_ms:
            self._roll(now_ms)

    def roll(self, now_ms: int) -> None:
        """Finish the active segment, if it holds anything, and begin another."""
        with self._exclusively():
            if self.segments[-1].size:
                self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        self._is_settled = False
        self.active.finish()
        base_offset = self.log_end_offset
        self._append_times.save()
        self.producers.write(self._files, self.directory, base_offset)
        active = new_segment(self._files, self.directory, base_offset, self.config, now_ms)
        self._new_names = True
        self.active = active
        self.segments = (*self.segments, active.segment)

    def reset_append_time(self, now_ms: int) -> AppendTimeReset | None:
        """Lower the append time of the records to come to the clock; None if it is not ahead.

        The active segment is rolled and flushed first, and the reset is on the disk when this
        returns. Lookups by time need not know of it: they ask each segment for its largest.

        Raises:
            StorageFailed: the disk refused; the append time is as it was.
        """
        with self._exclusively():
            self._refuse_in_doubt()
            last_ms = self._append_times.last
            if last_ms is None or last_ms <= now_ms:
                return None
            return self._reset_append_time(now_ms, flush=True)

    def _reset_append_time(self, now_ms: int, *, flush: bool = False) -> AppendTimeReset:
        if self.segments[-1].size:
            self._roll(now_ms)
        if flush:
            self.flush_rolled()
        return self._append_times.reset(self.log_end_offset, now_ms)

    def _refuse_in_doubt(self) -> None:
        if self.is_in_doubt:
            raise StorageFailed(
                f"{self} takes nothing: a flush failed, and what was written is not known to be on "
                "the disk. It is written again until a flush succeeds"
            )

    # Reading.

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        up_to: int | None = None,
    ) -> Slice:
        """The stretch of a file that a fetch from `offset` is answered with.

        It begins with the batch that holds the offset, or with the next one where
        compaction has left a gap, and ends within a segment, at the log end, or before the
        batch that holds the offset `up_to` (the high watermark or last stable offset).

        Raises:
            RequestRefused: the offset is out of range (1).
            CorruptBatch: the file is damaged there.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise RequestRefused(
                ErrorCode.offset_out_of_range,
                f"Received request for offset {offset} for partition {self}, but we only have log "
                f"segments in the range {self.log_start_offset} to {end_offset}.",
            )
        before = up_to if up_to is not None and up_to < end_offset else None
        if offset < end_offset and (before is None or offset < before):
            for segment in self._from(offset):
                found = segment.slice(offset, max_bytes, min_one_batch=min_one_batch, before=before)
                if found is not None:
                    return found
        return Slice(self._files, None, 0, 0)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that reach into `[offset, end_offset)`.

        A transaction that was open when its broker stopped for good has no producer left that could
        end it; it counts as aborted unless its commit was decided (`take_as_committed`), and so
        everything up to the log end is stable.
        """
        found = [entry for segment in self.segments for entry in segment.aborted()]
        found += [
            AbortedTxn(producer_id, first_offset, end_offset, end_offset)
            for producer_id, first_offset in self._unended
        ]
        return [e for e in found if e.last_offset >= offset and e.first_offset < end_offset]

    @property
    def has_open_transactions(self) -> bool:
        """Whether there are any that count as aborted though no marker says so."""
        return bool(self._unended)

    def take_as_committed(self, producer_ids: Container[int]) -> None:
        """The open transactions of these producers are committed; only markers are missing."""
        self._unended = tuple(one for one in self._unended if one[0] not in producer_ids)

    def find_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The record with the smallest offset that is at or after a moment; see lookup.py."""
        start = self.log_start_offset
        segments = self._from(start)
        if timestamp >= 0 and len(segments) > 1:
            times = self._largest_times_of(segments[:-1])
            segments = segments[times.first_reaching(timestamp) :]
        return find_by_timestamp(segments, timestamp, start, self._max_batch_bytes)

    def find_by_append_time(self, ms: int) -> AppendedAt | None:
        """The first record that was appended at or after `ms`; see append_time_lookup.py.

        Append times never go back but at `append_time_resets`: behind one, records may have been
        appended before `ms` again.

        Raises:
            StorageFailed: the disk refused.
            CorruptBatch: the log is damaged where it has to be read.
        """
        start = self.log_start_offset
        resets = {reset.offset for reset in self.append_time_resets}
        return find_by_append_time(self._from(start), ms, start, resets)

    def append_times(self, from_offset: int, to_offset: int) -> list[Stretch]:
        """When the records of these offsets were appended, as far as that is known, in order.

        Raises:
            StorageFailed: the disk refused.
            CorruptBatch: the log is damaged where append times have to be read from it.
        """
        found: list[Stretch] = []
        for segment, end_offset, size in with_ends(self._from(from_offset)):
            first, last = max(from_offset, segment.base_offset), min(to_offset, end_offset)
            if first < last:
                found += append_times(segment, first, last, size)
        return found

    def append_times_within(self, offset: int, size: int) -> list[Stretch]:
        """The same for the batches in so many bytes, from the one on that holds an offset.

        Raises:
            StorageFailed, CorruptBatch: as `append_times`.
        """
        for segment, end_offset, log_size in with_ends(self._from(offset)):
            found = segment.locate(offset)
            if found is None:
                continue
            start, end = found[0], offset
            for position, header in segment.headers(start, log_size):
                if position - start >= size:
                    break
                end = header.next_offset
            return append_times(segment, offset, min(end, end_offset), log_size)
        return []

    def way_to(self, timestamp: int) -> LookupWay:
        """How `find_by_timestamp` finds its answer; it may wait for the disk."""
        start = self.log_start_offset
        return way_to(self._from(start), timestamp, start, self._max_batch_bytes)

    def time_ranges(self, window: Window, from_offset: int, limit: int) -> TimeRanges:
        """The offsets from one on that may hold a record of a time; see time_ranges.py.

        Raises:
            StorageFailed: the disk refused.
        """
        end_offset = self.high_watermark
        start = max(from_offset, self.log_start_offset)
        found = time_ranges(self._from(start), window, start, end_offset, limit)
        if found.lacks_maps:
            self._wants_maps = self.wants_index_check = True
        return found

    def offsets_before(self, ms: int, count: int, now_ms: int) -> list[int]:
        """Where segments begin that were last changed at or before `ms`; see lookup.py."""
        start = self.log_start_offset
        segments = self._from(start)
        return offsets_before(segments, ms, count, start, self.log_end_offset, now_ms)

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; see lookup.py."""
        start = self.log_start_offset
        segments = self._from(start)
        self._need_no_check(segments[:-1])
        return find_max_timestamp(segments, start, self._max_batch_bytes)

    def _largest_times_of(self, finished: tuple[Segment, ...]) -> LargestTimes:
        times = self._largest_times
        if len(times.segments) != len(finished) or times.segments != finished:
            are_final = self._need_no_check(finished)  # asked first: it may change them
            times = LargestTimes(finished)
            if are_final:
                self._largest_times = times
        return times

    def _need_no_check(self, finished: Sequence[Segment]) -> bool:
        """Whether the indexes of these segments are proved, as far as that can be.

        Those of others are checked here if that is quick, else left to `check_indexes`: until
        then a lookup uses those entries that match their batches.
        """
        unproved = [s for s in finished if not s.indexes.need_no_check(s.size)]
        if sum(segment.size for segment in unproved) > _CHECKED_INLINE_BYTES:
            self.wants_index_check = True
            return False
        for segment in unproved:
            self._check_indexes_of(segment)
        return True

    def check_indexes(self) -> bool:
        """Check the next unsealed indexes against their log; return whether more remain.

        May run beside anything else, in another thread; reads all batch headers of one segment.

        Raises:
            StorageFailed: the disk refused.
        """
        for segment in self.segments[:-1]:
            if not segment.indexes.need_no_check(segment.size):
                self._check_indexes_of(segment)
                return True
        for segment in self.segments[:-1] if self._wants_maps else ():
            if not segment.blocks.is_final(segment.size):
                segment.complete_blocks()
                return True
        self._wants_maps = self.wants_index_check = False
        return False

    def _check_indexes_of(self, segment: Segment) -> None:
        try:
            segment.indexes.check(segment.size)
        except CorruptBatch as error:
            _logger.warning("%s: its indexes cannot be checked: %s", segment.log.path, error)

    def _from(self, offset: int) -> tuple[Segment, ...]:
        """The segment that holds an offset, and all that follow."""
        segments = self.segments
        return segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1) :]

    # Flushing.

    def flush(self, up_to: int | None = None) -> None:
        """Wait until the disk has all records before `up_to`, by default all there are.

        May run beside appends, in another thread. After one that failed, the disk may have
        forgotten pages that memory still has, and would report success without writing them;
        so all from the recovery point on is first written again.

        Raises:
            StorageFailed: the disk refused; the recovery point stays where it was.
        """
        with self._flushing:
            if self.is_in_doubt:
                self._flush_again()
            active = self.segments[-1]
            target = self.log_end_offset if up_to is None else up_to
            if target <= self.recovery_point:
                return
            try:
                for segment in self._from(self.recovery_point):
                    if segment.base_offset < target:
                        segment.sync(indexes=segment is not active)
                self._sync_names()
            except SyncFailed:
                self.doubt()
                raise
            self.recovery_point = max(self.recovery_point, target)

    def _flush_again(self) -> None:
        """End the doubt, in pieces: where the disk still fails, that costs one of them."""
        self._new_names = True
        self._sync_names()
        for segment in self._from(self.recovery_point):
            point = max(self.recovery_point, segment.base_offset)
            while (written := segment.write_again(point, _PIECE_BYTES)) > point:
                segment.sync(indexes=False)
                self.recovery_point = point = written
        self._files.remove(self._sync_failed_path)
        self.is_in_doubt = False

    def doubt(self) -> None:
        """Record that a sync failed; the marker carries that state over a process restart."""
        self.is_in_doubt = True
        with suppress(StorageFailed):
            self._files.replace(self._sync_failed_path, b"", sync=False)

    @property
    def _sync_failed_path(self) -> str:
        return f"{self.directory}/{names.SYNC_FAILED}"

    def _sync_names(self) -> None:
        if self._new_names:
            self._new_names = False  # first, for a roll may come meanwhile
            try:
                self._files.sync_path(self.directory)
            except StorageFailed:
                self._new_names = True
                raise

    def flush_rolled(self) -> None:
        """Flush everything before the active segment, as Kafka does after a roll."""
        self.flush(self.segments[-1].base_offset)

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` have passed since a flush was last due, with something to flush."""
        if self.log_end_offset <= self.recovery_point:
            self._flushed_ms = now_ms
            return False
        if self._flushed_ms is None:
            self._flushed_ms = now_ms
        if now_ms - self._flushed_ms < self.config.flush_ms:
            return False
        self._flushed_ms = now_ms
        return True

    # Shortening.

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove the batch that holds `offset` and all that follow; nothing beyond the end.

        The log end is then the end of the last batch that stays, which is before `offset`
        where that was within a batch. (Kafka calls the offset itself the end, and has a gap.)
        """
        with self._exclusively():
            if offset >= self.log_end_offset:
                return
            self._is_settled = False
            self._append_times.save()  # what was cut off had been given out all the same
            kept = tuple(s for s in self.segments if s.base_offset < offset)
            dropped = self.segments[len(kept) :]
            if kept:
                active = active_segment(self._files, kept[-1], self.config, now_ms)
            else:
                active = new_segment(self._files, self.directory, offset, self.config, now_ms)
                kept = (active.segment,)
                dropped = tuple(s for s in dropped if s.base_offset != offset)
            self.active, self.segments = active, kept
            for segment in reversed(dropped):
                self._remove(segment)
            active.truncate_to(offset, now_ms)
            end_offset = self.log_end_offset
            self.recovery_point = min(self.recovery_point, end_offset)
            self.log_start_offset = min(self.log_start_offset, end_offset)
            self.epochs.truncate_from_end(end_offset)
            self._append_times.truncate(end_offset)
            present = os.listdir(self.directory)
            replay(
                self._files,
                self.directory,
                self.segments,
                self.producers,
                base_offsets(present, names.SNAPSHOT),
                base_offsets(present, names.ATTEMPTS),
                now_ms,
            )

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset` (-1: at the high watermark); the new log start.

        The records are gone at once for readers, their segments at the next retention.

        Raises:
            RequestRefused: the offset is out of range (1), or the topic does not delete (44).
        """
        if "delete" not in self.config.cleanup_policy:
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"Cannot delete records of {self}: its cleanup.policy does not contain delete",
            )
        end_offset = self.high_watermark
        if offset == -1:
            offset = end_offset
        if not 0 <= offset <= end_offset:
            raise RequestRefused(
                ErrorCode.offset_out_of_range,
                f"Cannot increment the log start offset to {offset} of partition {self} since it "
                f"is larger than the high watermark {end_offset}",
            )
        with self._exclusively():
            self._start_at(offset)
        return self.log_start_offset

    def deletable(self, now_ms: int) -> list[DeletedSegment]:
        """What retention would take away, and why; may run beside appends.

        Of a segment without a seal this walks all headers, and then seals it, so
        that `apply_retention`, which holds up appends, need not.
        """
        segments = self.segments
        if self.retention_exempt:
            return []
        reasons = retention.deletable(
            segments,
            self.config,
            self.log_start_offset,
            self.high_watermark,
            now_ms,
            self._append_times.resets,
        )
        return [
            DeletedSegment(segment.base_offset, segment.size, reason)
            for segment, reason in zip(segments, reasons, strict=False)
        ]

    def apply_retention(self, now_ms: int, monotonic_ms: int) -> list[DeletedSegment]:
        """Delete the segments that retention no longer keeps; which, and why.

        Their files are renamed at once; `remove_deleted` removes them `file.delete.delay.ms`
        after `monotonic_ms`.
        """
        with self._exclusively():
            self._roll_idle(now_ms)
            deleted = self.deletable(now_ms)
            if len(deleted) == len(self.segments):
                self._roll(now_ms)
            doomed = self.segments[: len(deleted)]
            # Readers lose sight of the segments before their files change names.
            self.segments = self.segments[len(deleted) :]
            self._start_at(self.segments[0].base_offset)
            for segment in doomed:
                due_ms = monotonic_ms + self.config.file_delete_delay_ms
                self._to_remove += [(due_ms, path) for path in segment.mark_deleted()]
                remove_snapshot(self._files, self.directory, segment.base_offset)
            return deleted + self._expire_set_aside(now_ms)

    def _expire_set_aside(self, now_ms: int) -> list[DeletedSegment]:
        """Remove what recovery set aside `retention.ms` ago; readers have none of it open."""
        limit_ms, removed = self.config.retention_ms, []
        if self.retention_exempt or limit_ms < 0 or "delete" not in self.config.cleanup_policy:
            return []
        for name in list(self._set_aside):
            path = f"{self.directory}/{name}"
            aside, size = set_aside_of(name), self._files.size(path)
            if self._files.exists(path) and aside is not None:
                age_ms = now_ms - self._files.modified_ms(path)
                if age_ms <= limit_ms:
                    continue
                self._files.remove(path)
                reason = f"recovery set {name} aside {age_ms} ms ago, retention.ms is {limit_ms}"
                removed.append(DeletedSegment(aside.base_offset, size, reason))
            self._set_aside.remove(name)
        return removed

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def _remove(self, segment: Segment) -> None:
        for path in segment.mark_deleted():
            self._files.remove(path)
        remove_snapshot(self._files, self.directory, segment.base_offset)

    @property
    def has_deleted_files(self) -> bool:
        """Whether `remove_deleted` has something to do, now or later."""
        return bool(self._to_remove)

    def remove_deleted(self, monotonic_ms: int) -> int:
        """Remove files of deleted segments whose `file.delete.delay.ms` has elapsed; how many."""
        removed = 0
        for due_ms, path in list(self._to_remove):
            if due_ms <= monotonic_ms:
                self._files.remove(path)
                self._to_remove.remove((due_ms, path))
                removed += 1
        return removed

    # Closing.

    def finish(self) -> list[str]:
        """Finish the files so that the next start need not look into them; those to be synced.

        No more appends follow. Call `finished` once the files are synced.

        Raises:
            StorageFailed: the disk refused; the next start must recover this log.
        """
        with self._exclusively(), self._flushing:
            if self.is_in_doubt:
                self._flush_again()
            active, end_offset, unsynced = self.active, self.log_end_offset, []
            if self.epochs.latest != self.leader_epoch > 0:
                # Clients have seen it; the next start must not lead in an older one.
                self.epochs.assign(self.leader_epoch, end_offset, sync=False)
                unsynced.append(self.epochs.path)
            if not self._is_settled:
                active.finish()
                self._append_times.save()
                if end_offset > 0:  # as Kafka, which snapshots nothing for nothing
                    self.producers.write(self._files, self.directory, end_offset)
                unsynced += active.segment.paths
            if self.recovery_point < end_offset:
                for segment in self._from(self.recovery_point):
                    unsynced += segment.paths
            if unsynced and self._new_names:
                unsynced.append(self.directory)
            return unsynced

    def finished(self) -> None:
        """The disk has all that `finish` named."""
        self._is_settled = True
        self._new_names = False
        self.recovery_point = self.log_end_offset

    def end_repairs(self) -> None:
        """Replace no index from here on, also where a thread is checking one: another may write."""
        for segment in self.segments:
            segment.indexes.abandon()

    def abandon(self) -> None:
        """Let go of the files of a log whose directory has another name now."""
        for segment in self.segments:
            segment.abandon()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        if not self._writing.acquire(blocking=False):
            raise AssertionError(f"two writers of {self} at a time")
        try:
            yield
        finally:
            self._writing.release()


def new_segment(
    files: Files, directory: str, base_offset: int, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """An empty segment to append to.

    Raises:
        StorageFailed: the disk refused.
    """
    return ActiveSegment.create(
        files, directory, base_offset, config, created_ms=now_ms, jitter_ms=_jitter_ms(config)
    )


def active_segment(
    files: Files, segment: Segment, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """A segment that is there, to be appended to."""
    return ActiveSegment(files, segment, config, created_ms=now_ms, jitter_ms=_jitter_ms(config))


def _jitter_ms(config: TopicConfig) -> int:
    """By how much earlier one segment ends: its share of `segment.jitter.ms`."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(bound) if bound > 0 else 0  # noqa: S311 - spreads rolls, no secret


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
