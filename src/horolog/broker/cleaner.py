"""Compacts logs in the background, the dirtiest of the due ones first.

A run reads and writes in a thread of its own, in pieces: between two of them it is held to
`log.cleaner.io.max.bytes.per.second`, and stops at once when its partition or the broker does. What
becomes of segments is put in their place between two writes to the log (storage/logs/cleaning.py).

A partition that cannot be cleaned is left out; the others are cleaned. It is reported in the log,
by `horolog health` and in the metrics. After damage of the log or an index it is left out until a
restart. After a refusal by the disk, a lack of memory or a bug it is retried ten minutes later.

The event loop's time determines when the cleaner looks. The Clock determines which partitions are
due.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from horolog.broker.catalogue import Catalogue
from horolog.broker.partition import Partition
from horolog.broker.scheduling.pace import ThreadPace
from horolog.clock import MINUTE_MS, SystemClock
from horolog.errors import HorologError, StorageFailed
from horolog.record.kernels.loading import CLEANING_KERNELS
from horolog.storage.cleaning.choosing import Cleanable
from horolog.storage.log_dir.log_dir import LogDir
from horolog.storage.logs.cleaning import CleaningRun

if TYPE_CHECKING:
    from horolog.storage.cleaning.key_map import KeyMap

_LOG = logging.getLogger(__name__)

MOST_THREADS: Final = 64
RETRY_MS: Final = 10 * MINUTE_MS
SHORTEST_PAUSE_MS: Final = 10  # log.cleaner.backoff.ms may be 0
_LONGEST_PAUSE_MS: Final = 500  # until the settings are looked at again
_LOADING_PAUSE_S: Final = 0.1


class Uncleanable(NamedTuple):
    """Reason why a partition is left out."""

    reason: str
    retry_at_ms: int | None
    """Monotonic time of the next try; None if there is none."""


class Cleaner:
    """Compacts the partitions of a broker. For the event loop's thread only."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._live, self._clock, _, self._partitions, _ = catalogue
        self.pace = ThreadPace()
        """Limits all threads to `log.cleaner.io.max.bytes.per.second`."""
        self._executor: ThreadPoolExecutor | None = None  # made when there is something to clean
        self._busy: dict[Partition, asyncio.Future[None]] = {}  # set when the run has ended
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._steward: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.monotonic_ms = SystemClock().monotonic_ms
        self.runs: WeakKeyDictionary[Partition, CleaningRun] = WeakKeyDictionary()
        """Last or current run of each partition."""
        self.found: WeakKeyDictionary[Partition, Cleanable] = WeakKeyDictionary()
        """Cleanable range of each compacted partition, as of `looked_ms`."""
        self.looked_ms: int | None = None
        """Time of the last look, by the clock."""
        self._uncleanable: WeakKeyDictionary[Partition, Uncleanable] = WeakKeyDictionary()

    # --- what it does by itself -------------------------------------------------------

    def start(self) -> None:
        """Start cleaning, unless `log.cleaner.enable` is false."""
        if self._live.config.log_cleaner_enable:
            self._steward = asyncio.create_task(self._employ())

    async def stop(self) -> None:
        """Stop all runs within the piece that each is cleaning, and start no more."""
        self._is_stopped = True
        tasks = [*self._tasks.values(), *([self._steward] if self._steward else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    async def _employ(self) -> None:
        """Keep as many tasks as `log.cleaner.threads` says, which may change."""
        while True:
            count = min(self._live.config.log_cleaner_threads, MOST_THREADS)
            for number in range(count):
                task = self._tasks.get(number)
                if task is None or task.done():
                    self._tasks[number] = asyncio.create_task(self._work(number))
            await asyncio.sleep(_LONGEST_PAUSE_MS / 1000)

    async def _work(self, number: int) -> None:
        while number < self._live.config.log_cleaner_threads:
            try:
                if await self.clean_dirtiest():
                    continue
            except HorologError as error:
                _LOG.error("the cleaner: %s", error)
            except Exception:  # noqa: BLE001 - a bug in one round does not end the task for good
                _LOG.exception("a bug in the cleaner")
            started_ms = self.monotonic_ms()
            while True:
                backoff_ms = self._live.config.log_cleaner_backoff_ms
                left_ms = max(backoff_ms, SHORTEST_PAUSE_MS) - (self.monotonic_ms() - started_ms)
                if left_ms <= 0:
                    break
                await asyncio.sleep(min(left_ms, _LONGEST_PAUSE_MS) / 1000)

    # --- one run ----------------------------------------------------------------------

    async def clean_all(self) -> list[str]:
        """Clean every due partition, and wait for runs that have begun.

        Returns:
            The names of the partitions, once for each run that this has done.
        """
        cleaned = []
        while True:
            name = await self.clean_dirtiest()
            if name is not None:
                cleaned.append(name)
            elif self._busy:
                await asyncio.wait(list(self._busy.values()))
            else:
                return cleaned

    async def clean_dirtiest(self) -> str | None:
        """Clean the dirtiest due partition; return its name, or None if no partition is due.

        One for which `max.compaction.lag.ms` is over goes before those for which it is not.
        """
        due = await self._due()
        due.sort(key=lambda item: (item[1].overdue_ms > 0, item[1].ratio), reverse=True)
        for partition, chosen in due:
            if partition not in self._busy and not partition.is_closed:
                ended = self._busy[partition] = asyncio.get_running_loop().create_future()
                try:
                    await self._clean(partition, chosen)
                finally:
                    del self._busy[partition]
                    ended.set_result(None)
                return partition.name
        return None

    async def _due(self) -> list[tuple[Partition, Cleanable]]:
        compacted = [partition for partition in self._partitions.values() if partition.is_compacted]
        self.looked_ms = self._clock.now_ms()
        if not compacted or self._is_stopped:
            return []
        for partition in compacted:
            if partition.rolls_overdue and partition not in self._busy:
                await self._try(partition, partition.roll_overdue(self._clock))
        loop, now_ms = asyncio.get_running_loop(), self._clock.now_ms()
        candidates = [partition for partition in compacted if not self._is_left_out(partition)]
        looked = await loop.run_in_executor(
            self._threads(), lambda: [_look(candidate, now_ms) for candidate in candidates]
        )
        due = []
        for partition, found in zip(candidates, looked, strict=True):
            if isinstance(found, Exception):
                self._leave_out(partition, found)
            elif found is not None:
                self.found[partition] = found
                if found.is_due(partition.log.config):
                    due.append((partition, found))
        return due

    async def _clean(self, partition: Partition, chosen: Cleanable) -> None:
        config = self._live.config
        share = config.log_cleaner_dedupe_buffer_size // max(1, config.log_cleaner_threads)

        def hold(size: int, stop: threading.Event) -> None:
            live = self._live
            self.pace.wait(size, lambda: live.config.log_cleaner_io_max_bytes_per_second, stop)

        def new_map() -> "KeyMap":
            from horolog.storage.cleaning.key_map import (  # noqa: PLC0415 - numpy, if needed
                KeyMap,
            )

            return KeyMap(share, config.log_cleaner_io_buffer_load_factor)

        async def clean() -> None:
            loop = asyncio.get_running_loop()
            CLEANING_KERNELS.note_work(chosen.clean_bytes + chosen.dirty_bytes)
            while CLEANING_KERNELS.is_loading:
                await asyncio.sleep(_LOADING_PAUSE_S)
            key_map = await loop.run_in_executor(self._threads(), new_map)
            if await partition.begin_cleaning(chosen):
                await self._partitions.run(LogDir.checkpoint_cleaner)
            job = partition.clean(chosen, key_map, self._clock, hold, self._threads())
            self.runs[partition] = job.run
            await job.wait()

        if not await self._try(partition, clean()):
            return
        run = self.runs[partition]
        if not run.is_whole:
            _LOG.info("%s: cleaning stopped, as its segments or settings changed", partition.name)
            return
        self._uncleanable.pop(partition, None)
        await self._partitions.run(LogDir.checkpoint_cleaner)
        _LOG.info(
            "%s: cleaned offsets %d to %d: %d of %d records and %d of %d bytes are left, in %d ms",
            partition.name,
            run.from_offset,
            run.end_offset,
            run.records_after,
            run.records_before,
            run.bytes_after,
            run.bytes_before,
            (run.ended_ms or run.started_ms) - run.started_ms,
        )

    async def _try(self, partition: Partition, job: Awaitable[None]) -> bool:
        """Await the job of one partition; return True if it succeeded."""
        try:
            await job
        except Exception as error:  # noqa: BLE001 - a bug, or memory that one run lacks, likewise
            if not partition.is_closed:
                self._leave_out(partition, error)
            return False
        return not partition.is_closed

    # --- what cannot be cleaned -------------------------------------------------------

    def uncleanable(self) -> Iterator[tuple[Partition, str]]:
        """Yield the partitions that are left out, each with the reason."""
        for partition, left_out in list(self._uncleanable.items()):
            if not partition.is_closed and partition.is_compacted:
                yield partition, left_out.reason

    def _leave_out(self, partition: Partition, error: Exception) -> None:
        known = self._uncleanable.get(partition)
        is_foreseen = isinstance(error, HorologError)
        is_damage = is_foreseen and not isinstance(error, StorageFailed)
        retry_ms = None if is_damage else self.monotonic_ms() + RETRY_MS
        reason = str(error) if is_foreseen else f"{type(error).__name__} {error}".rstrip()
        self._uncleanable[partition] = Uncleanable(reason, retry_ms)
        if known is None or known.reason != reason:
            _LOG.error(
                "%s cannot be cleaned, and is left out %s: %s",
                partition.name,
                "until a restart" if is_damage else "and tried again in ten minutes",
                reason,
                exc_info=None if is_foreseen else error,
            )

    def _is_left_out(self, partition: Partition) -> bool:
        known = self._uncleanable.get(partition)
        if known is None:
            return False
        return known.retry_at_ms is None or known.retry_at_ms > self.monotonic_ms()

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="horolog-clean")
        return self._executor


def _look(partition: Partition, now_ms: int) -> Cleanable | Exception | None:
    try:
        return partition.log.cleanable(now_ms)
    except Exception as error:  # noqa: BLE001 - one partition's; the others are looked at
        return None if partition.is_closed else error
