"""What a mirror needs of the place that it writes to."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from pyspark.sql import SparkSession

from horolog.jobs.mirroring.ledger import Place
from horolog.jobs.mirroring.moving import Moved, StretchToMirror
from horolog.jobs.mirroring.topics import Renaming, SourceTopic, TargetTopic
from horolog.jobs.selection import Selection
from horolog.storage.names import TopicPartition


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
