"""Completes transactions whose outcome is written: first the markers, then Complete.

Requests of clients come first. A transaction is completed after the requests that have arrived by
then, or when the next request of its transactional id needs it. Most are completed without a task.
A request that begins a transaction takes longer than one that ends it, so it waits in the same
queue. An end that arrives waits for one completion or one begin at most, and for other ends.

Each marker is retried until it is written or has no place: its partition is gone, or another
coordinator has ended the transaction. A kill leaves the rest to the next start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, Final

from horolog.broker.coordinators.shards import MOST_RETRY_S, RETRY_S
from horolog.broker.coordinators.transaction_markers import LocalMarkers
from horolog.broker.coordinators.transaction_states import Entry, TransactionStates
from horolog.broker.scheduling.begun import rest_of
from horolog.broker.scheduling.turns import TimeSlice
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.network.turns import SLICE_SECONDS
from horolog.record.markers import TransactionEnd
from horolog.schemas.transactions import SECOND_FLOW, TransactionStatus
from horolog.storage.names import TopicPartition
from horolog.transactions import decisions
from horolog.transactions.values import CoordinatedTransaction

_LOG = logging.getLogger(__name__)

_SHARE: Final = 16
"""Share of the waiting ones that has its turn between two looks at the sockets; at least one."""
_MOST_WOKEN: Final = 8
"""Number of transactions that begin between two looks at the sockets, in about a time slice."""
_NO_PLACE: Final = (
    ErrorCode.invalid_producer_epoch,
    ErrorCode.transaction_coordinator_fenced,
    ErrorCode.unknown_topic_or_partition,
)


class Completion:
    """Completes decided transactions. For the event loop's thread only."""

    def __init__(self, states: TransactionStates, markers: LocalMarkers, clock: Clock) -> None:
        self._states = states
        self._markers = markers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        # Prepared, and not begun; or to be woken, so that it begins. The oldest first.
        self._waiting: dict[Entry | asyncio.Future[None], None] = {}
        self._is_scheduled = False
        self._is_closed = False

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine as a task that `close` cancels."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a bug in the transaction coordinator", exc_info=error)

    @property
    def is_closed(self) -> bool:
        """True once no task begins any more."""
        return self._is_closed

    async def settle(self) -> None:
        """Wait until every transaction is completed."""
        while self._tasks or self._waiting:
            self._complete_waiting()
            if self._tasks:
                await asyncio.wait(list(self._tasks))

    async def close(self) -> None:
        """Cancel all tasks, and begin no more."""
        self._is_closed = True
        await self.cancel()

    async def cancel(self) -> None:
        """Cancel all tasks, and forget the waiting transactions."""
        while self._tasks or self._waiting:
            for waiting in self._waiting:
                if not isinstance(waiting, Entry):
                    _wake(waiting)
            self._waiting.clear()
            tasks = list(self._tasks)
            # A task that was made in this turn has to begin: cancelled before, it would not cancel
            # what it is to await.
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def complete_soon(self, entry: Entry) -> None:
        """Queue a prepared transaction for completion; see `complete_now`."""
        if not self._is_closed:
            self._waiting[entry] = None
            self._schedule()

    async def turn(self) -> None:
        """Wait for the turn of a request that begins a transaction, behind earlier completions.

        Requests that arrive meanwhile are served before that, between any two of them.
        """
        if not self._is_closed:
            turn = self._loop.create_future()
            self._waiting[turn] = None
            self._schedule()
            try:
                await turn
            finally:
                self._schedule()  # for the next, after what the caller does at once

    def complete_now(self, entry: Entry) -> None:
        """Complete a prepared transaction; `entry.completing` ends once all markers are written.

        Its lock must not be held by the caller.
        """
        if entry not in self._waiting:
            return
        del self._waiting[entry]
        completing = self._complete(entry)
        try:
            awaited = completing.send(None)
        except StopIteration:
            return
        except Exception:  # noqa: BLE001 - as of a task
            _LOG.exception("a bug in the transaction coordinator")
            return
        entry.completing = self.begin(rest_of(completing, awaited))

    def _schedule(self) -> None:
        """Continue with the waiting ones once the event loop has looked at all sockets again."""
        if not self._is_scheduled:
            self._is_scheduled = True
            # What is called next runs before requests that have arrived since; what that calls
            # runs behind them.
            self._loop.call_soon(self._loop.call_soon, self._complete_waiting)

    def _complete_waiting(self) -> None:
        """Complete the first of the waiting ones, or let it begin; then requests have their turn.

        If very many wait, a share of them is completed, so that the delay stays bounded.
        """
        self._is_scheduled = False
        until = perf_counter() + SLICE_SECONDS
        left = 1 + len(self._waiting) // _SHARE
        is_woken = False
        for waiting in list(islice(self._waiting, left)):
            if isinstance(waiting, Entry):
                self.complete_now(waiting)
                is_woken = False
            else:
                del self._waiting[waiting]
                is_woken = _wake(waiting)  # it schedules the next
                until -= SLICE_SECONDS / _MOST_WOKEN
            if perf_counter() >= until:
                break
        if self._waiting and not is_woken:
            self._schedule()

    async def _complete(self, entry: Entry) -> None:
        transaction = self._states.known(entry)
        left = [TopicPartition(*partition) for partition in sorted(transaction.partitions)]
        wait_s = RETRY_S
        while True:
            left = await self._mark(entry, transaction, left)
            if not left:
                try:
                    async with entry.lock:
                        now_ms = self._clock.now_ms()
                        await self._states.write(entry, decisions.completed(transaction, now_ms))
                except HorologError as error:
                    _LOG.warning("%r is not completed yet: %s", entry.transactional_id, error)
                else:
                    entry.since_ms = self._clock.monotonic_ms()
                    entry.topic_ids = {}
                    entry.completing = None
                    return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MOST_RETRY_S)

    async def _mark(
        self,
        entry: Entry,
        transaction: CoordinatedTransaction,
        partitions: Sequence[TopicPartition],
    ) -> list[TopicPartition]:
        """Write markers, several at a time; return the partitions to retry."""
        index = self._states.log.partition_of(entry.transactional_id)
        ended = TransactionEnd(
            *transaction.producer,
            self._markers.coordinator_epoch(index),
            transaction.status is TransactionStatus.PREPARE_COMMIT,
            transaction.client_version >= SECOND_FLOW,
        )
        left: list[TopicPartition] = []
        writing: dict[TopicPartition, Awaitable[object]] = {}
        turns = TimeSlice()
        for partition in partitions:
            topic_id = self._markers.topic_id(partition.topic)
            if topic_id is None or topic_id != entry.topic_ids.get(partition.topic):
                continue  # it was deleted, and what was written to it
            try:
                waits = self._markers.end(partition, ended)
            except HorologError as error:
                if not _is_over(entry, partition, error):
                    left.append(partition)
            else:
                if waits is not None:
                    writing[partition] = asyncio.ensure_future(waits)
            await turns.pause()
        if writing:
            outcomes = await asyncio.gather(*writing.values(), return_exceptions=True)
            for partition, outcome in zip(writing, outcomes, strict=True):
                if isinstance(outcome, HorologError):
                    if not _is_over(entry, partition, outcome):
                        left.append(partition)
                elif isinstance(outcome, BaseException):
                    raise outcome
        return left


def _wake(turn: "asyncio.Future[None]") -> bool:
    """Wake a waiting task; return False if it was cancelled."""
    if turn.done():
        return False
    turn.set_result(None)
    return True


def _is_over(entry: Entry, partition: TopicPartition, error: HorologError) -> bool:
    """Return True if a refused marker is not needed any more; otherwise it is retried."""
    if isinstance(error, RequestRefused) and error.code in _NO_PLACE:
        _LOG.info("no marker for %r in %s: %s", entry.transactional_id, partition, error)
        return True
    _LOG.warning("marker for %r in %s: %s", entry.transactional_id, partition, error)
    return False
