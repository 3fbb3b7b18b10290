"""KIP-32's comparison of the two clocks: the page has its numbers, and a broker agrees."""

from pathlib import Path

import pytest
from examples import some_pairs
from retention_beside import as_deleted, deleted_by_both
from running_broker import RunningBroker, a_broker
from tools.latency_patterns import (
    CHECK_MS,
    CLOCKS,
    PATTERNS,
    REST_MS,
    START_MS,
    measure,
    page,
    preferences,
    settings,
)

from horolog.clock import ManualClock

PAGE = Path(__file__).parents[1] / "docs" / "latency-patterns.md"
NEVER = str(1 << 40)
broker = a_broker(
    now_ms=START_MS, log_retention_check_interval_ms=NEVER, log_initial_task_delay_ms=NEVER
)


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == page() + "\n", (
        "run: python -m tools.latency_patterns > docs/latency-patterns.md"
    )


def test_the_preferences_for_retention_are_those_of_the_document() -> None:
    found = {(name, clock): measure(name, clock) for name in PATTERNS for clock in CLOCKS}
    chosen = preferences(found)
    assert [*chosen["retention"].values()] == ["CT or LAT", "CT", "LAT", "LAT"]
    # The document's are LAT for pattern 2, too: before KIP-33 made rolling count from the first
    # record of a segment.
    assert [*chosen["rolling"].values()] == ["CT or LAT", "CT or LAT", "LAT", "LAT"]


@pytest.mark.parametrize(("pattern", "clock_of"), some_pairs(PATTERNS, CLOCKS))
def test_a_broker_with_a_turned_clock_deletes_the_same(
    broker: RunningBroker, clock: ManualClock, pattern: str, clock_of: str
) -> None:
    found, deleted = deleted_by_both(
        broker,
        clock,
        "t",
        settings(clock_of),
        PATTERNS[pattern](),
        check_ms=CHECK_MS,
        rest_ms=REST_MS,
    )
    assert as_deleted(found) == deleted
    measured = measure(pattern, clock_of).outcome
    assert [each[:2] for each in deleted] == [each[:2] for each in as_deleted(measured)]
    assert deleted
