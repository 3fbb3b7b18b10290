"""Ends transactions in the partitions of this broker, which leads all that can be in one."""

from typing import Final
from uuid import UUID

from horolog.broker.group_coordinator import GroupCoordinator
from horolog.broker.partitions import Partitions
from horolog.clock import Clock
from horolog.errors import StorageFailed
from horolog.groups.rows import TransactionalProducer, TransactionEnd
from horolog.metadata.topics import TopicRegistry
from horolog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from horolog.transactions.values import Producer

_OF_OFFSETS: Final = UUID(int=3)
"""Stands for the topic id of `__consumer_offsets`, which is never made again."""


class LocalMarkers:
    """See `transaction_completion.Markers`. For the event loop's thread only."""

    def __init__(
        self,
        topics: TopicRegistry,
        partitions: Partitions,
        groups: GroupCoordinator,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._groups = groups
        self._clock = clock

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic; None if there is none."""
        if topic == CONSUMER_OFFSETS:
            return _OF_OFFSETS
        return self._topics.id_of(topic)

    async def end(
        self,
        partition: TopicPartition,
        producer: Producer,
        index: int,
        *,
        commit: bool,
        strict: bool,
    ) -> None:
        """See `Markers.end`."""
        state = self._partitions.find(TRANSACTION_STATE, index)
        coordinator_epoch = 0 if state is None else state.log.leader_epoch
        await self.write(partition, producer, coordinator_epoch, commit=commit, strict=strict)

    async def write(
        self,
        partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        *,
        commit: bool,
        strict: bool,
    ) -> None:
        """Write a marker of any coordinator's; offsets that are pending there count or are dropped.

        Raises:
            RequestRefused: as `Markers.end`, or there cannot be such a producer.
            StorageFailed: the disk refused, or the partition is offline.
        """
        if partition.topic == CONSUMER_OFFSETS:
            ended = TransactionEnd(
                TransactionalProducer(*producer), coordinator_epoch, commit, is_strict=strict
            )
            await self._groups.end_transaction(partition.partition, ended)
            return
        log = self._partitions.find(*partition)
        if log is None:
            raise StorageFailed(f"{partition} is offline")
        await log.end_transaction(
            *producer,
            coordinator_epoch,
            commit=commit,
            strict=strict,
            now_ms=self._clock.now_ms(),
        )
