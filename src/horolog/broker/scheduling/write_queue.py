"""Ordered write queue of a log: batches are validated, then appended.

A small batch is validated and appended on the event loop. A batch that takes longer to validate
(much to decompress or scan) is validated in `Checkers`; later batches of its client wait for it,
those of other clients do not. A write that may block (a roll, a flush) runs in a thread, and every
later write queues behind it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

from horolog.broker.scheduling.fair_pool import QUICK_BYTES, Checkers, FairPool
from horolog.broker.scheduling.jobs import Append, Failure, Job, perform
from horolog.buffers import Buffer
from horolog.config import LONG_MAX, TopicConfig
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.record.batch import MAGIC, codec_number_of
from horolog.record.compression import Codec, UncompressedTooLarge
from horolog.record.scan import kernels_ready
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.appendable import Appended
from horolog.storage.logs.incoming import Batch, Origin
from horolog.storage.logs.log import Log
from horolog.storage.producers.states import Admission
from horolog.storage.validation.validate import Prepared, is_old_format, prepare

T = TypeVar("T")

# The limits of scanning and decompressing on the event loop.
INLINE_BYTES: Final = 1 << 20
INLINE_SLOWLY_BYTES: Final = 64 * 1024  # while no kernels are loaded
INLINE_COMPRESSED_BYTES: Final = 16 * 1024  # of gzip, or while no kernels are loaded
INLINE_DECOMPRESSED_BYTES: Final = 64 * 1024  # of any batch of these
INLINE_RATIO: Final = 8  # beyond, a few bytes of a client would cost the event loop much
_COORDINATOR: Final = Origin.COORDINATOR  # a lookup of an enum member takes long
_FAST_CODECS: Final = frozenset({Codec.SNAPPY, Codec.LZ4, Codec.ZSTD})


class WriteQueue:
    """Pending writes of one log.

    For the event loop's thread only.

    `on_growth` is called on the event loop with the number of appended bytes.
    """

    def __init__(
        self,
        log: Log,
        workers: Executor,
        checkers: Checkers,
        max_uncompressed_bytes: int,
        on_growth: Callable[[int], None],
    ) -> None:
        self._log = log
        self._name = str(log)
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._checkers = checkers
        self._max_uncompressed_bytes = max_uncompressed_bytes
        self._on_growth = on_growth
        self._jobs: deque[Job] = deque()  # in write order
        self._unchecked: dict[Hashable, deque[Job]] = {}  # by client; each is in order
        self._handed: list[Job] = []  # to the thread that writes to the log
        self.busy: set[WriteQueue] = set()
        """The queues of a broker that are busy; all share it."""
        self._closing = False
        self.is_closed = False
        """True once all writes are refused."""

    @property
    def is_busy(self) -> bool:
        """True while a thread writes to the log, or validated writes wait for that."""
        return bool(self._handed or self._jobs)

    def append(
        self,
        batch: Buffer,
        now_ms: int,
        produce_version: int,
        owner: Hashable,
        *,
        in_thread: bool = False,
        admission: Admission | None = None,
        may_block: bool = True,
    ) -> "Appended | asyncio.Future[Appended]":
        """Validate and append a producer's batch.

        Returns the result, or its future.

        Batches of one owner are appended in the order of the calls.

        Args:
            owner: the connection of the client, which keeps the order of its batches.
            in_thread: the batch is validated in a thread, even if it is small.
            admission: permission of the transaction coordinator, for a batch of a transaction.
            may_block: the batch may be validated or written in a thread, or wait in the queue.

        Raises (or sets on the future):
            WouldBlock: it would, and may not; there is no effect.
            RequestRefused, CorruptBatch, StorageFailed: as storage does.
        """
        log, prepared = self._log, None
        config, stamp_ms = log.config, log.stamps.rise(now_ms)  # here, not in a thread
        if not (self._handed or self._jobs or self._closing or owner in self._unchecked):
            limit = None if in_thread else self._inline_limit(config, batch, produce_version)
            if limit is not None:
                try:
                    prepared = prepare(
                        batch,
                        config,
                        now_ms,
                        stamp_ms=stamp_ms,
                        partition=self._name,
                        produce_version=produce_version,
                        max_uncompressed_bytes=limit,
                        admission=admission,
                    )
                    appended = log.append(prepared, now_ms, may_block=False)
                except UncompressedTooLarge:
                    in_thread = True
                except WouldBlock:
                    pass
                else:
                    self._on_growth(appended.size)
                    return appended
        if not may_block:
            raise WouldBlock
        append = Append(
            owner, batch, config, now_ms, stamp_ms, produce_version, in_thread, admission, prepared
        )
        return self._queue(lambda: self._write(append), append)

    def append_own(
        self, batch: Batch, now_ms: int, *, may_block: bool = True
    ) -> "Appended | asyncio.Future[Appended]":
        """Append a batch that this broker made, without the rules for clients.

        The state of producers is noted where it has a producer id. Without sequences, as a
        coordinator writes offsets of a transaction, it is no duplicate of any.
        """
        if not (self._handed or self._jobs or self._closing):
            try:
                appended = self._log.append(batch, now_ms, _COORDINATOR, may_block=False)
            except WouldBlock:
                pass
            else:
                self._on_growth(appended.size)
                return appended
        if not may_block:
            raise WouldBlock
        self._log.stamps.rise(now_ms)  # here, not in the thread that writes it
        return self.run(partial(self._log.append, batch, now_ms, _COORDINATOR))

    def _append_nowait(self, append: Append) -> Appended | None:
        """Append on the event loop; return None if the batch may block or take long."""
        try:
            prepared = append.prepared
            if prepared is None:
                limit = self._limit_of(append)
                if limit is None:
                    return None
                prepared = append.prepared = self._check_batch(append, limit)
            now_ms = self._log.stamps.capped(append.now_ms)
            appended = self._log.append(prepared, now_ms, may_block=False)
        except UncompressedTooLarge:
            append.in_thread = True
            return None
        except WouldBlock:
            return None
        self._on_growth(appended.size)
        return appended

    def _limit_of(self, append: Append) -> int | None:
        return (
            None
            if append.in_thread
            else self._inline_limit(append.config, append.batch, append.produce_version)
        )

    def _inline_limit(self, config: TopicConfig, batch: Buffer, produce_version: int) -> int | None:
        """Return how many bytes a batch may decompress to on the event loop; None for a thread."""
        if config.compression_type != "producer":
            return None  # it may have to be compressed again
        if config.message_format_version != MAGIC or is_old_format(batch, produce_version):
            return None  # it becomes a batch of format v2, or messages of v0 or v1
        size = len(batch)
        codec = codec_number_of(batch)
        if codec in _FAST_CODECS and size <= INLINE_BYTES and kernels_ready():
            # A thread would cost more than decompressing: both wait for the interpreter's lock.
            limit = max(INLINE_DECOMPRESSED_BYTES, min(INLINE_RATIO * size, INLINE_BYTES))
            return min(self._max_uncompressed_bytes, limit)
        if codec:
            if size > INLINE_COMPRESSED_BYTES:
                return None
            return min(self._max_uncompressed_bytes, INLINE_DECOMPRESSED_BYTES)
        if size > INLINE_SLOWLY_BYTES and not (size <= INLINE_BYTES and kernels_ready()):
            return None
        return self._max_uncompressed_bytes

    def _check_batch(self, append: Append, max_uncompressed_bytes: int) -> Prepared:
        return prepare(
            append.batch,
            append.config,
            append.now_ms,
            stamp_ms=append.stamp_ms,
            partition=self._name,
            produce_version=append.produce_version,
            max_uncompressed_bytes=max_uncompressed_bytes,
            admission=append.admission,
        )

    def _write(self, append: Append) -> Appended:
        prepared = append.prepared
        assert prepared is not None
        return self._log.append(prepared, append.now_ms)

    def earliest_ms(self) -> int | None:
        """Return the earliest timestamp that a batch which waits may have.

        The largest number of 64 bits if none waits; None if there is no bound for one of them.
        """
        earliest_ms = LONG_MAX
        for job in chain(self._handed, self._jobs, *self._unchecked.values()):
            if (append := job.append) is not None:
                its_ms = append.config.earliest_ms(append.stamp_ms)
                if its_ms is None:
                    return None
                earliest_ms = min(earliest_ms, its_ms)
        return earliest_ms

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a call on the log in a thread, after all writes that are validated by now."""
        return self._queue(call)

    def run_nowait(self, call: Callable[[], T]) -> T:
        """Run a call on the log now, on the event loop.

        Raises:
            WouldBlock: other writes come first, or the call raises it.
        """
        if self._handed or self._jobs or self._closing:
            raise WouldBlock
        done = call()
        self._on_growth(done.size if isinstance(done, Appended) else 0)
        return done

    def _queue(
        self, call: Callable[[], Any], append: Append | None = None
    ) -> "asyncio.Future[Any]":
        done = self._loop.create_future()
        if self.is_closed or (self._closing and append is not None):
            done.set_exception(self._gone())
            return done
        job = Job(call, done, append)
        if append is None or (append.owner not in self._unchecked and self._needs_no_check(append)):
            self._jobs.append(job)
            self._advance()
            return done
        self._unchecked.setdefault(append.owner, deque()).append(job)
        if not self._needs_no_check(append):
            self._check(job, self._checkers.quick, QUICK_BYTES)
        return done

    def _needs_no_check(self, append: Append) -> bool:
        """True if the batch is validated, or is validated at its turn."""
        return append.prepared is not None or self._limit_of(append) is not None

    def _check(self, job: Job, pool: FairPool, max_bytes: int) -> None:
        append = job.append
        assert append is not None
        limit = min(max_bytes, self._max_uncompressed_bytes)

        def on_done(check: "Future[Prepared]") -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._on_checked, job, append, check, limit)

        append.check = pool.submit(append.owner, lambda: self._check_batch(append, limit))
        append.check.add_done_callback(on_done)

    def _on_checked(self, job: Job, append: Append, check: "Future[Prepared]", limit: int) -> None:
        error = self._gone() if check.cancelled() else check.exception()
        if isinstance(error, HorologError):
            error = error.with_traceback(None)  # whose frames hold what was decompressed
        if isinstance(error, UncompressedTooLarge) and limit < self._max_uncompressed_bytes:
            if not self._closing:
                self._check(job, self._checkers.slow, self._max_uncompressed_bytes)
                return
            error = self._gone()
        append.check = None
        if error is None:
            append.prepared = check.result()
        else:
            append.is_refused = True
            job.settle(Failure(error))
        mine = self._unchecked[append.owner]
        while mine and (first := mine[0].append) is not None and first.check is None:
            job = mine.popleft()
            if not first.is_refused:
                self._jobs.append(job)
        if not mine:
            del self._unchecked[append.owner]
        self._advance()

    async def written(self) -> None:
        """Wait until the log has everything that got an append time by now.

        A thread may have given a batch its append time, and not have written it yet.
        """
        if self.is_busy:
            with suppress(RequestRefused):  # it was closed, after all of them
                await self.run(lambda: None)

    def _advance(self) -> None:
        """Continue the queued jobs, and note whether any is left."""
        self._perform_jobs()
        if self.is_busy:
            self.busy.add(self)
        else:
            self.busy.discard(self)

    def _perform_jobs(self) -> None:
        """Write queued jobs on the event loop while possible, the rest in a thread."""
        left = INLINE_BYTES
        while self._jobs and not self._handed:
            if left <= 0:
                self._loop.call_soon(self._advance)
                return
            job = self._jobs[0]
            append = job.append
            if append is None:
                self._hand_over()
                return
            outcome: Appended | Failure | None
            try:
                outcome = self._append_nowait(append)
            except Exception as error:  # noqa: BLE001 - set on its future
                outcome = Failure(error)
            if outcome is not None:
                self._jobs.popleft()
                job.settle(outcome)
                left -= len(append.batch)
            elif append.prepared is not None:
                self._hand_over()
            else:
                self._take_back(append.owner)

    def _take_back(self, owner: Hashable) -> None:
        """Validate the first batch of a client in a thread; its later batches wait."""
        jobs, self._jobs = self._jobs, deque()
        mine: deque[Job] = deque()
        for job in jobs:
            is_mine = job.append is not None and job.append.owner == owner
            (mine if is_mine else self._jobs).append(job)
        mine += self._unchecked.get(owner, ())
        self._unchecked[owner] = mine
        self._check(mine[0], self._checkers.quick, QUICK_BYTES)

    def _hand_over(self) -> None:
        """Hand the validated jobs at the head of the queue to a thread."""
        jobs: list[Job] = []
        while self._jobs and self._jobs[0].is_ready:
            jobs.append(self._jobs.popleft())
        self._handed = jobs
        work = self._loop.run_in_executor(self._workers, perform, [job.call for job in jobs])
        work.add_done_callback(lambda work: self._on_worked(jobs, work.result()))

    def _on_worked(self, jobs: list[Job], outcomes: list[Any]) -> None:
        self._handed = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.settle(outcome)
        self._on_growth(sum(done.size for done in outcomes if isinstance(done, Appended)))
        self._advance()

    async def close(self) -> None:
        """Refuse further writes, and complete the queued ones.

        A batch whose validation has not started is refused; thousands may be queued.
        """
        self._closing = True
        while self._handed or self._jobs or self._unchecked:
            for job in [job for jobs in self._unchecked.values() for job in jobs]:
                if job.append is not None and job.append.check is not None:
                    job.append.check.cancel()
            if unchecked := [job.done for jobs in self._unchecked.values() for job in jobs]:
                await asyncio.wait(unchecked)
            await self.run(lambda: None)
        self.is_closed = True

    def _gone(self) -> RequestRefused:
        return RequestRefused(
            ErrorCode.unknown_topic_or_partition, f"{self._name} is no longer served here"
        )
