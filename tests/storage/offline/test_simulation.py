"""What other settings would have deleted, beside a broker that has them and a turned clock."""

import random
from collections.abc import Iterator

import pytest
from examples import some_of
from retention_beside import as_deleted, deleted_by_both
from running_broker import NOW_MS, RunningBroker, a_broker

from horolog.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock
from horolog.config import Settings, TopicConfig
from horolog.storage import Arrival, Simulation, SimulationOutcome

NEVER = str(1 << 40)
broker = a_broker(log_retention_check_interval_ms=NEVER, log_initial_task_delay_ms=NEVER)


def arrivals(seed: int, count: int = 150) -> Iterator[tuple[int, list[int], int]]:
    """Append time, create times and bytes of a value; some late, some of the future, some none."""
    rng = random.Random(seed)
    now_ms = NOW_MS
    for _ in range(count):
        now_ms += rng.choice((0, 5, MINUTE_MS, 20 * MINUTE_MS, 5 * HOUR_MS))
        delays = (0, 50, HOUR_MS, 2 * DAY_MS, -HOUR_MS, -3 * DAY_MS)
        times = [now_ms - rng.choice(delays) for _ in range(rng.randrange(1, 5))]
        if rng.random() < 0.1:
            times = [-1] * len(times)
        yield now_ms, times, rng.randrange(10, 180)


SETTINGS = [
    {"retention.ms": str(DAY_MS), "segment.ms": str(6 * HOUR_MS)},
    {"retention.ms": str(HOUR_MS), "segment.bytes": "1500"},
    {"retention.ms": "-1", "retention.bytes": "4000", "segment.bytes": "1000"},
    {"retention.ms": str(DAY_MS), "horolog.retention.by": "append-time", "segment.bytes": "2000"},
    {"retention.ms": str(DAY_MS), "horolog.retention.by": "later", "segment.bytes": "2000"},
    {
        "retention.ms": str(DAY_MS),
        "segment.ms": str(DAY_MS),
        "horolog.roll.by": "append-time",
        "horolog.roll.idle": "true",
    },
    {
        "retention.ms": str(12 * HOUR_MS),
        "segment.ms": str(HOUR_MS),
        "message.timestamp.type": "LogAppendTime",
    },
    {"retention.ms": "0", "segment.ms": str(HOUR_MS), "horolog.roll.by": "largest-time"},
    {"cleanup.policy": "delete", "retention.ms": "-1"},
]


@pytest.mark.parametrize("given", some_of(SETTINGS, 2), ids=lambda each: ",".join(each.values()))
def test_a_simulation_deletes_what_the_broker_deletes_when_it_does(
    broker: RunningBroker, clock: ManualClock, given: dict[str, str]
) -> None:
    coming = arrivals(len(str(given)), 60)
    every, rest = 30 * MINUTE_MS, 10 * DAY_MS
    found, deleted = deleted_by_both(
        broker, clock, "t", given, coming, check_ms=every, rest_ms=rest
    )
    assert as_deleted(found) == deleted
    assert bool(deleted) == (given["retention.ms"] != "-1" or "retention.bytes" in given)


def simulated(
    config: TopicConfig, records: list[tuple[int, int | None]], until_ms: int, check_ms: int = 1000
) -> SimulationOutcome:
    """Of batches of one record of 100 bytes: append and create time."""
    simulation = Simulation(config, check_ms)
    for offset, (append_ms, created_ms) in enumerate(records):
        simulation.arrive(Arrival(offset, offset, 100, 1, created_ms, created_ms, append_ms))
    simulation.run_until(until_ms)
    return simulation.outcome()


def test_records_that_come_late_are_deleted_within_an_hour_by_create_time_alone() -> None:
    records = [(NOW_MS + each * MINUTE_MS, NOW_MS - 2 * DAY_MS) for each in range(100)]
    until_ms = NOW_MS + 100 * MINUTE_MS
    given = {"retention.ms": str(DAY_MS), "segment.bytes": "1000"}
    by_create = simulated(Settings({}).topic_config(given), records, until_ms)
    assert (by_create.deleted_records, by_create.deleted_within_hour) == (100, 100)
    (*_, last) = by_create.deletions
    assert last.append_age_max_ms < HOUR_MS < 2 * DAY_MS < last.create_age_min_ms
    by_append = simulated(
        Settings({}).topic_config({**given, "horolog.retention.by": "append-time"}),
        records,
        until_ms,
    )
    assert by_append.deleted_records == 0
    assert by_append.segments == 10
    assert by_append.held_bytes == by_append.most_held_bytes == 10_000


def test_years_of_nothing_are_not_walked_check_by_check() -> None:
    config = Settings({}).topic_config({"retention.ms": str(400 * 365 * DAY_MS)})
    found = simulated(config, [(0, 0), (200 * 365 * DAY_MS, 0)], 900 * 365 * DAY_MS, check_ms=1)
    assert [each.at_ms for each in found.deletions] == [400 * 365 * DAY_MS + 1]
    assert found.deletions[0].records == 2


def test_an_empty_log_has_nothing_to_delete() -> None:
    found = simulated(Settings({}).topic_config({}), [], NOW_MS)
    assert (found.records, found.held_bytes, found.segments_a_day) == (0, 0, None)


def test_a_clock_that_goes_back_does_not_take_time_back() -> None:
    config = Settings({}).topic_config({"retention.ms": "5000", "segment.bytes": "100"})
    found = simulated(config, [(10_000, 10_000), (2_000, 2_000), (11_000, 11_000)], 100_000)
    assert [each.base_offset for each in found.deletions] == [0, 1, 2]
    assert [each.at_ms for each in found.deletions] == sorted(
        each.at_ms for each in found.deletions
    )
