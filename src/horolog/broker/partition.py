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

from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.record.batch import codec_number_of
from horolog.storage.log import Appended, Log
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
    """One partition of this broker. For the event loop's thread only."""

    def __init__(self, log: Log, workers: Executor, max_uncompressed_bytes: int) -> None:
        self.log = log
        self.name = str(log)
        self.listeners: dict[Listener, None] = {}
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._max_uncompressed_bytes = max_uncompressed_bytes
        self._jobs: deque[_Job] = deque()
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
        return self.log.leader_epoch

    def check_epoch(self, epoch: int) -> RequestRefused | None:
        """Why a client that believes in this epoch cannot be answered; -1 believes in none."""
        if epoch in (-1, self.log.leader_epoch):
            return None
        code = ErrorCode.unknown_leader_epoch
        if epoch < self.log.leader_epoch:
            code = ErrorCode.fenced_leader_epoch
        return RequestRefused(
            code, f"{self.name} is led in epoch {self.log.leader_epoch}, not in {epoch}"
        )

    # --- writing ----------------------------------------------------------------------

    def append(
        self, batch: Bytes, now_ms: int, produce_version: int
    ) -> "Written | asyncio.Future[Written]":
        """Check and append what a producer sent; at once if nothing is in the way.

        Raises (or sets on the future):
            RequestRefused, CorruptBatch, StorageFailed: as storage does.
        """
        append = _Append(batch, now_ms, produce_version)
        if not self._working and not self._closed:
            written = self._append_at_once(append)
            if written is not None:
                return written
        return self._queue(_Job(lambda: self._append_in_thread(append), append))

    def _append_at_once(self, append: "_Append") -> Written | None:
        """Append on the event loop; None if that might have to wait for something."""
        batch = append.batch
        codec = codec_number_of(batch)
        limit = self._max_uncompressed_bytes
        if codec:
            limit = min(limit, INLINE_DECOMPRESSED_BYTES)
        if (
            len(batch) > (INLINE_COMPRESSED_BYTES if codec else INLINE_BYTES)
            or self.log.config.compression_type != "producer"  # may have to be packed anew
        ):
            return None
        try:
            append.prepared = self._prepare(append, limit)
        except RequestRefused as error:
            if codec and error.code is ErrorCode.message_too_large:
                return None  # small as sent, large inside
            raise
        prepared = append.prepared
        appended = self.log.append_at_once(prepared, append.now_ms)
        if appended is None:
            return None
        written = Written(appended, prepared.ahead_ms, len(prepared.batch))
        self._tell(written.size)
        return written

    def _append_in_thread(self, append: "_Append") -> Written:
        prepared = append.prepared
        if prepared is None:
            prepared = self._prepare(append, self._max_uncompressed_bytes)
        return self._write(prepared, append.now_ms)

    def _prepare(self, append: "_Append", max_uncompressed_bytes: int) -> Prepared:
        return prepare(
            append.batch,
            self.log.config,
            append.now_ms,
            partition=self.name,
            produce_version=append.produce_version,
            max_uncompressed_bytes=max_uncompressed_bytes,
        )

    def _write(self, prepared: Prepared, now_ms: int) -> Written:
        appended = self.log.append(prepared, now_ms)
        return Written(appended, prepared.ahead_ms, len(prepared.batch))

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Do something to the log in a thread, after all that was asked for before."""
        return self._queue(_Job(call))

    def _queue(self, job: "_Job") -> "asyncio.Future[Any]":
        job.done = self._loop.create_future()
        if self._closed:
            job.done.set_exception(_gone(self))
            return job.done
        self._jobs.append(job)
        if not self._working:
            self._hand_over()
        return job.done

    def _hand_over(self) -> None:
        """Give all that is queued to a thread, in one go."""
        jobs = list(self._jobs)
        self._jobs.clear()
        self._working = True
        work = self._loop.run_in_executor(self._workers, _perform, [job.call for job in jobs])
        work.add_done_callback(lambda work: self._on_worked(jobs, work.result()))

    def _on_worked(self, jobs: list["_Job"], outcomes: list[Any]) -> None:
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
            outcome: Written | _Failure | None
            try:
                outcome = self._append_at_once(job.append)
            except HorologError as error:
                outcome = _Failure(error)
            if outcome is None:
                return
            self._jobs.popleft()
            job.settle(outcome)
            left -= len(job.append.batch)

    @property
    def is_closed(self) -> bool:
        """Whether it is served no more."""
        return self._closed

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

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> Slice:
        """The stretch of file for a fetch; on the event loop only where `is_hot`."""
        return self.log.read(offset, max_bytes, min_one_batch=min_one_batch)

    def aborted(self, offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a committed reader has to know from there on.

        Only adopted logs have any: none are made here. What was open when its broker
        stopped is one of them, so that everything is stable.
        """
        if not self._has_transactions:
            return []
        found = self.log.aborted_transactions(offset, self.log.log_end_offset)
        return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]

    def _tell(self, size: int) -> None:
        """Take note of growth, and pass it on to those who wait for it."""
        self._bytes_since_hot += size
        if self._bytes_since_hot >= HOT_BYTES:
            self._bytes_since_hot = 0
            self._hot_offset = self._next_hot_offset
            self._next_hot_offset = self.log.log_end_offset
        if self.listeners:
            for listener in list(self.listeners):
                listener.on_growth(size)


class _Append:
    """A batch on its way; once checked it is not checked again."""

    __slots__ = ("batch", "now_ms", "prepared", "produce_version")

    def __init__(self, batch: Bytes, now_ms: int, produce_version: int) -> None:
        self.batch = batch
        self.now_ms = now_ms
        self.produce_version = produce_version
        self.prepared: Prepared | None = None


class _Failure:
    """What a job raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Job:
    """Something to be done to the log; `append` if that is all it does."""

    __slots__ = ("append", "call", "done")

    def __init__(self, call: Callable[[], Any], append: _Append | None = None) -> None:
        self.call = call
        self.append = append
        self.done: asyncio.Future[Any]

    def settle(self, outcome: Any) -> None:
        """Tell whoever asked for it, if he is still there."""
        if self.done.done():
            return
        if isinstance(outcome, _Failure):
            self.done.set_exception(outcome.error)
        else:
            self.done.set_result(outcome)


def _perform(jobs: list[Callable[[], Any]]) -> list[Any]:
    outcomes: list[Any] = []
    for job in jobs:
        try:
            outcomes.append(job())
        except Exception as error:  # noqa: BLE001 - handed to who asked for the job
            outcomes.append(_Failure(error))
    return outcomes


def _gone(partition: Partition) -> RequestRefused:
    return RequestRefused(
        ErrorCode.unknown_topic_or_partition, f"{partition.name} is no longer served here"
    )
