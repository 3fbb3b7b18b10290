"""Lists open transactions of partitions, and those that hang (KIP-664).

Readers of committed records wait at the first of them. One hangs where no transactional id of the
coordinator has an open transaction of its producer with the partition in it: no marker will come.
A coordinator writes markers before it forgets a partition, and adds the partition before records of
it are appended. So both are compared at one moment, between two steps of the event loop.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from horolog.broker.coordinators.group_lag import append_time_of
from horolog.broker.coordinators.transaction_coordinator import TransactionCoordinator
from horolog.broker.partition import Partition
from horolog.metadata.topics import TopicRegistry
from horolog.offsets import HeldUp
from horolog.storage.logs.readable import ReadableLog
from horolog.storage.names import TopicPartition

MOST: Final = 1_000
"""Limit of listed transactions of a partition, oldest first, because clients choose their
number."""

_LONGEST_ID: Final = 1_000  # of a transactional id in an answer, so that any fits a page


class OpenTransaction(NamedTuple):
    """An open transaction that readers of committed records wait for."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    transactional_id: str | None
    """None if no transactional id has it, or another coordinator may know one."""
    open_ms: int | None
    """Time for which the coordinator has had it open."""
    is_hanging: bool | None
    """None if unknown, because the coordinator is loading or at another cluster."""


class FirstOpen(NamedTuple):
    """The first open transaction of a partition, at one moment."""

    transaction: OpenTransaction
    opened: int
    """Number of open transactions there."""
    log: ReadableLog

    def held_up(self) -> HeldUp:
        """Describe what consumers of committed records wait for.

        Any thread may ask; the disk may be read.

        Raises:
            StorageFailed: the disk refused.
            CorruptBatch: the log is damaged where it has to be read.
        """
        view, first = self.log.look(), self.transaction
        start, end, id_ = view.log_start_offset, view.high_watermark, first.transactional_id
        offset = max(first.first_offset, start)
        return HeldUp(
            first.producer_id,
            first.producer_epoch,
            None if id_ is None else id_[:_LONGEST_ID],
            first.is_hanging,
            offset,
            append_time_of(view, offset) if first.first_offset >= start else None,
            max(0, end - offset),
            view.unread(offset, end).records if offset < end else 0,
            self.opened,
        )


class OpenTransactions:
    """Open transactions of a broker's partitions. For the event loop's thread only.

    Args:
        is_coordinated_here: returns whether no other broker coordinates transactions. Otherwise it
            is unknown which of them hang.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        transactions: TransactionCoordinator,
        is_coordinated_here: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._is_coordinated_here = is_coordinated_here
        self._transactions = transactions

    def first_of(self, partition: Partition) -> FirstOpen | None:
        """Return the first open transaction of a partition; None if no transaction is open."""
        found = self.of(partition, 1)
        return FirstOpen(found[0], partition.open_count, partition.log) if found else None

    def of(self, partition: Partition, most: int = MOST) -> list[OpenTransaction]:
        """Return the first `most` open transactions of a partition, by their first offsets."""
        if not partition.log.has_open_transactions:
            return []
        topic = self._topics.find(partition.topic)
        is_followed = topic is None or partition.log.is_following
        is_led = not is_followed and self._is_coordinated_here()
        is_known = is_led and not self._transactions.is_loading
        where, found = TopicPartition(partition.topic, partition.index), []
        for producer_id, epoch, first_offset in partition.open_transactions(most):
            owner = self._transactions.owner_of(producer_id, where) if is_led else None
            is_hanging = False if owner is not None else True if is_known else None
            id_, open_ms = (None, None) if owner is None else owner
            found.append(
                OpenTransaction(producer_id, epoch, first_offset, id_, open_ms, is_hanging)
            )
        return found
