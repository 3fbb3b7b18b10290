"""What recordings keep of a cluster, and until when a group has read by them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from horolog.errors import CorruptFile

MOST_BOUNDS: Final = 1_000
"""Recordings whose bounds are kept apart; of older ones the largest."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How late records of a topic were, by one recording."""

    at_ms: int
    records: int
    odd: int
    """Records without a time, or with one that looks like another unit's: nothing bounds them."""
    lateness_ms: int
    latency_ms: int | None
    latency_by: str | None
    """"append time", or "reader" of what was appended during the recording."""

    @property
    def ms(self) -> int:
        """What a record took at most, as far as this recording saw."""
        return max(self.lateness_ms, self.latency_ms or 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group was in a partition."""

    offset: int
    """The next one it reads: what it has committed, or where the log begins."""
    is_committed: bool
    unread: int
    unread_odd: int
    unread_min_ms: int | None
    """The smallest create time of what it has not read, by `at_ms`."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far a group was in a topic when it was last recorded."""

    at_ms: int
    """By the source's clock, before its offsets and the log ends were asked for."""
    largest_ms: int | None
    """The largest create time that the topic held."""
    partitions: Mapping[int, Progress]

    @property
    def unread(self) -> int:
        """Records that it had not read."""
        return sum(each.unread for each in self.partitions.values())

    @property
    def unread_odd(self) -> int:
        """Of these, without a usable time."""
        return sum(each.unread_odd for each in self.partitions.values())

    def read_before_ms(self, bound_ms: int, only: int | None = None) -> int:
        """The time before which the group has read all that was created (see the package).

        Args:
            bound_ms: what a record takes at most from its producer to the source's log.
            only: of this partition, where both clusters put a record into the same one.
        """
        known = [
            each.unread_min_ms
            for number, each in self.partitions.items()
            if each.unread_min_ms is not None and only in (None, number)
        ]
        return min([self.at_ms - bound_ms, *known])


@dataclass(slots=True)
class Recorded:
    """All recordings of one source cluster."""

    cluster_id: str | None
    source: str
    bounds: dict[str, list[Bound]] = field(default_factory=dict)
    """By topic, oldest first."""
    groups: dict[str, dict[str, TopicProgress]] = field(default_factory=dict)
    """By group and topic."""

    def add_bound(self, topic: str, bound: Bound) -> None:
        """Keep what a recording saw; of the oldest beyond `MOST_BOUNDS` the largest."""
        kept = self.bounds.setdefault(topic, [])
        kept.append(bound)
        while len(kept) > MOST_BOUNDS:
            kept[:2] = [max(kept[:2], key=lambda each: each.ms)]

    def bound_ms(self, topic: str) -> int:
        """The largest bound of a topic that was recorded."""
        return max((each.ms for each in self.bounds.get(topic, ())), default=0)

    def has_latency(self, topic: str) -> bool:
        """Whether any recording measured how long records take."""
        return any(each.latency_ms is not None for each in self.bounds.get(topic, ()))

    def odd(self, topic: str) -> int:
        """The most records without a usable time that a recording saw."""
        return max((each.odd for each in self.bounds.get(topic, ())), default=0)

    def to_json(self) -> dict[str, Any]:
        """As a document; `from_json` reads it."""
        return {
            "version": 1,
            "cluster_id": self.cluster_id,
            "source": self.source,
            "bounds": {topic: [_plain(each) for each in its] for topic, its in self.bounds.items()},
            "groups": {
                group: {
                    topic: {
                        "at_ms": its.at_ms,
                        "largest_ms": its.largest_ms,
                        "partitions": {
                            str(number): _plain(each) for number, each in its.partitions.items()
                        },
                    }
                    for topic, its in topics.items()
                }
                for group, topics in self.groups.items()
            },
        }

    @classmethod
    def from_json(cls, document: Any) -> "Recorded":
        """What `to_json` made.

        Raises:
            CorruptFile: it is not that.
        """
        try:
            if document["version"] != 1:
                raise CorruptFile(f"recorded.json is of version {document['version']}, not 1")
            return cls(
                document["cluster_id"],
                document["source"],
                {
                    topic: [Bound(**each) for each in its]
                    for topic, its in document["bounds"].items()
                },
                {
                    group: {topic: _progress(its) for topic, its in topics.items()}
                    for group, topics in document["groups"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptFile(f"recorded.json is damaged: {error!r}") from None


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _progress(its: Mapping[str, Any]) -> TopicProgress:
    return TopicProgress(
        its["at_ms"],
        its["largest_ms"],
        {int(number): Progress(**each) for number, each in its["partitions"].items()},
    )
