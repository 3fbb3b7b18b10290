"""A log that grows: append, roll, flush.

Every batch comes in by `append`, whoever sends it. It asks, in this order:

    doubt      has a flush failed? then nothing is appended until one succeeds
    role       does the log follow another broker? then no batch of a producer is appended
    stamp      what is the append time? that of the broker's clock of append times, or the last one
               of the log if that is ahead
    reset      can no record be read that has the last one? then it is the clock's after all
    flush      does the batch reach `flush.messages`?
    exemption  does the log roll by time? an adopted one does not
    ready      are the files of the active segment open? (these three: logs/writer.py)
    roll       has the active segment room and time for the batch?
    epoch      does a leader epoch begin with it?

Invariant: one writer at a time, ensured by the caller, and asserted. Readers see a batch only after
it is completely written. Offsets and append times never go back, and a batch that is refused leaves
the log as it was.

Only `flush`, and an append that may block, wait for the disk. Follow-up work is returned to the
caller: a flush after a roll.
"""

import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record.markers import TransactionEnd
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.flusher import Flusher
from horolog.storage.logs.incoming import (
    Batch,
    Origin,
    SourceBatches,
    StampedRecords,
    numbered_marker,
)
from horolog.storage.logs.readable import LogParts, ReadableLog
from horolog.storage.logs.stamp_clock import StampClock
from horolog.storage.logs.writer import LogWriter
from horolog.storage.removal.removed_files import RemovedFiles
from horolog.storage.removal.retention import expired_ms
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.numbered import Numbered
from horolog.storage.validation.validate import Prepared


class Remarks(NamedTuple):
    """Remarks about a client's batch that are to be logged or counted."""

    ahead_ms: int
    """How far the append time is ahead of the clock, because the clock went back."""
    records_ahead_ms: int
    """How far the latest record is ahead of the clock; 0 where append times replace theirs."""
    expired_ms: int
    """For how long the latest record would have been deleted by `retention.ms` already."""
    is_converted: bool
    """Whether the producer sent another record format than was stored."""
    new_producer: tuple[int, int] | None
    """Id and epoch of an idempotent producer whose first batch this is since the log was opened."""


class Appended(NamedTuple):
    """The outcome of an append."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 on a CreateTime topic; of a duplicate, the largest timestamp of the original."""
    log_start_offset: int
    rolled: bool = False
    """The segments before the active one need a `flush_rolled`, which may be in another thread."""
    duplicate: bool = False
    size: int = 0
    """Bytes of the batch, or of all batches of a source."""
    remarks: Remarks | None = None

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.last_offset + 1


_CLIENT = Origin.CLIENT
_OF_LEADERS = frozenset({Origin.CLIENT, Origin.COORDINATOR})


def _no_marker() -> bytes:
    raise AssertionError("a control batch is not appended as data")


