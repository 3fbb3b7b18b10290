"""Offsets committed in transactions that have not ended (KIP-98, KIP-447).

They count from the marker that commits the transaction on, unless a commit of the same partition is
later in the log: outside of transactions, or in another one that has been committed before. A
superseded offset stays pending, because its partition is unstable until the marker.

An offset that is dropped (its group or topic is deleted, OffsetDelete) is dropped here, too: the
tombstone is later in the log.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from horolog.groups.capacity import Capacity
from horolog.groups.rows import OffsetRow, PendingRow
from horolog.offsets import TopicPartition

_Key = tuple[str, str, int]

_ROW_BYTES: Final = 512  # roughly, beside the metadata


@dataclass(slots=True)
class _Pending:
    order: int  # of the commit in the log
    row: OffsetRow
    is_superseded: bool = False

    @property
    def held_bytes(self) -> int:
        return _ROW_BYTES + len(self.row.metadata)


class PendingOffsets:
    """See the module. Calls come in the order of the log."""

    def __init__(self, capacity: Capacity | None = None) -> None:
        self._share = (Capacity() if capacity is None else capacity).share()
        self._held_bytes = 0
        self._order = 0
        self._by_producer: dict[int, dict[_Key, _Pending]] = {}
        self._by_group: dict[str, dict[TopicPartition, set[int]]] = {}  # the producers

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def check(self, rows: Collection[OffsetRow]) -> None:
        """Refuse rows that memory has no room for.

        Raises:
            RequestRefused: COORDINATOR_NOT_AVAILABLE, which clients retry.
        """
        more = sum(_ROW_BYTES + len(row.metadata) for row in rows)
        self._share.check(self._held_bytes + more)

    def put(self, pending: PendingRow) -> None:
        """Add an offset; it replaces an earlier one of the same producer."""
        producer_id, row, is_superseded = pending
        key = (row.group_id, row.topic, row.partition)
        self._order += 1
        held = self._by_producer.setdefault(producer_id, {})
        before = held.get(key)
        added = held[key] = _Pending(self._order, row, is_superseded)
        of_group = self._by_group.setdefault(row.group_id, {})
        of_group.setdefault(key[1:], set()).add(producer_id)
        self._charge(added.held_bytes - (0 if before is None else before.held_bytes))

    def end(
        self, producer_id: int, is_ended: Callable[[str], bool], *, commit: bool
    ) -> list[OffsetRow]:
        """Remove what a producer has pending; return the offsets that count now.

        Args:
            producer_id: whose transaction has ended.
            is_ended: which groups the marker is for: those of its partition.
            commit: whether the transaction is committed.
        """
        counting: list[OffsetRow] = []
        for key in [key for key in self._by_producer.get(producer_id, ()) if is_ended(key[0])]:
            ended = self._remove(producer_id, key)
            if commit and not ended.is_superseded:
                self.supersede(*key, until=ended.order)
                counting.append(ended.row)
        return counting

    def supersede(
        self, group_id: str, topic: str, partition: int, until: int | None = None
    ) -> None:
        """Another commit of the partition counts; of what is pending, only what is later.

        `until` is the order of that commit; None if it is later than all that is pending.
        """
        producers = self._by_group.get(group_id, {}).get((topic, partition), ())
        for producer_id in producers:
            pending = self._by_producer[producer_id][group_id, topic, partition]
            if until is None or pending.order < until:
                pending.is_superseded = True

    def of_group(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions of a group whose offsets are not stable (KIP-447)."""
        return frozenset(self._by_group.get(group_id, ()))

    def has(self, group_id: str, key: TopicPartition) -> bool:
        """Whether an offset of the partition is pending."""
        return key in self._by_group.get(group_id, ())

    def group_ids(self) -> Iterator[str]:
        """The groups with pending offsets."""
        return iter(list(self._by_group))

    def drop(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Drop what is pending for partitions."""
        of_group = self._by_group.get(group_id, {})
        for topic, partition in keys:
            for producer_id in list(of_group.get((topic, partition), ())):
                self._remove(producer_id, (group_id, topic, partition))

    def _remove(self, producer_id: int, key: _Key) -> _Pending:
        held = self._by_producer[producer_id]
        removed = held.pop(key)
        self._charge(-removed.held_bytes)
        if not held:
            del self._by_producer[producer_id]
        group_id, topic, partition = key
        of_group = self._by_group[group_id]
        producers = of_group[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del of_group[topic, partition]
            if not of_group:
                del self._by_group[group_id]
        return removed

    def _charge(self, more: int) -> None:
        self._held_bytes += more
        self._share.charge(self._held_bytes)
