"""Real times for the tests here."""

import gzip
import random
from pathlib import Path

import pytest

COMMIT_TIMES = Path(__file__).parents[3] / "shared/data/commit-times.csv.gz"


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
