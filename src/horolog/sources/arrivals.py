"""Append times of a log's batches, as far as they are known."""

from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.errors import Misconfigured
from horolog.record.batch import BatchHeader
from horolog.record.scan import scan_batch, timestamps
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.sources.batches import Batches
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch, Stretch
from horolog.sources.planning import opened_log, plan_offsets
from horolog.sources.row_filter import RowFilter
from horolog.sources.stretch_reader import StretchReader, naming_batch
from horolog.storage.names import TopicPartition
from horolog.storage.offline.simulation import Arrival

_MAX_UNPACKED = 1 << 30


class ArrivedTimes(NamedTuple):
    """Create times of a batch's records in milliseconds, and the batch's append time."""

    base_offset: int
    next_offset: int
    append_ms: int | None
    """Append time of the batch; None if unknown."""
    create_times: Sequence[int]
    """Create times in milliseconds; -1 is none."""


class ArrivalLog:
    """Batches of a log with their append times, as of when this was made."""

    def __init__(self, options: ReadOptions, numbers: Collection[int] | None = None) -> None:
        """Plan to read all, or partitions of these numbers.

        Raises:
            Misconfigured: the log does not exist.
            RequestRefused, NoAnswer: the broker refuses, or does not answer.
        """
        with opened_log(options) as log:
            chosen = [
                partition
                for partition in log.partitions()
                if not numbers or partition.partition in numbers
            ]
            self._stretches = plan_offsets(log, chosen, RowFilter(), {}, {}).stretches
        self.partitions = sorted(chosen)
        self._options = options

    @property
    def offsets(self) -> int:
        """Number of offsets to read through."""
        return sum(stretch.end - stretch.start for stretch in self._stretches)

    def offsets_of(self, partition: TopicPartition) -> int:
        """Return the number of offsets of one partition."""
        its = (stretch for stretch in self._stretches if stretch.partition == partition)
        return sum(stretch.end - stretch.start for stretch in its)

    def of(self, partition: TopicPartition) -> Iterator[Arrival]:
        """Yield the batches of one partition as arrivals, in order of offsets.

        Raises:
            Misconfigured: it is not known when a batch arrived.
            CorruptBatch: a batch is damaged.
            DataLost: something is gone.
            RequestRefused, NoAnswer: the broker refuses, or does not answer.
        """
        for batch, header, append_ms in self._batches(partition):
            if append_ms is None:
                raise Misconfigured(
                    f"It is not known when the batch at offset {header.base_offset} of {partition} "
                    "arrived: only horolog keeps that of records with create times, so that no "
                    "other settings can be tried on what another broker has appended"
                )
            facts = scan_batch(batch, header, max_bytes=_MAX_UNPACKED, create_times=True)
            yield Arrival(
                header.base_offset,
                header.last_offset,
                header.size,
                0 if header.is_control else facts.count,
                facts.min_timestamp,
                facts.max_timestamp,
                append_ms,
            )

    def times(self, partition: TopicPartition) -> Iterator[ArrivedTimes]:
        """Yield the create times of one partition's records, batch by batch; raises as `of`."""
        for batch, header, append_ms in self._batches(partition):
            if not header.is_control:
                times = timestamps(batch, header, max_bytes=_MAX_UNPACKED, create_times=True)
                yield ArrivedTimes(header.base_offset, header.next_offset, append_ms, times)

    def _batches(
        self, partition: TopicPartition
    ) -> Iterator[tuple[memoryview, BatchHeader, int | None]]:
        """Yield whole batches with their append times; None where unknown."""
        with StretchReader(self._options) as reader:
            for stretch in self._stretches:
                if stretch.partition != partition:
                    continue
                with reader.losses(stretch):
                    for batches in _read(reader, stretch):
                        with naming_batch(batches):
                            for batch, appended in batches.walk_appended():
                                yield batch.data, batch.header, appended.known_ms


def append_times(
    reader: StretchReader, stretch: Stretch
) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]":
    """Return the end offset and append time of each batch of a stretch; -1 is unknown.

    Raises:
        as `ArrivalLog.of`.
    """
    ends, times = array("q"), array("q")
    with reader.losses(stretch):
        for batches in _read(reader, stretch):
            for batch, appended in batches.walk_appended():
                ends.append(batch.header.next_offset)
                times.append(NO_TIMESTAMP if appended.known_ms is None else appended.known_ms)
    return np.frombuffer(ends, np.int64), np.frombuffer(times, np.int64)


def _read(reader: StretchReader, stretch: Stretch) -> Iterator[Batches]:
    """Yield all batches, with append times where the log keeps them apart from timestamps."""
    is_kept = not isinstance(stretch, BrokerStretch) or reader.client.offsets.has_append_times()
    return reader.batches(stretch, RowFilter(), with_append_times=is_kept, with_markers=True)
