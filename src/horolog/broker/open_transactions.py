"""Which transactions are open in partitions, and which of them hang (KIP-664).

Readers of committed records wait at the first of them. One hangs where no transactional id of the
coordinator has an open transaction of its producer with the partition in it: no marker will come.
A coordinator writes markers before it forgets a partition, and adds the partition before records of
it are appended. So both are compared at one moment, between two steps of the event loop.
"""

from typing import Final, NamedTuple

from horolog.broker.partition import Partition
from horolog.broker.transaction_coordinator import TransactionCoordinator
from horolog.metadata.topics import TopicRegistry
from horolog.storage.names import TopicPartition

MOST: Final = 1_000
"""Of a partition that are looked at: clients choose how many there are. The oldest are first."""


class OpenTransaction(NamedTuple):
    """One that readers of committed records of a partition wait for."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    transactional_id: str | None
    """None: no transactional id has it, or the coordinator that may know one is another's."""
    open_ms: int | None
    """For how long the coordinator has had it open."""
    is_hanging: bool | None
    """None: not known yet, as the coordinator loads, or as it is another broker's."""


class OpenTransactions:
    """See the module. For the event loop's thread only."""

    def __init__(self, topics: TopicRegistry, transactions: TransactionCoordinator) -> None:
        self._topics = topics
        self._transactions = transactions

    def of(self, partition: Partition) -> list[OpenTransaction]:
        """The first `MOST` of a partition, in the order of their first offsets."""
        if not partition.has_open_transactions:
            return []
        topic = self._topics.find(partition.topic)
        is_led = topic is not None and not topic.followed
        is_known = is_led and not self._transactions.is_loading
        where, found = TopicPartition(partition.topic, partition.index), []
        for producer_id, epoch, first_offset in partition.open_transactions(MOST):
            owner = self._transactions.owner_of(producer_id, where) if is_led else None
            is_hanging = False if owner is not None else True if is_known else None
            id_, open_ms = (None, None) if owner is None else owner
            found.append(
                OpenTransaction(producer_id, epoch, first_offset, id_, open_ms, is_hanging)
            )
        return found
