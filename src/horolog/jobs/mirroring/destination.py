"""What a mirror needs of the place that it writes to."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from horolog.jobs.mirroring.batches import Rule
from horolog.jobs.mirroring.ledger import Place
from horolog.jobs.mirroring.moving import Moved
from horolog.jobs.mirroring.topics import Renaming, SourceTopic, TargetTopic
from horolog.jobs.selection import Selection
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Stretch
from horolog.storage.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchToMirror:
    """What is to be mirrored next of a partition."""

    partition: TopicPartition
    target_topic: str
    place: Place
    end: int
    stretches: tuple[Stretch, ...]
    options: ReadOptions
    rule: Rule
    target_compacts: bool
    target_max_bytes: int | None


class Destination(Protocol):
    """Where it goes: a cluster, or a log directory."""

    note: str
    """What the summary says of offsets."""
    reading: Mapping[str, str]
    """Options of the source: which records are read."""

    def check(self, selection: Selection, renaming: Renaming) -> None:
        """Refuse a source that it cannot be mirrored from."""

    def prepare(self, source: SourceTopic, name: str) -> TargetTopic:
        """Make a topic ready, and say what it is."""

    def ids(self, names: Collection[str]) -> Mapping[str, str | None]:
        """The ids of the topics that exist."""

    def excluded(self, targets: Collection[str]) -> Collection[str]:
        """Topics of the source that this mirror writes itself."""

    def first_place(self, partition: TopicPartition, target: str, start: int) -> Place:
        """Where a partition begins."""

    def move(self, spark: SparkSession, units: Sequence[StretchToMirror]) -> Iterator[list[Moved]]:
        """Do the work in waves."""

    def finish(self, spark: SparkSession) -> Sequence[str]:
        """Leave the target as it is to be found; sentences of what failed."""
