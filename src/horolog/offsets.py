"""Offsets of a partition, and groups that commit them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and number of a partition; `storage.names` has one that prints as Kafka prints it."""

SINK_GROUPS: Final = "horolog/"
"""Prefix of the groups in which Spark's sink records its batches (docs/exactly-once.md)."""


def commits_positions(group_id: str) -> bool:
    """Return True if a group commits positions; groups of sinks commit numbers of batches."""
    return not group_id.startswith(SINK_GROUPS)


def ranges_text(partitions: Iterable[int]) -> str:
    """Format numbers of partitions as `0-3, 5`."""
    numbers, parts = sorted(set(partitions)), list[str]()
    first = None
    for number, following in zip(numbers, [*numbers[1:], None], strict=False):
        first = number if first is None else first
        if following != number + 1:
            parts.append(str(first) if first == number else f"{first}-{number}")
            first = None
    return ", ".join(parts)


_MOST_DOUBTS: Final = 100
"""Most doubts of one kind; more become one that is as wide as all."""


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


class Doubts(NamedTuple):
    """Offsets and append times of a partition at which cuts are not exact (docs/as-of.md)."""

    resets: tuple[tuple[int, int, int], ...] = ()
    """Offsets at which append times were lowered, from one time to another. Cuts at times between
    both are not exact, and before the offset those above the second one."""
    ahead: tuple[tuple[int, int], ...] = ()
    """Cuts above the first time, at records up to the second one, are not exact."""
    cleaner_point: int | None = None
    """Cuts before this offset are not exact, save at 0, since the log is compacted up to it."""

    def joined(self, other: "Doubts") -> "Doubts":
        """Return the doubts of both, as few of them as one answer or file takes."""
        resets = sorted({*self.resets, *other.resets})
        if len(resets) > _MOST_DOUBTS:
            olds, news = ({reset[side] for reset in resets} for side in (1, 2))
            resets = [(resets[-1][0], max(olds), min(news))]
        ahead = sorted({*self.ahead, *other.ahead})
        if len(ahead) > _MOST_DOUBTS:
            ahead = [(ahead[0][0], max(ms for _, ms in ahead))]
        points = [its for its in (self.cleaner_point, other.cleaner_point) if its is not None]
        return Doubts(tuple(resets), tuple(ahead), max(points, default=None))

    def is_reset(self, at_ms: int) -> bool:
        """Return True if append times were lowered from a time, or a later one, to before it."""
        return any(new_ms < at_ms <= old_ms for _, old_ms, new_ms in self.resets)

    def why(self, at_ms: int, offset: int, append_ms: int | None) -> Inexact | None:
        """Return why a cut at a time, at a record with an append time, is not exact."""
        if self.cleaner_point is not None and self.cleaner_point > offset > 0:
            return Inexact.COMPACTED
        if append_ms is None:
            return Inexact.UNKNOWN
        if any(offset < before and at_ms > new_ms for before, _, new_ms in self.resets):
            return Inexact.RESET
        is_ahead = any(since < at_ms and append_ms <= until for since, until in self.ahead)
        return Inexact.AHEAD if is_ahead else None


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
