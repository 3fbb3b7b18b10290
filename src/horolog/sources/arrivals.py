"""When the batches of a log arrived, as far as that is known."""

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
    """The records of a batch, by time in milliseconds."""

    base_offset: int
    next_offset: int
    append_ms: int | None
    """None: it is not known when they arrived."""
    create_times: Sequence[int]
    """-1 for none."""


class ArrivalLog:
    """The arrivals in a log as it is when this is made. Close it after use."""

    def __init__(self, options: ReadOptions, numbers: Collection[int] | None = None) -> None:
        """Plan to read all, or partitions of these numbers.

        Raises:
            Misconfigured: nothing is there.
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
        """How many there are to go through."""
        return sum(stretch.end - stretch.start for stretch in self._stretches)

    def offsets_of(self, partition: TopicPartition) -> int:
        """How many there are of one partition."""
        its = (stretch for stretch in self._stretches if stretch.partition == partition)
        return sum(each.end - each.start for each in its)

    def of(self, partition: TopicPartition) -> Iterator[Arrival]:
        """The arrivals of one partition, in the order of offsets; reads all times of its records.

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
        """The create times of one partition's records, batch by batch; raises as `of`."""
        for batch, header, append_ms in self._batches(partition):
            if not header.is_control:
                times = timestamps(batch, header, max_bytes=_MAX_UNPACKED, create_times=True)
                yield ArrivedTimes(header.base_offset, header.next_offset, append_ms, times)

    def _batches(
        self, partition: TopicPartition
    ) -> Iterator[tuple[memoryview, BatchHeader, int | None]]:
        """Whole batches, and when they were appended, as far as that is known."""
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
    """The batches of a stretch: the offsets behind each, and when it was appended, -1: not known.

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
    """All batches, with append times where the log keeps some beside the timestamps."""
    is_kept = not isinstance(stretch, BrokerStretch) or reader.client.offsets.has_append_times()
    return reader.batches(stretch, RowFilter(), with_append_times=is_kept, with_markers=True)
