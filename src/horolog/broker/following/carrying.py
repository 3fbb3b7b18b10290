"""Offsets in open transactions of the source, carried to the groups here.

A transaction that is committed at a promotion has its offsets committed; one that the coordinator
here is to end has them pending here; of others they are dropped. They are written before the state
that says so. A kill in between leaves them pending with nobody to end them: the next promotion
drops these first.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby

from horolog.broker.following.groups import NOBODY
from horolog.broker.group_coordinator import GroupCoordinator
from horolog.broker.partitions import Partitions
from horolog.clock import Clock
from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.rows import OffsetRow, PendingRow, TransactionalProducer
from horolog.groups.values import GroupState
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.offsets import commits_positions
from horolog.record.markers import TransactionEnd
from horolog.storage.names import (
    CONSUMER_OFFSETS,
    FOLLOWED_OFFSETS,
    TRANSACTION_STATE,
    TopicPartition,
)
from horolog.transactions.taking_over import Outcomes, PartitionHere

_LOG = logging.getLogger(__name__)

Places = dict[int, set[TopicPartition]]
"""The partitions of `__consumer_offsets` here with offsets of a producer's transaction."""


class Carrying:
    """See the module. For the event loop's thread only."""

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

    async def drop_pending(self) -> None:
        """Abort what is pending here, where no coordinator of this broker is to end it.

        Raises:
            RequestRefused: a partition is not loaded.
            StorageFailed: a write failed.
        """
        await self._groups.tried()
        states = self._topics.find(TRANSACTION_STATE)
        found = (self._partitions.find(TRANSACTION_STATE, index) for index in _indexes(states))
        epoch = max((each.log.leader_epoch for each in found if each is not None), default=0)
        for index in _indexes(self._topics.find(CONSUMER_OFFSETS)):
            partition = self._partitions.find(CONSUMER_OFFSETS, index)
            opened = {} if partition is None else (await partition.producers_here()).opened
            for producer in opened.items():
                ended = TransactionEnd(*producer, max(epoch, 0), is_commit=False)
                await self._groups.end_transaction(index, ended)

    async def carry(
        self,
        pending: Mapping[int, Iterable[PendingRow]],
        here: Mapping[TopicPartition, PartitionHere],
        outcomes: Mapping[TopicPartition, Outcomes],
        *,
        is_followed: bool,
    ) -> Places:
        """Commit, or have pending, what counts or may count; where the latter is.

        Args:
            pending: of each partition of the source's `__consumer_offsets`, in its order.
            here: what has come of the partitions that are promoted, and of those.
            outcomes: how the transactions of each partition end.
            is_followed: whether the coordinator here is to end what continues.

        Raises:
            StorageFailed: a write failed.
        """
        places: Places = {}
        for index, rows in pending.items():
            of_offsets = TopicPartition(FOLLOWED_OFFSETS, index)
            outcome, opened = outcomes[of_offsets], here[of_offsets].producers.opened
            counting = (each for each in rows if not each.is_superseded)
            for (producer_id, group_id), some in groupby(counting, _of):
                goes_on = is_followed and producer_id in outcome.goes_on
                epoch = opened.get(producer_id) if goes_on else None
                if epoch is None and producer_id not in outcome.committed:
                    continue  # what is open there is of no transaction that continues
                clamped = [self._clamped(each.row, here) for each in some]
                if await self._write(group_id, producer_id, epoch, clamped):
                    place = self._groups.transactions.partition_of(group_id)
                    its = places.setdefault(producer_id, set())
                    its.add(TopicPartition(CONSUMER_OFFSETS, place))
        return places

    async def _write(
        self, group_id: str, producer_id: int, epoch: int | None, rows: list[OffsetRow]
    ) -> bool:
        """Commit offsets, or with an epoch have them pending; whether they are pending now."""
        written: list[OffsetRow] = []

        def valid() -> list[OffsetRow]:
            written[:] = filter(None, map(self._valid, rows))
            return written

        try:
            if epoch is None:
                await self._groups.commit(group_id, NOBODY, valid)
                return False
            self._check_no_members(group_id)
            producer = TransactionalProducer(producer_id, epoch)
            await self._groups.transactions.commit(
                group_id, NOBODY, producer, valid, _admit, partial(self._check_no_members, group_id)
            )
        except RequestRefused as error:
            _LOG.warning(
                "offsets of group %r in a transaction are not those of the source: %s",
                *(group_id, error),
            )
            return False
        return bool(written)

    def _check_no_members(self, group_id: str) -> None:
        """Refuse a group that has members here: it commits for itself."""
        group = self._groups.describe(group_id)
        if group is not None and group.state is not GroupState.EMPTY:
            raise RequestRefused(ErrorCode.non_empty_group, "it has members here")

    def _valid(self, row: OffsetRow) -> OffsetRow | None:
        """An offset with the id of its topic, if that is followed: another is not the source's."""
        topic = self._topics.find(row.topic)
        if topic is None or not topic.followed or not topic.has_partition(row.partition):
            return None
        return row._replace(topic_id=topic.topic_id, commit_ms=self._clock.now_ms())

    def _clamped(self, row: OffsetRow, here: Mapping[TopicPartition, PartitionHere]) -> OffsetRow:
        """The next offset that is here, as a promotion has it of what is committed."""
        of = here.get(TopicPartition(row.topic, row.partition))
        partition = self._partitions.find(row.topic, row.partition)
        if of is None or partition is None or not commits_positions(row.group_id):
            return row
        start, end = partition.log.log_start_offset, of.producers.end_offset
        clamped = min(max(row.committed, start), end)
        if clamped == row.committed:
            return row
        _LOG.warning(
            "group %r had committed %d of %s in a transaction, which has %d to %d here: %d counts",
            *(row.group_id, row.committed, partition.name, start, end, clamped),
        )
        return row._replace(committed=clamped, leader_epoch=-1)


def _indexes(topic: Topic | None) -> tuple[int, ...]:
    return () if topic is None else topic.partitions


def _of(pending: PendingRow) -> tuple[int, str]:
    return pending.producer_id, pending.row.group_id


async def _admit() -> None:
    """Nothing is to be asked: it is part of the transaction at the source."""
