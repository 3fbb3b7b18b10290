"""Real times for the tests here, and streams that wait for nothing."""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from overrides import override

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


@pytest.fixture
def eager_streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Streaming queries look for records and partitions at once, and are stopped after the test."""
    from streaming_query import Query  # noqa: PLC0415 - most tests here have no stream

    override(monkeypatch, "horolog.spark", IDLE_WAIT_MS=1, DISCOVERY_S=0)
    yield
    while Query.opened:
        Query.opened.pop().stop()
