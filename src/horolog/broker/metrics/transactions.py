"""Metrics of open transactions, and the append time of their first records.

That is looked up once for each transaction that the coordinator does not have, whoever scrapes. A
partition without an open transaction costs one comparison.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from horolog.broker.broker import BrokerParts
from horolog.broker.coordinators.group_lag import append_time_of
from horolog.broker.coordinators.open_transactions import OpenTransaction
from horolog.broker.metrics import families as of
from horolog.broker.metrics.exposition import Exposition
from horolog.broker.partition import Partition
from horolog.broker.scheduling.turns import TimeSlice
from horolog.errors import HorologError
from horolog.storage.logs.readable import ReadableLog

_AT_ONCE: Final = 100  # partitions in one call of a thread
_MOST_LOOKED_UP: Final = 1_000  # in one scrape; the next one looks further


class _FirstRecord(NamedTuple):
    """The first record of a transaction."""

    log: ReadableLog
    offset: int


class _TransactionSums(NamedTuple):
    """Metrics of a partition, or summed up over several."""

    opened: int = 0
    hanging: int = 0
    oldest_ms: int = 0

    def plus(self, other: "_TransactionSums") -> "_TransactionSums":
        return _TransactionSums(
            self.opened + other.opened,
            self.hanging + other.hanging,
            max(self.oldest_ms, other.oldest_ms),
        )


class TransactionNumbers:
    """Metrics of a broker's open transactions.

    Only the event loop's thread uses it, one `add` at a time.
    """

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._appended: dict[_FirstRecord, int | None] = {}

    async def add(self, found: Exposition, turns: TimeSlice, *, by_partition: bool) -> None:
        """Add the metrics of open transactions."""
        broker = self._broker
        opened: list[tuple[Partition, Sequence[OpenTransaction]]] = []
        waiting = [
            partition
            for partition in broker.partitions.values()
            if partition.log.has_open_transactions
        ]
        for partition in waiting:
            await turns.pause()
            opened.append((partition, broker.open_transactions.of(partition)))
        await self._look_up(opened)
        all_of_them, sums = _TransactionSums(), dict[str, _TransactionSums]()
        for partition, transactions in opened:
            await turns.pause()
            numbers = self._numbers_of(partition, transactions)
            all_of_them = all_of_them.plus(numbers)
            sums[partition.topic] = sums.get(partition.topic, _TransactionSums()).plus(numbers)
            if by_partition:
                _add(found, numbers, partition.topic, partition.index)
        _add(found, all_of_them)
        for topic, numbers in sums.items() if not by_partition else ():
            _add(found, numbers, topic)
        coordinated = broker.transactions.open_for_ms()
        found.add(of.COORDINATED, len(coordinated))
        found.add(of.OLDEST_COORDINATED, max(coordinated, default=0))

    async def _look_up(self, opened: Sequence[tuple[Partition, Sequence[OpenTransaction]]]) -> None:
        """Look up when hanging transactions began: the append time of the first record of each."""
        listed = [
            _FirstRecord(partition.log, first)
            for partition, transactions in opened
            if (first := _first_unowned(transactions)) is not None
        ]
        known = self._appended
        self._appended = {first: known[first] for first in listed if first in known}
        missing = [first for first in listed if first not in known][:_MOST_LOOKED_UP]

        def look(some: Sequence[_FirstRecord]) -> list[int | None]:
            return [_appended_ms(first) for first in some]

        loop = asyncio.get_running_loop()
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            times = await loop.run_in_executor(self._broker.readers, look, some)
            self._appended.update(zip(some, times, strict=True))

    def _numbers_of(
        self, partition: Partition, transactions: Sequence[OpenTransaction]
    ) -> _TransactionSums:
        ages = [
            transaction.open_ms for transaction in transactions if transaction.open_ms is not None
        ]
        first = _first_unowned(transactions)
        if first is not None:
            appended_ms = self._appended.get(_FirstRecord(partition.log, first))
            if appended_ms is not None:
                ages.append(max(0, self._broker.clock.now_ms() - appended_ms))
        hanging = sum(1 for transaction in transactions if transaction.is_hanging)
        return _TransactionSums(partition.open_count, hanging, max(ages, default=0))


def _first_unowned(transactions: Sequence[OpenTransaction]) -> int | None:
    """Return the first offset of the first transaction without a transactional id."""
    return next(
        (transaction.first_offset for transaction in transactions if transaction.open_ms is None),
        None,
    )


def _appended_ms(where: _FirstRecord) -> int | None:
    try:
        return append_time_of(*where)
    except HorologError:
        return None


def _add(found: Exposition, numbers: _TransactionSums, *labels: object) -> None:
    found.add(of.OPEN_TRANSACTIONS, numbers.opened, *labels)
    found.add(of.HANGING_TRANSACTIONS, numbers.hanging, *labels)
    found.add(of.OLDEST_TRANSACTION, numbers.oldest_ms, *labels)
