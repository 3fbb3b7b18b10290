"""Units of work as Spark tasks: Spark schedules and repeats them; each moves or checks bytes.

A unit is a plain value that can be pickled (a range of offsets, a segment file). Its work is a
function of a module. Spark may run a unit twice (a lost executor, speculation), so the work must be
safe to repeat, also concurrently.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from horolog.errors import HorologError
from horolog.jobs.counting import CountReceiver, counted, counts_of
from horolog.spark.masters import parallelism
from horolog.spark.workers import SentToWorkers, prepare_for_tasks

Unit = TypeVar("Unit")
Result = TypeVar("Result")

UNITS_PER_CORE: Final = 4
"""Units of a wave for each core: a long unit leaves few cores idle at its end."""
_FALLBACK_CORES = 8


@dataclass(frozen=True, slots=True)
class UnitOutcome(Generic[Unit, Result]):
    """Outcome of a unit: its result, or the sentence of the error that it failed with."""

    unit: Unit
    result: Result | None = None
    error: str | None = None


class UnitProgress(Generic[Unit]):
    """Reports how many records or offsets of units are done, and of how many."""

    def __init__(
        self,
        report: Callable[[int, int], object],
        weight: Callable[[Unit], int],
        *,
        done: int = 0,
    ) -> None:
        """Report nothing yet.

        Args:
            report: takes what is done, and the total.
            done: what earlier runs did.
        """
        self._report, self._weight = report, weight
        self._done = self._total = done

    def begin(self, units: Iterable[Unit]) -> None:
        """Report that these units are to be done."""
        self._total += sum(map(self._weight, units))
        self._report(self._done, self._total)

    def add(self, units: Iterable[Unit]) -> None:
        """Report that these units are done."""
        self._done += sum(map(self._weight, units))
        self._report(self._done, self._total)


def spread(
    spark: SparkSession,
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    *,
    wave: int | None = None,
    progress: "UnitProgress[Unit] | None" = None,
) -> Iterator[list[UnitOutcome[Unit, Result]]]:
    """Do the units in tasks of their own, in waves; yields the outcomes of each wave.

    The caller records a wave's outcomes before it asks for the next. A unit that fails with an
    expected error leaves the others alone.

    Args:
        units: units of work, in this order.
        work: does one unit in a task; it and its result are pickled.
        wave: number of units in a wave; by default a few for each core.
        progress: reports the progress after each wave.

    Raises:
        PySparkException: a task failed with a bug, or could not be run.
    """
    size = wave or UNITS_PER_CORE * cores_of(spark)
    if progress is not None:
        progress.begin(units)
    for start in range(0, len(units), size):
        chosen = units[start : start + size]
        task = _Task([pickle.dumps(unit) for unit in chosen], work, counts_of(spark))
        rows = (
            spark.range(0, len(chosen), 1, len(chosen))
            .mapInArrow(task, "place long, result binary, error string")
            .collect()
        )
        yield [
            UnitOutcome(
                chosen[row.place],
                None if row.result is None else pickle.loads(bytes(row.result)),  # noqa: S301 - of a task
                row.error,
            )
            for row in sorted(rows, key=lambda row: int(row.place))
        ]
        if progress is not None:
            progress.add(chosen)


def in_shares(
    items: Iterable[Unit], weight: Callable[[Unit], int], most: int, most_items: int | None = None
) -> Iterator[tuple[Unit, ...]]:
    """Group successive items into shares up to a weight; a single item may exceed it."""
    share: list[Unit] = []
    total = 0
    for item in items:
        if share and (total + weight(item) > most or len(share) == most_items):
            yield tuple(share)
            share, total = [], 0
        share.append(item)
        total += weight(item)
    if share:
        yield tuple(share)


class _Task(SentToWorkers):
    """Runs units in a Spark task; called with the indexes of its units."""

    def __init__(
        self, units: Sequence[bytes], work: Callable[[Any], Any], counts: CountReceiver | None
    ) -> None:
        self.units = tuple(units)
        self.work = work
        self.counts = counts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_for_tasks()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                unit = pickle.loads(self.units[place])  # noqa: S301 - of the driver
                result, error = None, None
                try:
                    with counted(self.counts, place):
                        result = pickle.dumps(self.work(unit))
                except (HorologError, OSError) as failure:
                    error = str(failure)
                yield pa.record_batch(
                    {
                        "place": pa.array([place], pa.int64()),
                        "result": pa.array([result], pa.binary()),
                        "error": pa.array([error], pa.string()),
                    }
                )


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at a time by the session's settings, or a guess."""
    return parallelism(lambda name: spark.conf.get(name, None)) or _FALLBACK_CORES
