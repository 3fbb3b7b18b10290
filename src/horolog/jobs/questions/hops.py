"""Measure how long records take from one cluster to the next, by a mirror's state (KIP-32).

A mirror keeps which offset of the target each record went to. So the append times of both logs can
be joined without reading a record's key or value: the source's come with a scan of it, those of the
target are looked up batch by batch.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from horolog.errors import Misconfigured
from horolog.jobs.mirroring.ledger import Ledger
from horolog.jobs.mirroring.offset_map import mapped
from horolog.jobs.parameters.shared import PathLike
from horolog.jobs.questions.latency_sums import LatencySummary
from horolog.jobs.questions.scan import Times
from horolog.jobs.selection import Selection
from horolog.jobs.state import DocumentsOnly
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.sources.arrivals import append_times
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch
from horolog.sources.stretch_reader import StretchReader
from horolog.storage.names import TopicPartition

BY_HOP: Final = "append time at the target - append time at the source"


@dataclass(frozen=True, slots=True)
class _Mirrored:
    """Places at the target of one partition's records."""

    partition: TopicPartition
    """Partition of the target."""
    end: int
    """The offset of the source up to which it is mirrored."""
    points: Int64Array
    """Rows of an offset of the source and of the target, from which both count in parallel."""

    def offsets(self, sources: Int64Array) -> Int64Array:
        """Return the target's offsets of records of the source; -1 where they are not mirrored."""
        is_mirrored = (sources >= self.points[0, 0]) & (sources < self.end)
        return np.where(is_mirrored, mapped(self.points, sources), -1)


@dataclass(frozen=True, slots=True)
class Hop:
    """Way from the source of a mirror to its target."""

    target: ReadOptions
    partitions: Mapping[TopicPartition, _Mirrored]

    @classmethod
    def of(cls, mirror_state: PathLike, source: Selection, target: Selection) -> "Hop":
        """Read the state directory of a mirror.

        Raises:
            Misconfigured: there is none, the target is no broker, or a topic was created again
                since it was mirrored.
            CorruptFile: it is damaged.
        """
        if not target.source.is_broker:
            raise Misconfigured(
                "the latency of a hop needs the target's broker: --target HOST:PORT"
            )
        partitions = {}
        with (
            closing(Ledger(DocumentsOnly(mirror_state))) as ledger,
            source.log() as source_log,
            target.log() as target_log,
        ):
            source_log.partitions()
            target_log.partitions()
            ledger.check_topics(source_log.topic_ids, target_log.topic_ids)
            for name, topic in ledger.topics.items():
                for number, place in topic.places.items():
                    partition = TopicPartition(name, number)
                    points = ledger.offsets(partition).between(0, place.offset)
                    if points:
                        there = TopicPartition(topic.target, number)
                        partitions[partition] = _Mirrored(
                            there, place.offset, np.array(points, np.int64)
                        )
        if not partitions:
            raise Misconfigured(f"the mirror of {mirror_state} has not mirrored anything yet")
        return cls(target.read_options(), partitions)

    def times(self, reader: StretchReader, source: Times) -> Times:
        """Return the records with the append times of the source and of the target."""
        mirrored = self.partitions.get(TopicPartition(source.topic, source.partition))
        known = np.zeros(len(source.offsets), np.bool_)
        appended = np.zeros(len(source.offsets), np.int64)
        if mirrored is not None:
            offsets = mirrored.offsets(source.offsets)
            there = offsets >= 0
            if there.any():
                first, last = int(offsets[there].min()), int(offsets.max())
                stretch = BrokerStretch(mirrored.partition, first, last + 1)
                ends, times = append_times(reader, stretch)
                at = np.searchsorted(ends, offsets, side="right")
                known = there & (at < len(ends))
                known[known] = times[at[known]] != NO_TIMESTAMP
                appended[known] = times[at[known]]
        created = np.where(source.is_appended, source.appended_ms, NO_TIMESTAMP)
        return replace(source, created_ms=created, appended_ms=appended, is_appended=known)


class HopSummary(LatencySummary):
    """Summary of the latencies of a hop; rows of `PARTS`."""

    def __init__(self, hop: Hop) -> None:
        self._hop = hop

    def __call__(self, place: int, times: Iterator[Times]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task by its number, one run of a partition after the other."""
        with StretchReader(self._hop.target) as reader:
            yield from super().__call__(place, (self._hop.times(reader, time) for time in times))
