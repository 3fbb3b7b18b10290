"""One partition for request handlers: ordered writes, reads, and listeners for growth."""

import asyncio
import logging
import threading
from collections.abc import Callable, Container
from concurrent.futures import Executor
from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeVar

from horolog.broker.scheduling.checking import Checkers
from horolog.broker.scheduling.delayed_fetch import DelayedFetch
from horolog.broker.scheduling.write_queue import WriteQueue
from horolog.clock import Clock
from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import HorologError
from horolog.storage.cleaning.choosing import Cleanable
from horolog.storage.companion.counts import BlockTotals
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.logs.appendable import Appended
from horolog.storage.logs.cleaning import Cleaning
from horolog.storage.logs.incoming import Batch
from horolog.storage.logs.log import Log
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.producers.states import ActiveProducer, Admission, OpenNow
from horolog.storage.removal.removed_files import DeletedSegment
from horolog.transactions.promotion import PartitionHere

if TYPE_CHECKING:
    from horolog.storage.cleaning.key_map import KeyMap

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

# Records this close to the log end are certainly in the page cache.
HOT_BYTES: Final = 32 << 20


class Partition:
    """One partition of this broker. It owns the log, and hands it out to be read.

    For the event loop's thread, except where a method says otherwise.
    """

    def __init__(
        self,
        log: Log,
        workers: Executor,
        checkers: Checkers,
        max_uncompressed_bytes: int,
    ) -> None:
        self.log: ReadableLog = log
        """For reads and lookups, which any thread may do; some wait for the disk."""
        self._log = log
        self.topic, self.index = log.topic, log.partition
        self.name = str(log)
        self.listeners: dict[DelayedFetch, None] = {}
        self.next_warning_at = 0.0
        """When, on the event loop's clock, the next warning of its records' times is due."""
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._cleaning: CleaningJob | None = None  # the run that is under way
        self._is_closing = False
        self.writes = WriteQueue(log, workers, checkers, max_uncompressed_bytes, self._tell)
        """Appends, in the order of the calls."""
        self._hot_offset = self._next_hot_offset = log.log_end_offset
        self._bytes_since_hot = 0
        self._told_stable = log.last_stable_offset  # as listeners know it
        self._unstable_bytes = 0  # appended behind it

    # --- writing ----------------------------------------------------------------------

    def admit(self, producer_id: int, *, is_strict: bool) -> Admission:
        """The admission of a batch that is appended before anything else is awaited.

        The coordinator of its producer has this partition in the transaction. See `Admission`.
        """
        return self._log.producers.admit(producer_id, is_strict=is_strict)

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

    def active_producers(self) -> "asyncio.Future[list[ActiveProducer]]":
        """The producers that the log knows, after all writes that are validated by now."""
        return self.run(self._log.producers.active)

    @property
    def has_open_transactions(self) -> bool:
        """Whether readers of committed records wait for the end of a transaction."""
        return self._log.has_open_transactions

    @property
    def open_count(self) -> int:
        """How many transactions they wait for."""
        return max(0, self._log.producers.open_count - len(self._log.unended))

    def open_transactions(self, most: int) -> list[OpenNow]:
        """The first of these, in the order of their first offsets."""
        unended = {(each.producer_id, each.first_offset) for each in self._log.unended}
        opened = self._log.producers.open_now(most + len(unended))
        found = [each for each in opened if (each.producer_id, each.first_offset) not in unended]
        return found[:most]

    def end_unended(self, clock: Clock) -> "asyncio.Future[None]":
        """Write the markers of transactions that another broker left open; see the log."""
        return self.run(lambda: self._log.end_unended(clock.now_ms()))

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a call on the log in a thread, after all writes that are validated by now."""
        return self.writes.run(call)

    def change(self, change: Callable[[Log], T]) -> "asyncio.Future[T]":
        """Run a change of a log that follows; listeners hear of what it appends."""
        return self.writes.run(lambda: change(self._log))

    @property
    def refusal(self) -> str | None:
        """Why the disk refused the last append; None if it did not."""
        return self._log.refusal

    @property
    def truncations(self) -> int:
        """See `Log.truncations`; any thread may ask."""
        return self._log.truncations

    @property
    def is_closed(self) -> bool:
        """Whether the partition is no longer served."""
        return self._is_closing or self.writes.is_closed

    @property
    def counts(self) -> BlockTotals:
        """See `Log.counts`."""
        return self._log.counts

    # --- following --------------------------------------------------------------------

    def begin_following(self) -> "asyncio.Future[None]":
        """Take the batches of a source, and no more those of producers; see the log."""
        return self.run(lambda: self._log.begin_following(self._log.log_end_offset))

    def lead(self, epoch: int, clock: Clock, committed: Container[int]) -> "asyncio.Future[None]":
        """Take the batches of producers in this epoch, unless the log leads; see there."""

        def lead() -> None:
            if self._log.is_following:
                self._log.lead(epoch, clock.now_ms(), committed=committed)

        return self.run(lead)

    def producers_here(self) -> "asyncio.Future[PartitionHere]":
        """What the log has of transactions, after all writes that are validated by now."""

        def read() -> PartitionHere:
            states, log = self._log.producers, self._log
            said = {each[:2] for each in log.unended}
            opened = [each[0] for each in states.unended() if each not in said]
            return PartitionHere(
                log.log_end_offset,
                {id_: states.epochs_of(id_).producer for id_ in opened},
                {id_: state.last_end for id_, state in states if state.last_end is not None},
            )

        return self.run(read)

    # --- settings, retention, flushing ------------------------------------------------

    def obey(self, config: TopicConfig, *, retention_exempt: bool) -> None:
        """Apply settings from the next request on; adopted partitions are exempt from retention."""
        self._log.config = config
        self._log.retention_exempt = retention_exempt

    def delete_records(self, offset: int) -> "asyncio.Future[int]":
        """Advance the log start offset; return it. See `Log.delete_records`."""
        return self.run(lambda: self._log.delete_records(offset))

    def apply_retention(self, clock: Clock) -> "asyncio.Future[list[DeletedSegment]]":
        """Delete segments by retention; return them with the reason."""
        return self.run(lambda: self._log.apply_retention(clock.now_ms(), clock.monotonic_ms()))

    # --- compaction -------------------------------------------------------------------

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner is to clean it."""
        return self._log.config.compacts and not self._log.retention_exempt

    def cleanable(self, now_ms: int) -> Cleanable | None:
        """What of it may be cleaned; any thread may ask. See the log."""
        return self._log.cleanable(now_ms)

    @property
    def rolls_overdue(self) -> bool:
        """Whether `max.compaction.lag.ms` may roll its active segment."""
        log = self._log
        return log.config.max_compaction_lag_ms < LONG_MAX and log.active.segment.size > 0

    def roll_overdue(self, clock: Clock) -> "asyncio.Future[None]":
        """Roll the active segment if `max.compaction.lag.ms` is over for what it holds."""

        def roll() -> None:
            now_ms = clock.now_ms()
            if self._log.must_roll_to_clean(now_ms):
                self._log.roll(now_ms)

        return self.run(roll)

    async def begin_cleaning(self, chosen: Cleanable) -> bool:
        """Note that it is cleaned from now on; whether that is new.

        A kill within its first run leaves gaps, which are no damage where there is a cleaner point.
        """
        if self._log.cleaner_point is not None:
            return False
        await self.run(lambda: self._log.cleaned_to(chosen.first_dirty))
        return True

    def clean(
        self,
        chosen: Cleanable,
        key_map: "KeyMap",
        clock: Clock,
        hold: "Callable[[int, threading.Event], None]",
        threads: Executor,
    ) -> "CleaningJob":
        """Clean what was chosen in a thread; no other run may be under way.

        Args:
            key_map: an empty one.
            hold: called with the bytes of each piece, and an event that ends the wait.
        """
        assert self._cleaning is None
        cleaning = Cleaning(
            self._log, chosen, key_map, now_ms=clock.now_ms, monotonic_ms=clock.monotonic_ms
        )
        self._cleaning = job = CleaningJob(self, cleaning, hold, threads)
        job.done.add_done_callback(self._on_cleaned)
        return job

    def _on_cleaned(self, done: "asyncio.Future[None]") -> None:
        self._cleaning = None

    def set_aside(self) -> list[tuple[str, int]]:
        """The files that recovery has set aside, with their sizes; any thread may ask."""
        return self._log.removed_files.set_aside()

    @property
    def has_deleted_files(self) -> bool:
        """Whether there are deleted files that `remove_deleted` will remove."""
        return self._log.removed_files.are_waiting

    def remove_deleted(self, clock: Clock) -> "asyncio.Future[int]":
        """Remove files of deleted segments whose `file.delete.delay.ms` has elapsed; how many."""
        return self.run(lambda: self._log.removed_files.remove_due(clock.monotonic_ms()))

    @property
    def has_producers(self) -> bool:
        """Whether there is state of idempotent producers."""
        return len(self._log.producers) > 0

    @property
    def highest_producer_id(self) -> int:
        """See `Producers.highest_id`. For `run`."""
        return self._log.producers.highest_id

    def expire_producers(self, clock: Clock, expiration_ms: int) -> "asyncio.Future[int]":
        """Expire idempotent producers that were inactive for `expiration_ms`; return how many."""
        return self.run(lambda: self._log.producers.expire(clock.now_ms(), expiration_ms))

    def reset_append_time(self, clock: Clock) -> "asyncio.Future[AppendTimeReset | None]":
        """Lower the append time of new records to the clock, read when the reset runs."""
        return self.run(lambda: self._log.reset_append_time(clock.now_ms()))

    @property
    def is_in_doubt(self) -> bool:
        """Whether a flush failed: appends are refused until one succeeds."""
        return self._log.is_in_doubt

    def must_flush(self, monotonic_ms: int) -> bool:
        """Whether `flush.ms` has elapsed, or a failed flush is to be tried again."""
        log = self._log
        return log.is_in_doubt or (log.config.flush_ms < LONG_MAX and log.flush_due(monotonic_ms))

    def flush(self) -> "asyncio.Future[None]":
        """Flush the log in a thread, concurrently with appends."""
        return self._loop.run_in_executor(self._workers, self._log.flush)

    def flush_rolled(self) -> "asyncio.Future[None]":
        """Flush the segments before the active one, concurrently with appends."""
        return self._loop.run_in_executor(self._workers, self._log.flush_rolled)

    async def close(self) -> None:
        """Refuse further writes, complete the queued ones, and notify listeners."""
        self._is_closing = True
        if self._cleaning is not None:
            await self._cleaning.stop()
        await self.writes.close()
        for listener in list(self.listeners):
            listener.on_gone()

    # --- reading ----------------------------------------------------------------------

    def is_hot(self, offset: int, *, committed: bool) -> bool:
        """Whether a read from `offset` finds its records in the page cache."""
        return offset >= self._hot_offset and not (committed and self._log.has_transactions)

    def check_indexes(self, readers: Executor) -> "asyncio.Future[bool]":
        """Check the indexes of one segment among the reads; see `Log.check_indexes`."""
        return self._loop.run_in_executor(readers, self._log.check_indexes)

    def _tell(self, size: int) -> None:
        """Note that the log has grown, and notify the listeners."""
        self._bytes_since_hot += size
        if self._bytes_since_hot >= HOT_BYTES:
            self._bytes_since_hot = 0
            self._hot_offset = self._next_hot_offset
            self._next_hot_offset = self._log.log_end_offset
        log, stable_size = self._log, size
        if log.has_transactions and not log.is_following:
            stable, stable_size = log.last_stable_offset, size + self._unstable_bytes
            self._unstable_bytes = 0
            if stable == self._told_stable:  # only what is open has grown
                self._unstable_bytes, stable_size = stable_size, 0
            self._told_stable = stable
        if self.listeners:
            for listener in list(self.listeners):
                listener.on_growth(stable_size if listener.is_committed else size)


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
        """What it has done so far; any thread may look."""
        self._partition = partition
        self._cleaning = cleaning
        self._hold = hold
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.run_in_executor(threads, self._work)
        """Set when the thread has ended."""

    async def wait(self) -> None:
        """Wait for its end; cancelled, it stops the run and waits for that.

        Raises:
            HorologError: the partition cannot be cleaned.
        """
        try:
            await asyncio.shield(self.done)
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End it within the piece that it is at, and wait for that."""
        self._stop.set()
        await asyncio.wait([self.done])

    def _work(self) -> None:
        with closing(self._cleaning.steps(self._exclusively)) as steps:
            for progress in steps:
                if self._stop.is_set():
                    return
                self._hold(progress.read_bytes + progress.written_bytes, self._stop)

    def _exclusively(self, call: Callable[[], bool]) -> bool:
        """Make a call on the log that no write runs beside; from the run's thread."""

        async def in_order() -> bool:
            return not self._stop.is_set() and await self._partition.run(call)

        return asyncio.run_coroutine_threadsafe(in_order(), self._loop).result()


def log_failure(flushed: "asyncio.Future[None]") -> None:
    """Log that a flush of rolled segments failed; the log refuses appends until one succeeds."""
    error = None if flushed.cancelled() else flushed.exception()
    if isinstance(error, HorologError):
        _LOG.error("a segment could not be flushed: %s", error)
    elif error is not None:
        raise error
