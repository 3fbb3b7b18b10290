"""Committed offsets of groups, offsets pending in transactions, and their expiry."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Final

from horolog.groups.capacity import Capacity
from horolog.groups.pending import PendingOffsets
from horolog.groups.rows import OffsetRow, PendingRow
from horolog.offsets import TopicPartition

_MOST_UNREAD: Final = 32  # commits of a group, each of other partitions
_NONE: Final[dict[TopicPartition, OffsetRow]] = {}
_KEY: Final[Callable[[OffsetRow], TopicPartition]] = itemgetter(1, 2)  # topic and partition


class CommittedOffsets:
    """Every group's committed offsets, in memory.

    Changes come in the order of the log, in which the later of two commits counts, within a
    transaction or not.
    """

    def __init__(
        self,
        rows: Iterable[OffsetRow] = (),
        pending: Iterable[PendingRow] = (),
        *,
        capacity: Capacity | None = None,
    ) -> None:
        self._groups: dict[str, dict[TopicPartition, OffsetRow]] = {}
        # What was committed after these and has not been asked for, by the partitions, in order.
        self._unread: dict[str, dict[bytes, Callable[[], Sequence[OffsetRow]]]] = {}
        self.pending = PendingOffsets(capacity)
        self._noted: set[str] | None = None
        for row in rows:
            self.put(row)
        for pending_row in pending:
            self.pending.put(pending_row)

    def put(self, row: OffsetRow) -> None:
        """Replace the committed offset of a partition; its pending offsets never count."""
        self.put_all(row.group_id, (row,))

    def put_all(self, group_id: str, rows: Sequence[OffsetRow]) -> None:
        """Replace several committed offsets of a group, as `put` does."""
        if self._noted is not None:
            self._noted.add(group_id)
        if self._unread:
            self._read(group_id)
        self._groups.setdefault(group_id, {}).update(zip(map(_KEY, rows), rows, strict=True))
        if self.pending:
            for _, topic, partition, *_ in rows:
                self.pending.supersede(group_id, topic, partition)

    def put_unread(
        self, group_id: str, partitions: bytes, rows: Callable[[], Sequence[OffsetRow]]
    ) -> None:
        """Replace committed offsets of a group by rows that are made when they are asked for.

        Rows are not made if the same partitions are committed again before that.

        Args:
            partitions: a key that is equal only for rows of the same partitions.
        """
        if self.pending:
            self.put_all(group_id, rows())
            return
        if self._noted is not None:
            self._noted.add(group_id)
        unread = self._unread.get(group_id)
        if unread is None:
            unread = self._unread[group_id] = {}
        elif unread.pop(partitions, None) is None and len(unread) == _MOST_UNREAD:
            self._read(group_id)
            unread = self._unread[group_id] = {}
        unread[partitions] = rows

    def _read(self, group_id: str) -> None:
        """Make the rows of a group that were not made yet."""
        for rows in self._unread.pop(group_id, {}).values():
            group = self._groups.setdefault(group_id, {})
            group.update((_KEY(row), row) for row in rows())

    def _of(self, group_id: str) -> dict[TopicPartition, OffsetRow]:
        """Return the committed offsets of a group, not to be changed; empty if it has none."""
        if self._unread:
            self._read(group_id)
        return self._groups.get(group_id, _NONE)

    def end_transaction(
        self, producer_id: int, is_ended: Callable[[str], bool], *, commit: bool
    ) -> Iterator[None]:
        """Make a producer's pending offsets of groups count from now on, or drop them.

        Yields:
            None between two slices, so that other changes can come in between. The caller must
            exhaust the iterator.
        """
        return self._end(self.pending.end(producer_id, is_ended, commit=commit))

    def _end(self, slices: Iterator[tuple[list[OffsetRow], bool]]) -> Iterator[None]:
        for rows, has_more in slices:
            for row in rows:
                if self._unread:
                    self._read(row.group_id)
                self._groups.setdefault(row.group_id, {})[row.topic, row.partition] = row
                if self._noted is not None:
                    self._noted.add(row.group_id)
            if has_more:
                yield

    @contextmanager
    def noting_commits(self) -> Iterator[set[str]]:
        """Collect the groups that commit within the block, in a transaction or not.

        One caller at a time. It may remove groups that it has handled.
        """
        noted = self._noted = set[str]()
        try:
            yield noted
        finally:
            self._noted = None

    def get(self, group_id: str, topic: str, partition: int) -> OffsetRow | None:
        """Return the committed offset of a partition, or None."""
        return self._of(group_id).get((topic, partition))

    def of_group(self, group_id: str) -> dict[TopicPartition, OffsetRow]:
        """Return a snapshot of all committed offsets of a group."""
        return dict(self._of(group_id))

    def count(self, group_id: str) -> int:
        """Return the number of partitions with a committed offset."""
        return len(self._of(group_id))

    def is_empty(self, group_id: str) -> bool:
        """Return True if a group has neither committed nor pending offsets."""
        return not self._of(group_id) and not self.pending.of_group(group_id)

    def group_ids(self) -> Iterator[str]:
        """Return the groups with committed or pending offsets."""
        return iter({*self._groups, *self._unread, *self.pending.group_ids()})

    def keys(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions with a committed offset, a pending one, or both."""
        committed = self._of(group_id)
        return [*committed, *(self.pending.of_group(group_id) - committed.keys())]

    def has(self, group_id: str, key: TopicPartition) -> bool:
        """Return True if a partition has a committed or a pending offset."""
        return key in self._of(group_id) or self.pending.has(group_id, key)

    def drop(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Remove some of a group's offsets, committed and pending."""
        keys = list(keys)
        if group := self._of(group_id):
            for key in keys:
                group.pop(key, None)
            if not group:
                del self._groups[group_id]
        self.pending.drop(group_id, keys)

    def drop_group(self, group_id: str) -> None:
        """Remove all of a group's offsets."""
        self._unread.pop(group_id, None)
        self._groups.pop(group_id, None)
        self.pending.drop(group_id, self.pending.of_group(group_id))

    def drop_topic(self, group_id: str, topic: str) -> None:
        """Remove a group's offsets of a topic."""
        self.drop(group_id, [key for key in self.keys(group_id) if key[0] == topic])

    def expired(
        self,
        group_id: str,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None,
        subscriptions: Callable[[], Callable[[str], bool]],
    ) -> list[TopicPartition]:
        """Return the expired offsets of a group (KIP-211); a pending offset does not expire.

        Args:
            empty_since_ms: when the last member left; None if the group has members, or never had
                any. Offsets of a client that assigns its own partitions expire from their commit.
            subscriptions: returns a predicate: is the topic subscribed?
        """
        over = []
        for key, row in self._of(group_id).items():
            if row.expire_ms is not None:
                is_over = now_ms >= row.expire_ms
            else:
                since_ms = max(row.commit_ms, empty_since_ms or row.commit_ms)
                is_over = now_ms - since_ms >= retention_ms
            if is_over and not self.pending.has(group_id, key):
                over.append(key)
        if not over:
            return over
        is_subscribed = subscriptions()
        return [key for key in over if not is_subscribed(key[0])]
