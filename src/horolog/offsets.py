"""Offsets of a partition, and groups that commit them."""

from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and number of a partition; `storage.names` has one that prints as Kafka prints it."""

SINK_GROUPS: Final = "horolog/"
"""Prefix of the groups in which Spark's sink records its batches (docs/exactly-once.md)."""


def commits_positions(group_id: str) -> bool:
    """Return True if a group commits positions; groups of sinks commit numbers of batches."""
    return not group_id.startswith(SINK_GROUPS)


class OffsetRange(NamedTuple):
    """Offsets in [start, end), and the bytes of their batches."""

    start: int
    end: int
    size: int


class TimeBlock(NamedTuple):
    """Offsets from `start` to before `end`, the bytes of their batches, and their earliest time."""

    start: int
    end: int
    size: int
    least_ms: int | None
    """No record is earlier by the clock that was asked for; None if none has a time by it."""
    has_untimed: bool
    """True if a record may have no time by this clock."""


class Inexact(StrEnum):
    """Reason why a log may part at another offset at a time (docs/as-of.md)."""

    FUTURE = "future"
    FOLLOWING = "following"
    UNKNOWN = "unknown"
    RESET = "reset"
    AHEAD = "ahead"
    DELETED = "deleted"
    COMPACTED = "compacted"


class TransactionStart(NamedTuple):
    """The first record of a producer's transaction in a partition."""

    producer_id: int
    offset: int
    append_ms: int | None
    """Append time in milliseconds; None if it is unknown."""


class HeldUp(NamedTuple):
    """First open transaction of a partition. Consumers of committed records wait there."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    """Transactional id; None if no id has the transaction, or it is unknown here."""
    is_hanging: bool | None
    """True if no transactional id has it, so that nothing ends it; None if unknown here."""
    offset: int
    """Offset of its first record, the last stable one; the log start if that is deleted."""
    since_ms: int | None
    """When its first record was appended, or at Apache Kafka's brokers when it was begun; None if
    that is not known, or the record is deleted."""
    offsets: int
    """Number of offsets from there to the high watermark."""
    records: int | None
    """Records of all producers at these offsets; None if block maps do not count them."""
    open_transactions: int
    """Open transactions of the partition."""
