"""The last record of each key of a partition: a topic as a table, now or as of a time.

A partition is read twice: for its keys, then for the records that are the last of theirs. Memory
holds each key once. Records of aborted and of open transactions are none. Imports pyarrow.
"""

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.client import AskCut, Client
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.record.columns import DEFAULT_COLUMNS
from horolog.results import size
from horolog.sources.bounds import DataLost
from horolog.sources.cut_files import GivenAsOf, given_as_of
from horolog.sources.limits import TopicSelection
from horolog.sources.options import LATEST_MEMORY, ReadOptions
from horolog.sources.plan import Stretch, Task
from horolog.sources.planning import (
    ReadPlan,
    check_read,
    check_topics,
    numbered,
    opened_log,
    plan_offsets,
)
from horolog.sources.reading import TABLE_BYTES, tables_of
from horolog.sources.row_filter import RowFilter
from horolog.sources.rows import RowShaper, decoded_columns
from horolog.sources.stretch_reader import StretchReader
from horolog.sources.tables import TableShape, options_of
from horolog.storage.names import TopicPartition

__all__ = [
    "KeyMemory",
    "LastOffsets",
    "check_latest",
    "last_offsets",
    "latest",
    "parts_with",
    "read_latest_task",
]

_logger = logging.getLogger(__name__)
_Offsets = npt.NDArray[np.int64]

_TABLE_BYTES: Final = 8 << 20
_NEW_SHARE: Final = 8
"""Share of the memory that keys take which may still come twice."""
_SPARE: Final = 1.1
_KEYS_SHARE: Final = 4  # what groups them holds them, their table and its result
_MOST_KEY_BYTES: Final = 1 << 30  # of one array of Arrow
_FAR: Final = 10_000
"""Offsets without a last record that are passed over rather than read."""
_EVER: Final = -(1 << 63)


class KeyMemory(NamedTuple):
    """How much the keys of a partition may take."""

    size: int
    """Bytes."""
    option: str
    """The option that says so, for the error."""


