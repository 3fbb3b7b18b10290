"""Condition of a broker and its partitions in a cluster, for `horolog health` and metrics.

One pass over the image, in time slices. Problems of partitions are counted by topic, so that a
broker that fails does not give a problem for each of its partitions.

fenced             this broker is fenced: it leads nothing, and clients are sent elsewhere
no-controller      no active controller answers
without-leader     a topic with `value` partitions that have a replica here and no leader
offline            a partition that cannot take the role that the metadata give it
under-min-isr      a topic with `value` partitions, led here, that refuse acks=all
under-replicated   a topic with `value` partitions, led here, that lack replicas in the ISR
internal-topics    an internal topic that Kafka's brokers lack, or that is here
retention-apart    a topic whose retention is by append time here, and by create time on a replica
                   at Apache Kafka
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from horolog.broker.cluster.placement import ObservedImage, is_horolog
from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.scheduling.turns import TimeSlice
from horolog.errors import listed
from horolog.metadata.image import Image
from horolog.replication.leading import Leading
from horolog.schemas.metadata import PartitionRecord
from horolog.wire.questions import Wrong

_BY_APPEND_TIME: Final = "append-time"
_MOST_NAMES: Final = 5


class CountsIsr(Protocol):
    """Partitions that this broker leads for other replicas, and counts of their changes."""

    isr_expands: int
    isr_shrinks: int
    failed_isr_updates: int

    def __iter__(self) -> Iterator[tuple[Partition, Leading]]:
        """Yield the partitions."""
        ...


class HasState(Protocol):
    """State of this broker at the controllers."""

    @property
    def state(self) -> int:
        """State by the numbers of Kafka's metric BrokerState."""
        ...

    @property
    def is_fenced(self) -> bool:
        """True unless the controllers have unfenced it."""
        ...

    @property
    def complaint(self) -> str | None:
        """Reason why the last heartbeat was not answered."""
        ...


class Observing(ObservedImage, Protocol):
    """The image, and up to where it is applied."""

    offset: int
    timestamp: int


class ReplicaLag(NamedTuple):
    """Offsets that a replica lacks of a partition that is led here."""

    topic: str
    partition: int
    replica: int
    offsets: int


@dataclass(slots=True)
class ClusterNumbers:
    """Counts of one pass."""

    assigned: int = 0
    """Partitions with a replica here."""
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    partitions: int = 0
    """Partitions of all topics of the cluster."""
    without_leader: int = 0
    """Of these, those that no broker leads."""
    by_topic: dict[str, Counter[str]] = field(default_factory=dict)
    """Numbers of partitions with a problem, by topic and kind."""

    def note(self, kind: str, topic: str) -> None:
        """Count a problem of a partition."""
        self.by_topic.setdefault(topic, Counter())[kind] += 1


