"""One partition for request handlers: ordered writes, reads, and listeners for growth."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeVar

from horolog.broker.scheduling.delayed import Mark, MarkListener, Watcher
from horolog.broker.scheduling.fair_pool import Checkers
from horolog.broker.scheduling.write_queue import WriteQueue
from horolog.clock import Clock
from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.storage.cleaning.choosing import Cleanable
from horolog.storage.logs.appendable import Appended
from horolog.storage.logs.cleaning import Cleaning
from horolog.storage.logs.incoming import Batch
from horolog.storage.logs.log import Log
from horolog.storage.lookup.unread import Unread
from horolog.storage.producers.states import Admission, OpenNow
from horolog.transactions.promotion import PartitionHere

if TYPE_CHECKING:
    from horolog.replication.leading import Leading
    from horolog.storage.cleaning.key_map import KeyMap
    from horolog.wire.fetch import FetchedPartition

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

# Records this close to the log end are certainly in the page cache.
HOT_BYTES: Final = 32 << 20


class Partition:
    """One partition of this broker.

    For the event loop's thread, unless a method says otherwise.
    """

    def __init__(
        self,
        log: Log,
        workers: Executor,
        checkers: Checkers,
        max_uncompressed_bytes: int,
    ) -> None:
        self.log = log
        """Any thread may read it, which may wait for the disk. Writes go through `writes`."""
        self.topic, self.index = log.topic, log.partition
        self.name = str(log)
        self.listeners: tuple[dict[MarkListener, None], ...] = ({}, {}, {}, {})
        """Requests that wait, by `Mark`."""
        self.watchers: dict[Watcher, None] = {}
        """Sessions of replicas that are told of each change while this broker leads them."""
        self.leading: Leading | None = None
        """Other replicas, while this broker leads them; None alone and as a follower."""
        self.next_warning_at = 0.0
        """Event loop's time of the next warning about the times of its records."""
        self.unstable = (-1, -1, Unread())
        """Offsets behind the last stable one, and what is known of the records between them."""
        self.read_for_replica: tuple[tuple[int, ...], FetchedPartition] | None = None
        """The last few records that a replica was given, and what it had asked for."""
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._cleaning: CleaningJob | None = None  # the run that is under way
        self._is_closing = False
        self.writes = WriteQueue(log, workers, checkers, max_uncompressed_bytes, self._tell)
        """Appends, in the order of the calls."""
        self._hot_offset = self._next_hot_offset = log.log_end_offset
        self._bytes_since_hot = 0
        self._readable = _Growth(log.high_watermark)
        self._stable = _Growth(log.last_stable_offset)

    # --- writing ----------------------------------------------------------------------

    def admit(self, producer_id: int, *, is_strict: bool) -> Admission:
        """Return the admission of a batch that is appended before anything else is awaited.

        The coordinator of its producer has this partition in the transaction. See `Admission`.
        """
        return self.log.producers.admit(producer_id, is_strict=is_strict)

    def append(
        self, batch: Batch, now_ms: int, *, may_block: bool = True
    ) -> "Appended | asyncio.Future[Appended]":
        """Append a batch of this broker, or the end of a transaction.

        All writes that are validated by now come first. What was admitted to a transaction that
        ends, and is not validated yet, is refused when it is.

        Raises (or sets on the future):
            WouldBlock: it would take a while, and may not; there is no effect.
            RequestRefused, StorageFailed: as the log does.
        """
        appended = self.writes.append_own(batch, now_ms, may_block=may_block)
        if isinstance(appended, Appended):
            if appended.rolled:
                self.flush_rolled().add_done_callback(log_failure)
        else:
            appended.add_done_callback(self._on_appended)
        return appended

    def _on_appended(self, appended: "asyncio.Future[Appended]") -> None:
        is_written = not appended.cancelled() and appended.exception() is None
        if is_written and appended.result().rolled:
            self.flush_rolled().add_done_callback(log_failure)

    @property
    def open_count(self) -> int:
        """Number of transactions that readers of committed records wait for."""
        return max(0, self.log.producers.open_count - len(self.log.unended))

    def open_transactions(self, most: int) -> list[OpenNow]:
        """Return the first open transactions, in the order of their first offsets."""
        unended = {
            (transaction.producer_id, transaction.first_offset) for transaction in self.log.unended
        }
        opened = self.log.producers.open_now(most + len(unended))
        found = [
            transaction
            for transaction in opened
            if (transaction.producer_id, transaction.first_offset) not in unended
        ]
        return found[:most]

    def change(self, change: Callable[[Log], T]) -> "asyncio.Future[T]":
        """Change the log in a thread, after all writes that are validated by now.

        Listeners are notified of the records that it appends.
        """
        return self.writes.run(lambda: change(self.log))

    def change_nowait(self, change: Callable[[Log], T]) -> T:
        """Change the log now, if no write comes before it.

        Raises:
            WouldBlock: one does, or the change raises it.
        """
        return self.writes.run_nowait(lambda: change(self.log))

    @property
    def is_closed(self) -> bool:
        """True if the partition is no longer served."""
        return self._is_closing or self.writes.is_closed

    # --- following --------------------------------------------------------------------

    def producers_here(self) -> "asyncio.Future[PartitionHere]":
        """Read open transactions and last markers, after all writes validated by now."""

        def read(log: Log) -> PartitionHere:
            states = log.producers
            said = {entry[:2] for entry in log.unended}
            opened = [entry[0] for entry in states.unended() if entry not in said]
            return PartitionHere(
                log.log_end_offset,
                {id_: states.epochs_of(id_).producer for id_ in opened},
                {id_: state.last_end for id_, state in states if state.last_end is not None},
            )

        return self.change(read)

    # --- settings, retention, flushing ------------------------------------------------

    def obey(self, config: TopicConfig, *, retention_exempt: bool) -> None:
        """Apply settings from the next request on; adopted partitions are exempt from retention."""
        self.log.config = config
        self.log.retention_exempt = retention_exempt

    # --- compaction -------------------------------------------------------------------

    @property
    def is_compacted(self) -> bool:
        """True if the cleaner has to clean it."""
        return self.log.config.compacts and not self.log.retention_exempt

    @property
    def rolls_overdue(self) -> bool:
        """True if `max.compaction.lag.ms` may roll its active segment."""
        log = self.log
        return log.config.max_compaction_lag_ms < LONG_MAX and log.active.segment.size > 0

    def roll_overdue(self, clock: Clock) -> "asyncio.Future[None]":
        """Roll the active segment if `max.compaction.lag.ms` has elapsed for its records."""

        def roll(log: Log) -> None:
            now_ms = clock.now_ms()
            if log.must_roll_to_clean(now_ms):
                log.roll(now_ms)

        return self.change(roll)

    async def begin_cleaning(self, chosen: Cleanable) -> bool:
        """Note that the log is cleaned from now on; return True if that is new.

        A kill within the first run leaves gaps, which only a cleaner point explains.
        """
        if self.log.cleaner_point is not None:
            return False
        await self.change(lambda log: log.cleaned_to(chosen.first_dirty))
        return True

    def clean(
        self,
        chosen: Cleanable,
        key_map: "KeyMap",
        clock: Clock,
        hold: "Callable[[int, threading.Event], None]",
        threads: Executor,
    ) -> "CleaningJob":
        """Clean the chosen range in a thread; no other run may be active.

        Args:
            key_map: an empty one.
            hold: called with the bytes of each piece, and an event that ends the wait.
        """
        assert self._cleaning is None
        cleaning = Cleaning(
            self.log, chosen, key_map, now_ms=clock.now_ms, monotonic_ms=clock.monotonic_ms
        )
        self._cleaning = job = CleaningJob(self, cleaning, hold, threads)
        job.done.add_done_callback(self._on_cleaned)
        return job

    def _on_cleaned(self, done: "asyncio.Future[None]") -> None:
        self._cleaning = None

    def must_flush(self, monotonic_ms: int) -> bool:
        """True if `flush.ms` has elapsed, or a failed flush has to be retried."""
        log = self.log
        return log.is_in_doubt or (log.config.flush_ms < LONG_MAX and log.flush_due(monotonic_ms))

    def flush(self) -> "asyncio.Future[None]":
        """Flush the log in a thread, concurrently with appends."""
        return self._loop.run_in_executor(self._workers, self.log.flush)

    def flush_rolled(self) -> "asyncio.Future[None]":
        """Flush the segments before the active one, concurrently with appends."""
        return self._loop.run_in_executor(self._workers, self.log.flush_rolled)

    async def close(self) -> None:
        """Refuse further writes, complete the queued ones, and notify listeners."""
        self._is_closing = True
        if self._cleaning is not None:
            await self._cleaning.stop()
        await self.writes.close()
        self._end_waits()

    # --- reading ----------------------------------------------------------------------

    def is_hot(self, offset: int, *, committed: bool) -> bool:
        """True if a read from `offset` finds its records in the page cache."""
        return offset >= self._hot_offset and not (committed and self.log.has_transactions)

    def check_indexes(self, readers: Executor) -> "asyncio.Future[bool]":
        """Check the indexes of one segment in a reading thread; see `Log.check_indexes`."""
        return self._loop.run_in_executor(readers, self.log.check_indexes)

    # --- leading ----------------------------------------------------------------------

    @property
    def has_role(self) -> bool:
        """True unless the log has another leader epoch than its leader, which takes it on later."""
        leading, log = self.leading, self.log
        if leading is None:
            return log.known_high_watermark is None
        return leading.leader_epoch == log.leader_epoch

    def replicas(self) -> "Leading | None":
        """Return the other replicas, before an append that they may have to have; None alone.

        Whoever has awaited anything since it looked who leads has to ask.

        Raises:
            RequestRefused: it is not led here, or not yet (6).
        """
        if not self.has_role:
            raise RequestRefused(
                ErrorCode.not_leader_or_follower, f"{self.name} is not led by this broker now"
            )
        return self.leading

    # --- marks ------------------------------------------------------------------------

    def mark(self, mark: Mark) -> int:
        """Return the offset of a mark now."""
        log = self.log
        if mark is Mark.HIGH_WATERMARK:
            return log.high_watermark
        if mark is Mark.LAST_STABLE:
            return log.last_stable_offset
        if mark is Mark.LOG_END:
            return log.log_end_offset
        start = log.log_start_offset
        return start if self.leading is None else self.leading.low_watermark(start)

    def lead(self, leading: "Leading | None") -> None:
        """Lead these replicas from now on, or none; requests that wait look again who leads."""
        self.leading = leading
        self._end_waits()

    def _end_waits(self) -> None:
        for listeners in self.listeners:
            for listener in list(listeners):
                listener.on_gone()
        for watcher in list(self.watchers):
            watcher.on_gone()

    def move_high_watermark(self, offset: int) -> None:
        """Let consumers read up to an offset that all in-sync replicas have."""
        if self.log.move_high_watermark(offset):
            self.notify(0)

    def _tell(self, size: int) -> None:
        """Note that the log has grown, and notify the listeners."""
        self._bytes_since_hot += size
        if self._bytes_since_hot >= HOT_BYTES:
            self._bytes_since_hot = 0
            self._hot_offset = self._next_hot_offset
            self._next_hot_offset = self.log.log_end_offset
        if self.leading is not None:
            offset = self.leading.on_append(self.log.log_end_offset)
            if offset is not None:
                self.log.move_high_watermark(offset)
        self.notify(size)

    def notify(self, size: int) -> None:
        """Notify the listeners of appended bytes, and of marks that have moved."""
        log, readable = self.log, size
        if log.known_high_watermark is not None or self._readable.pending_bytes:
            readable = self._readable.moved_to(log.high_watermark, log.log_end_offset, size)
            for watcher in list(self.watchers):
                watcher.on_changed(size)
        stable = readable
        if log.has_transactions:
            stable = self._stable.moved_to(log.last_stable_offset, log.log_end_offset, size)
        at_end, at_high_watermark, at_stable, at_low_watermark = self.listeners
        if at_end and size:
            self._notify(at_end, size)
        if at_high_watermark and readable:
            self._notify(at_high_watermark, readable)
        if at_stable and stable:
            self._notify(at_stable, stable)
        if at_low_watermark and not size:
            self._notify(at_low_watermark, 0)

    def _notify(self, listeners: dict[MarkListener, None], size: int) -> None:
        for listener in list(listeners):
            listener.on_moved(self, size)


