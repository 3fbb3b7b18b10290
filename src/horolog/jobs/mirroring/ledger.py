"""Progress of a mirror, in its state directory.

    progress.json    the mirror's id, and of each partition the place up to which it is mirrored
    NAME.offsets     the offsets of a partition at the source and the target (`OffsetMap`)

Work under way is recorded first (`begin`). For a cluster that is the position that a prepared
transaction reaches, and the points of its records. `end` replaces the position after the commit.
After a kill in between, the offset committed at the target tells which position is true
(`cluster`). In a log directory the files themselves tell it (`keeping`).
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from horolog.errors import Misconfigured
from horolog.jobs.mirroring.offset_map import OffsetMap, Point
from horolog.jobs.state import DocumentsOnly, value_of
from horolog.storage.directory.checkpoints import decode_uuid
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class Place:
    """Position up to which a partition is mirrored."""

    offset: int
    """Next offset to read at the source."""
    target_offset: int = 0
    """Offset after the last mirrored record, at the target."""
    last_ms: int | None = None
    """Largest time of the last mirrored batch."""
    records: int = 0
    """Number of records mirrored so far."""
    segment: int | None = None
    """Base offset of the last segment, in a log directory."""
    size: int = 0
    """Bytes of the last segment that are on disk."""


@dataclass(slots=True)
class LedgerTopic:
    """Progress of one topic; an id is None where a broker has no topic ids."""

    target: str
    source_id: str | None
    target_id: str | None
    places: dict[int, Place] = field(default_factory=dict)
    begun: dict[int, Place] = field(default_factory=dict)
    """Positions that work under way may have reached."""


@dataclass(slots=True)
class _Progress:
    id: str
    slots: int
    range_ms: tuple[int | None, int | None] | None
    topics: dict[str, LedgerTopic]


class Ledger:
    """Progress of a mirror: its id, and the positions and offset maps of its partitions."""

    def __init__(self, state: DocumentsOnly | None) -> None:
        """Read the progress from a state directory; without one it is kept in memory.

        Raises:
            CorruptFile: the document of the progress is damaged.
        """
        self.id = uuid.uuid4().hex
        """Part of the names of the mirror's transactions and group at a cluster."""
        self.slots = 0
        """Number of transactional ids that the mirror has used."""
        self.topics: dict[str, LedgerTopic] = {}
        self.range_ms: tuple[int | None, int | None] | None = None
        self._state = state
        self._files = Files(read_only=state is not None and state.is_read_only)
        self._maps: dict[TopicPartition, OffsetMap] = {}
        known = None if state is None else state.read(_PROGRESS)
        if known is not None:
            progress = value_of(_Progress, known, f"{_PROGRESS}.json")
            self.id, self.slots = progress.id, progress.slots
            self.range_ms, self.topics = progress.range_ms, progress.topics

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def place(self, partition: TopicPartition) -> Place | None:
        """Return the position of a partition; None if it is new."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.places.get(partition.partition)

    def begun(self, partition: TopicPartition) -> Place | None:
        """Return the position that work under way may have reached; None without such work."""
        return self.topics[partition.topic].begun.get(partition.partition)

    def check_topics(self, at_source: Mapping[str, str], at_target: Mapping[str, str]) -> None:
        """Refuse topics that were created again since they were mirrored.

        Args:
            at_source: ids of the source's topics in Kafka's form; topics without one are left out.

        Raises:
            Misconfigured: a topic was created again, so that its offsets mean other records.
        """
        for name, topic in self.topics.items():
            for side, topic_name, known, ids in (
                ("source", name, topic.source_id, at_source),
                ("target", topic.target, topic.target_id, at_target),
            ):
                if (
                    known is not None
                    and topic_name in ids
                    and str(decode_uuid(ids[topic_name])) != known
                ):
                    raise Misconfigured(
                        f"{topic_name} of the {side} was deleted and created again since it was "
                        "mirrored: the mirror's map is of other records. Mirror it with another "
                        "--state"
                    )

    def begin(
        self,
        places: Mapping[TopicPartition, Place],
        points: Mapping[TopicPartition, list[Point]] | None = None,
    ) -> None:
        """Record the positions that work under way may reach, and the points up to there."""
        for partition, its_points in (points or {}).items():
            known = self.place(partition)
            assert known is not None
            offsets = self.offsets(partition)
            offsets.cut(known.offset)  # an attempt that was aborted may have left points
            offsets.add(its_points)
        for (topic, number), place in places.items():
            self.topics[topic].begun[number] = place
        self.save()

    def end(
        self, places: Mapping[TopicPartition, Place], failed: Iterable[TopicPartition] = ()
    ) -> None:
        """Record reached positions; failed partitions stay marked as under way."""
        for (topic, number), place in places.items():
            self.topics[topic].places[number] = place
        for topic, number in places.keys() - set(failed):
            self.topics[topic].begun.pop(number, None)
        self.save()

    def save(self) -> None:
        """Write the progress to the state directory, and sync it."""
        if self._state is not None:
            progress = _Progress(self.id, self.slots, self.range_ms, self.topics)
            self._state.write(_PROGRESS, asdict(progress))

    def offsets(self, partition: TopicPartition) -> OffsetMap:
        """Return the offset map of a partition; points beyond its recorded position are cut off."""
        offsets = self._maps.get(partition)
        if offsets is None:
            assert self._state is not None
            offsets = OffsetMap(self._files, str(self._state.path / f"{partition}.offsets"))
            place = self.begun(partition) or self.place(partition)
            if not self._files.read_only:
                offsets.cut(0 if place is None else place.offset)
            self._maps[partition] = offsets
        return offsets
