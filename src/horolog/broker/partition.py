"""One partition as requests see it: writes in order, reads, and who waits for more.

A write that cannot wait for anything is done at once, on the event loop. One that may
(a roll, a flush, much to decompress) goes to a thread, and every later write of the
partition queues behind it, so that the order of requests is the order in the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from horolog.broker.jobs import Append, Failure, Job, perform
from horolog.clock import Clock
from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.record.batch import codec_number_of
from horolog.storage.checkpoints import AppendTimeReset, EpochStart
from horolog.storage.log import Appended, DeletedSegment, Log
from horolog.storage.lookup import TimestampOffset
from horolog.storage.slices import Slice
from horolog.storage.validate import Prepared, prepare
from horolog.wire.fetch import AbortedTransaction
from horolog.wire.packing import Bytes

T = TypeVar("T")

# What may be scanned, or decompressed, on the event loop.
INLINE_BYTES: Final = 1 << 20
INLINE_COMPRESSED_BYTES: Final = 16 * 1024
INLINE_DECOMPRESSED_BYTES: Final = 64 * 1024
# What was written so recently that the page cache has it, twice over.
HOT_BYTES: Final = 32 << 20


class Written(NamedTuple):
    """A batch in the log; `ahead_ms` is how far its latest record is ahead of the clock."""

    appended: Appended
    ahead_ms: int
    size: int


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

    def __init__(self, log: Log, workers: Executor, max_uncompressed_bytes: int) -> None:
        self._log = log
        self.topic = log.topic
        self.name = str(log)
        self.listeners: dict[Listener, None] = {}
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._max_uncompressed_bytes = max_uncompressed_bytes
        self._jobs: deque[Job] = deque()
        self._working = False
        self._closed = False
        self._hot_offset = self._next_hot_offset = log.log_end_offset
        self._bytes_since_hot = 0
        self._has_transactions = any(s.txn_index_path for s in log.segments) or any(
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
        self, batch: Bytes, now_ms: int, produce_version: int
    ) -> "Written | asyncio.Future[Written]":
        """Check and append what a producer sent; at once if nothing is in the way.

        Raises (or sets on the future):
            RequestRefused, CorruptBatch, StorageFailed: as storage does.
        """
        append = Append(batch, now_ms, produce_version)
        if not self._working and not self._closed:
            written = self._append_at_once(append)
            if written is not None:
                return written
        return self._queue(lambda: self._append_in_thread(append), append)

    def _append_at_once(self, append: Append) -> Written | None:
        """Append on the event loop; None if that might have to wait for something."""
        batch = append.batch
        codec = codec_number_of(batch)
        limit = self._max_uncompressed_bytes
        if codec:
            limit = min(limit, INLINE_DECOMPRESSED_BYTES)
        if (
            len(batch) > (INLINE_COMPRESSED_BYTES if codec else INLINE_BYTES)
            or self._log.config.compression_type != "producer"  # may have to be packed anew
        ):
            return None
        try:
            append.prepared = self._prepare(append, limit)
        except RequestRefused as error:
            if codec and error.code is ErrorCode.message_too_large:
                return None  # small as sent, large inside
            raise
        prepared = append.prepared
        appended = self._log.append_at_once(prepared, append.now_ms)
        if appended is None:
            return None
        written = Written(appended, prepared.ahead_ms, len(prepared.batch))
        self._tell(written.size)
        return written

    def _append_in_thread(self, append: Append) -> Written:
        prepared = append.prepared
        if prepared is None:
            prepared = self._prepare(append, self._max_uncompressed_bytes)
        return self._write(prepared, append.now_ms)

    def _prepare(self, append: Append, max_uncompressed_bytes: int) -> Prepared:
        return prepare(
            append.batch,
            self._log.config,
            append.now_ms,
            partition=self.name,
            produce_version=append.produce_version,
            max_uncompressed_bytes=max_uncompressed_bytes,
        )

    def _write(self, prepared: Prepared, now_ms: int) -> Written:
        appended = self._log.append(prepared, now_ms)
        return Written(appended, prepared.ahead_ms, len(prepared.batch))

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Do something to the log in a thread, after all that was asked for before."""
        return self._queue(call)

    def _queue(
        self, call: Callable[[], Any], append: Append | None = None
    ) -> "asyncio.Future[Any]":
        done = self._loop.create_future()
        if self._closed:
            done.set_exception(_gone(self))
            return done
        self._jobs.append(Job(call, done, append))
        if not self._working:
            self._hand_over()
        return done

    def _hand_over(self) -> None:
        """Give all that is queued to a thread, in one go."""
        jobs = list(self._jobs)
        self._jobs.clear()
        self._working = True
        work = self._loop.run_in_executor(self._workers, perform, [job.call for job in jobs])
        work.add_done_callback(lambda work: self._on_worked(jobs, work.result()))

    def _on_worked(self, jobs: list[Job], outcomes: list[Any]) -> None:
        self._working = False
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.settle(outcome)
        self._tell(sum(done.size for done in outcomes if isinstance(done, Written)))
        self._catch_up()
        if self._jobs:
            self._hand_over()

    def _catch_up(self) -> None:
        """Append at once what was queued only because a thread was at work.

        Else a producer that never pauses would be sent through threads for ever.
        """
        left = INLINE_BYTES
        while self._jobs and left > 0:
            job = self._jobs[0]
            if job.append is None:
                return
            outcome: Written | Failure | None
            try:
                outcome = self._append_at_once(job.append)
            except HorologError as error:
                outcome = Failure(error)
            if outcome is None:
                return
            self._jobs.popleft()
            job.settle(outcome)
            left -= len(job.append.batch)

    @property
    def is_closed(self) -> bool:
        """Whether it is served no more."""
        return self._closed

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
        """Take no more, finish what is queued, and tell who waits."""
        while self._working or self._jobs:
            await self.run(lambda: None)
        self._closed = True
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


def _gone(partition: Partition) -> RequestRefused:
    return RequestRefused(
        ErrorCode.unknown_topic_or_partition, f"{partition.name} is no longer served here"
    )
