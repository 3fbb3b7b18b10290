"""Groups and committed offsets as records of `__consumer_offsets`, and back (schemas/offsets.py).

`records_of` returns the records of a change, `transaction_batch` the batch of a change that is part
of a transaction, or ends it. `GroupReplay` takes batches in the order of their log and keeps the
last value of each key, and nothing of a key whose last record is a tombstone.
Records of a transaction count from its commit on, and never if it is aborted (KIP-98). Of an
offset committed outside a transaction and one inside, the later in the log counts, as in Kafka. A
tombstone drops what is pending before it.

A record that cannot be read is counted and left out; those around it count. Keys of unknown types
are kept as they are.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from struct import error as StructError  # noqa: N812 - its own name says nothing
from typing import Final, NamedTuple
from uuid import UUID

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.groups.rows import (
    ConsumerRecords,
    GroupChange,
    GroupRow,
    OffsetRow,
    PendingRow,
    StoredGroups,
)
from horolog.record.batch import parse_header
from horolog.record.builder import LogRecord, build_batch, read_records
from horolog.record.compression import Codec
from horolog.record.markers import build_marker, read_marker
from horolog.schemas.group_records import (
    GroupRecordKey,
    GroupRecordValue,
    PartitionMetadataKey,
    read_value,
    value_bytes,
)
from horolog.schemas.offsets import (
    CommittedValue,
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    committed_bytes,
    group_bytes,
    key_bytes,
    read_committed,
    read_group,
    read_key,
)

MOST_BATCH_BYTES: Final = 64 << 20
"""That a batch may hold when decompressed."""
RECORD_BYTES: Final = 300
"""Rough size in memory of a record, without its key and value."""
_NO_TIME: Final = -1

TopicId = Callable[[str], UUID | None]
"""The id of a topic; None if there is no such topic."""


def records_of(change: GroupChange, now_ms: int) -> list[LogRecord]:
    """Return the records of a change in their order, stamped with `now_ms`.

    A group is dropped after its offsets: what a kill leaves of a drop still has the group.

    Raises:
        RequestRefused: a text or a number does not fit the fields of a record.
    """
    records: list[LogRecord] = []
    try:
        if change.dropped_offsets or change.dropped_groups:
            offsets = (OffsetKey(*dropped_offset) for dropped_offset in change.dropped_offsets)
            dropped = chain[Key](offsets, map(GroupKey, change.dropped_groups))
            records += [LogRecord(now_ms, key_bytes(each), None) for each in dropped]
        for key, value in change.records:
            records.append(LogRecord(now_ms, key_bytes(key), _value_bytes(key, value)))
        for group in change.groups:
            of_group = key_bytes(GroupKey(group.group_id))
            records.append(LogRecord(now_ms, of_group, group_bytes(_group_value(group, now_ms))))
        for row in change.offsets:
            of_offset = key_bytes(OffsetKey(row.group_id, row.topic, row.partition))
            records.append(LogRecord(now_ms, of_offset, committed_bytes(CommittedValue(*row[3:]))))
    except (StructError, UnicodeError) as error:
        code = ErrorCode.invalid_commit_offset_size
        if change.records:
            code = ErrorCode.message_too_large
        raise RequestRefused(code, f"no record can hold it: {error}") from error
    return records


def transaction_batch(change: GroupChange, now_ms: int, codec: Codec = Codec.NONE) -> bytes | None:
    """Return the whole batch of a change that is part of a transaction or ends one.

    Raises:
        RequestRefused: as `records_of`.
    """
    if change.ended is not None:
        return build_marker(change.ended.ended, now_ms)
    if change.producer is None:
        return None
    return build_batch(
        records_of(change, now_ms),
        codec=codec,
        producer_id=change.producer.id,
        producer_epoch=change.producer.epoch,
        is_transactional=True,
    )


class _Kept(NamedTuple):
    """The last record of a key; `at` is its offset."""

    at: int
    timestamp: int
    key: bytes
    value: bytes


class _ConsumerRecord(NamedTuple):
    """A record of a consumer group; `at` is its offset."""

    at: int
    key: GroupRecordKey
    value: GroupRecordValue


def held_bytes(key: bytes, value: bytes) -> int:
    """Return roughly the memory of a record."""
    return RECORD_BYTES + len(key) + len(value)


class _PendingRecords:
    """The records of open transactions by producer, and by key: a drop looks at no others."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """In memory, roughly."""
        self._count = 0
        self._held = 0
        self._by_producer: dict[int, dict[int, LogRecord]] = {}  # by how many came before
        self._places: dict[bytes | None, dict[int, int]] = {}  # by key; the producers of these

    def __len__(self) -> int:
        return self._held

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, producer_id: int, records: Iterable[LogRecord]) -> None:
        """Add records of a transaction."""
        its = self._by_producer.setdefault(producer_id, {})
        for record in records:
            self._count += 1
            self._charge(1, record)
            its[self._count] = record
            self._places.setdefault(record.key, {})[self._count] = producer_id

    def pop(self, producer_id: int) -> list[LogRecord]:
        """Remove the records of a producer, and return them in their order."""
        records = self._by_producer.pop(producer_id, {})
        for number, record in records.items():
            self._charge(-1, record)
            places = self._places[record.key]
            del places[number]
            if not places:
                del self._places[record.key]
        return list(records.values())

    def drop(self, key: bytes) -> None:
        """Remove the records of a key."""
        for number, producer_id in self._places.pop(key, {}).items():
            records = self._by_producer[producer_id]
            self._charge(-1, records.pop(number))
            if not records:
                del self._by_producer[producer_id]

    def records(self) -> Iterator[tuple[int, LogRecord]]:
        """Yield all records with their producers; those of a producer in their order."""
        for producer_id, records in self._by_producer.items():
            for record in records.values():
                yield producer_id, record

    def _charge(self, count: int, record: LogRecord) -> None:
        self._held += count
        self.held_bytes += count * held_bytes(record.key or b"", record.value or b"")


class GroupReplay:
    """State of a log of groups: the last record of each key, decoded once it is known."""

    def __init__(self) -> None:
        self.seen = 0
        """Records so far, those of transactions when they end."""
        self.unreadable = 0
        """Records, or batches, that could not be read."""
        self.reason: str | None = None
        """Why the first of them could not."""
        self._kept: dict[bytes, _Kept] = {}
        self._pending = _PendingRecords()

    def __len__(self) -> int:
        """Records that are held: the last of each key, and those of open transactions."""
        return len(self._kept) + len(self._pending)

    @property
    def count(self) -> int:
        """Keys that have a value."""
        return len(self._kept)

    @property
    def is_settled(self) -> bool:
        """True if no transaction is open."""
        return not self._pending

    def take(self, batch: Buffer) -> None:
        """Take the next batch; what of it cannot be read is left out."""
        self._apply(self.counted(batch))

    def counted(self, batch: Buffer) -> list[LogRecord]:
        """The records that count from the next batch on: of a transaction, with its marker."""
        header = parse_header(batch)
        try:
            if header.is_control:
                marker = read_marker(batch)
                if marker is None:
                    return []
                pending = self._pending.pop(header.producer_id)
                return [] if marker.is_abort else pending
            records = self._that_count(read_records(batch, max_bytes=MOST_BATCH_BYTES))
        except (CorruptBatch, RequestRefused) as error:
            self._note(f"the batch at {header.base_offset}: {error}")
            return []
        if not header.is_transactional:
            return records
        if records:
            self._pending.add(header.producer_id, records)
        return []

    def _that_count(self, records: Iterable[LogRecord]) -> list[LogRecord]:
        """Return the records of a batch that are not left out."""
        return list(records)

    def _apply(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            self.seen += 1
            if record.key is None:
                self._note(f"the record at {record.offset} has no key")
                continue
            if record.value is None:
                self._pending.drop(record.key)
            at = record.offset or 0
            before = self._kept.get(record.key)
            if before is not None and before.at > at:
                continue  # committed outside, after this was committed inside a transaction
            if record.value is None:
                self._kept.pop(record.key, None)
            else:
                self._kept[record.key] = _Kept(at, record.timestamp, record.key, record.value)

    def _note(self, reason: str) -> None:
        self.unreadable += 1
        if self.reason is None:
            self.reason = reason

    def records(self) -> Iterator[LogRecord]:
        """Yield the last record of each key in the order of the log, of unknown types too."""
        for kept in sorted(self._kept.values(), key=lambda each: each.at):
            yield LogRecord(kept.timestamp, kept.key, kept.value)

    def stored(self, topic_id: TopicId) -> StoredGroups:
        """Return groups and offsets; unreadable records are left out and noted.

        An offset whose topic was deleted, and made again or not, is left out: its value has
        another topic id. Values without one, of earlier releases, count whatever the topic is.

        A group that has records of both types is of the type that the log has last, and nothing
        before a classic group's record is of a later consumer group: that began anew.
        """
        classic: dict[str, tuple[int, GroupRow]] = {}
        consumer: dict[str, list[_ConsumerRecord]] = {}
        offsets = []
        for kept in self._kept.values():
            row = self._row(kept.at, kept.key, kept.value, topic_id)
            if isinstance(row, OffsetRow):
                offsets.append(row)
            elif isinstance(row, GroupRow):
                classic[row.group_id] = kept.at, row
            elif row is not None:
                consumer.setdefault(row.key.group, []).append(row)
        found: dict[str, ConsumerRecords] = {}
        owed: dict[str, list[Key]] = {}
        for group_id, records in consumer.items():
            at, _ = classic.get(group_id, (-1, None))
            counted = [record for record in records if record.at > at]
            counted.sort(key=lambda record: record.at)
            stale: list[Key] = [record.key for record in records if record.at < at]
            if all(isinstance(record.key, PartitionMetadataKey) for record in counted):
                stale += (record.key for record in counted)
            else:
                found[group_id] = [(record.key, record.value) for record in counted]
                if classic.pop(group_id, None) is not None:
                    stale.append(GroupKey(group_id))
            if stale:  # what belongs to a group goes before the group
                owed[group_id] = sorted(stale, key=key_bytes, reverse=True)
        groups = [row for _, row in classic.values()]
        return StoredGroups(groups, offsets, self.pending(topic_id), found, owed)

    def pending(self, topic_id: TopicId) -> list[PendingRow]:
        """Return the offsets of open transactions, in log order; selected as by `stored`."""
        found: list[tuple[int, PendingRow]] = []
        for producer_id, record in self._pending.records():
            at = record.offset or 0
            if record.key is None or record.value is None:
                continue
            row = self._row(at, record.key, record.value, topic_id)
            if isinstance(row, OffsetRow):
                kept = self._kept.get(record.key)
                is_superseded = kept is not None and kept.at > at
                found.append((at, PendingRow(producer_id, row, is_superseded)))
        return [pending for _, pending in sorted(found, key=lambda each: each[0])]

    def _row(
        self, at: int, key: bytes, value: bytes, topic_id: TopicId
    ) -> "GroupRow | OffsetRow | _ConsumerRecord | None":
        try:
            named = read_key(key)
            if isinstance(named, OffsetKey):
                committed = read_committed(value)
                if committed.topic_id is None or committed.topic_id == topic_id(named.topic):
                    return _offset_row(named, committed)
            elif isinstance(named, GroupKey):
                return _group_row(named, read_group(value))
            elif named is not None:
                return _ConsumerRecord(at, named, read_value(named, value))
        except CorruptBatch as error:
            self._note(f"the record at {at}: {error}")
        return None


def _value_bytes(key: Key, value: GroupRecordValue | None) -> bytes | None:
    if value is None:
        return None
    assert not isinstance(key, OffsetKey | GroupKey), "of these only tombstones"
    return value_bytes(key, value)


def _group_value(row: GroupRow, now_ms: int) -> GroupValue:
    _, protocol_type, changed_ms, generation, protocol, leader, members = row
    if changed_ms is None:
        changed_ms = now_ms if members else _NO_TIME
    return GroupValue(protocol_type, generation, protocol, leader, changed_ms, members)


def _group_row(key: GroupKey, value: GroupValue) -> GroupRow:
    protocol_type, generation, protocol, leader, changed_ms, members = value
    if members:
        return GroupRow(key.group, protocol_type, None, generation, protocol, leader, members)
    since_ms = None if changed_ms == _NO_TIME else changed_ms
    return GroupRow(key.group, protocol_type, since_ms, generation)


def _offset_row(key: OffsetKey, value: CommittedValue) -> OffsetRow:
    return OffsetRow(
        key.group,
        key.topic,
        key.partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_ms,
        value.expire_ms,
        value.topic_id,
    )