class ClusterCondition:
    """Looks at what a broker knows of its cluster. For the event loop's thread only.

    Args:
        internal: returns sentences about internal topics.
        why_no_controller: returns why no active controller answers; None if one does.
        refused: returns why partitions could not take the roles that the metadata give them.
    """

    def __init__(
        self,
        node_id: int,
        view: Observing,
        partitions: Partitions,
        leaders: CountsIsr,
        life: HasState,
        *,
        internal: Callable[[], Iterable[str]],
        why_no_controller: Callable[[], str | None],
        refused: Callable[[], Mapping[tuple[str, int], str]],
    ) -> None:
        self.leaders = leaders
        self.life = life
        self.view = view
        self._node_id = node_id
        self._partitions = partitions
        self._internal = internal
        self._why_no_controller = why_no_controller
        self._refused = refused

    @property
    def brokers(self) -> int:
        """Number of brokers of the cluster that are not fenced."""
        return sum(not broker.fenced for broker in self._image.brokers.values())

    @property
    def _image(self) -> Image:
        return self.view.image

    async def numbers(self, turns: TimeSlice) -> ClusterNumbers:
        """Count partitions by their condition."""
        found, here = ClusterNumbers(), self._node_id
        for its in list(self._image.topics.values()):
            for index, placed in list(its.partitions.items()):
                await turns.pause()
                found.partitions += 1
                found.without_leader += placed.leader < 0
                if here not in placed.replicas:
                    continue
                found.assigned += 1
                if placed.leader < 0:
                    found.note("without-leader", its.name)
                elif placed.leader == here:
                    self._note_led(found, its.name, index, placed)
        return found

    def _note_led(
        self, found: ClusterNumbers, topic: str, index: int, placed: PartitionRecord
    ) -> None:
        found.led += 1
        partition = self._partitions.find(topic, index)
        leading = None if partition is None else partition.leading
        least = 1 if leading is None else leading.effective_min_isr
        if len(placed.isr) < least:
            found.under_min_isr += 1
            found.note("under-min-isr", topic)
        found.at_min_isr += len(placed.isr) == least
        if len(placed.isr) < len(placed.replicas) - len(placed.adding):
            found.under_replicated += 1
            found.note("under-replicated", topic)

    def lags(self) -> Iterator[ReplicaLag]:
        """Yield by how many offsets each replica of a partition led here is behind."""
        for partition, leading in self.leaders:
            end = partition.log.log_end_offset
            for replica, known in leading.replicas.items():
                if known.end >= 0:
                    lag = max(0, end - known.end)
                    yield ReplicaLag(partition.topic, partition.index, replica, lag)

    async def wrong(self, turns: TimeSlice, sees: Callable[[str], bool]) -> list[Wrong]:
        """List what an operator has to look at.

        Args:
            sees: whether a topic may be in the list.
        """
        here, wrong = f"broker {self._node_id}", list[Wrong]()
        if self.life.is_fenced:
            why = self.life.complaint or "the controllers have fenced it"
            wrong.append(Wrong("fenced", here, None, f"this broker leads nothing: {why}"))
        reason = self._why_no_controller()
        if reason is not None:
            wrong.append(Wrong("no-controller", here, None, reason))
        wrong += [Wrong("internal-topics", here, None, text) for text in self._internal()]
        for (topic, index), reason in list(self._refused().items()):
            if sees(topic):
                text = f"it cannot lead or follow: {reason}"
                wrong.append(Wrong("offline", f"{topic}-{index}", None, text))
        found = await self.numbers(turns)
        for topic, kinds in found.by_topic.items():
            if sees(topic):
                wrong += [Wrong(kind, topic, count, _TEXTS[kind]) for kind, count in kinds.items()]
        for topic in list(self._image.topics):
            await turns.pause()
            if sees(topic):
                wrong += self._retention_apart(topic)
        return wrong

    def _retention_apart(self, topic: str) -> Iterator[Wrong]:
        """Report a topic whose retention is by append time, with replicas at Apache Kafka."""
        its = self._image.topics.get(topic)
        if its is None:
            return
        for index in its.partitions:
            partition = self._partitions.find(topic, index)
            if partition is None:
                continue
            if partition.log.config.horolog_retention_by != _BY_APPEND_TIME:
                return
            others = self._kafkas(its.partitions[index].replicas)
            if others:
                text = (
                    f"horolog.retention.by=append-time, and brokers {listed(others, _MOST_NAMES)} "
                    "of Apache Kafka delete by create time: what is left depends on who leads"
                )
                yield Wrong("retention-apart", topic, None, text)
                return

    def _kafkas(self, replicas: Iterable[int]) -> list[str]:
        brokers = self._image.brokers
        return [str(it) for it in replicas if it in brokers and not is_horolog(brokers[it])]


_TEXTS: Final = {
    "without-leader": "no replica that may lead is alive: nothing is read or written",
    "under-min-isr": (
        "fewer replicas are in sync than min.insync.replicas: producers with acks=all are refused"
    ),
    "under-replicated": (
        "replicas are not in sync: `kafka-topics.sh --describe --under-replicated-partitions` "
        "lists them"
    ),
}