class _Growth:
    """Bytes that were appended and are not before a mark yet."""

    __slots__ = ("_offset", "pending_bytes")

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self.pending_bytes = 0

    def moved_to(self, offset: int, log_end_offset: int, size: int) -> int:
        """Return how many bytes a mark has passed, or more, after an append of `size`.

        Where it has passed some of the pending bytes, all of them count, now and at its next move:
        a request that was completed too early waits again.
        """
        self.pending_bytes += size
        if offset == self._offset:
            return 0
        self._offset, passed = offset, self.pending_bytes
        if offset >= log_end_offset:
            self.pending_bytes = 0
        return passed or 1  # what was appended before the partition was opened is not counted


class CleaningJob:
    """A run of the cleaner over one partition, in a thread."""

    def __init__(
        self,
        partition: Partition,
        cleaning: Cleaning,
        hold: Callable[[int, threading.Event], None],
        threads: Executor,
    ) -> None:
        self.run = cleaning.run
        """Progress; any thread may read it."""
        self._partition = partition
        self._cleaning = cleaning
        self._hold = hold
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.run_in_executor(threads, self._work)
        """Completes when the thread has ended."""

    async def wait(self) -> None:
        """Wait for the end of the run.

        If cancelled, stop the run and wait for that.

        Raises:
            HorologError: the partition cannot be cleaned.
        """
        try:
            await asyncio.shield(self.done)
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the run within the current piece, and wait for its end."""
        self._stop.set()
        await asyncio.wait([self.done])

    def _work(self) -> None:
        with closing(self._cleaning.steps(self._exclusively)) as steps:
            for progress in steps:
                if self._stop.is_set():
                    return
                self._hold(progress.read_bytes + progress.written_bytes, self._stop)

    def _exclusively(self, call: Callable[[], bool]) -> bool:
        """Call on the log while no write runs; from the thread of the run."""

        async def in_order() -> bool:
            return not self._stop.is_set() and await self._partition.writes.run(call)

        return asyncio.run_coroutine_threadsafe(in_order(), self._loop).result()


def log_failure(flushed: "asyncio.Future[None]") -> None:
    """Log a failed flush of rolled segments; the log refuses appends until a flush succeeds."""
    error = None if flushed.cancelled() else flushed.exception()
    if isinstance(error, HorologError):
        _LOG.error("a segment could not be flushed: %s", error)
    elif error is not None:
        raise error
