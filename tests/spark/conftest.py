"""One Spark for all tests here; and reading without Spark, as its planner and tasks do it."""

import gzip
import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMIT_TIMES = Path(__file__).parents[3] / "shared/data/commit-times.csv.gz"


@pytest.fixture(scope="session")
def spark() -> Iterator["object"]:
    """A session on two threads."""
    from horolog.spark import session  # noqa: PLC0415 - most tests here need no Java

    with warnings.catch_warnings():
        # py4j leaves the pipe to its JVM to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        spark = session("horolog tests", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    yield spark
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        spark.stop()


@pytest.fixture(scope="session")
def commit_times() -> list[int]:
    """Times far out of order: real ones where the machine has them, else made up likewise."""
    if COMMIT_TIMES.exists():
        with gzip.open(COMMIT_TIMES, "rt") as file:
            return [int(line.split(",")[1]) for line in list(file)[1::10]]
    rng = random.Random(1)
    now_ms = 1_312_000_000_000
    times = []
    for _ in range(10_000):
        now_ms += rng.randrange(10_000_000)
        times.append(now_ms - rng.choice([0, 0, 0, rng.randrange(10_000_000_000)]))
    return times