class AppendableLog(ReadableLog):
    """A log that grows."""

    __slots__ = (
        "_refused",
        "_writing",
        "checkpoint",
        "cleaner_point",
        "cleaning_to",
        "directory",
        "flusher",
        "is_of_cluster",
        "is_settled",
        "producers",
        "removed_files",
        "replicated_bytes",
        "stamps",
        "topic_id",
        "truncated_to",
        "truncations",
        "writer",
    )

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.directory = parts.directory
        self.writer = LogWriter(
            parts.files,
            parts.directory,
            parts.active,
            append_times=parts.append_times,
            epochs=parts.epochs,
            producers=parts.producers,
        )
        self.writer.begun.clear()  # readers know it
        self.producers = parts.producers
        """The state of idempotent producers, up to the log end offset."""
        self.producers.keeps_ended = parts.high_watermark is not None
        self.flusher = Flusher(
            parts.files,
            parts.directory,
            recovery_point=parts.recovery_point,
            is_in_doubt=parts.is_in_doubt,
        )
        self.is_settled = parts.is_settled  # all files are as `finish` leaves them
        self._refused: tuple[int, str] | None = None  # the log end then, and why
        self._writing = threading.Lock()  # held while something is changed; never waited for
        self.topic_id = parts.topic_id
        self.stamps = StampClock()
        """The clock of append times; the log directory gives all of its logs one."""
        self.removed_files = RemovedFiles(parts.files, parts.directory, parts.set_aside)
        """Files that are no part of the log any more, and still in its directory."""
        self.checkpoint: Callable[[], None] = lambda: None
        """Writes the checkpoints of the log directory; of a log that has none, nothing."""
        self.cleaner_point = parts.cleaner_point
        self.cleaning_to = parts.cleaning_to
        """Offset up to which a pass that has not ended may have removed records."""
        """All records before this offset were cleaned; None if it never was."""
        self.replicated_bytes = 0
        """Bytes of a source's batches that were appended since the log was opened."""
        self.is_of_cluster = False
        """Whether controllers decide its role: truncations are usual, and set nothing aside."""
        self.truncated_to: int | None = None
        """Log end after a truncation that the checkpoints on the disk do not know yet."""
        self.truncations = 0
        """How many have begun: what was read before one may not be in the log any more."""
        self.find_unstable()

    @property
    def compacted_to(self) -> int | None:
        """Offset in front of which compaction may have removed records; None before all passes."""
        return max(self.cleaner_point or 0, self.cleaning_to) or None

    @property
    def active(self) -> ActiveSegment:
        """The last segment, to be appended to."""
        return self.writer.active

    # Appending.

    def append(
        self, batch: Batch, now_ms: int, origin: Origin = Origin.CLIENT, *, may_block: bool = True
    ) -> Appended:
        """Append a batch, or the batches of a source.

        Args:
            batch: to append; the end of a transaction becomes a marker.
            may_block: whether files may be opened, synced or created.

        Raises:
            WouldBlock: the append would block, and may not; there is no effect.
            BatchRefused: an idempotent producer is out of sequence (45) or fenced (47).
            RequestRefused: the log follows another broker (6), or a marker is of an earlier epoch
                (47) or coordinator (52).
            CorruptBatch: a batch of a source is damaged, not whole, or not behind those before it.
                Those before it are in the log.
            StorageFailed: the disk refused. The log is as it was, unless it was the flush that
                `flush.messages` asks for: then the batch is in the log, as in Kafka, and a retry
                of it is refused like everything else until a flush succeeds. Of the batches of a
                source some may be in the log.
        """
        if not self._writing.acquire(False):  # as `exclusively`, which takes longer
            raise AssertionError(f"two writers of {self} at a time")
        try:
            if may_block:
                self.finish_pending()
            flusher, writer, config = self.flusher, self.writer, self.config
            if flusher.is_in_doubt:
                self._refuse_in_doubt()
            if self.is_following and origin in _OF_LEADERS:
                raise RequestRefused(
                    ErrorCode.not_leader_or_follower,
                    f"{self} follows another broker: records are produced there, or after its "
                    "promotion",
                )
            clock = self.stamps
            append_ms = clock.last_ms
            if now_ms > append_ms:
                append_ms = clock.rise(now_ms)
                if origin in _OF_LEADERS:
                    now_ms = append_ms  # lower in a thread, if the clock was lowered meanwhile
            last_ms, before = self.floor.last, writer.active
            base_offset, epoch = before.segment.end.next_offset, self.leader_epoch
            if last_ms is not None and last_ms > append_ms:
                if self.log_start_offset < base_offset:
                    append_ms = last_ms
                elif not may_block:
                    raise WouldBlock  # a reset: no record that can be read carries the floor
            prepared = new_producer = None
            if isinstance(batch, StampedRecords):
                is_plain = True
                numbered = batch.numbered(base_offset, epoch, append_ms, config)
            elif isinstance(batch, Prepared):
                prepared, header = batch, batch.header
                if header.producer_id >= 0 and header.base_sequence >= 0:
                    # Before any roll, which in Kafka even a duplicate may cause.
                    repeated = self._repeated(batch)
                    if repeated is not None:
                        return repeated
                if batch.messages is not None and not may_block:
                    raise WouldBlock
                is_plain = not header.is_transactional
                numbered = batch.numbered(base_offset, epoch, append_ms)  # may be refused
            elif isinstance(batch, SourceBatches):
                return self._append_source(batch, now_ms, may_block=may_block)
            elif not may_block and not batch.is_commit:
                raise WouldBlock  # an abort has an entry in the index of those, too
            else:
                self.producers.check_end(batch)
                is_plain = False
                numbered = numbered_marker(batch, now_ms, base_offset, epoch, append_ms, config)
            last_offset, stamps = numbered.last_offset, numbered.is_stamped
            flushes = last_offset + 1 - flusher.recovery_point >= config.flush_messages
            if flushes and not may_block:
                raise WouldBlock
            self.is_settled = False
            if prepared is not None and not is_plain:
                self.has_transactions = True
                if self.first_open is None:
                    self.first_open = base_offset
            try:
                writer.append(numbered, config, now_ms, not self.retention_exempt, may_block)
            finally:
                if writer.begun:
                    self._take_begun()
                if not is_plain and (prepared is None or self.log_end_offset == base_offset):
                    self._settle_transactions()
            remarks = None
            if prepared is not None:
                if header.producer_id >= 0:
                    new_producer = self._note_producer(prepared, numbered, now_ms)
                if origin is _CLIENT:
                    _, _, _, timestamp_type, _, ahead_ms, _, _, is_converted, _ = prepared
                    timestamp, stamps = numbered.max_timestamp, timestamp_type is LOG_APPEND_TIME
                    is_late = not stamps and now_ms - timestamp > config.retention_ms
                    if (
                        append_ms > now_ms
                        or ahead_ms > 0
                        or is_late
                        or is_converted
                        or new_producer is not None
                    ):
                        exempt = not is_late or self.retention_exempt
                        late_ms = 0 if exempt else expired_ms(config, timestamp, now_ms)
                        late = append_ms - now_ms, ahead_ms, late_ms
                        remarks = Remarks(*late, is_converted, new_producer)
            if flushes:
                flusher.flush(self)
            return tuple.__new__(  # the constructor takes three times as long
                Appended,
                (
                    base_offset,
                    last_offset,
                    append_ms if stamps else NO_TIMESTAMP,
                    self.log_start_offset,
                    writer.active is not before,
                    False,
                    numbered.size,
                    remarks,
                ),
            )
        except StorageFailed as error:
            self.note_refusal(error)
            raise
        finally:
            self._writing.release()

    def _append_source(self, batch: SourceBatches, now_ms: int, *, may_block: bool) -> Appended:
        """Append the batches of a source up to the first damaged one, then raise its error."""
        start, before, config = self.log_end_offset, self.writer.active, self.config
        batches, damage = batch.checked(self, start, self.floor.next(now_ms))
        end, by_time = start, not self.retention_exempt
        writer, is_within = self.writer, False
        if len(batches) == 1:
            is_within = writer.is_within_bounds(batches[0], config, by_time=by_time)
        if batches and not may_block:
            flushes = batches[-1].last_offset + 1 - self.recovery_point >= config.flush_messages
            if flushes or not (is_within or writer.takes_at_once(batches, config, now_ms, by_time)):
                raise WouldBlock
        if batches:
            self.is_settled = False
            try:
                if is_within:
                    writer.append_within_bounds(batches[0], now_ms)
                else:
                    writer.append(batches, config, now_ms, by_time)
            finally:
                self._take_begun()
                self._settle_transactions()
            end = self.log_end_offset
            if end - self.recovery_point >= config.flush_messages:
                self.flush()
        if damage is not None:
            raise damage
        return Appended(
            start,
            end - 1,
            NO_TIMESTAMP,
            self.log_start_offset,
            rolled=self.writer.active is not before,
            size=sum(numbered.size for numbered in batches),
        )

    def _settle_transactions(self) -> None:
        """Recompute the open transactions after a batch that may end some."""
        if self.unended:
            is_open = self.producers.is_open
            self.unended = tuple(
                transaction for transaction in self.unended if is_open(*transaction[:2])
            )
        self.has_transactions = True
        self.find_unstable()

    def find_unstable(self) -> None:
        """Publish the transactions whose ends consumers cannot read yet.

        A transaction that no marker ends, by what the source says, counts here as it does at the
        source. It is listed in `unended` before the last stable offset passes it.
        """
        if self.is_following:
            is_open = self.producers.is_open
            self.unended = tuple(
                transaction for transaction in self.said_unended if is_open(*transaction[:2])
            )
        producers = self.producers
        if producers.ended or self.ended:
            producers.forget_ended(self.high_watermark)
            self.ended = producers.ended
        self.first_open = producers.first_open(self.unended)

    def settle_unended(self, *, goes_on: Container[int], committed: Container[int]) -> None:
        """Decide how transactions count that were open when the log was opened.

        Args:
            goes_on: producer ids whose transactions a coordinator of this broker may still end:
                readers wait for that.
            committed: producer ids whose transactions are committed; only markers are missing.
        """
        with self.exclusively():
            self.unended = tuple(
                one._replace(is_committed=one.producer_id in committed)
                for one in self.unended
                if one.producer_id not in goes_on
            )
            self.find_unstable()

    def end_unended(self, now_ms: int) -> None:
        """Append the markers of transactions that another broker left open, each as it is decided.

        Raises:
            StorageFailed: the disk refused; the rest count as before.
        """
        while self.unended:
            producer_id, _, is_committed = self.unended[0]
            epochs = self.producers.epochs_of(producer_id)
            self.append(
                TransactionEnd(producer_id, *epochs, is_committed), now_ms, Origin.COORDINATOR
            )

    def _repeated(self, prepared: Prepared) -> Appended | None:
        """Return the outcome of a batch that its producer has sent before; None if it has not."""
        header = prepared.header
        written = self.producers.find_duplicate(header, prepared.admission)
        if written is None:
            return None
        return Appended(
            written.base_offset,
            written.last_offset,
            written.timestamp,
            self.log_start_offset,
            duplicate=True,
            size=header.size,
            remarks=Remarks(0, prepared.ahead_ms, 0, False, None),
        )

    def _note_producer(
        self, prepared: Prepared, batch: Numbered, now_ms: int
    ) -> tuple[int, int] | None:
        """Record a producer's batch; return its id and epoch if it is new."""
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

    def roll(self, now_ms: int) -> None:
        """Finish the active segment, if it holds anything, and begin another."""
        with self.exclusively():
            if self.segments[-1].size:
                self.roll_at(self.log_end_offset, now_ms)

    def roll_at(self, base_offset: int, now_ms: int) -> None:
        """End the active segment and begin one, at the log end offset or behind a gap."""
        self.is_settled = False
        self.writer.roll(base_offset, self.config, now_ms)
        self._take_begun()

    def _take_begun(self) -> None:
        """Publish the segments that the writer has begun, so that readers see them."""
        if self.writer.begun:
            self.flusher.has_new_names = True
            self.segments = (*self.segments, *self.writer.begun)
            self.writer.begun.clear()
            if self.truncated_to is not None and self.truncated_to < self.segments[-1].base_offset:
                # Recovery begins at the recovery point: it would pass over the segment before.
                with suppress(StorageFailed):  # the next roll tries again
                    self.checkpoint()
                    self.truncated_to = None

    def reset_append_time(self, now_ms: int) -> AppendTimeReset | None:
        """Lower the append time of later records to the clock.

        Return None if it is not ahead of the clock.

        The active segment is rolled and flushed first, and the reset is on disk when this
        returns. Lookups by time need no change: they ask each segment for its largest time.

        Raises:
            StorageFailed: the disk refused; the append time is as it was.
        """
        with self.exclusively():
            if self.is_in_doubt:
                self._refuse_in_doubt()
            last_ms = self.floor.last
            if last_ms is None or last_ms <= now_ms:
                return None
            if self.segments[-1].size:
                self.roll_at(self.log_end_offset, now_ms)
            self.flush_rolled()
            return self.floor.reset(self.log_end_offset, now_ms)

    def _refuse_in_doubt(self) -> NoReturn:
        raise StorageFailed(
            f"{self} takes nothing: a flush failed, and what was written is not known to be on "
            "the disk. It is written again until a flush succeeds"
        )

    @property
    def refusal(self) -> str | None:
        """Error of the last write if the disk refused it, otherwise None. Any thread may ask."""
        refused = self._refused
        return None if refused is None or refused[0] != self.log_end_offset else refused[1]

    def note_refusal(self, error: StorageFailed) -> None:
        """Note that the disk refused a write. It counts until the log grows."""
        self._refused = self.log_end_offset, str(error)
        self.flusher.on_failure()

    # Flushing.

    @property
    def recovery_point(self) -> int:
        """Offset up to which all records are flushed."""
        return self.flusher.recovery_point

    @property
    def is_in_doubt(self) -> bool:
        """True after a failed flush: appends are refused until a flush succeeds."""
        return self.flusher.is_in_doubt

    def flush(self, up_to: int | None = None) -> None:
        """Wait until the disk has all records before `up_to`, by default all records.

        May run while records are appended, in another thread.

        Raises:
            StorageFailed: the disk refused; the recovery point stays where it was.
        """
        self.flusher.flush(self, up_to)

    def flush_rolled(self) -> None:
        """Flush everything before the active segment, as Kafka does after a roll."""
        self.flush(self.segments[-1].base_offset)

    def flush_due(self, now_ms: int) -> bool:
        """Return True if `flush.ms` has elapsed with unflushed records."""
        return self.flusher.is_due(self, now_ms, self.config.flush_ms)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Change the log; no other change runs until the block ends."""
        if not self._writing.acquire(blocking=False):
            raise AssertionError(f"two writers of {self} at a time")
        try:
            self.finish_pending()
            yield
        finally:
            self._writing.release()

    def finish_pending(self) -> None:
        """Complete operations that the disk refused half-way, before the log is changed again."""
