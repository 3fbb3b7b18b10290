"""Find records out of order where tasks read a partition side by side.

A record is out of order if a record before it in its partition has a larger time. A task knows that
of the records that it reads itself: a run of the partition. What is in order there rises, so that
the largest time before the run makes late what is at its start, up to that time. The first records
in order are kept apart, the others are sums with their smallest and largest time; so the sums that
Spark gets decide nearly always. Where the largest time before a run falls amid a sum, that run is
read once more. What is late in a run is later still where a larger time was before the run.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from horolog.jobs.questions.groups import Flags
from horolog.jobs.questions.scan import KEYS, Scan, Times, keys_of
from horolog.record.looks_like import units_of
from horolog.record.stretches import Int64Array
from horolog.sources.rows import NO_TIME, late_by
from horolog.spark.workers import SentToWorkers
from horolog.storage.names import TopicPartition

IN_ORDER: Final = "in_order"
TOLD_APART: Final = 256
"""How many records in order are kept apart at the start of a run."""

_BEFORE = "before_ms"
_LATE = "late_in_order"
_LARGEST: Final = (1 << 63) - 1
# Statements of SQL: the driver needs as much time for each column that Python makes of columns.
_WITH_LATE = f"""
SELECT *, CASE
    WHEN {IN_ORDER} = 0 OR {_BEFORE} IS NULL OR {_BEFORE} <= in_order_min_ms THEN 0
    WHEN {_BEFORE} > in_order_max_ms THEN {IN_ORDER}
    END AS {_LATE}
FROM (
    SELECT *, max(in_order_max_ms) OVER (
        PARTITION BY topic, partition ORDER BY run RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS {_BEFORE} FROM {{parts}}
)"""  # noqa: S608 - of names of this package
_ADDED = f"""
SELECT * EXCEPT (out_of_order, late_max_ms),
    out_of_order + {_LATE} AS out_of_order,
    greatest(
        late_max_ms,
        CASE WHEN {_LATE} > 0
            THEN coalesce(try_subtract({_BEFORE}, in_order_min_ms), {_LARGEST}) END,
        CASE WHEN {_BEFORE} > late_min_ms
            THEN coalesce(try_subtract({_BEFORE}, late_min_ms), {_LARGEST}) END
    ) AS late_max_ms
FROM {{resolved}}"""  # noqa: S608 - of names of this package
_ASKED = ("topic", "partition", "place", *KEYS, "in_order_from", "in_order_to", _BEFORE)


class InOrder:
    """Largest time of a run so far, and how many records in order may still be kept apart."""

    def __init__(self, told_apart: int = TOLD_APART, largest_ms: int = NO_TIME) -> None:
        """Begin a run, after records with times up to `largest_ms`."""
        self.largest_ms = largest_ms
        self._left = told_apart

    def add(
        self, created_ms: Int64Array, counted: Flags
    ) -> tuple[Int64Array, npt.NDArray[np.intp]]:
        """Return how late each record is, and the places of the records that are kept apart."""
        late_ms, self.largest_ms = late_by(created_ms, counted, self.largest_ms)
        alone = np.flatnonzero(counted & (late_ms == 0))[: self._left]
        self._left -= len(alone)
        return late_ms, alone


def counted_in(times: Times) -> Flags:
    """Mark the records with a time in milliseconds. Others are not late and make no record late."""
    counted: Flags = times.is_timed & (units_of(times.created_ms) == 0)
    return counted


LargestTimes = Mapping[TopicPartition, int]
"""Largest time before the records that a scan reads, by partition; in milliseconds."""


def with_late_across(parts: DataFrame, scan: Scan, largest_ms: LargestTimes) -> DataFrame:
    """Add the records that are late because of earlier runs to `out_of_order` and `late_max_ms`."""
    known = parts.sparkSession.sql(_WITH_LATE, parts=parts)
    resolved = known.mapInArrow(Resolve(scan, largest_ms), known.schema)
    return parts.sparkSession.sql(_ADDED, resolved=resolved)


class Resolve(SentToWorkers):
    """Count late records in the sums that are ambiguous, by reading them again. Spark calls it."""

    def __init__(self, scan: Scan, largest_ms: LargestTimes) -> None:
        self.scan = scan
        self.largest_ms = largest_ms

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows with all counts known."""
        for batch in batches:
            place = batch.schema.get_field_index(_LATE)
            late = batch.column(place)
            open_rows = np.flatnonzero(late.is_null().to_numpy(zero_copy_only=False))
            if not len(open_rows):
                yield batch
                continue
            counts = late.fill_null(0).to_numpy(zero_copy_only=False).copy()
            asked = batch.take(pa.array(open_rows)).select(_ASKED).to_pylist()
            by_run: dict[tuple[int, str, int], list[int]] = {}
            for number, row in enumerate(asked):
                run = (row["place"], row["topic"], row["partition"])
                by_run.setdefault(run, []).append(number)
            for (task, topic, partition), numbers in by_run.items():
                before_ms = self.largest_ms.get(TopicPartition(topic, partition), NO_TIME)
                order = InOrder(largest_ms=before_ms)
                for times in self.scan.times(task, (topic, partition)):
                    self._count(times, order, [(open_rows[n], asked[n]) for n in numbers], counts)
            yield batch.set_column(place, _LATE, pa.array(counts))

    @staticmethod
    def _count(
        times: Times, order: InOrder, rows: list[tuple[int, dict[str, int]]], counts: Int64Array
    ) -> None:
        """Add to each row's count the records of a table that are late."""
        counted = counted_in(times)
        late_ms, alone = order.add(times.created_ms, counted)
        in_order = counted & (late_ms == 0)
        in_order[alone] = False
        keys = keys_of(times)
        for place, row in rows:
            taken = in_order & (times.created_ms < row[_BEFORE])
            taken &= (times.offsets >= row["in_order_from"]) & (times.offsets <= row["in_order_to"])
            for name, key in keys.items():
                taken &= key == row[name]
            counts[place] += np.count_nonzero(taken)
