"""The broker's background tasks: retention, flushing, checkpoints, expiry.

The event loop's time determines when a task runs. The Clock determines which items are due, so that
a test moves the clock and calls the task. `flush.ms` is measured with the monotonic clock, because
flushing protects against power failures, which happen in real time.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from typing import Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from horolog.broker.catalogue import Catalogue
from horolog.broker.cleaner import Cleaner
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.broker.coordinators.transaction_coordinator import TransactionCoordinator
from horolog.broker.partition import Partition
from horolog.clock import MINUTE_MS, SystemClock
from horolog.config import LONG_MAX
from horolog.errors import HorologError
from horolog.storage.log_dir.log_dir import LogDir
from horolog.storage.removal.removed_files import DeletedSegment

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

TIDY_INTERVAL_MS: Final = 1_000
LONGEST_FLUSH_INTERVAL_MS: Final = 1_000  # Kafka's default is never
SHORTEST_INTERVAL_MS: Final = 10  # some settings allow 0, which must not keep a thread busy


class PeriodicTask(NamedTuple):
    """A task that runs periodically."""

    run: Callable[[], Awaitable[object]]
    interval_ms: int
    delay_ms: int
    """Pause before the first run."""


class Expired(NamedTuple):
    """Numbers of expired items."""

    segments: int
    offsets: int
    producers: int


class BackgroundTasks:
    """Background tasks of a broker. For the event loop's thread only."""

    def __init__(
        self,
        catalogue: Catalogue,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        others: Iterable[PeriodicTask],
        cleaner: Cleaner,
        on_lost: Callable[[str], object],
        readers: Executor,
    ) -> None:
        """Run nothing yet.

        Args:
            others: tasks of other parts.
            on_lost: called with the reason once the log directory is lost.
        """
        self._live, self._clock, _, self._partitions, _ = catalogue
        self._groups = groups
        self._transactions = transactions
        self._others = others
        self._cleaner = cleaner
        self._on_lost = on_lost
        self._readers = readers
        self.monotonic_ms: Callable[[], int] = SystemClock().monotonic_ms
        self._tasks: list[asyncio.Task[None]] = []
        self.failures: Counter[str] = Counter()
        """Failed runs since the start, by task; of one that is done for each partition, of these.
        """
        # The last failure of each task; of a partition while it is served.
        self._complaints: WeakKeyDictionary[object, dict[str, str]] = WeakKeyDictionary()

    def start(self) -> None:
        """Run each task at its interval."""
        config = self._live.config
        first_ms = config.log_initial_task_delay_ms
        flush_ms = min(config.log_flush_scheduler_interval_ms, LONGEST_FLUSH_INTERVAL_MS)
        for task, interval_ms, delay_ms in (
            (self.run_retention, config.log_retention_check_interval_ms, first_ms),
            (self.tidy, TIDY_INTERVAL_MS, TIDY_INTERVAL_MS),
            *self._others,
            (self.check_indexes, TIDY_INTERVAL_MS, TIDY_INTERVAL_MS),
            (self.flush, flush_ms, flush_ms),
            (self.checkpoint, config.log_flush_offset_checkpoint_interval_ms, first_ms),
            (self.expire_offsets, config.offsets_retention_check_interval_ms, None),
            (self.expire_producers, config.producer_id_expiration_check_interval_ms, None),
            (
                self._transactions.abort_timed_out,
                config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                None,
            ),
            (
                self._transactions.remove_expired,
                config.transaction_remove_expired_transaction_cleanup_interval_ms,
                None,
            ),
        ):
            delay = interval_ms if delay_ms is None else delay_ms
            self._tasks.append(asyncio.create_task(self._repeat(task, interval_ms, delay)))

    async def stop(self) -> None:
        """Stop all tasks; a running one is cancelled between two partitions."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def expire(self) -> Expired:
        """Run every task that is due by the clock, after a test has moved it."""
        await self.catch_up()
        deleted = await self.run_retention()
        await self.tidy()
        expired = Expired(len(deleted), await self.expire_offsets(), await self.expire_producers())
        await self._transactions.remove_expired()
        return expired

    async def catch_up(self) -> None:
        """Abort transactions that have timed out, and compact partitions that are due.

        The clock of append times follows a clock that was set back.
        """
        await self._partitions.keep_stamp_clock()
        await self._transactions.settle()  # those that are not loaded yet time out, too
        await self._transactions.abort_timed_out()
        await self._transactions.settle()
        if self._live.config.log_cleaner_enable:
            await self._cleaner.clean_all()

    async def run_retention(self) -> list[tuple[str, DeletedSegment]]:
        """Delete segments that have outlived `retention.ms` or `retention.bytes`; return them."""
        deleted, clock = [], self._clock
        for partition in list(self._partitions.values()):
            retention = partition.change(
                lambda log: log.apply_retention(clock.now_ms(), clock.monotonic_ms())
            )
            gone = await self._do("retention", partition, retention) or ()
            for segment in gone:
                _LOG.info(
                    "%s: deleted segment %d of %d bytes: %s",
                    partition.name,
                    segment.base_offset,
                    segment.size,
                    segment.reason,
                )
                deleted.append((partition.name, segment))
                if not partition.is_closed:
                    key = partition.topic, segment.because.value
                    self._partitions.traffic.deleted_bytes[key] += segment.size
        return deleted

    async def tidy(self) -> None:
        """Remove deleted files, and check that the log directory still exists."""
        clock = self._clock
        for partition in list(self._partitions.values()):
            if partition.log.removed_files.are_waiting:
                removal = partition.change(
                    lambda log: log.removed_files.remove_due(clock.monotonic_ms())
                )
                await self._do("removal of deleted files", partition, removal)
        monotonic_ms = self._clock.monotonic_ms()
        await self._partitions.run(lambda log_dir: log_dir.remove_deleted(monotonic_ms))
        if self._partitions.refusal is None:
            refusal = await self._partitions.check()
            if refusal is not None:
                _LOG.error("%s", refusal)
                self._on_lost(refusal)

    async def check_indexes(self) -> None:
        """Check the indexes without a valid seal that lookups use, one segment at a time."""
        for partition in list(self._partitions.values()):
            while partition.log.wants_index_check and not partition.is_closed:
                check = partition.check_indexes(self._readers)
                if not await self._do("check of the indexes", partition, check):
                    break

    async def flush(self) -> None:
        """Flush logs whose `flush.ms` has elapsed, and retry failed flushes."""
        monotonic_ms = self.monotonic_ms()
        for partition in list(self._partitions.values()):
            doubted = partition.log.is_in_doubt
            if partition.must_flush(monotonic_ms):
                await self._do("flush", partition, partition.flush())
            if doubted and not partition.log.is_in_doubt:
                _LOG.info("%s: all is on the disk again after a failed flush", partition.name)

    async def checkpoint(self) -> None:
        """Checkpoint the recovery points, so that a start after a kill has less to check."""
        await self._partitions.run(LogDir.checkpoint)

    async def expire_offsets(self) -> int:
        """Expire committed offsets; return their number."""
        minutes = self._live.config.offsets_retention_minutes
        return await self._groups.expire(minutes * MINUTE_MS)

    async def expire_producers(self) -> int:
        """Expire inactive idempotent producers; return their number."""
        gone, clock = 0, self._clock
        limit_ms = self._live.config.producer_id_expiration_ms
        for partition in list(self._partitions.values()):
            if len(partition.log.producers):
                expiry = partition.change(
                    lambda log: log.producers.expire(clock.now_ms(), limit_ms)
                )
                gone += await self._do("expiry", partition, expiry) or 0
        return gone

    async def _do(self, what: str, partition: Partition, job: Awaitable[T]) -> T | None:
        """Await a job of one partition, and log its failure without affecting the others."""
        doing = f"{what} of {partition.name}"
        try:
            done = await job
        except HorologError as error:
            if not partition.is_closed:
                self.failures[what] += 1
                self._complain(partition, doing, error)
            return None
        self._succeeded(partition, doing)
        return done

    def _complain(self, subject: object, doing: str, error: HorologError) -> None:
        """Log a repeated failure once; `subject` is a partition, or this object for all of them."""
        complaints, why = self._complaints.setdefault(subject, {}), str(error)
        if complaints.get(doing) != why:
            complaints[doing] = why
            _LOG.error("%s: %s", doing, why)

    def _succeeded(self, subject: object, doing: str) -> None:
        complaints = self._complaints.get(subject)
        if complaints is not None:
            complaints.pop(doing, None)

    async def _repeat(
        self, task: Callable[[], Awaitable[object]], interval_ms: int, delay_ms: int
    ) -> None:
        await asyncio.sleep(min(delay_ms, LONG_MAX >> 32) / 1000)
        doing = task.__name__
        while True:
            try:
                await task()
                self._succeeded(self, doing)
            except HorologError as error:
                self.failures[doing] += 1
                self._complain(self, doing, error)
            except Exception:  # noqa: BLE001 - a bug in one round does not end the task for good
                self.failures[doing] += 1
                _LOG.exception("a bug in %s", doing)
            pause_ms = max(min(interval_ms, LONG_MAX >> 32), SHORTEST_INTERVAL_MS)
            await asyncio.sleep(pause_ms / 1000)
