"""Offsets that groups commit in transactions of producers (KIP-98, KIP-447).

A commit is pending until the marker of its transaction. A marker must not overtake a commit that
the transaction coordinator has admitted: nothing would ever end that one. So a marker first voids
the admissions of its producer that are not written yet, then waits for those in flight.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from horolog.broker.live_groups import GroupEntry, GroupStore, LiveGroups, written
from horolog.broker.scheduling.group_queue import Decided
from horolog.errors import ErrorCode, RequestRefused
from horolog.groups.offsets import CommittedOffsets
from horolog.groups.rows import (
    GroupChange,
    OffsetRow,
    PendingRow,
    TransactionalProducer,
    TransactionEnd,
)
from horolog.groups.values import Committer


class _Admission:
    """One commit from the time it asks the transaction coordinator until it is written."""

    __slots__ = ("is_void", "written")

    def __init__(self, *, is_void: bool) -> None:
        self.is_void = is_void  # a marker was written since
        self.written: asyncio.Future[None] | None = None


class GroupTransactions:
    """See the module. For the event loop's thread only."""

    def __init__(
        self,
        groups: LiveGroups,
        store: GroupStore,
        offsets: CommittedOffsets,
        partition_of: Callable[[str], int],
    ) -> None:
        """`partition_of` is the partition of `__consumer_offsets` that has a group."""
        self.partition_of = partition_of
        self._groups = groups
        self._store = store
        self._offsets = offsets
        self._admissions: dict[int, set[_Admission]] = {}  # by producer id
        self._ending: dict[int, int] = {}  # markers in flight, by producer id

    async def commit(
        self,
        group_id: str,
        by: Committer,
        producer: TransactionalProducer,
        offsets: Callable[[], Sequence[OffsetRow]],
        admit: Callable[[], Awaitable[object]],
    ) -> None:
        """Commit offsets as part of a transaction (TxnOffsetCommit).

        Args:
            group_id: whose offsets they are.
            by: the member; a producer from before KIP-447 names none.
            producer: the transaction's.
            offsets: called at the commit's turn in the group's queue, as `GroupCoordinator.commit`.
            admit: asks the transaction coordinator; it raises what it refuses.

        Raises:
            RequestRefused: the committer is not a member in this generation, the transaction is not
                open, or memory has no room for more pending offsets.
            StorageFailed: a write failed; no offset is pending.
        """
        if not self._store.is_ready:
            await self._store.ready()
        with self._admission(producer.id) as admission:
            await admit()
            entry = self._groups.entry(group_id)
            decide = partial(self._commit, entry, by, producer, offsets, admission)
            admission.written = entry.queue.run(decide)
            # A caller that is cancelled must not hide the write from `end`.
            await asyncio.shield(admission.written)

    def _commit(
        self,
        entry: GroupEntry,
        by: Committer,
        producer: TransactionalProducer,
        offsets: Callable[[], Sequence[OffsetRow]],
        admission: _Admission,
    ) -> Decided[None]:
        if admission.is_void:
            raise RequestRefused(
                ErrorCode.invalid_txn_state, "the transaction ended before its offsets were written"
            )
        if entry.group is not None:
            entry.group.check_transactional_commit(*by)
        elif by.generation >= 0:
            raise RequestRefused(
                ErrorCode.illegal_generation, f"the group {entry.group_id!r} does not exist"
            )
        rows = offsets()
        if not rows:
            return Decided(None)
        pending = self._offsets.pending
        pending.check(rows)

        def apply() -> None:
            if entry.group is None:
                self._groups.create(entry)
            for row in rows:
                pending.put(PendingRow(producer.id, row))

        return Decided(None, GroupChange(offsets=rows, producer=producer), apply)

    async def end(self, partition_index: int, ended: TransactionEnd) -> None:
        """Write the marker of a transaction to a partition of `__consumer_offsets`, and apply it.

        What is pending of the producer's in the groups of that partition counts from now on, or is
        dropped. A marker that was written before changes nothing.

        Raises:
            RequestRefused: it is of an earlier epoch (47) or coordinator (35): another marker has
                ended the transaction.
            StorageFailed: the write failed; all is pending as before.
        """
        producer_id = ended.producer.id
        admissions = self._admissions.get(producer_id, set())
        for admission in admissions:
            admission.is_void = True
        self._ending[producer_id] = self._ending.get(producer_id, 0) + 1
        try:
            writes = [each.written for each in admissions if each.written is not None]
            if writes:
                await asyncio.wait(writes)
            # The marker is applied even if the caller is cancelled: it is in the log.
            applied = asyncio.ensure_future(self._end(partition_index, ended))
            await asyncio.shield(applied)
        finally:
            self._ending[producer_id] -= 1
            if not self._ending[producer_id]:
                del self._ending[producer_id]

    async def _end(self, partition_index: int, ended: TransactionEnd) -> None:
        change = GroupChange(ended=ended._replace(partition=partition_index))
        (error,) = await written(self._store, [change])
        if error is not None:
            raise error
        self._offsets.end_transaction(
            ended.producer.id,
            lambda group_id: self.partition_of(group_id) == partition_index,
            commit=ended.is_commit,
        )

    @contextmanager
    def _admission(self, producer_id: int) -> Iterator[_Admission]:
        admission = _Admission(is_void=producer_id in self._ending)
        self._admissions.setdefault(producer_id, set()).add(admission)
        try:
            yield admission
        finally:
            if admission.written is None:
                self._forget(producer_id, admission)
            else:
                on_written = partial(self._on_written, producer_id, admission)
                admission.written.add_done_callback(on_written)

    def _on_written(
        self, producer_id: int, admission: _Admission, written: "asyncio.Future[Any]"
    ) -> None:
        if not written.cancelled():
            written.exception()  # raised where the commit is awaited, if it still is
        self._forget(producer_id, admission)

    def _forget(self, producer_id: int, admission: _Admission) -> None:
        admissions = self._admissions[producer_id]
        admissions.discard(admission)
        if not admissions:
            del self._admissions[producer_id]
