"""Runs the decisions of `transactions`, stores them, and completes decided transactions.

Each transactional id has a lock: a decision is made, written to `__transaction_state`, and then
counts in memory. A write that fails changes nothing, and is answered with a retriable error.

EndTxn is answered once the outcome is written (Prepare). Then the marker of each partition is
written, with retries, and finally Complete (transaction_completion.py). A start completes prepared
transactions.

Timeouts count in monotonic time from the start that is stored, so that a step of the wall clock
aborts nothing.
"""

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
)
from typing import Final

from horolog.broker.coordinators.state_topics import StateTopic
from horolog.broker.coordinators.transaction_completion import Completion
from horolog.broker.coordinators.transaction_markers import LocalMarkers
from horolog.broker.coordinators.transaction_states import (
    Entry,
    TransactionStates,
    check_id,
    unavailable,
)
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.settings import LiveSettings
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused, StorageFailed
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW, TransactionStatus
from horolog.storage.names import TopicPartition
from horolog.transactions import decisions
from horolog.transactions.values import NONE, CoordinatedTransaction, ProducerIdentity

_LOG = logging.getLogger(__name__)

ADDS_PARTITIONS_SINCE: Final = 12
"""Version of Produce that adds partitions to transactions (KIP-890)."""
_ABORTABLE_SINCE: Final = 11  # version of Produce that knows TRANSACTION_ABORTABLE
_OF_COORDINATORS: Final = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.network_exception,
)


