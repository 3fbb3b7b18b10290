"""A cluster as the target of a mirror."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from horolog.client import LATEST, Client, ClusterMetadata
from horolog.client.topic_facts import topic_ids
from horolog.errors import Misconfigured
from horolog.jobs.mirroring.bundles import in_bundles
from horolog.jobs.mirroring.ledger import Ledger, Place
from horolog.jobs.mirroring.moving import Moved, StretchToMirror, Target, move
from horolog.jobs.mirroring.topics import (
    Renaming,
    SourceTopic,
    TargetTopic,
    TargetTopics,
)
from horolog.jobs.selection import Selection, client_of
from horolog.sources.location import Location
from horolog.storage.names import TopicPartition

_JOINED_BYTES: Final = 512 << 10
"""Below what consumers fetch of a partition at a time, and what brokers take, by default."""


class ClusterDestination:
    """A cluster that is mirrored to; `directory.LogDirectory` has the same methods."""

    note = (
        "Over the wire records get new offsets at the target; the state directory maps them, and "
        "--groups carries committed offsets over"
    )

    reading: Mapping[str, str] = MappingProxyType({"kafka.isolation.level": "read_committed"})

    def __init__(
        self,
        location: Location,
        settings: Mapping[str, str],
        ledger: Ledger,
        *,
        topic_settings: Mapping[str, str],
        batch_bytes: int | None,
        replaces_create_times: bool,
        into_nonempty: bool,
        dry_run: bool,
    ) -> None:
        self._location = location
        self._settings = dict(settings)
        self._ledger = ledger
        self._batch_bytes = _JOINED_BYTES if batch_bytes is None else batch_bytes
        self._compresses = batch_bytes is not None
        self._dry_run = dry_run
        self._client = self.client()
        self._is_source = False
        self._topics = TargetTopics(
            self._client,
            settings=topic_settings,
            replaces_create_times=replaces_create_times,
            into_nonempty=into_nonempty,
            dry_run=dry_run,
        )

    def close(self) -> None:
        """Close the connections of the driver."""
        self._client.close()

    def client(self) -> Client:
        """Another client of the target."""
        return client_of(self._location, self._settings, "horolog-mirror")

    def check(self, selection: Selection, renaming: Renaming) -> None:
        """Refuse to mirror a cluster into itself under the same names.

        Raises:
            Misconfigured: every topic would be mirrored into itself.
            NoAnswer: a cluster does not answer.
        """
        if selection.source.is_broker:
            with selection.client("horolog-mirror") as source:
                self._is_source = _are_one(source.metadata(), self._client.metadata())
        for topic in selection.topics:
            if self._is_source and renaming(topic) == topic:
                raise Misconfigured(
                    f"source and target are one cluster, and {topic} would be mirrored into "
                    "itself: give --rename"
                )
        if self._is_source and not renaming.pattern:
            raise Misconfigured("source and target are one cluster: give --rename")

    def excluded(self, targets: Collection[str]) -> Collection[str]:
        """Topics of the source that this mirror writes itself."""
        return set(targets) if self._is_source else ()

    def prepare(self, source: SourceTopic, name: str) -> TargetTopic:
        """Create a topic or add partitions, and check its settings."""
        new = [
            number
            for number in range(source.partitions)
            if self._ledger.place(TopicPartition(source.name, number)) is None
        ]
        return self._topics.prepare(source, name, new)

    def ids(self, names: Collection[str]) -> Mapping[str, str | None]:
        """The ids of the topics that exist."""
        return topic_ids(self._client, names) if names else {}

    def first_place(self, partition: TopicPartition, target: str, start: int) -> Place:
        """From the start of the source's log to the end of the target's."""
        if self._dry_run:
            return Place(start)
        to = (target, partition.partition)
        found = self._client.list_offsets({to: LATEST})[to]
        return Place(start, target_offset=0 if found is None else found.offset)

    def move(self, spark: SparkSession, units: Sequence[StretchToMirror]) -> Iterator[list[Moved]]:
        """Mirror the stretches in tasks."""
        if self._ledger.producer is None:
            self._ledger.producer = self._client.init_producer_id()
            self._ledger.save()  # before a batch has it
        target = Target(
            location=self._location,
            settings=self._settings,
            producer=self._ledger.producer,
            batch_bytes=self._batch_bytes,
            compresses=self._compresses,
        )
        yield from in_bundles(spark, units, partial(_move_all, target))

    def finish(self, spark: SparkSession) -> Sequence[str]:
        """Nothing is left to do."""
        return ()


def _are_one(source: ClusterMetadata, target: ClusterMetadata) -> bool:
    """Whether two clusters are one: some were set up with the id of another."""
    if source.cluster_id is None or source.cluster_id != target.cluster_id:
        return False
    ids = [
        {topic.topic_id for topic in each.topics.values() if topic.topic_id is not None}
        for each in (source, target)
    ]
    return not (ids[0] or ids[1]) or bool(ids[0] & ids[1])


def _move_all(target: Target, units: tuple[StretchToMirror, ...]) -> list[Moved]:
    done: list[Moved] = []
    for unit in units:
        # Where one partition has waited for a broker in vain, the others try once.
        has_waited = any(each.may_pass for each in done)
        done.append(move(unit, target, is_patient=not has_waited))
    return done
