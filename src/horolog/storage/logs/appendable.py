"""A log that grows: append, roll, flush.

Invariant: one writer at a time, ensured by the caller, and asserted. What is appended is read only
once it is completely in the file, offsets and append times never go back, and a batch that is
refused leaves the log as it was.

Only `flush`, and appends that `append_nowait` declines, wait for the disk. Follow-up work is
returned to the caller: a flush after a roll.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, NoReturn

from horolog.errors import StorageFailed
from horolog.record.batch import restamp
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.index.counts import Counts
from horolog.storage.logs.flusher import Flusher
from horolog.storage.logs.parts import LogParts
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.logs.rolling import must_roll, new_segment
from horolog.storage.producers.attempts import Repeat
from horolog.storage.producers.states import WrittenBatch
from horolog.storage.removal.retention import expired_ms
from horolog.storage.segments.active import new_arrival
from horolog.storage.validation.validate import Prepared


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
    is_converted: bool = False
    """Whether the producer sent another record format than was stored."""
    new_producer: tuple[int, int] | None = None
    """Id and epoch of an idempotent producer whose first batch this is since the log was opened."""


# A named tuple's own `__new__` takes three times as long.
_new_appended = partial(tuple.__new__, Appended)


class AppendableLog(ReadableLog):
    """See the module."""

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.directory = parts.directory
        self.active = parts.active
        """Appends to the last segment."""
        self.producers = parts.producers
        """The state of idempotent producers, up to the log end offset."""
        self._flusher = Flusher(
            parts.files,
            parts.directory,
            recovery_point=parts.recovery_point,
            is_in_doubt=parts.is_in_doubt,
        )
        self._is_settled = parts.is_settled  # all files are as `finish` leaves them
        self._writing = threading.Lock()  # held while something is changed; never waited for

    @property
    def last_append_time_ms(self) -> int | None:
        """The last append time that was given out; no later record gets an earlier one."""
        return self._append_times.last

    @property
    def counts(self) -> Counts:
        """What was appended since the log was opened; it never shrinks. Any thread may ask."""
        return self.active.counts

    # Appending.

    def append(self, prepared: Prepared, now_ms: int) -> Appended:
        """Give a batch its offsets, and its append time on a LogAppendTime topic; write it.

        Raises:
            BatchRefused: an idempotent producer is out of sequence (45) or fenced (47); an attempt
                of an exactly-once sink differs from an earlier one (`Attempts.find_repeat`).
            StorageFailed: the disk refused. The log is as it was, unless it was the flush that
                `flush.messages` asks for: then the batch is in the log, as in Kafka, and a retry
                of it is refused like everything else until a flush succeeds.
        """
        with self._exclusively():
            appended = self._append(prepared, now_ms, nowait=False)
        assert appended is not None
        return appended

    def append_nowait(self, prepared: Prepared, now_ms: int) -> Appended | None:
        """Append without blocking; None, without any effect, if it must open or sync files."""
        if not self._writing.acquire(False):  # as `_exclusively`, which takes longer
            raise AssertionError(f"two writers of {self} at a time")
        try:
            return self._append(prepared, now_ms, nowait=True)
        finally:
            self._writing.release()

    def _append(self, prepared: Prepared, now_ms: int, *, nowait: bool) -> Appended | None:
        flusher = self._flusher
        if flusher.is_in_doubt:
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
        stamps, size, placed = prepared.timestamp_type is LOG_APPEND_TIME, header.size, None
        messages = prepared.messages
        if messages is not None:  # first, since it may be refused
            if nowait:
                return None
            stamped_ms = now_ms if resets else append_time
            placed = messages.placed(base_offset, stamped_ms if stamps else None)
            size = len(placed)
        if resets:  # no record that can be read carries the floor
            self._reset_append_time(now_ms)
            active, append_time = self.active, now_ms
        if resets or not is_ready:
            self._is_settled = False
            active.make_ready(append_time)
        timestamp = append_time if stamps else prepared.max_timestamp
        if messages is not None and not messages.has_times:
            timestamp = NO_TIMESTAMP
        last_offset = base_offset + header.last_offset_delta
        flushes = last_offset + 1 - flusher.recovery_point >= self.config.flush_messages
        rolled = must_roll(
            active,
            self.config,
            size,
            last_offset,
            timestamp,
            append_time,
            now_ms,
            reset_offset=self._append_times.reset_offset,
            by_time=not self.retention_exempt,
        )
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
        arrival = new_arrival((prepared.facts, append_time, stamps))
        if messages is None or placed is None:
            stamped = restamp(
                header,
                prepared.batch,
                base_offset=base_offset,
                leader_epoch=epoch,
                timestamp_type=prepared.timestamp_type,
                max_timestamp=timestamp,
            )
            active.append(stamped, prepared.records, last_offset, timestamp, arrival)
        else:
            arrival = messages.arrival(arrival)
            active.append_messages(placed, timestamp, last_offset, arrival)
        self._append_times.gave(append_time)
        new_producer = None
        if prepared.digest is not None:
            attempts = self.producers.attempts
            attempts.update(header, prepared.digest, last_offset, timestamp)
        elif header.producer_id >= 0:
            state = self.producers.update(header, last_offset, timestamp, now_ms)
            if not state.is_heard:
                state.is_heard, new_producer = True, (header.producer_id, state.epoch)
        if flushes:
            flusher.flush(self)
        appended: Appended = _new_appended(
            (
                base_offset,
                last_offset,
                append_time if stamps else NO_TIMESTAMP,
                self.log_start_offset,
                rolled,
                False,
                append_time - now_ms,
                prepared.ahead_ms,
                size,
                0
                if stamps or now_ms - timestamp <= self.config.retention_ms or self.retention_exempt
                else expired_ms(self.config, timestamp, now_ms),
                prepared.is_converted,
                new_producer,
            )
        )
        return appended

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
        active.count_from(self.active.counts)
        self._flusher.has_new_names = True
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
            if self.is_in_doubt:
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

    def _refuse_in_doubt(self) -> NoReturn:
        raise StorageFailed(
            f"{self} takes nothing: a flush failed, and what was written is not known to be on "
            "the disk. It is written again until a flush succeeds"
        )

    # Flushing.

    @property
    def recovery_point(self) -> int:
        """All records before this offset are flushed."""
        return self._flusher.recovery_point

    @property
    def is_in_doubt(self) -> bool:
        """Whether a flush failed: appends are refused until one succeeds."""
        return self._flusher.is_in_doubt

    def flush(self, up_to: int | None = None) -> None:
        """Wait until the disk has all records before `up_to`, by default all there are.

        May run while records are appended, in another thread.

        Raises:
            StorageFailed: the disk refused; the recovery point stays where it was.
        """
        self._flusher.flush(self, up_to)

    def flush_rolled(self) -> None:
        """Flush everything before the active segment, as Kafka does after a roll."""
        self.flush(self.segments[-1].base_offset)

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` have passed since a flush was last due, with something to flush."""
        return self._flusher.is_due(self, now_ms, self.config.flush_ms)

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        if not self._writing.acquire(blocking=False):
            raise AssertionError(f"two writers of {self} at a time")
        try:
            yield
        finally:
            self._writing.release()