def latest(
    source: Client | str | os.PathLike[str],
    topic: str,
    *,
    as_of: GivenAsOf | None = None,
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    memory: int = LATEST_MEMORY,
    max_wait_ms: int = 500,
    settings: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """Read the last record of each key of a topic, partition after partition, in offset order.

    The table is that of each partition, as compaction keeps it: a key that producers sent to two
    partitions has a row of each. A record without a value deletes its key. Records without a key
    are left out with a warning. Only committed records count.

    Args:
        source: as of `scan`.
        as_of: an append time in milliseconds, a `Cut`, or the path of its file: the table is as it
            was known then. None: as it is now, up to the first open transaction.
        partitions: their numbers; None for all.
        columns: as of `scan`; `partition` comes before them.
        memory: how many bytes the keys of a partition may take.
        max_wait_ms: how long a broker may wait for records.
        settings: `kafka.*` for brokers and `fs.*` for object stores, as in Spark.

    Raises:
        Misconfigured: the topic or the path is not there, or a setting is wrong; the log cannot be
            read exactly as of the time; the keys take more than `memory`.
        DataLost: records are gone, or compaction took some behind the end, while it was read.
        RequestRefused, NoAnswer, CorruptBatch: as `scan`.
    """
    options = replace(
        options_of(source, settings or {}, max_wait_ms=max_wait_ms),
        subscription=TopicSelection((topic,)),
        as_of=None if as_of is None else given_as_of(as_of),
        is_latest=True,
        read_committed=True,
        loss_option=None,
    )
    shape = TableShape(topic, columns)
    with opened_log(options) as log:
        chosen = log.partitions()
        if partitions is not None:
            chosen = numbered(chosen, list(partitions), topic)
        plan = plan_offsets(log, chosen, RowFilter(), {}, {})

    allowed = KeyMemory(memory, "memory")

    def batches() -> Iterator[pa.RecordBatch]:
        with StretchReader(options) as reader:
            for partition, its in _by_partition(plan.stretches):
                number = pa.scalar(partition.partition, pa.int32())
                for table in _rows(reader, its, options, shape.decoded, allowed, _TABLE_BYTES):
                    yield shape.of(table, pa.repeat(number, len(table)))
        check_latest(options, plan)

    return pa.RecordBatchReader.from_batches(shape.schema, batches())


def read_latest_task(
    task: Task, options: ReadOptions, names: Sequence[str], nullable: Sequence[bool]
) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key of a task's partitions, as rows of Spark.

    Raises:
        Misconfigured: the keys take too much; compaction passed the cut meanwhile.
        DataLost: records are gone.
    """
    shaper, decoded = RowShaper(names, nullable), decoded_columns(names)
    memory = KeyMemory(options.latest_memory, "latestMemory")
    with StretchReader(options) as reader:
        for partition, its in _by_partition(task):
            shaper.begin(partition)
            for table in _rows(reader, its, options, decoded, memory, TABLE_BYTES):
                yield shaper.shape(table)
    check_read(options, task)


class LastOffsets(NamedTuple):
    """Offsets of the records that are the last of their keys, in order; deleted keys have some."""

    offsets: _Offsets
    keyless: int
    """Number of records without a key."""

    def among(self, offsets: _Offsets) -> npt.NDArray[np.bool_]:
        """Return a mask of those of some offsets that are among these."""
        if not len(self.offsets):
            return np.zeros(len(offsets), np.bool_)
        places = np.searchsorted(self.offsets, offsets)
        found: npt.NDArray[np.bool_] = self.offsets.take(places, mode="clip") == offsets
        return found


def last_offsets(
    reader: StretchReader,
    stretches: Sequence[Stretch],
    options: ReadOptions,
    memory: KeyMemory,
    advance: Callable[[int], None] = lambda offset: None,
) -> LastOffsets:
    """Find the last record of each key of a partition.

    Args:
        stretches: of one partition, in order.
        memory: how much the keys may take.
        advance: called with the offset up to which was read.

    Raises:
        Misconfigured: they take more.
    """
    keys = _Keys(stretches, memory)
    for stretch in stretches:
        with reader.losses(stretch):
            for table in tables_of(reader, stretch, RowFilter(), options, ("key", "offset")):
                keys.add(table)
                advance(table.column("offset")[-1].as_py() + 1)
    found = keys.last()
    if found.keyless:
        _logger.warning(
            "%s has records without a key, which are in no table: %d", keys.partition, found.keyless
        )
    return found


def parts_with(stretches: Iterable[Stretch], last: LastOffsets) -> Iterator[Stretch]:
    """Yield the parts of stretches that have such offsets, without long ones that have none."""
    for stretch in stretches:
        start, end = np.searchsorted(last.offsets, [stretch.start, stretch.end])
        its = last.offsets[start:end]
        if not len(its):
            continue
        gaps = (np.flatnonzero(np.diff(its) > _FAR) + 1).tolist()
        for first, behind in pairwise([0, *gaps, len(its)]):
            yield replace(stretch, start=int(its[first]), end=int(its[behind - 1]) + 1)


def check_latest(options: ReadOptions, plan: ReadPlan) -> None:
    """Make sure that compaction took no record in favour of one behind the end of a read.

    Brokers of Apache Kafka do not say how far they have compacted.

    Raises:
        Misconfigured: it has, of a read as of a time; or a topic was re-created.
        DataLost: it has.
    """
    ends = plan.ends
    if options.as_of is not None or not ends:
        check_read(options, plan.stretches, ends.keys())
        return
    with opened_log(options) as log:
        present = set(log.partitions()).intersection(ends)
        check_topics(log, plan.stretches)
        try:
            answers = log.cut({key: AskCut(key.partition, _EVER) for key in present})
        except RequestRefused as error:
            if error.code is not ErrorCode.unsupported_version:
                raise
            return
    for partition, answer in answers.items():
        if isinstance(answer, str):
            raise DataLost(f"{partition} may have been compacted while it was read: {answer}")
        if (answer.doubts.cleaner_point or 0) > ends[partition] > 0:
            raise changed(partition)


def changed(partition: TopicPartition) -> DataLost:
    """Return the error about a partition whose last records went away."""
    return DataLost(f"{partition} was compacted while it was read: read it again")


def _rows(
    reader: StretchReader,
    stretches: Sequence[Stretch],
    options: ReadOptions,
    columns: Sequence[str],
    memory: KeyMemory,
    max_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the last records of the keys of one partition that have a value."""
    last = last_offsets(reader, stretches, options, memory)
    needed, left = tuple(dict.fromkeys((*columns, "offset", "value"))), len(last.offsets)
    for part in parts_with(stretches, last):
        with reader.losses(part):
            for table in tables_of(reader, part, RowFilter(), options, needed, max_bytes=max_bytes):
                found = last.among(table.column("offset").to_numpy())
                left -= int(np.count_nonzero(found))
                found &= table.column("value").is_valid().to_numpy(zero_copy_only=False)
                if found.all():
                    yield table
                elif found.any():
                    yield table.filter(pa.array(found))
    if left:
        raise changed(stretches[0].partition)


def _by_partition(
    stretches: Iterable[Stretch],
) -> Iterator[tuple[TopicPartition, list[Stretch]]]:
    for partition, its in groupby(stretches, key=lambda stretch: stretch.partition):
        yield partition, list(its)


class _Keys:
    """The keys of a partition with the last offset of each."""

    def __init__(self, stretches: Sequence[Stretch], memory: KeyMemory) -> None:
        self.partition = stretches[0].partition
        self._start, self._end = stretches[0].start, stretches[-1].end
        self._read_to = self._start
        self._memory = memory
        self._known = pa.table(
            {"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())}
        )
        self._new: list[pa.Table] = []
        self._new_bytes = 0
        self._keyless = 0

    def add(self, table: pa.RecordBatch) -> None:
        """Add records that follow those that were added."""
        keys = table.column("key")
        self._read_to = table.column("offset")[-1].as_py() + 1
        if keys.null_count:
            self._keyless += keys.null_count
            table = table.filter(keys.is_valid())
        self._new.append(pa.Table.from_batches([table.select(["key", "offset"])]))
        self._new_bytes += table.nbytes
        if self._new_bytes >= self._memory.size // _NEW_SHARE:
            self._group()

    def last(self) -> LastOffsets:
        """Return the last offsets; no key may be added after."""
        self._group()
        offsets = self._known.column("offset").to_numpy()
        self._known = None
        return LastOffsets(np.sort(offsets), self._keyless)

    def _group(self) -> None:
        whole = pa.concat_tables([self._known, *self._new])
        grouped = whole.group_by("key", use_threads=False).aggregate([("offset", "max")])
        self._known = pa.table({"key": grouped["key"], "offset": grouped["offset_max"]})
        self._new, self._new_bytes = [], 0
        if self._known.nbytes > min(self._memory.size // _KEYS_SHARE, _MOST_KEY_BYTES):
            raise self._too_many()

    def _too_many(self) -> Misconfigured:
        """Return the error, with the memory that would do if the rest has as many keys."""
        keys, taken = len(self._known), self._known.nbytes
        share = (self._read_to - self._start) / (self._end - self._start)
        what = f"{self.partition} has {keys:,} keys in the first {share:.0%} of its offsets"
        if taken / share > _MOST_KEY_BYTES:
            return Misconfigured(
                f"{what}, and a table at most {size(_MOST_KEY_BYTES)} of keys of a partition: read "
                "its records instead, and take the last of each key in Spark or SQL"
            )
        enough = math.ceil(taken / share * _KEYS_SHARE * _SPARE / (1 << 20))
        return Misconfigured(
            f"{what}, more than {self._memory.option} of {size(self._memory.size)} allows: "
            f"{enough}MiB would do if the rest has as many"
        )
