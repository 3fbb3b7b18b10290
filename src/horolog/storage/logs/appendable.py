"""A log that grows: append, roll, flush.

Invariant: one writer at a time, ensured by the caller, and asserted. What is appended is read only
once it is completely in the file, offsets and append times never go back, and a batch that is
refused leaves the log as it was.

Only `flush`, and appends that `append_nowait` declines, wait for the disk. Follow-up work is
returned to the caller: a flush after a roll.
"""

import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, NoReturn

from horolog.buffers import Buffer
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record.markers import Marker, TransactionEnd, stamped_marker
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP
from horolog.storage.companion.counts import BlockTotals
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.logs.flusher import Flusher
from horolog.storage.logs.readable import LogParts, ReadableLog
from horolog.storage.logs.writer import LogWriter
from horolog.storage.removal.retention import expired_ms
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.numbered import Numbered, as_it_is
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


def _no_marker() -> bytes:
    raise AssertionError("a control batch is not appended as data")


class AppendableLog(ReadableLog):
    """See the module."""

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.directory = parts.directory
        self._writer = LogWriter(
            parts.files,
            parts.directory,
            parts.active,
            append_times=parts.append_times,
            epochs=parts.epochs,
            producers=parts.producers,
        )
        self.producers = parts.producers
        """The state of idempotent producers, up to the log end offset."""
        self._flusher = Flusher(
            parts.files,
            parts.directory,
            recovery_point=parts.recovery_point,
            is_in_doubt=parts.is_in_doubt,
        )
        self._is_settled = parts.is_settled  # all files are as `finish` leaves them
        self._refused: tuple[int, str] | None = None  # the log end then, and why
        self._writing = threading.Lock()  # held while something is changed; never waited for
        self._find_unstable()

    @property
    def active(self) -> ActiveSegment:
        """The last segment, to be appended to."""
        return self._writer.active

    @property
    def last_append_time_ms(self) -> int | None:
        """The last append time that was given out; no later record gets an earlier one."""
        return self._append_times.last

    @property
    def counts(self) -> BlockTotals:
        """What was appended since the log was opened; it never shrinks. Any thread may ask."""
        return self.active.counts

    # Appending.

    def append(self, prepared: Prepared, now_ms: int) -> Appended:
        """Give a batch its offsets, and its append time on a LogAppendTime topic; write it.

        Raises:
            BatchRefused: an idempotent producer is out of sequence (45) or fenced (47).
            RequestRefused: the log follows another broker (6).
            StorageFailed: the disk refused. The log is as it was, unless it was the flush that
                `flush.messages` asks for: then the batch is in the log, as in Kafka, and a retry
                of it is refused like everything else until a flush succeeds.
        """
        with self._exclusively(), self._noting_refusals():
            appended = self._append(prepared, now_ms, nowait=False)
        assert appended is not None
        return appended

    def append_nowait(self, prepared: Prepared, now_ms: int) -> Appended | None:
        """Append without blocking; None, without any effect, if it must open or sync files."""
        if not self._writing.acquire(False):  # as `_exclusively`, which takes longer
            raise AssertionError(f"two writers of {self} at a time")
        try:
            return self._append(prepared, now_ms, nowait=True)
        except StorageFailed as error:
            self._note_refusal(error)
            raise
        finally:
            self._writing.release()

    def _append(self, prepared: Prepared, now_ms: int, *, nowait: bool) -> Appended | None:
        flusher = self._flusher
        if flusher.is_in_doubt:
            self._refuse_in_doubt()
        if self._high_watermark is not None:
            self._refuse_following()
        is_idempotent = prepared.header.producer_id >= 0
        if is_idempotent and prepared.header.base_sequence >= 0:
            # Before any roll, which in Kafka even a duplicate may cause.
            repeated = self._repeated(prepared)
            if repeated is not None:
                return repeated
        writer = self._writer
        base_offset = writer.active.segment.end.next_offset
        append_ms = self._append_times.next(now_ms)
        resets = append_ms > now_ms and self.log_start_offset >= base_offset
        if resets:  # no record that can be read carries the floor
            append_ms = now_ms
        if nowait and (resets or prepared.messages is not None or not writer.active.is_ready):
            return None
        batch = prepared.numbered(base_offset, self.leader_epoch, append_ms)  # may be refused
        if not nowait:
            self._make_ready(append_ms, now_ms, resets=resets)
        rolls = writer.must_roll(batch, self.config, now_ms, by_time=not self.retention_exempt)
        flushes = batch.last_offset + 1 - flusher.recovery_point >= self.config.flush_messages
        begins = batch.leader_epoch > self.epochs.latest
        if nowait and (rolls or flushes or begins):
            return None
        self._is_settled = False
        if rolls:
            self._roll(now_ms)
            writer.active.make_ready(append_ms)
        if begins:
            self.epochs.assign(batch.leader_epoch, base_offset)
        if prepared.header.is_transactional:
            self._append_unstable(batch)
        else:
            writer.append(batch)
        new_producer = None
        if is_idempotent:
            new_producer = self._note_producer(prepared, batch, now_ms)
        if flushes:
            flusher.flush(self)
        return self._appended(prepared, batch, now_ms, new_producer, rolled=rolls or resets)

    def append_stamped_nowait(self, records: Buffer, count: int, now_ms: int) -> int:
        """Append a batch of records that this broker has made, whose timestamps are `now_ms`.

        They are plain records of format v2, of no producer. Returns the bytes of the batch; 0,
        without any effect, if the write may block, or if the batch must not be stored as it is:
        `append` of the same one says why.

        Raises:
            StorageFailed: the disk refused; the log is as it was.
        """
        if not self._writing.acquire(False):  # as `append_nowait`
            raise AssertionError(f"two writers of {self} at a time")
        try:
            flusher, writer, config = self._flusher, self._writer, self.config
            active, epoch = writer.active, self.leader_epoch
            if (
                flusher.is_in_doubt
                or self._high_watermark is not None
                or now_ms == NO_TIMESTAMP
                or self._append_times.next(now_ms) != now_ms
                or config.message_timestamp_type is LOG_APPEND_TIME
                or active.segment.end.next_offset + count - flusher.recovery_point
                >= config.flush_messages
                or epoch > self.epochs.latest
                or not active.is_ready
            ):
                return 0
            self._is_settled = False
            by_time = not self.retention_exempt
            return writer.append_stamped(records, count, now_ms, epoch, config, by_time=by_time)
        except StorageFailed as error:
            self._note_refusal(error)
            raise
        finally:
            self._writing.release()

    def _append_unstable(self, batch: Numbered) -> None:
        """Append a batch of a transaction, which readers of committed records do not see."""
        self.has_transactions = True
        if self._first_unstable is None:
            self._first_unstable = batch.base_offset
        try:
            self._writer.append(batch)
        except StorageFailed:
            self._find_unstable()
            raise

    def _find_unstable(self) -> None:
        """Find the first transaction whose end consumers cannot read."""
        self._first_unstable = self.producers.first_unstable(self.high_watermark, self._unended)

    def end_transaction(self, ended: TransactionEnd, now_ms: int) -> Appended:
        """Append the marker that ends a producer's transaction, if one is open or not.

        Raises:
            RequestRefused: it is of an earlier epoch (47) or coordinator (35), or the log follows
                another broker (6).
            StorageFailed: the disk refused; the transaction is open, unless it was the flush that
                `flush.messages` asks for: then it has ended.
        """
        with self._exclusively(), self._noting_refusals():
            appended = self._end_transaction(ended, now_ms, nowait=False)
        assert appended is not None
        return appended

    def end_transaction_nowait(self, ended: TransactionEnd, now_ms: int) -> Appended | None:
        """As `end_transaction`; None, without any effect, if the write may block.

        That of an abort may: it has an entry in the index of aborted transactions, too.
        """
        flushes = self.log_end_offset + 1 - self._flusher.recovery_point
        if not ended.is_commit or flushes >= self.config.flush_messages:
            return None
        if not self._writing.acquire(False):  # as `append_nowait`
            raise AssertionError(f"two writers of {self} at a time")
        try:
            return self._end_transaction(ended, now_ms, nowait=True)
        except StorageFailed as error:
            self._note_refusal(error)
            raise
        finally:
            self._writing.release()

    def _end_transaction(
        self, ended: TransactionEnd, now_ms: int, *, nowait: bool
    ) -> Appended | None:
        if self._flusher.is_in_doubt:
            self._refuse_in_doubt()
        if self._high_watermark is not None:
            self._refuse_following()
        self.producers.check_end(ended)
        before = self.segments[-1]
        numbered = self._append_marker(ended, now_ms, nowait=nowait)
        if numbered is None:
            return None
        if self.log_end_offset - self._flusher.recovery_point >= self.config.flush_messages:
            self._flusher.flush(self)
        is_stamped = self.config.message_timestamp_type is LOG_APPEND_TIME
        append_ms = numbered.append_ms
        assert append_ms is not None
        return Appended(
            numbered.base_offset,
            numbered.last_offset,
            append_ms if is_stamped else NO_TIMESTAMP,
            self.log_start_offset,
            rolled=self.segments[-1] is not before,
            duplicate=False,
            ahead_ms=append_ms - now_ms,
            records_ahead_ms=0,
            size=numbered.size,
        )

    def settle_unended(self, *, goes_on: Container[int], committed: Container[int]) -> None:
        """Let transactions that were open when the log was opened count as what they came to.

        Args:
            goes_on: producer ids whose transactions a coordinator of this broker may still end:
                readers wait for that.
            committed: producer ids whose transactions are committed; only markers are missing.
        """
        with self._exclusively():
            self._unended = tuple(
                one._replace(is_committed=one.producer_id in committed)
                for one in self._unended
                if one.producer_id not in goes_on
            )
            self._find_unstable()

    def end_unended(self, now_ms: int) -> None:
        """Append the markers of transactions that another broker left open, as they count.

        Raises:
            StorageFailed: the disk refused; the rest count as before.
        """
        with self._exclusively():
            self._end_unended(now_ms)

    def _end_unended(self, now_ms: int) -> None:
        while self._unended:
            producer_id, _, is_committed = self._unended[0]
            epochs = self.producers.epochs_of(producer_id)
            ended = TransactionEnd(producer_id, *epochs, is_committed)
            self._append_marker(ended, now_ms)

    def _append_marker(
        self, ended: TransactionEnd, now_ms: int, *, nowait: bool = False
    ) -> Numbered | None:
        """Append a control batch of a transaction of this broker, and end that.

        With `nowait` None, without any effect, if the write may block.
        """
        append_ms = self._append_times.next(now_ms)
        resets = append_ms > now_ms and self.log_start_offset >= self.log_end_offset
        if resets:
            append_ms = now_ms
        writer, by_time = self._writer, not self.retention_exempt
        numbered = self._marker(ended, now_ms, append_ms)
        if nowait and (
            resets
            or not writer.active.is_ready
            or self.leader_epoch > self.epochs.latest
            or writer.must_roll(numbered, self.config, now_ms, by_time=by_time)
        ):
            return None
        self._is_settled = False
        try:
            if nowait:
                marker = Marker(not ended.is_commit, ended.coordinator_epoch)
                writer.append_commit(numbered, marker, now_ms)
            else:
                self._make_ready(append_ms, now_ms, resets=resets)
                roll = partial(self._roll, now_ms)
                writer.extend([numbered], self.config, now_ms, by_time=by_time, roll=roll)
        finally:
            if self._unended:
                is_open = self.producers.is_open
                self._unended = tuple(each for each in self._unended if is_open(*each[:2]))
            self.has_transactions = True
            self._find_unstable()
        return numbered

    def _marker(self, ended: TransactionEnd, now_ms: int, append_ms: int) -> Numbered:
        """A control batch as it is appended next."""
        base_offset, epoch = self.log_end_offset, self.leader_epoch
        timestamp_type = self.config.message_timestamp_type
        header, parts, counts = stamped_marker(
            ended,
            now_ms,
            base_offset=base_offset,
            leader_epoch=epoch,
            append_ms=append_ms,
            timestamp_type=timestamp_type,
        )
        return as_it_is(header, parts, append_ms)._replace(
            counts=counts, is_stamped=timestamp_type is LOG_APPEND_TIME
        )

    def _repeated(self, prepared: Prepared) -> Appended | None:
        """What became of a batch that its producer has sent before; None if it has not."""
        header = prepared.header
        written = self.producers.find_duplicate(header, prepared.admission)
        if written is None:
            return None
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

    def _make_ready(self, append_ms: int, now_ms: int, *, resets: bool) -> None:
        """Have the active segment ready for an append, which may reset append times."""
        self._is_settled = False
        if resets:
            self._reset_append_time(now_ms)
        self._writer.active.make_ready(append_ms)

    def _note_producer(
        self, prepared: Prepared, batch: Numbered, now_ms: int
    ) -> tuple[int, int] | None:
        """Remember what a producer has written; its id and epoch if it is new."""
        header, last_offset, timestamp = prepared.header, batch.last_offset, batch.max_timestamp
        if header.base_sequence < 0:  # a coordinator's: offsets within a transaction
            placed = header._replace(base_offset=batch.base_offset)
            self.producers.replay(placed, _no_marker, now_ms)
            return None
        state = self.producers.update(header, last_offset, timestamp, now_ms)
        if state.is_heard:
            return None
        state.is_heard = True
        return header.producer_id, state.epoch

    def _appended(
        self,
        prepared: Prepared,
        batch: Numbered,
        now_ms: int,
        new_producer: tuple[int, int] | None,
        *,
        rolled: bool,
    ) -> Appended:
        _, size, base_offset, last_offset, timestamp, _, append_ms, *_ = batch
        assert append_ms is not None
        stamps, config = prepared.timestamp_type is LOG_APPEND_TIME, self.config
        is_late = not stamps and now_ms - timestamp > config.retention_ms
        appended: Appended = _new_appended(
            (
                base_offset,
                last_offset,
                append_ms if stamps else NO_TIMESTAMP,
                self.log_start_offset,
                rolled,
                False,
                append_ms - now_ms,
                prepared.ahead_ms,
                size,
                expired_ms(config, timestamp, now_ms)
                if is_late and not self.retention_exempt
                else 0,
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

    def _roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """End the active segment and begin one, at the log end offset or behind a gap."""
        self._is_settled = False
        base_offset = self.log_end_offset if base_offset is None else base_offset
        self._writer.finish(base_offset)
        segment = self._writer.begin(base_offset, self.config, now_ms)
        self._flusher.has_new_names = True
        self.segments = (*self.segments, segment)

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

    def _refuse_following(self) -> NoReturn:
        raise RequestRefused(
            ErrorCode.not_leader_or_follower,
            f"{self} follows another broker: records are produced there, or after its promotion",
        )

    def _refuse_in_doubt(self) -> NoReturn:
        raise StorageFailed(
            f"{self} takes nothing: a flush failed, and what was written is not known to be on "
            "the disk. It is written again until a flush succeeds"
        )

    @property
    def refusal(self) -> str | None:
        """Why the disk refused the last append; None if it did not. Any thread may ask."""
        refused = self._refused
        return None if refused is None or refused[0] != self.log_end_offset else refused[1]

    def _note_refusal(self, error: StorageFailed) -> None:
        self._refused = self.log_end_offset, str(error)

    @contextmanager
    def _noting_refusals(self) -> Iterator[None]:
        try:
            yield
        except StorageFailed as error:
            self._note_refusal(error)
            raise

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
