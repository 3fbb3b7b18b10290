"""The stored rows of groups, and the changes that are written as one batch."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from horolog.record.markers import TransactionEnd
from horolog.schemas.group_records import GroupRecordKey, GroupRecordValue
from horolog.schemas.offsets import Key, MemberValue

Outcomes: TypeAlias = list[Exception | None]
"""Errors of written changes, in their order; None for a change without an error."""


GroupRecord: TypeAlias = tuple[Key, GroupRecordValue | None]
"""A record of a consumer group; None removes what the key names."""


class OffsetRow(NamedTuple):
    """A committed offset; `expire_ms` is set if the client requested a retention."""

    group_id: str
    topic: str
    partition: int
    committed: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None
    topic_id: UUID | None = None
    """Tells the topic from another of its name; None if it is not known."""


class GroupRow(NamedTuple):
    """A group; `empty_since_ms` is set while it has no members.

    Protocol, leader and members are those to which partitions were assigned in this generation. A
    group in its first rebalance has none of them.
    """

    group_id: str
    protocol_type: str
    empty_since_ms: int | None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: tuple[MemberValue, ...] = ()


class TransactionProducer(NamedTuple):
    """Producer in whose transaction offsets are committed."""

    id: int
    epoch: int


class OffsetsEnd(NamedTuple):
    """A marker that commits or drops the offsets of a producer's transaction (KIP-98)."""

    ended: TransactionEnd
    partition: int = -1
    """Partition of `__consumer_offsets` for whose groups the transaction ends."""


class PendingRow(NamedTuple):
    """An offset committed in a transaction that has not ended."""

    producer_id: int
    row: OffsetRow
    is_superseded: bool = False
    """Another commit of the partition is later in the log: this one will never count."""


class GroupChange(NamedTuple):
    """Changes of groups that count together; rows are dropped before others are set.

    A dropped group loses all its offsets.
    """

    groups: Sequence[GroupRow] = ()
    offsets: Sequence[OffsetRow] = ()
    dropped_offsets: Sequence[tuple[str, str, int]] = ()
    dropped_groups: Sequence[str] = ()
    producer: TransactionProducer | None = None
    """The offsets are part of its transaction; the change has nothing else."""
    ended: OffsetsEnd | None = None
    """A transaction ends; the change has nothing else."""
    records: Sequence[GroupRecord] = ()
    """Records of a consumer group in their order, None for a tombstone; after what is dropped."""


ConsumerRecords: TypeAlias = list[tuple[GroupRecordKey, GroupRecordValue]]


class StoredGroups(NamedTuple):
    """Groups, committed offsets, and offsets of open transactions, as a log has them."""

    groups: Sequence[GroupRow] = ()
    offsets: Sequence[OffsetRow] = ()
    pending: Sequence[PendingRow] = ()
    consumer: Mapping[str, ConsumerRecords] = {}
    """The records of each consumer group, in the order of the log."""
    owed: Mapping[str, Sequence[Key]] = {}
    """Keys of each group whose values do not count: their tombstones are owed."""
