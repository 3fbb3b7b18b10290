"""Moves of partitions in tasks of Spark; small partitions share one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from horolog.jobs.mirroring.moving import Moved, PartitionMove
from horolog.jobs.spread import UNITS_PER_CORE, cores_of, spread

_MOST_OFFSETS: Final = 200_000

Unit = TypeVar("Unit", bound=PartitionMove)


def in_bundles(
    spark: SparkSession, units: Sequence[Unit], work: Callable[[tuple[Unit, ...]], list[Moved]]
) -> Iterator[list[Moved]]:
    """Do the work in waves of tasks; a task that fails as a whole has moved nothing."""
    for wave in spread(spark, _bundles(units, cores_of(spark)), work):
        done: list[Moved] = []
        for outcome in wave:
            if outcome.result is not None:
                done += outcome.result
            else:
                done += [
                    Moved(unit.partition, unit.place, error=outcome.error, may_pass=True)
                    for unit in outcome.unit
                ]
        yield done


def _bundles(units: Sequence[Unit], cores: int) -> list[tuple[Unit, ...]]:
    most = max(1, -(-len(units) // (UNITS_PER_CORE * cores)))
    found: list[tuple[Unit, ...]] = []
    current: list[Unit] = []
    offsets = 0
    for unit in units:
        weight = unit.end - unit.place.offset
        if current and (len(current) >= most or offsets + weight > _MOST_OFFSETS):
            found.append(tuple(current))
            current, offsets = [], 0
        current.append(unit)
        offsets += weight
    if current:
        found.append(tuple(current))
    return found
