"""Sums over the records of a partition between marks, which are given offsets."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from horolog.jobs.questions.groups import GroupTable
from horolog.jobs.questions.late import InOrder, counted_in
from horolog.jobs.questions.scan import Scan, Summary, Times
from horolog.sources.rows import NO_TIME
from horolog.storage.names import TopicPartition

_NO_MIN: Final = (1 << 63) - 1
_SUMS = ("records", "odd", "appended", "up_to")
_LARGEST = ("max_ms", "late_max_ms", "latency_max_ms")
PARTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("run", pa.int64()),
        *((name, pa.int64()) for name in ("mark", *_SUMS, "min_ms", *_LARGEST)),
    ]
)


@dataclass(frozen=True, slots=True)
class Between:
    """Sums over the records from one mark to before the next; times in milliseconds."""

    records: int = 0
    odd: int = 0
    """Records without a time, or with one that looks like another unit's."""
    appended: int = 0
    """Records with a usable time whose append time is known."""
    up_to: int = 0
    """Records with a usable create time up to the given limit."""
    min_ms: int | None = None
    max_ms: int | None = None
    late_max_ms: int = 0
    latency_max_ms: int | None = None
    """Largest append time minus create time; None if no append time is known."""

    def __add__(self, other: "Between") -> "Between":
        return Between(
            self.records + other.records,
            self.odd + other.odd,
            self.appended + other.appended,
            self.up_to + other.up_to,
            min(known((self.min_ms, other.min_ms)), default=None),
            max(known((self.max_ms, other.max_ms)), default=None),
            max(self.late_max_ms, other.late_max_ms),
            max(known((self.latency_max_ms, other.latency_max_ms)), default=None),
        )


@dataclass(frozen=True, slots=True)
class PartitionMarks:
    """Sums of a partition between its marks; the first are those before the first mark."""

    between: tuple[Between, ...]

    def from_mark(self, place: int, until: int | None = None) -> Between:
        """Return the sums from one mark to another, or to the end; marks are given by index.

        The index -1 is the start of the partition.
        """
        return sum(self.between[place + 1 : None if until is None else until + 1], Between())


def known(values: Iterable[int | None]) -> Iterator[int]:
    """Yield the values that are not None."""
    return (value for value in values if value is not None)


Marks = Mapping[tuple[str, int], Sequence[int]]
"""Marks of each partition, in rising order."""


class MarkSummary(Summary):
    """Summary of a Spark task: sums of its records by the mark before each; rows of `PARTS`."""

    schema = PARTS

    def __init__(self, marks: Marks, limits_ms: Mapping[str, int] | None = None) -> None:
        self.marks = {key: np.array(offsets, np.int64) for key, offsets in marks.items()}
        self.limits_ms = dict(limits_ms or {})

    def grouping(self, partition: TopicPartition) -> Callable[[Times], GroupTable]:
        """Return the function that groups the tables of one run of a partition, in order."""
        return partial(self._groups, order=InOrder(0))

    def _groups(self, times: Times, order: InOrder) -> GroupTable:
        created = times.created_ms
        usable = counted_in(times)
        late_ms, _ = order.add(created, usable)
        known = usable & times.is_appended
        marks = self.marks.get((times.topic, times.partition), np.empty(0, np.int64))
        limit = self.limits_ms.get(times.topic, NO_TIME)
        return GroupTable(
            {"mark": np.searchsorted(marks, times.offsets, side="right").astype(np.int64)},
            {
                "records": np.ones(len(created), np.bool_),
                "odd": ~usable,
                "appended": known,
                "up_to": usable & (created <= limit),
            },
            {"min_ms": np.where(usable, created, _NO_MIN)},
            {
                "max_ms": np.where(usable, created, NO_TIME),
                "late_max_ms": np.where(usable, late_ms, 0),
                "latency_max_ms": np.where(known, _latency(times), NO_TIME),
            },
        )


def _latency(times: Times) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    far = 1 << 61
    return np.clip(times.appended_ms, -far, far) - np.clip(times.created_ms, -far, far)


def marked(
    spark: SparkSession, scan: Scan, marks: Marks, limits_ms: Mapping[str, int] | None = None
) -> dict[tuple[str, int], PartitionMarks]:
    """Read a selection once, and return the sums between the marks of each partition."""
    return between(rows_of(scan.frame(spark, MarkSummary(marks, limits_ms))), marks)


def rows_of(parts: DataFrame) -> list[dict[str, Any]]:
    """Collect the rows of a summary: a few for each task and mark."""
    return [row.asDict() for row in parts.collect()]


def between(
    rows: Iterable[Mapping[str, Any]], marks: Marks
) -> dict[tuple[str, int], PartitionMarks]:
    """Combine the rows of all tasks into sums by partition."""
    by_partition: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_partition[row["topic"], row["partition"]].append(row)
    return {
        key: _partition(by_partition.get(key, ()), len(marks.get(key, ())))
        for key in {*by_partition, *marks}
    }


def _partition(rows: Iterable[Mapping[str, int]], marks: int) -> PartitionMarks:
    sums = [Between()] * (marks + 1)
    largest_ms = NO_TIME
    for row in sorted(rows, key=lambda row: (row["run"], row["mark"])):
        is_timed = row["min_ms"] != _NO_MIN
        sums[row["mark"]] += Between(
            records=row["records"],
            odd=row["odd"],
            appended=row["appended"],
            up_to=row["up_to"],
            min_ms=row["min_ms"] if is_timed else None,
            max_ms=row["max_ms"] if is_timed else None,
            # What is before the run, or before the mark in it, makes late what follows.
            late_max_ms=max(row["late_max_ms"], largest_ms - row["min_ms"]),
            latency_max_ms=row["latency_max_ms"] if row["appended"] else None,
        )
        largest_ms = max(largest_ms, row["max_ms"])
    return PartitionMarks(tuple(sums))
