"""Distribution of partitions over Spark tasks; small partitions share a task."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from horolog.jobs.mirroring.moving import Moved, PartitionMove
from horolog.jobs.spread import UNITS_PER_CORE, cores_of, in_shares, spread

_MOST_OFFSETS: Final = 200_000

Unit = TypeVar("Unit", bound=PartitionMove)


def bundled(spark: SparkSession, units: Sequence[Unit]) -> list[tuple[int, tuple[Unit, ...]]]:
    """Group the units into one bundle for each task, with its number."""
    most = max(1, -(-len(units) // (UNITS_PER_CORE * cores_of(spark))))
    shares = in_shares(units, lambda unit: unit.end - unit.place.offset, _MOST_OFFSETS, most)
    return list(enumerate(shares))


def in_tasks(
    spark: SparkSession,
    bundles: Sequence[tuple[int, tuple[Unit, ...]]],
    work: Callable[[int, tuple[Unit, ...]], list[Moved]],
) -> Iterator[list[Moved]]:
    """Do the work in waves of tasks; a task that fails as a whole has moved nothing.

    Args:
        work: moves the units of a bundle; its first argument is the bundle's number.
    """
    for wave in spread(spark, bundles, partial(_work_on, work)):
        moves: list[Moved] = []
        for outcome in wave:
            if outcome.result is not None:
                moves += outcome.result
            else:
                moves += [
                    Moved(unit.partition, unit.place, error=outcome.error, may_pass=True)
                    for unit in outcome.unit[1]
                ]
        yield moves


def _work_on(
    work: Callable[[int, tuple[Unit, ...]], list[Moved]], bundle: tuple[int, tuple[Unit, ...]]
) -> list[Moved]:
    return work(*bundle)
