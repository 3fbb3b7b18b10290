"""Offsets that groups commit in transactions of producers (KIP-98, KIP-447).

A commit is pending until the marker of its transaction. A commit behind that marker would never
end. So the transaction coordinator is asked twice: `admit` may wait, until the former transaction
has ended for example; `confirm` is called when the commit is decided. A marker comes after the
coordinator has left the transaction, and waits for the commits that are in flight.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from horolog.broker.coordinators.live_groups import GroupEntry, LiveGroups
from horolog.broker.coordinators.offsets_log import OffsetsLog, written
from horolog.broker.scheduling.group_queue import GroupDecision
from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.consumers.commits import check_transactional_commit
from horolog.groups.offsets import CommittedOffsets
from horolog.groups.rows import (
    GroupChange,
    OffsetRow,
    OffsetsEnd,
    PendingRow,
    TransactionProducer,
)
from horolog.groups.values import Committer
from horolog.record.markers import TransactionEnd


class GroupTransactions:
    """Offsets that are pending in transactions. For the event loop's thread only."""

    def __init__(self, groups: LiveGroups, store: OffsetsLog, offsets: CommittedOffsets) -> None:
        self.partition_of = store.partition_of
        """Returns the partition of `__consumer_offsets` for a group."""
        self._groups = groups
        self._store = store
        self._offsets = offsets
        self._writes: dict[int, set[asyncio.Future[None]]] = {}  # in flight, by producer id

    async def commit(
        self,
        group_id: str,
        by: Committer,
        producer: TransactionProducer,
        offsets: Callable[[], Sequence[OffsetRow]],
        admit: Callable[[], Awaitable[object]],
        confirm: Callable[[], object],
    ) -> None:
        """Commit offsets as part of a transaction (TxnOffsetCommit).

        Args:
            by: the member; empty for a producer from before KIP-447.
            offsets: called at the commit's turn in the group's queue, as by
                `GroupCoordinator.commit`.
            admit: asks the transaction coordinator to add the group's partition to the
                transaction; raises its refusal.
            confirm: raises unless the partition is in the open transaction now.

        Raises:
            RequestRefused: the committer is not a member in this generation, the transaction is not
                open, or memory has no room for more pending offsets.
            StorageFailed: a write failed; no offset is pending.
        """
        if not self._store.is_ready:
            await self._store.ready()
        await admit()
        entry = self._groups.entry(group_id)
        decide = partial(self._commit, entry, by, producer, offsets, confirm)
        written = entry.queue.run(decide)
        self._writes.setdefault(producer.id, set()).add(written)
        written.add_done_callback(partial(self._on_written, producer.id))
        # A caller that is cancelled must not hide the write from `end`.
        await asyncio.shield(written)

    def _commit(
        self,
        entry: GroupEntry,
        by: Committer,
        producer: TransactionProducer,
        offsets: Callable[[], Sequence[OffsetRow]],
        confirm: Callable[[], object],
    ) -> GroupDecision[None]:
        confirm()
        if entry.classic is not None:
            entry.classic.check_transactional_commit(by)
        elif entry.consumers is not None:
            check_transactional_commit(entry.consumers, by, offsets)
        elif by.generation >= 0:
            raise RequestRefused(
                ErrorCode.group_id_not_found, f"the group {entry.group_id!r} does not exist"
            )
        rows = offsets()
        if not rows:
            return GroupDecision(None)
        pending = self._offsets.pending
        pending.check(rows)

        def apply() -> None:
            if entry.group is None:
                self._groups.create(entry)
            for row in rows:
                pending.put(PendingRow(producer.id, row))

        return GroupDecision(None, GroupChange(offsets=rows, producer=producer), apply)

    async def end(self, partition_index: int, ended: TransactionEnd) -> None:
        """Write the marker of a transaction to a partition of `__consumer_offsets`, and apply it.

        What is pending of the producer's in the groups of that partition counts from now on, or is
        dropped. A marker that was written before changes nothing.

        Raises:
            RequestRefused: it is of an earlier epoch (47) or coordinator (35): another marker has
                ended the transaction.
            StorageFailed: the write failed; all is pending as before.
        """
        if writes := self._writes.get(ended.producer_id):
            await asyncio.wait(writes)
        # The marker is applied even if the caller is cancelled: it is in the log.
        applied = asyncio.ensure_future(self._end(partition_index, ended))
        applied.add_done_callback(_retrieve)
        await asyncio.shield(applied)

    async def _end(self, partition_index: int, ended: TransactionEnd) -> None:
        change = GroupChange(ended=OffsetsEnd(ended, partition_index))
        (error,) = await written(self._store, [change])
        if error is not None:
            raise error
        slices = self._offsets.end_transaction(
            ended.producer_id,
            lambda group_id: self.partition_of(group_id) == partition_index,
            commit=ended.is_commit,
        )
        for _ in slices:
            await asyncio.sleep(0)

    def _on_written(self, producer_id: int, written: "asyncio.Future[Any]") -> None:
        _retrieve(written)
        writes = self._writes[producer_id]
        writes.discard(written)
        if not writes:
            del self._writes[producer_id]


def _retrieve(done: "asyncio.Future[Any]") -> None:
    """Mark an error as seen; it is raised where the future is awaited, if it still is."""
    if not done.cancelled():
        done.exception()
