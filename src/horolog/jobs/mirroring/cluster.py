"""Destination of a mirror that is a Kafka cluster (KIP-98).

A task leaves its transaction open, with the positions that it commits (`moving`). The driver
records these positions and their points, commits the transaction, and then counts the positions as
reached. After a kill in between, the positions at the target decide, since they are committed with
the records.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from horolog.client import (
    LATEST,
    ClusterMetadata,
    CommittedOffset,
    NoAnswer,
    Transaction,
)
from horolog.client.topic_facts import topic_ids
from horolog.errors import Misconfigured, RequestRefused
from horolog.jobs.mirroring.bundles import bundled, in_tasks
from horolog.jobs.mirroring.ledger import Ledger, Place
from horolog.jobs.mirroring.moving import Moved, StretchToMirror, Target, may_pass, move
from horolog.jobs.mirroring.topics import (
    Renaming,
    SourceTopic,
    TargetTopic,
    TargetTopics,
)
from horolog.jobs.parameters.mirror import Mirror
from horolog.jobs.receiving import require_transactions
from horolog.jobs.selection import Selection
from horolog.sources.location import Location
from horolog.storage.names import TopicPartition

_JOINED_BYTES: Final = 512 << 10
"""Size of joined batches, below the defaults of `max.partition.fetch.bytes` and
`max.message.bytes`."""
_FORGOTTEN: Final = (
    "{} of the target has no place of the mirror any more (offsets.retention.minutes), and a run "
    "that was killed may have written behind that in --state: it is not known where to continue. "
    "Mirror into another topic, with another --state"
)
_ANOTHER: Final = (
    "{} of the target was mirrored up to offset {} of the source, and up to {} by --state: that "
    "is an earlier copy of the state, or the target has lost what it acknowledged. Mirror into "
    "another topic, with another --state"
)


class ClusterDestination:
    """Destination of a mirror that is a Kafka cluster."""

    note = (
        "Over the wire records get new offsets at the target; the state directory maps them, and "
        "--groups carries committed offsets over"
    )

    reading: Mapping[str, str] = MappingProxyType({"kafka.isolation.level": "read_committed"})

    def __init__(self, job: Mirror, location: Location, ledger: Ledger) -> None:
        self._ledger = ledger
        self._dry_run = job.dry_run
        self._target = Target(
            location=location,
            settings=dict(job.target_settings or {}),
            mirror_id=ledger.id,
            batch_bytes=_JOINED_BYTES if job.batch_bytes is None else job.batch_bytes,
            compresses=job.batch_bytes is not None,
        )
        self.client: Final = self._target.client()
        """Client of the target on the driver."""
        self._is_source = False
        self._ended: dict[str, Transaction] = {}
        """The last transaction of each id that this run has committed."""
        self._compared_with: set[TopicPartition] = set()
        """Partitions whose positions were compared with those committed at the target."""
        self._topics = TargetTopics(self.client, job)

    def close(self) -> None:
        """Close the connections of the driver."""
        self.client.close()

    def check(self, selection: Selection, renaming: Renaming) -> None:
        """Refuse a target without transactions, and an unrenamed mirror of a cluster into itself.

        Raises:
            Misconfigured: the target has no transactions, or a topic would be mirrored into itself.
            NoAnswer: a cluster does not answer.
        """
        require_transactions(self.client)
        if selection.source.is_broker:
            with selection.client("horolog-mirror") as source:
                self._is_source = _are_one(source.metadata(), self.client.metadata())
        for topic in selection.topics:
            if self._is_source and renaming(topic) == topic:
                raise Misconfigured(
                    f"source and target are one cluster, and {topic} would be mirrored into "
                    "itself: give --rename"
                )
        if self._is_source and not renaming.pattern:
            raise Misconfigured("source and target are one cluster: give --rename")

    def excluded(self, targets: Collection[str]) -> Collection[str]:
        """Return the topics that this mirror writes into its own source."""
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
        """Return the ids of existing topics by name."""
        return topic_ids(self.client, names) if names else {}

    def first_place(self, partition: TopicPartition, target: str, start: int) -> Place:
        """Return the position of a new partition: its source's start, its target's end."""
        if self._dry_run:
            return Place(start)
        to = (target, partition.partition)
        log_end = self.client.list_offsets({to: LATEST})[to]
        return Place(start, target_offset=0 if log_end is None else log_end.offset)

    def move(self, spark: SparkSession, units: Sequence[StretchToMirror]) -> Iterator[list[Moved]]:
        """Mirror the stretches in tasks."""
        try:
            units, stopped = self._compared(units)
        except (NoAnswer, RequestRefused) as error:
            units, stopped = [], [_failed(unit, str(error), may_pass(error)) for unit in units]
        if stopped:
            yield stopped
        bundles = bundled(spark, units)
        if len(bundles) > self._ledger.slots:
            self._ledger.slots = len(bundles)
            self._ledger.save()  # before a transaction is begun there
        for wave in in_tasks(spark, bundles, partial(move, self._target)):
            yield self._committed(wave)

    def _compared(
        self, units: Sequence[StretchToMirror]
    ) -> tuple[list[StretchToMirror], list[Moved]]:
        """Return units at the positions committed at the target, and results of stopped units.

        Raises:
            RequestRefused, NoAnswer: the target refuses, or does not answer.
        """
        doubtful = [
            unit
            for unit in units
            if unit.partition not in self._compared_with
            or self._ledger.begun(unit.partition) is not None
        ]
        if not doubtful:
            return list(units), []
        for slot in range(self._ledger.slots):
            self._target.begin(self.client, slot)  # aborts what an earlier run left open
        there = self.client.offset_fetch(
            self._target.group, [unit.to for unit in doubtful], require_stable=True
        )
        stopped, reached = list[Moved](), dict[TopicPartition, Place]()
        missing = dict[tuple[str, int], CommittedOffset]()
        for unit in doubtful:
            committed, begun = there.get(unit.to), self._ledger.begun(unit.partition) or unit.place
            if committed is None and begun.offset == unit.place.offset:
                missing[unit.to] = CommittedOffset(unit.place.offset)
                reached[unit.partition] = begun
            elif committed is None:
                stopped.append(_failed(unit, _FORGOTTEN.format(unit.to), False))
            elif committed.offset == begun.offset:
                reached[unit.partition] = begun
            elif committed.offset == unit.place.offset:
                reached[unit.partition] = unit.place
            else:
                error = _ANOTHER.format(unit.to, committed.offset, unit.place.offset)
                stopped.append(_failed(unit, error, False))
        if missing:
            self.client.offset_commit(self._target.group, missing)
        self._ledger.end(reached)
        self._compared_with |= reached.keys()
        stops = {moved.partition for moved in stopped}
        return [
            replace(unit, place=reached.get(unit.partition, unit.place))
            for unit in units
            if unit.partition not in stops
        ], stopped

    def _committed(self, wave: Sequence[Moved]) -> list[Moved]:
        """Commit the transactions of a wave; after a failed commit a position stays the same."""
        prepared = [moved for moved in wave if moved.transaction is not None]
        self._ledger.begin(
            {moved.partition: moved.place for moved in prepared},
            {moved.partition: moved.points for moved in prepared},
        )
        failures = dict[Transaction | None, str]()
        for transaction in {moved.transaction: None for moved in prepared}:
            assert transaction is not None
            try:
                self.client.end_transaction(transaction, commit=True)
                self._ended[transaction.id] = transaction
            except (NoAnswer, RequestRefused) as error:
                failures[transaction] = str(error)
        return [
            moved
            if moved.transaction not in failures
            else replace(
                moved,
                place=self._ledger.topics[moved.partition.topic].places[moved.partition.partition],
                records=0,
                bytes=0,
                error=failures[moved.transaction],
                may_pass=True,
            )
            for moved in wave
        ]

    def finish(self, spark: SparkSession) -> Sequence[str]:
        """Wait for the markers of committed transactions; there are no errors."""
        self.client.transactions.await_markers(self._ended.values())
        return ()


def _are_one(source: ClusterMetadata, target: ClusterMetadata) -> bool:
    """True if the cluster ids are equal, and the topic ids overlap where both have some."""
    if source.cluster_id is None or source.cluster_id != target.cluster_id:
        return False
    ids = [
        {topic.topic_id for topic in cluster.topics.values() if topic.topic_id is not None}
        for cluster in (source, target)
    ]
    return not (ids[0] or ids[1]) or bool(ids[0] & ids[1])


def _failed(unit: StretchToMirror, error: str, passes: bool) -> Moved:
    return Moved(unit.partition, unit.place, error=error, may_pass=passes)
