"""Results of all recordings of a cluster, and the create time up to which a group has read.

A recording reads only the records since the last one. The results of earlier ones are kept as sums:
of each partition (`PartitionRead`), of its stretches (`ReadSums`), and of the records that a group
has not read (`GroupProgress`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

from horolog.jobs.state import value_of

VERSION: Final = 3
_WITHOUT_STRETCHES: Final = 2
BY_APPEND_TIME: Final = "append time"
"""Latency by the append times of the records that were read."""
BY_BROKER: Final = "broker"
"""Latency by the source's counts, whose classes give an upper bound."""
BY_READER: Final = "reader"
"""Latency of records that were appended during the recording."""
BY_ORDER: Final = "order"
"""Lateness of records that were out of order."""
BY_USER: Final = "user"
MOST_BOUNDS: Final = 1_000
"""Most bounds kept of a topic; of older recordings only the largest stays."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Largest latency and lateness of a topic's records, by one recording and those before it."""

    at_ms: int
    records: int
    """Number of records ever read."""
    odd: int
    """Records without a time, or with one that looks like another unit's: nothing bounds them."""
    lateness_ms: int
    latency_ms: int | None
    latency_by: str | None
    """`BY_APPEND_TIME`, `BY_BROKER` or `BY_READER`."""

    @property
    def ms(self) -> int:
        """Longest time in milliseconds that a record took, as far as known."""
        return max(self.lateness_ms, self.latency_ms or 0)

    @property
    def by(self) -> str | None:
        """Name the evidence: the order of the records where that exceeds any latency."""
        return self.latency_by if self.ms == self.latency_ms else BY_ORDER


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Position of a group in a partition, with sums of its unread records."""

    offset: int
    """Next offset that the group reads: its committed offset, or the log start."""
    committed: int | None
    """Committed offset; None without one."""
    end: int | None
    """Log end at the recording, where a later one continues if nothing was committed; None if the
    log was replaced since."""
    unread: int
    unread_odd: int
    unread_min_ms: int | None
    """Smallest create time of the records unread at `at_ms`."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """Position of a group in a topic at its last recording."""

    at_ms: int
    """Time of the source's clock before its offsets and log ends were asked for."""
    largest_ms: int | None
    """Largest create time in the topic."""
    partitions: Mapping[int, GroupProgress]

    @property
    def unread(self) -> int:
        """Number of records that the group had not read."""
        return sum(partition.unread for partition in self.partitions.values())

    @property
    def unread_odd(self) -> int:
        """Number of unread records without a usable time."""
        return sum(partition.unread_odd for partition in self.partitions.values())

    def read_before_ms(self, bound_ms: int, only: int | None = None) -> int:
        """Return the create time before which the group has read every record (see the package).

        Args:
            bound_ms: longest time in milliseconds from a record's producer to the source's log.
            only: a partition, if both clusters put a record into the partition of one number.
        """
        known = [
            progress.unread_min_ms
            for number, progress in self.partitions.items()
            if progress.unread_min_ms is not None and only in (None, number)
        ]
        return min([self.at_ms - bound_ms, *known])


class ReadSums(NamedTuple):
    """Sums over a stretch of a partition, for groups that later are in or before it."""

    start: int
    end: int
    records: int
    odd: int
    min_ms: int | None


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """Sums of all recordings over a partition."""

    end: int
    """Log end up to which the recordings have read."""
    leader_epoch: int | None
    """Leader epoch then: while it stays, nothing before `end` was truncated."""
    records: int = 0
    odd: int = 0
    lateness_ms: int = 0
    latency_ms: int | None = None
    """Largest latency by append times; None if no append time is known."""
    largest_ms: int | None = None
    stretches: tuple[ReadSums, ...] = field(default=(), compare=False)
    """Successive stretches up to `end`."""


@dataclass(slots=True)
class TopicRead:
    """Sums of all recordings over a topic."""

    topic_id: str | None
    """Topic id; None from brokers before Kafka 2.8, whose topics are read again each time."""
    partitions: dict[int, PartitionRead] = field(default_factory=dict)


@dataclass(slots=True)
class Recorded:
    """All recordings of one source cluster."""

    cluster_id: str | None
    source: str
    bounds: dict[str, list[Bound]] = field(default_factory=dict)
    """Bounds by topic, oldest first."""
    groups: dict[str, dict[str, TopicProgress]] = field(default_factory=dict)
    """Positions by group and topic."""
    read: dict[str, TopicRead] = field(default_factory=dict)
    """Sums by topic."""

    def forget(self, topic: str, number: int | None = None) -> None:
        """Discard the sums of a partition or topic, so that the next recording reads all of it."""
        if number is None:
            self.read.pop(topic, None)
        elif topic in self.read:
            self.read[topic].partitions.pop(number, None)
        for topics in self.groups.values():
            if topic in topics:
                partitions = {
                    partition: replace(progress, end=None)
                    if number in (None, partition)
                    else progress
                    for partition, progress in topics[topic].partitions.items()
                }
                topics[topic] = replace(topics[topic], partitions=partitions)

    def add_bound(self, topic: str, bound: Bound) -> None:
        """Keep the bound of a recording; of the oldest beyond `MOST_BOUNDS` keep the largest."""
        kept = self.bounds.setdefault(topic, [])
        kept.append(bound)
        while len(kept) > MOST_BOUNDS:
            kept[:2] = [max(kept[:2], key=lambda bound: bound.ms)]

    def bound(self, topic: str) -> Bound:
        """Return the largest bound of a topic."""
        none = Bound(0, 0, 0, 0, None, None)
        return max(self.bounds.get(topic, ()), key=lambda bound: bound.ms, default=none)

    def has_latency(self, topic: str) -> bool:
        """True if any recording has measured the latency of a topic's records."""
        return any(bound.latency_ms is not None for bound in self.bounds.get(topic, ()))

    def odd(self, topic: str) -> int:
        """Return the largest number of records without a usable time in a recording of a topic."""
        return max((bound.odd for bound in self.bounds.get(topic, ())), default=0)

    def to_json(self) -> dict[str, Any]:
        """Convert to a document for `from_json`."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, document: Any) -> "Recorded":
        """Read a document of `to_json`.

        Raises:
            CorruptFile: the document has another form.
        """
        return value_of(cls, document, "recorded.json", (VERSION, _WITHOUT_STRETCHES))
