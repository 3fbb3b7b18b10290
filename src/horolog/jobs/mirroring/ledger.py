"""What a mirror knows of its own work, in its state directory.

    progress.json    the producer id, and of each partition the place up to which it is mirrored
    NAME.offsets     the offsets of a partition at the source and the target (`OffsetMap`)

A place is written down before a batch behind it is sent (`begin`) and after those of a wave were
acknowledged (`end`). A kill in between leaves more at the target than is written down: the next
task finds it there, by the producer id and the sequences of its batches (`moving`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from horolog.client.appends import ProducerId
from horolog.errors import Misconfigured
from horolog.jobs.mirroring.offset_map import OffsetMap, Point
from horolog.jobs.state import DocumentsOnly, JobState, value_of
from horolog.storage.directory.checkpoints import decode_uuid
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a partition is mirrored."""

    offset: int
    """The next offset to read at the source."""
    sequence: int = 0
    """Of the next record, as the mirror's producer numbers them."""
    target_offset: int = 0
    """At the target the mirror's batches behind this place are at or after this offset."""
    is_sent: bool = False
    """Whether batches behind this place may have been sent."""
    last_ms: int | None = None
    """The largest time of the last mirrored batch."""
    records: int = 0
    """Mirrored so far."""
    segment: int | None = None
    """In a log directory, the base offset of the last segment."""
    size: int = 0
    """Bytes of it that are on disk."""


@dataclass(slots=True)
class TopicState:
    """A topic that is mirrored; ids are None where a broker has none."""

    target: str
    source_id: str | None
    target_id: str | None
    places: dict[int, Place] = field(default_factory=dict)


@dataclass(slots=True)
class _Progress:
    producer: ProducerId | None
    range_ms: tuple[int | None, int | None] | None
    topics: dict[str, TopicState]


class Ledger:
    """The progress of a mirror; of a dry run kept in memory alone."""

    def __init__(self, state: JobState | DocumentsOnly | None) -> None:
        """Read it; with documents only, nothing is ever written.

        Raises:
            CorruptFile: it is damaged.
        """
        self.producer: ProducerId | None = None
        self.topics: dict[str, TopicState] = {}
        self.range_ms: tuple[int | None, int | None] | None = None
        self._state = state
        self._files = Files(read_only=isinstance(state, DocumentsOnly))
        self._maps: dict[TopicPartition, OffsetMap] = {}
        known = None if state is None else state.read(_PROGRESS)
        if known is not None:
            progress = value_of(_Progress, known, f"{_PROGRESS}.json")
            self.producer, self.range_ms = progress.producer, progress.range_ms
            self.topics = progress.topics

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def place(self, partition: TopicPartition) -> Place | None:
        """How far a partition is mirrored; None if it is new."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.places.get(partition.partition)

    def check_topics(self, at_source: Mapping[str, str], at_target: Mapping[str, str]) -> None:
        """Refuse topics that were created again since they were mirrored.

        Args:
            at_source: the ids of the source's topics that have one, as logs have them.
            at_target: those of the target.

        Raises:
            Misconfigured: one was: its offsets mean other records now.
        """
        for name, topic in self.topics.items():
            for side, its, known, ids in (
                ("source", name, topic.source_id, at_source),
                ("target", topic.target, topic.target_id, at_target),
            ):
                if known is not None and its in ids and str(decode_uuid(ids[its])) != known:
                    raise Misconfigured(
                        f"{its} of the {side} was deleted and created again since it was mirrored: "
                        "the mirror's map is of other records. Mirror it with another --state"
                    )

    def begin(self, places: Mapping[TopicPartition, Place]) -> None:
        """Write down where batches are about to be sent from."""
        for (topic, partition), place in places.items():
            self.topics[topic].places[partition] = replace(place, is_sent=True)
        self.save()

    def end(
        self, places: Mapping[TopicPartition, Place], points: Mapping[TopicPartition, list[Point]]
    ) -> None:
        """Write down what has been acknowledged, and where it went."""
        for partition, found in points.items():
            self.offsets(partition).add(found)
        for (topic, number), place in places.items():
            self.topics[topic].places[number] = place
        self.save()

    def save(self) -> None:
        """Write it all; it is on disk when this returns."""
        if isinstance(self._state, JobState):
            progress = _Progress(self.producer, self.range_ms, self.topics)
            self._state.write(_PROGRESS, asdict(progress))

    def offsets(self, partition: TopicPartition) -> OffsetMap:
        """The offsets of a partition, none beyond its place."""
        found = self._maps.get(partition)
        if found is None:
            assert self._state is not None
            found = OffsetMap(self._files, str(self._state.path / f"{partition}.offsets"))
            place = self.place(partition)
            if not self._files.read_only:
                found.cut(0 if place is None else place.offset)
            self._maps[partition] = found
        return found
