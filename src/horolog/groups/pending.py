"""Offsets committed in transactions that have not ended (KIP-98, KIP-447).

They count from the marker that commits the transaction on, unless a commit of the same partition is
later in the log: outside of transactions, or in another one that has been committed before. A
superseded offset stays pending, because its partition is unstable until the marker.

An offset that is dropped (its group or topic is deleted, OffsetDelete) is dropped here, too: the
tombstone is later in the log.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from horolog.groups.capacity import Capacity
from horolog.groups.rows import OffsetRow, PendingRow
from horolog.offsets import TopicPartition

SLICE: Final = 1000
"""Offsets that are ended at once: other changes can come between two slices."""
_ROW_BYTES: Final = 512  # roughly, beside the metadata


@dataclass(slots=True)
class _Pending:
    order: int  # of the commit in the log
    row: OffsetRow
    is_superseded: bool = False

    @property
    def held_bytes(self) -> int:
        return _ROW_BYTES + len(self.row.metadata)


@dataclass(slots=True, eq=False)
class _OfGroup:
    """Pending offsets of one transaction for a group."""

    producer_id: int
    group_id: str
    rows: dict[TopicPartition, _Pending] = field(default_factory=dict)


@dataclass(slots=True)
class _Partition:
    """A partition of a group that has pending offsets."""

    held_by: set[_OfGroup] = field(default_factory=set)
    superseded: int = 0
    """The order up to which pending offsets are superseded."""


class PendingOffsets:
    """Offsets of open transactions, by producer and by group."""

    def __init__(self, capacity: Capacity | None = None) -> None:
        self._share = (Capacity() if capacity is None else capacity).share()
        self._held_bytes = 0
        self._order = 0
        self._by_producer: dict[int, dict[str, _OfGroup]] = {}  # of open transactions alone
        self._by_group: dict[str, dict[TopicPartition, _Partition]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def check(self, rows: Collection[OffsetRow]) -> None:
        """Refuse rows for which memory has no room.

        Raises:
            RequestRefused: COORDINATOR_NOT_AVAILABLE, which clients retry.
        """
        more = sum(_ROW_BYTES + len(row.metadata) for row in rows)
        self._share.check(self._held_bytes + more)

    def put(self, pending: PendingRow) -> None:
        """Add an offset; it replaces an earlier one of the same producer."""
        producer_id, row, is_superseded = pending
        key = (row.topic, row.partition)
        self._order += 1
        of_producer = self._by_producer.setdefault(producer_id, {})
        of_group = of_producer.get(row.group_id)
        if of_group is None:
            of_group = of_producer[row.group_id] = _OfGroup(producer_id, row.group_id)
        before = of_group.rows.get(key)
        added = of_group.rows[key] = _Pending(self._order, row, is_superseded)
        self._by_group.setdefault(row.group_id, {}).setdefault(key, _Partition()).held_by.add(
            of_group
        )
        self._charge(added.held_bytes - (0 if before is None else before.held_bytes))

    def end(
        self, producer_id: int, is_ended: Callable[[str], bool], *, commit: bool
    ) -> Iterator[tuple[list[OffsetRow], bool]]:
        """Remove the pending offsets of a producer, in slices.

        An offset is pending until its slice is taken, and can be superseded or dropped. Offsets
        that the producer adds from now on belong to its next transaction. All slices must be taken.

        Args:
            is_ended: predicate of the groups that the marker is for: those of its partition.
            commit: whether the transaction is committed.

        Yields:
            Offsets that count now, and whether more slices follow.
        """
        of_producer = self._by_producer.get(producer_id, {})
        ended = [of_producer.pop(group_id) for group_id in filter(is_ended, list(of_producer))]
        if not of_producer:
            self._by_producer.pop(producer_id, None)
        return self._slices(ended, commit=commit)

    def _slices(
        self, ended: Iterable[_OfGroup], *, commit: bool
    ) -> Iterator[tuple[list[OffsetRow], bool]]:
        room, counting = SLICE, list[OffsetRow]()
        for of_group in ended:
            while of_group.rows:
                if not room:
                    yield counting, True
                    room, counting = SLICE, []
                some = list(islice(of_group.rows.items(), room))
                room -= len(some)
                for key, pending in some:
                    partition = self._by_group[of_group.group_id][key]
                    is_later = pending.order > partition.superseded and not pending.is_superseded
                    if commit and is_later:
                        partition.superseded = pending.order
                        counting.append(pending.row)
                    self._remove(of_group, key)
        yield counting, False

    def supersede(self, group_id: str, topic: str, partition: int) -> None:
        """Note a commit of a partition that is later than all its pending offsets."""
        superseded = self._by_group.get(group_id, {}).get((topic, partition))
        if superseded is not None:
            superseded.superseded = self._order

    def of_group(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions of a group whose offsets are not stable (KIP-447)."""
        return frozenset(self._by_group.get(group_id, ()))

    def has(self, group_id: str, key: TopicPartition) -> bool:
        """Return True if an offset of a partition is pending."""
        return key in self._by_group.get(group_id, ())

    def group_ids(self) -> Iterator[str]:
        """Return the groups with pending offsets."""
        return iter(list(self._by_group))

    def drop(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Drop the pending offsets of partitions."""
        of_group = self._by_group.get(group_id, {})
        for key in keys:
            partition = of_group.get(key)
            for holder in list(partition.held_by) if partition is not None else ():
                self._remove(holder, key)

    def _remove(self, holder: _OfGroup, key: TopicPartition) -> None:
        self._charge(-holder.rows.pop(key).held_bytes)
        of_producer = self._by_producer.get(holder.producer_id, {})
        if not holder.rows and of_producer.get(holder.group_id) is holder:
            del of_producer[holder.group_id]
            if not of_producer:
                del self._by_producer[holder.producer_id]
        of_group = self._by_group[holder.group_id]
        held_by = of_group[key].held_by
        held_by.discard(holder)
        if not held_by:
            del of_group[key]
            if not of_group:
                del self._by_group[holder.group_id]

    def _charge(self, more: int) -> None:
        self._held_bytes += more
        self._share.charge(self._held_bytes)
