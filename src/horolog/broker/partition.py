"""One partition as requests see it: writes in order, reads, and who waits for more."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import Final, Protocol, TypeVar

from horolog.broker.checking import Checkers
from horolog.broker.write_queue import WriteQueue
from horolog.clock import Clock
from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.storage.checkpoints import AppendTimeReset, EpochStart
from horolog.storage.log import Appended, DeletedSegment, Log
from horolog.storage.lookup import TimestampOffset
from horolog.storage.slices import Slice
from horolog.wire.fetch import AbortedTransaction
from horolog.wire.packing import Bytes

T = TypeVar("T")

# What was written so recently that the page cache has it, twice over.
HOT_BYTES: Final = 32 << 20


class Listener(Protocol):
    """Who wants to know that a partition has grown or gone."""

    def on_growth(self, size: int) -> None:
        """So many bytes were appended."""
        ...

    def on_gone(self) -> None:
        """The partition is no longer served."""
        ...


class Partition:
    """One partition of this broker: it owns the log, and everybody else asks it.

    For the event loop's thread, except where a method says otherwise.
    """

    def __init__(
        self, log: Log, workers: Executor, checkers: Checkers, max_uncompressed_bytes: int
    ) -> None:
        self._log = log
        self.topic = log.topic
        self.name = str(log)
        self.listeners: dict[Listener, None] = {}
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._writes = WriteQueue(log, workers, checkers, max_uncompressed_bytes, self._tell)
        self._hot_offset = self._next_hot_offset = log.log_end_offset
        self._bytes_since_hot = 0
        self._has_transactions = any(s.has_aborted for s in log.segments) or any(
            state.transaction_first_offset is not None for _, state in log.producers
        )

    @property
    def leader_epoch(self) -> int:
        """The epoch that this broker leads in."""
        return self._log.leader_epoch

    def check_epoch(self, epoch: int) -> RequestRefused | None:
        """Why a client that believes in this epoch cannot be answered; -1 believes in none."""
        if epoch in (-1, self._log.leader_epoch):
            return None
        code = ErrorCode.unknown_leader_epoch
        if epoch < self._log.leader_epoch:
            code = ErrorCode.fenced_leader_epoch
        return RequestRefused(
            code, f"{self.name} is led in epoch {self._log.leader_epoch}, not in {epoch}"
        )

    # --- writing ----------------------------------------------------------------------

    def append(
        self,
        batch: Bytes,
        now_ms: int,
        produce_version: int,
        owner: Hashable,
        *,
        in_thread: bool = False,
    ) -> "Appended | asyncio.Future[Appended]":
        """Check and append what a producer sent; at once if nothing is in the way.

        What one `owner` (a connection) sends is appended in the order of the calls.
        `in_thread` has the batch checked there however small it is.

        Raises (or sets on the future):
            RequestRefused, CorruptBatch, StorageFailed: as storage does.
        """
        return self._writes.append(batch, now_ms, produce_version, owner, in_thread=in_thread)

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Do something to the log in a thread, after every write that is checked by now."""
        return self._writes.run(call)

    @property
    def is_closed(self) -> bool:
        """Whether it is served no more."""
        return self._writes.is_closed

    # --- settings, retention, flushing ------------------------------------------------

    @property
    def config(self) -> TopicConfig:
        """The settings that it obeys."""
        return self._log.config

    def obey(self, config: TopicConfig, *, retention_exempt: bool) -> None:
        """Obey these settings from the next request on; exempt is what was only adopted."""
        self._log.config = config
        self._log.retention_exempt = retention_exempt

    def delete_records(self, offset: int) -> "asyncio.Future[int]":
        """Let the log start at an offset; the new log start. See `Log.delete_records`."""
        return self.run(lambda: self._log.delete_records(offset))

    def apply_retention(self, clock: Clock) -> "asyncio.Future[list[DeletedSegment]]":
        """Delete the segments that retention no longer keeps; which, and why."""
        return self.run(lambda: self._log.apply_retention(clock.now_ms(), clock.monotonic_ms()))

    @property
    def has_deleted_files(self) -> bool:
        """Whether `remove_deleted` has something to do, now or later."""
        return self._log.has_deleted_files

    def remove_deleted(self, clock: Clock) -> "asyncio.Future[int]":
        """Remove files of deleted segments whose `file.delete.delay.ms` has elapsed; how many."""
        return self.run(lambda: self._log.remove_deleted(clock.monotonic_ms()))

    @property
    def has_producers(self) -> bool:
        """Whether the state of any idempotent producer is kept."""
        return len(self._log.producers) > 0

    def expire_producers(self, clock: Clock, expiration_ms: int) -> "asyncio.Future[int]":
        """Forget idempotent producers that have sent nothing for that long; how many."""
        return self.run(lambda: self._log.producers.expire(clock.now_ms(), expiration_ms))

    def append_time_ahead_ms(self, now_ms: int) -> int:
        """See `Log.append_time_ahead_ms`."""
        return self._log.append_time_ahead_ms(now_ms)

    def reset_append_time(self, clock: Clock) -> "asyncio.Future[AppendTimeReset | None]":
        """Lower the append time of the records to come to the clock, as it is when that is done."""
        return self.run(lambda: self._log.reset_append_time(clock.now_ms()))

    @property
    def is_in_doubt(self) -> bool:
        """Whether a flush failed, so that nothing is appended before one has succeeded."""
        return self._log.is_in_doubt

    def must_flush(self, monotonic_ms: int) -> bool:
        """Whether `flush.ms` has elapsed, or a failed flush is to be tried again."""
        log = self._log
        return log.is_in_doubt or (log.config.flush_ms < LONG_MAX and log.flush_due(monotonic_ms))

    def flush(self) -> "asyncio.Future[None]":
        """Flush all, in a thread beside the appends that go on meanwhile."""
        return self._loop.run_in_executor(self._workers, self._log.flush)

    def flush_rolled(self) -> "asyncio.Future[None]":
        """Flush the segments before the active one, in the same way."""
        return self._loop.run_in_executor(self._workers, self._log.flush_rolled)

    async def close(self) -> None:
        """Take no more, finish what is queued, and tell those who wait."""
        await self._writes.close()
        for listener in list(self.listeners):
            listener.on_gone()

    # --- reading ----------------------------------------------------------------------

    def is_hot(self, offset: int, *, committed: bool) -> bool:
        """Whether a read from there will find what it needs in memory."""
        return offset >= self._hot_offset and not (committed and self._has_transactions)

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool, up_to: int) -> Slice:
        """The stretch of file for a fetch; on the event loop only where `is_hot`.

        Raises:
            RequestRefused: the offset is out of range.
            CorruptBatch, StorageFailed: as `Log.read`.
        """
        return self._log.read(offset, max_bytes, min_one_batch=min_one_batch, up_to=up_to)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        """Consumers read up to here."""
        return self._log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Consumers of committed records read up to here."""
        return self._log.last_stable_offset

    def readable_end(self, *, committed: bool) -> int:
        """Where the log ends for a consumer, by its isolation level."""
        return self._log.last_stable_offset if committed else self._log.high_watermark

    def find_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """See `Log.find_by_timestamp`; any thread may call it."""
        return self._log.find_by_timestamp(timestamp)

    def find_max_timestamp(self) -> TimestampOffset | None:
        """See `Log.find_max_timestamp`; any thread may call it."""
        return self._log.find_max_timestamp()

    @property
    def wants_index_check(self) -> bool:
        """See `Log.wants_index_check`."""
        return self._log.wants_index_check

    def check_indexes(self, readers: Executor) -> "asyncio.Future[bool]":
        """Check the indexes of one segment among the reads; see `Log.check_indexes`."""
        return self._loop.run_in_executor(readers, self._log.check_indexes)

    @property
    def start_epoch(self) -> int:
        """The leader epoch at the log start offset, -1 if that is unknown."""
        return self._log.start_epoch

    def end_of_epoch(self, epoch: int) -> EpochStart | None:
        """The largest epoch up to `epoch`, and the offset where the next one starts (KIP-320)."""
        log = self._log
        if epoch == log.leader_epoch:
            return EpochStart(epoch, log.log_end_offset)
        return log.epochs.end_offset_for(epoch, log.log_end_offset)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._log.size

    def aborted(self, offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a committed reader has to know from there on.

        Only adopted logs have any: none are made here. What was open when its broker
        stopped is one of them, so that everything is stable.
        """
        if not self._has_transactions:
            return []
        found = self._log.aborted_transactions(offset, self._log.log_end_offset)
        return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]

    def _tell(self, size: int) -> None:
        """Take note of growth, and pass it on to those who wait for it."""
        self._bytes_since_hot += size
        if self._bytes_since_hot >= HOT_BYTES:
            self._bytes_since_hot = 0
            self._hot_offset = self._next_hot_offset
            self._next_hot_offset = self._log.log_end_offset
        if self.listeners:
            for listener in list(self.listeners):
                listener.on_growth(size)
