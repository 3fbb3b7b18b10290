"""Keeps the transactional ids of this broker in memory, as `__transaction_state` has them.

A state is written, and then counts in memory; a write that fails changes nothing. Until a partition
of the log is loaded its transactional ids are answered with COORDINATOR_LOAD_IN_PROGRESS.
"""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
)
from struct import error as StructError  # noqa: N812 - its own name says nothing
from uuid import UUID

from horolog.broker.coordinators.shards import Shards
from horolog.broker.coordinators.state_topics import StateTopic
from horolog.broker.scheduling.turns import TimeSlice
from horolog.clock import Clock
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.transactions.replay import TransactionReplay, record_of
from horolog.transactions.values import CoordinatedTransaction

_LOG = logging.getLogger(__name__)

TopicId = Callable[[str], UUID | None]
"""Returns the id of a topic; None if it does not exist."""


class Entry:
    """A transactional id."""

    __slots__ = ("completing", "lock", "since_ms", "topic_ids", "transaction", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.lock = asyncio.Lock()
        self.transaction: CoordinatedTransaction | None = None
        self.topic_ids: dict[str, UUID | None] = {}
        """Topic ids of the open transaction, to tell a topic from a later one of its name."""
        self.since_ms = 0
        """Monotonic time of the start of the open transaction, otherwise of the last change."""
        self.completing: asyncio.Task[None] | None = None


class TransactionStates:
    """States of transactional ids. For the event loop's thread only."""

    def __init__(self, log: StateTopic, topic_id: TopicId, clock: Clock) -> None:
        """Use a topic, of which nothing is loaded yet.

        Args:
            topic_id: tells a topic from an earlier one of the same name.
        """
        self.log = log
        self._topic_id = topic_id
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._open: dict[int, Entry] = {}  # those with an open transaction, by producer id
        self._on_prepared: Callable[[Entry], None] | None = None
        self._shards = Shards(log, TransactionReplay, self._take_over)

    @property
    def is_loading(self) -> bool:
        """True if a partition of the topic is not loaded yet."""
        return self.log.is_followed or self._shards.is_loading

    async def begin_anew(self) -> None:
        """Drop all loaded state, because the topic was replaced or changes its leader.

        Writes that are under way are awaited, and no other begins before it is loaded.
        """
        before = list(self._entries.values())
        self._entries.clear()
        self._shards.unload()
        for entry in before:
            async with entry.lock:  # its writer is done
                pass
        self._open.clear()

    def get(self, transactional_id: str) -> Entry | None:
        """Return the entry of an id, if it exists."""
        return self._entries.get(transactional_id)

    def open(self, transactional_id: str) -> Entry:
        """Return the entry of an id, made without a state if it does not exist."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = self._entries[transactional_id] = Entry(transactional_id)
        return entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    async def each(self) -> AsyncIterator[Entry]:
        """Iterate over all entries, with pauses for other tasks."""
        turns = TimeSlice()
        for entry in list(self._entries.values()):
            await turns.pause()
            yield entry

    def open_ones(self) -> list[Entry]:
        """Return the entries with an open transaction."""
        return list(self._open.values())

    def begins_beside_others(self, entry: Entry) -> bool:
        """True if an id begins a transaction while other transactions are open."""
        transaction = entry.transaction
        if transaction is None or not transaction.is_open:
            return bool(self._open)
        return transaction.is_preparing and len(self._open) > 1

    def of_producer(self, producer_id: int) -> Entry | None:
        """Return the entry whose open transaction is this producer's, if it exists."""
        return self._open.get(producer_id)

    def _put(self, entry: Entry, after: CoordinatedTransaction | None) -> bool:
        """Set the state of an entry; return True if its transaction is open."""
        before = entry.transaction
        if before is not None and self._open.get(before.producer.id) is entry:
            del self._open[before.producer.id]
        entry.transaction = after
        if after is None or not after.is_open:
            return False
        self._open[after.producer.id] = entry
        return True

    async def load(self, on_prepared: Callable[[Entry], None]) -> None:
        """Load all partitions of the topic, and pass each prepared transaction to `on_prepared`."""
        self._on_prepared = on_prepared
        await self._shards.run()

    async def _take_over(self, replay: TransactionReplay) -> None:
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        turns = TimeSlice()
        for transactional_id, transaction in replay.states.items():
            entry = self._entries[transactional_id] = Entry(transactional_id)
            self._put(entry, transaction)
            at_ms = transaction.started_ms if transaction.is_open else transaction.updated_ms
            entry.since_ms = monotonic_ms - max(0, now_ms - at_ms)
            for topic in {topic for topic, _ in transaction.partitions}:
                entry.topic_ids[topic] = self._topic_id(topic)
            if transaction.is_preparing and self._on_prepared is not None:
                self._on_prepared(entry)
            await turns.pause()

    def find(self, transactional_id: str) -> Entry:
        """Return the entry of an id.

        Raises:
            RequestRefused: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, or it is not loaded yet.
        """
        entry = self._entries.get(transactional_id)
        if entry is None or not transactional_id or self.is_loading:
            check_id(transactional_id)
            self.check_loaded(transactional_id)
        if entry is None:
            raise unmapped(transactional_id)
        return entry

    def known(self, entry: Entry) -> CoordinatedTransaction:
        """Return the state of an entry.

        Raises:
            RequestRefused: INVALID_PRODUCER_ID_MAPPING: it has none.
        """
        if entry.transaction is None:
            raise unmapped(entry.transactional_id)
        return entry.transaction

    def check_all_loaded(self) -> None:
        """Refuse to answer for all ids while some are not loaded."""
        self._check_led()
        self._shards.check_all()

    def check_loaded(self, transactional_id: str) -> None:
        """Refuse an id whose partition is not loaded with COORDINATOR_LOAD_IN_PROGRESS."""
        self._check_led()
        self._shards.check(transactional_id)

    def _check_led(self) -> None:
        if self.log.is_followed:
            raise self._shards.in_progress()

    def drop_if_unused(self, entry: Entry) -> None:
        """Drop the entry of an id without a state."""
        is_held = entry.lock.locked() or self._entries.get(entry.transactional_id) is not entry
        if entry.transaction is None and not is_held:
            del self._entries[entry.transactional_id]

    async def write(self, entry: Entry, after: CoordinatedTransaction | None) -> None:
        """Write a state, and apply it once it is written; None removes the id.

        Raises:
            RequestRefused: INVALID_REQUEST for an id that no record can hold,
                COORDINATOR_NOT_AVAILABLE if the disk refused, or COORDINATOR_LOAD_IN_PROGRESS if
                all began anew since the entry was found: it is as it was.
        """
        transactional_id = entry.transactional_id
        if self._entries.get(transactional_id) is not entry:
            raise self._shards.in_progress()
        try:
            record = record_of(transactional_id, after, self._clock.now_ms())
        except (StructError, UnicodeError) as error:
            raise RequestRefused(
                ErrorCode.invalid_request, f"no record can hold it: {error}"
            ) from error
        try:
            await self.log.ready()
            appending = self.log.append_record(transactional_id, record)
            if appending is not None:
                await appending
        except StorageFailed as error:
            raise unavailable(error) from error
        if not self._put(entry, after):
            entry.since_ms = self._clock.monotonic_ms()


def check_id(transactional_id: str) -> None:
    """Refuse an empty transactional id: INVALID_REQUEST."""
    if not transactional_id:
        raise RequestRefused(ErrorCode.invalid_request, "a transactional id must not be empty")


def unmapped(transactional_id: str) -> RequestRefused:
    """Return INVALID_PRODUCER_ID_MAPPING."""
    return RequestRefused(
        ErrorCode.invalid_producer_id_mapping, f"no producer has the id {transactional_id!r}"
    )


def unavailable(error: StorageFailed) -> RequestRefused:
    """Return COORDINATOR_NOT_AVAILABLE for a refusal by the disk; clients retry it."""
    return RequestRefused(ErrorCode.coordinator_not_available, str(error))