class TransactionCoordinator:
    """Coordinator of this broker's transactional ids. For the event loop's thread only."""

    def __init__(
        self,
        live: LiveSettings,
        topic: StateTopic,
        markers: LocalMarkers,
        new_producer_id: Callable[[], Awaitable[int]],
        clock: Clock,
    ) -> None:
        self.topic = topic
        """Topic with the states; the source writes it while it is followed."""
        self._live = live
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._clock = clock
        self._states = TransactionStates(topic, markers.known_id, clock)
        self._completion = Completion(self._states, markers, clock)
        self._loading: asyncio.Task[None] | None = None

    # --- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Load the states and complete prepared transactions, unless the source does that."""
        is_due = self._states.is_loading and not self.is_followed
        if is_due and self._loading is None and not self._completion.is_closed:
            self._loading = self._completion.begin(
                self._states.load(self._completion.complete_soon)
            )

    @property
    def is_followed(self) -> bool:
        """True if the source, which this broker follows, coordinates transactions."""
        return self.topic.is_followed

    async def begin_anew(self) -> None:
        """Stop and drop all loaded state, because the topic changes its leader.

        `start` loads it. Until then clients are answered with COORDINATOR_LOAD_IN_PROGRESS.
        """
        await self._completion.cancel()
        await self._states.begin_anew()
        await self._completion.cancel()  # what was decided meanwhile
        self._loading = None

    async def close(self) -> None:
        """Stop; the next start completes what is prepared."""
        await self._completion.close()

    async def settle(self) -> None:
        """Wait until all states are loaded, and prepared transactions are completed."""
        await self._completion.settle()

    # --- InitProducerId ---------------------------------------------------------------

    async def initialise(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Return a producer's id and epoch; the open transaction of an earlier producer is aborted.

        Raises:
            RequestRefused: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS while a transaction is being ended, or one that is retried.
        """
        check_id(transactional_id)
        longest_ms = self._live.config.transaction_max_timeout_ms
        if not 0 < timeout_ms <= longest_ms:
            raise RequestRefused(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms={timeout_ms} is not in 1 to {longest_ms}, "
                "transaction.max.timeout.ms of the broker",
            )
        self._states.check_loaded(transactional_id)
        entry = self._states.open(transactional_id)
        self._completion.complete_now(entry)
        try:
            async with entry.lock:
                return await self._initialise(entry, timeout_ms, expected)
        finally:
            self._states.drop_if_unused(entry)

    async def _initialise(
        self, entry: Entry, timeout_ms: int, expected: ProducerIdentity | None
    ) -> ProducerIdentity:
        transaction = entry.transaction
        if transaction is None:
            transaction = CoordinatedTransaction(
                ProducerIdentity(await self._next_id(), NONE), timeout_ms
            )
        decisions.check_initialisable(transaction, expected)
        if transaction.status is TransactionStatus.ONGOING:
            await self._abort(entry, transaction)
            raise decisions.concurrent()
        rotates = decisions.rotates(transaction, expected)
        new_id = await self._next_id() if rotates else None
        now_ms = self._clock.now_ms()
        after = decisions.initialised(transaction, expected, timeout_ms, now_ms, new_id)
        await self._states.write(entry, after)
        return after.producer

    async def _abort(self, entry: Entry, transaction: CoordinatedTransaction) -> None:
        """Abort an open transaction, and fence its producer."""
        version = transaction.client_version
        now_ms = self._clock.now_ms()
        after = decisions.prepared(transaction, version, now_ms, commit=False, fences=True)
        await self._prepare(entry, after)

    # --- adding partitions ------------------------------------------------------------

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        client_version: int = FIRST_FLOW,
    ) -> None:
        """Add partitions, which begins a transaction; waits a little while the former one ends.

        Ends of others come first: their clients wait for nothing else, and readers for all that
        follows. So where others have one open, to begin waits for its turn among completions.

        Raises:
            RequestRefused: as the errors of AddPartitionsToTxn.
        """
        entry = self._states.find(transactional_id)
        if self._has(entry, producer, partitions):
            return
        if self._states.begins_beside_others(entry):
            await self._completion.turn()
        self._completion.complete_now(entry)
        is_last_try = False
        while True:
            async with entry.lock:
                transaction = self._states.known(entry)
                try:
                    decisions.check_producer(transaction, producer)
                except RequestRefused as error:
                    if is_last_try or error.code is not ErrorCode.concurrent_transactions:
                        raise
                else:
                    await self._add(entry, transaction, partitions, client_version)
                    return
            is_last_try = True
            self._completion.complete_now(entry)  # it may have been decided on meanwhile
            if entry.completing is not None:
                longest_ms = self._live.config.add_partitions_to_txn_retry_backoff_max_ms
                await asyncio.wait([entry.completing], timeout=longest_ms / 1000)

    def _has(
        self, entry: Entry, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> bool:
        """True if the open transaction of this producer contains all of the partitions."""
        transaction = entry.transaction
        return (
            transaction is not None
            and transaction.status is TransactionStatus.ONGOING
            and transaction.producer == producer
            and transaction.partitions.issuperset(partitions)
            and all(
                entry.topic_ids.get(topic) == self._markers.topic_id(topic)
                for topic, _ in partitions
            )
        )

    async def _add(
        self,
        entry: Entry,
        transaction: CoordinatedTransaction,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> None:
        is_first = transaction.status is not TransactionStatus.ONGOING
        after = decisions.with_partitions(
            transaction,
            [(topic, index) for topic, index in partitions],
            client_version,
            self._clock.now_ms(),
        )
        topic_ids = {topic: self._markers.topic_id(topic) for topic, _ in partitions}
        if after is not transaction:
            await self._states.write(entry, after)
        if is_first:
            entry.since_ms = self._clock.monotonic_ms()
            entry.topic_ids = {}
        entry.topic_ids |= topic_ids

    async def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        produce_version: int,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Return the code for each partition of a Produce request; 0 admits the batch.

        Up to Produce 11 a partition must be in the transaction; from 12 on it is added.
        """
        if produce_version >= ADDS_PARTITIONS_SINCE:
            producer = ProducerIdentity(producer_id, producer_epoch)
            try:
                await self.add_partitions(transactional_id, producer, partitions, SECOND_FLOW)
            except RequestRefused as error:
                return dict.fromkeys(partitions, produce_code(error.code, produce_version))
        return self.admitted(
            transactional_id, producer_id, producer_epoch, partitions, produce_version
        )

    def admitted(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        produce_version: int,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Return the codes of `admit` at this moment, without adding a partition."""
        if (
            produce_version < ADDS_PARTITIONS_SINCE
            and not self._live.config.transaction_partition_verification_enable
        ):
            return dict.fromkeys(partitions, ErrorCode.none)
        producer = ProducerIdentity(producer_id, producer_epoch)
        try:
            codes = self.verify(transactional_id, producer, partitions)
        except RequestRefused as error:
            return dict.fromkeys(partitions, produce_code(error.code, produce_version))
        return {partition: produce_code(code, produce_version) for partition, code in codes.items()}

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether the open transaction contains it, as a code.

        Raises:
            RequestRefused: as the errors of AddPartitionsToTxn.
        """
        entry = self._states.find(transactional_id)
        decisions.check_producer(self._states.known(entry), producer)
        return {
            partition: ErrorCode.none
            if self._has(entry, producer, [partition])
            else ErrorCode.transaction_abortable
            for partition in partitions
        }

    # --- ending -----------------------------------------------------------------------

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        client_version: int,
        *,
        commit: bool,
    ) -> ProducerIdentity:
        """Decide a transaction; return the producer of the next one once the decision is written.

        Raises:
            RequestRefused: as the errors of EndTxn.
        """
        entry = self._states.find(transactional_id)
        self._completion.complete_now(entry)
        async with entry.lock:
            transaction = self._states.known(entry)
            after = decisions.ended(
                transaction, producer, client_version, self._clock.now_ms(), commit=commit
            )
            if after is not transaction:
                after = await self._prepare(entry, after)
            return after.next_producer

    async def _prepare(self, entry: Entry, after: CoordinatedTransaction) -> CoordinatedTransaction:
        if decisions.wants_next_id(after):
            after = after._replace(next_id=await self._next_id())
        await self._states.write(entry, after)
        self._completion.complete_soon(entry)
        return after

    # --- time -------------------------------------------------------------------------

    async def abort_timed_out(self) -> int:
        """Abort transactions that are open for longer than their timeout; return their number."""
        aborted, turns = 0, TimeSlice()
        for entry in self._states.open_ones():
            await turns.pause()
            if not self._is_timed_out(entry):
                continue
            async with entry.lock:
                transaction = entry.transaction
                if transaction is None or not self._is_timed_out(entry):
                    continue
                try:
                    await self._abort(entry, transaction)
                except HorologError as error:
                    _LOG.warning("%r is not aborted yet: %s", entry.transactional_id, error)
                else:
                    aborted += 1
                    _LOG.info("%r was aborted: it timed out", entry.transactional_id)
        return aborted

    def _is_timed_out(self, entry: Entry) -> bool:
        transaction = entry.transaction
        return (
            transaction is not None
            and transaction.status is TransactionStatus.ONGOING
            and self._clock.monotonic_ms() - entry.since_ms > transaction.timeout_ms
        )

    async def remove_expired(self) -> int:
        """Remove transactional ids that were idle for `transactional.id.expiration.ms`."""
        removed = 0
        async for entry in self._states.each():
            if not self._is_expired(entry):
                continue
            async with entry.lock:
                if not self._is_expired(entry):
                    continue
                try:
                    await self._states.write(entry, None)
                except HorologError as error:
                    _LOG.warning("%r does not expire yet: %s", entry.transactional_id, error)
                    continue
                removed += 1
            self._states.drop_if_unused(entry)
        return removed

    def _is_expired(self, entry: Entry) -> bool:
        transaction = entry.transaction
        idle_ms = self._clock.monotonic_ms() - entry.since_ms
        return (
            transaction is not None
            and not transaction.is_open
            and idle_ms >= self._live.config.transactional_id_expiration_ms
        )

    # --- administration ---------------------------------------------------------------

    def describe(self, transactional_id: str) -> CoordinatedTransaction:
        """Return the state of a transactional id.

        Raises:
            RequestRefused: TRANSACTIONAL_ID_NOT_FOUND, or it is not loaded yet.
        """
        check_id(transactional_id)
        self._states.check_loaded(transactional_id)
        entry = self._states.get(transactional_id)
        if entry is None or entry.transaction is None:
            raise RequestRefused(
                ErrorCode.transactional_id_not_found, f"there is no {transactional_id!r}"
            )
        return entry.transaction

    def all(self) -> Iterator[tuple[str, CoordinatedTransaction, int]]:
        """Yield each id, its state, and the age of its open transaction (-1 without one).

        Raises:
            RequestRefused: COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._states.check_all_loaded()
        now_ms = self._clock.monotonic_ms()
        for entry in self._states:
            transaction = entry.transaction
            if transaction is not None:
                open_ms = now_ms - entry.since_ms if transaction.is_open else -1
                yield entry.transactional_id, transaction, open_ms

    @property
    def is_loading(self) -> bool:
        """True if a partition of the topic is not loaded yet."""
        return self._states.is_loading

    def owner_of(self, producer_id: int, partition: TopicPartition) -> tuple[str, int] | None:
        """Return the transactional id whose open transaction has a partition, with its age.

        None if no transaction of this producer has it: then no marker of one will go there.
        """
        entry = self._states.of_producer(producer_id)
        if entry is None or partition not in self._states.known(entry).partitions:
            return None
        if entry.topic_ids.get(partition.topic) != self._markers.topic_id(partition.topic):
            return None
        return entry.transactional_id, self._clock.monotonic_ms() - entry.since_ms

    def open_for_ms(self) -> list[int]:
        """Return the age of each open transaction in milliseconds."""
        now_ms = self._clock.monotonic_ms()
        return [now_ms - entry.since_ms for entry in self._states.open_ones()]

    async def _next_id(self) -> int:
        try:
            return await self._new_producer_id()
        except StorageFailed as error:
            raise unavailable(error) from error


def produce_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code of Produce, as clients of a version retry it, for a coordinator's."""
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code in _OF_COORDINATORS:
        return ErrorCode.not_enough_replicas
    if code is ErrorCode.concurrent_transactions and version < ADDS_PARTITIONS_SINCE:
        return ErrorCode.not_enough_replicas
    if code is ErrorCode.transaction_abortable and version < _ABORTABLE_SINCE:
        return ErrorCode.invalid_txn_state
    return code
