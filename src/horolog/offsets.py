"""A partition, offsets of it that follow each other, and what groups commit as such."""

from typing import Final, NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and number of a partition; `storage.names` has one that prints as Kafka prints it."""

SINK_GROUPS: Final = "horolog/"
"""How the groups begin in which Spark's sink keeps what it has written (docs/exactly-once.md)."""


def commits_positions(group_id: str) -> bool:
    """Whether the offsets that a group commits are positions: those of sinks number batches."""
    return not group_id.startswith(SINK_GROUPS)


class OffsetRange(NamedTuple):
    """Offsets from `start` to before `end`, and the bytes of their batches."""

    start: int
    end: int
    size: int


class HeldUp(NamedTuple):
    """The first open transaction of a partition: consumers of committed records wait there."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    """None: no transactional id has it, or it is not known here."""
    is_hanging: bool | None
    """Whether no transactional id has it, so that nothing ends it; None: not known here."""
    offset: int
    """The last stable offset: of its first record, or the log start if that is deleted."""
    since_ms: int | None
    """When its first record was appended, or at Apache Kafka's brokers when it was begun; None if
    that is not known, or the record is deleted."""
    offsets: int
    """From there to the high watermark."""
    records: int | None
    """Of these offsets, of all producers; None where block maps do not count them."""
    open_transactions: int
    """Of the partition."""
