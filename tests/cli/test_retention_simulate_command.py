"""`horolog retention simulate`, on a broker's topic and on directories."""

from pathlib import Path
from typing import Any

import pytest
from command_runner import Ran, Run, run_command
from running_broker import ANY_TIME, NOW_MS, RunningBroker, a_broker

from horolog.clock import DAY_MS, HOUR_MS, ManualClock
from horolog.record import LogRecord, build_batch

UNTIL = ("--until", f"{NOW_MS + 3 * DAY_MS}ms")
broker = a_broker("t", partitions=2, of_topics={**ANY_TIME, "segment_bytes": "1000"})


@pytest.fixture
def filled(broker: RunningBroker, clock: ManualClock) -> RunningBroker:
    """Eight hours of a batch each half hour, each of a record of now and one of two days ago."""
    for _ in range(16):
        now_ms = clock.now_ms()
        times = (now_ms, now_ms - 2 * DAY_MS)
        broker.append("t", build_batch([LogRecord(each, None, bytes(200)) for each in times]))
        clock.advance("30m")
    return broker


def simulate(broker: RunningBroker, *args: str) -> Ran:
    return run_command("retention", "simulate", *args, *UNTIL, HOROLOG_BOOTSTRAP=broker.address)


def test_other_settings_are_tried_on_what_arrived(filled: RunningBroker) -> None:
    tried = ("--set", "retention.ms=3600000", "--json")
    found: Any = simulate(filled, "t", *tried).json
    assert (found["records"], found["deleted_records"], found["held_bytes"]) == (32, 32, 0)
    zero, one = found["partitions"]
    assert (zero["partition"], zero["records"], zero["from_ms"]) == ("t-0", 32, NOW_MS)
    assert (one["partition"], one["records"], one["segments_a_day"]) == ("t-1", 0, None)
    first = found["deletions"][0]
    assert first["partition"] == "t-0"
    assert first["at_ms"] > NOW_MS + HOUR_MS
    assert first["create_age_max_ms"] - first["append_age_max_ms"] == 2 * DAY_MS
    assert sum(each["records"] for each in found["deletions"]) == 32
    kept: Any = simulate(filled, "t", "--json").json
    assert (kept["deleted_records"], kept["deletions"]) == (0, [])
    assert kept["held_bytes"] > 0


def test_time_passes_until_the_brokers_now(filled: RunningBroker, clock: ManualClock) -> None:
    found = run_command("retention", "simulate", "t", "--json", HOROLOG_BOOTSTRAP=filled.address)
    assert found.json["partitions"][0]["until_ms"] == clock.now_ms()


def test_a_directory_is_simulated_without_its_broker(filled: RunningBroker) -> None:
    tried = ("--set", "retention.ms=3600000", "--set", "log.retention.check.interval.ms=60000")
    of_topic = simulate(filled, "t", *tried, "--json").json
    filled.stop()
    whole = simulate(filled, str(filled.log_dir), *tried, "--json").json
    assert whole == of_topic
    part = simulate(filled, str(filled.log_dir / "t-1"), *tried, "--json").json
    assert [each["partition"] for each in part["partitions"]] == ["t-1"]


def test_the_screen_says_when_what_goes_and_how_old_it_is(filled: RunningBroker) -> None:
    shown = simulate(filled, "t", "--set", "retention.ms=3600000")
    assert shown.code == 0
    assert "2 days" in shown.out
    assert "its largest create time is 2023-11-15T05:43:20.000Z, 65 minutes before" in shown.out
    assert "nothing would have been deleted" in simulate(filled, "t").out


def test_arrivals_that_nobody_noted_are_refused(offline: Run, golden: Path) -> None:
    log_dir = next(each.parent.parent for each in golden.rglob("*.log"))
    refused = offline("retention", "simulate", str(log_dir), "--set", "retention.ms=1")
    assert refused.code == 2
    assert "It is not known when the batch at offset" in refused.err


@pytest.mark.parametrize(
    "tried", ["retention.ms=x", "no.such=1", "log.retention.check.interval.ms=0"]
)
def test_settings_are_checked_before_anything_is_read(broker: RunningBroker, tried: str) -> None:
    refused = simulate(broker, "t", "--set", tried)
    assert refused.code == 2
    assert tried.partition("=")[0] in refused.err
