"""The committed offsets of groups, and their expiry."""

from collections.abc import Callable, Iterable, Iterator

from horolog.groups.rows import OffsetRow

TopicPartition = tuple[str, int]


class CommittedOffsets:
    """Every group's committed offsets, in memory."""

    def __init__(self, rows: Iterable[OffsetRow] = ()) -> None:
        self._groups: dict[str, dict[TopicPartition, OffsetRow]] = {}
        for row in rows:
            self.put(row)

    def put(self, row: OffsetRow) -> None:
        """Replace the committed offset of a partition."""
        self._groups.setdefault(row.group_id, {})[row.topic, row.partition] = row

    def get(self, group_id: str, topic: str, partition: int) -> OffsetRow | None:
        """The committed offset of a partition, or None."""
        return self._groups.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> dict[TopicPartition, OffsetRow]:
        """A snapshot of all committed offsets of a group."""
        return dict(self._groups.get(group_id, {}))

    def count(self, group_id: str) -> int:
        """The number of partitions with a committed offset."""
        return len(self._groups.get(group_id, ()))

    def group_ids(self) -> Iterator[str]:
        """The groups with committed offsets."""
        return iter(list(self._groups))

    def drop(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Remove some of a group's offsets."""
        group = self._groups.get(group_id, {})
        for key in keys:
            group.pop(key, None)
        if not group:
            self._groups.pop(group_id, None)

    def drop_group(self, group_id: str) -> None:
        """Remove all of a group's offsets."""
        self._groups.pop(group_id, None)

    def drop_topic(self, group_id: str, topic: str) -> None:
        """Remove a group's offsets of a topic."""
        group = self._groups.get(group_id, {})
        self.drop(group_id, [key for key in group if key[0] == topic])

    def expired(
        self,
        group_id: str,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None,
        subscriptions: Callable[[], Callable[[str], bool]],
    ) -> list[TopicPartition]:
        """The expired offsets of a group (KIP-211).

        `empty_since_ms` is when the last member left; None if the group has members, or never had
        any (the offsets of a client that assigns its own partitions expire from their commit).
        `subscriptions` returns a predicate: is the topic subscribed?
        """
        over = []
        for key, row in self._groups.get(group_id, {}).items():
            if row.expire_ms is not None:
                is_over = now_ms >= row.expire_ms
            else:
                since_ms = max(row.commit_ms, empty_since_ms or row.commit_ms)
                is_over = now_ms - since_ms >= retention_ms
            if is_over:
                over.append(key)
        if not over:
            return over
        is_subscribed = subscriptions()
        return [key for key in over if not is_subscribed(key[0])]
