"""Ends transactions in the partitions of this broker, which leads all of them."""

from collections.abc import Awaitable
from typing import Final
from uuid import UUID

from horolog.broker.catalogue import Catalogue
from horolog.broker.coordinators.group_coordinator import GroupCoordinator
from horolog.errors import ErrorCode, RequestRefused, StorageFailed
from horolog.record.markers import TransactionEnd
from horolog.storage.logs.appendable import Appended
from horolog.storage.names import (
    CONSUMER_OFFSETS,
    FOLLOWED_OFFSETS,
    TRANSACTION_STATE,
    TopicPartition,
)

_OF_OFFSETS: Final = UUID(int=3)
"""Replaces the topic id of `__consumer_offsets`, which is never created again."""


class LocalMarkers:
    """Ends transactions in the logs of partitions. For the event loop's thread only."""

    def __init__(self, catalogue: Catalogue, groups: GroupCoordinator) -> None:
        _, self._clock, self._topics, self._partitions, self._follow_state = catalogue
        self._groups = groups

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic that markers are written to here; None for others."""
        found = self._topics.find(topic)
        is_followed = found is not None and found.followed
        if is_followed and (self._follow_state.is_following or topic == FOLLOWED_OFFSETS):
            return None  # the source ends what is open there
        return self.known_id(topic)

    def known_id(self, topic: str) -> UUID | None:
        """Return the id of a topic, also of a followed one, which may be promoted meanwhile."""
        if topic == CONSUMER_OFFSETS:
            return _OF_OFFSETS
        found = self._topics.find(topic)
        return None if found is None else found.topic_id

    def coordinator_epoch(self, index: int) -> int:
        """Leader epoch of a partition of `__transaction_state`, which markers carry."""
        state = self._partitions.find(TRANSACTION_STATE, index)
        return 0 if state is None else state.log.leader_epoch

    def end(self, partition: TopicPartition, ended: TransactionEnd) -> Awaitable[object] | None:
        """Write a marker, which any coordinator may have decided; None if it is written.

        Otherwise await the result. Pending offsets of the partition are committed or dropped.

        Raises, or what is awaited does:
            RequestRefused: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED: another
                coordinator has ended the transaction; or there cannot be such a producer.
            StorageFailed: the disk refused, or the partition is offline.
        """
        if partition.topic == CONSUMER_OFFSETS:
            known = self._topics.find(CONSUMER_OFFSETS)
            if known is None or partition.partition not in known.partitions:
                raise RequestRefused(
                    ErrorCode.unknown_topic_or_partition,
                    f"{partition} is not here: no offsets are pending in it",
                )
            return self._groups.end_transaction(partition.partition, ended)
        log = self._partitions.find(*partition)
        if log is None:
            raise StorageFailed(f"{partition} is offline")
        appended = log.append(ended, self._clock.now_ms())
        return None if isinstance(appended, Appended) else appended
