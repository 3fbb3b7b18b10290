"""Clocks, and how moments and durations are read."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from horolog.clock import DAY_MS, Duration, ManualClock, Moment, SystemClock, duration_ms, moment_ms

NOW_MS = 1_795_165_200_000  # 2026-11-20T09:00:00Z


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("8d", 8 * DAY_MS),
        ("90m", 5_400_000),
        ("1h30m", 5_400_000),
        ("1w", 7 * DAY_MS),
        ("250ms", 250),
        ("-5s", -5_000),
        ("+2h", 7_200_000),
        (" 1500 ", 1_500),
        ("-1", -1),
        (1_500, 1_500),
        (timedelta(days=8), 8 * DAY_MS),
        (timedelta(milliseconds=-3), -3),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: Duration, ms: int) -> None:
    assert duration_ms(written) == ms


@pytest.mark.parametrize("written", ["", "8 days", "d", "8D", "1.5h", "--1h", "1h-5m", "8x"])
def test_what_is_no_duration_is_refused_with_what_to_write(written: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write it as 8d, 90m"):
        duration_ms(written)


@pytest.mark.parametrize(
    "written",
    [
        NOW_MS,
        str(NOW_MS),
        "2026-11-20T09:00:00Z",
        "2026-11-20T09:00Z",
        "2026-11-20 10:00:00.000+01:00",
        datetime(2026, 11, 20, 9, tzinfo=UTC),
        datetime(2026, 11, 20, 4, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_a_moment_is_read_as_people_write_it(written: Moment) -> None:
    assert moment_ms(written) == NOW_MS


def test_moments_before_1970_are_rounded_down_like_all_others() -> None:
    assert moment_ms("1969-12-31T23:59:59.9995Z") == -1
    assert moment_ms("1957-10-04T19:28:34Z") == -386_310_686_000


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("yesterday", "is not a time: write it as 2026-11-20T09:00:00Z"),
        ("2026-11-20T09:00:00", "has no zone: add Z"),
        (datetime(2026, 11, 20), "has no zone"),  # noqa: DTZ001 - what it is about
        (1 << 63, "beyond 64 bits"),
        ("-9223372036854775809", "beyond 64 bits"),
    ],
)
def test_what_is_no_moment_is_refused_with_what_to_write(written: Moment, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        moment_ms(written)


def test_seconds_as_a_float_are_not_taken_for_milliseconds() -> None:
    clock = ManualClock()
    with pytest.raises(TypeError, match="a moment is milliseconds since 1970"):
        clock.set(1_795_165_200.5)
    with pytest.raises(TypeError, match="a duration is milliseconds"):
        clock.advance(0.5)


def test_a_manual_clock_that_is_set_does_not_advance() -> None:
    clock = ManualClock("2026-11-20T09:00:00Z")
    assert clock.is_frozen
    assert [clock.now_ms(), clock.now_ms()] == [NOW_MS, NOW_MS]
    assert clock.advance("1h") == clock.now_ms() == NOW_MS + 3_600_000
    assert clock.advance("-2h") == NOW_MS - 3_600_000
    assert clock.set(NOW_MS) == NOW_MS
    assert "at 1795165200000 ms" in repr(clock)


def test_time_that_passes_moves_both_clocks_and_a_correction_the_wall_clock_alone() -> None:
    clock = ManualClock(NOW_MS)
    began = clock.monotonic_ms()

    def passed() -> int:
        return clock.monotonic_ms() - began

    clock.advance("1h")
    assert passed() == 3_600_000
    clock.advance("-5h")
    assert (clock.now_ms(), passed()) == (NOW_MS - 4 * 3_600_000, 3_600_000)
    clock.set(NOW_MS)
    assert passed() == 5 * 3_600_000
    clock.set(NOW_MS - DAY_MS)
    clock.freeze(NOW_MS - 2 * DAY_MS)
    assert passed() == 5 * 3_600_000
    assert clock.step("100d") == NOW_MS + 98 * DAY_MS
    assert clock.step("-300d") == NOW_MS - 202 * DAY_MS
    assert passed() == 5 * 3_600_000


def test_no_turn_of_a_running_clock_takes_its_monotonic_time_back() -> None:
    clock = ManualClock.following()
    seen = [clock.monotonic_ms()]
    for turn in (
        lambda: clock.advance("-8d"),
        lambda: clock.freeze("2020-01-01T00:00Z"),
        clock.run,
        lambda: clock.step("-100d"),
        lambda: clock.set("1969-07-20T20:17:40Z"),
        clock.freeze,
        clock.follow,
    ):
        turn()
        seen.append(clock.monotonic_ms())
    assert seen == sorted(seen)
    assert seen[-1] - seen[-2] > 50 * 365 * DAY_MS, "back from 1969: that much has passed"


def machine_ms() -> int:
    return SystemClock().now_ms()


def test_a_clock_follows_the_machine_until_it_is_turned_and_runs_on_then() -> None:
    clock = ManualClock.following()
    before = machine_ms()
    assert before <= clock.now_ms() <= machine_ms()
    assert not clock.is_frozen
    before = machine_ms()
    clock.advance("8d")
    assert before + 8 * DAY_MS <= clock.now_ms() <= machine_ms() + 8 * DAY_MS
    before = machine_ms()
    assert clock.set("2020-01-01T00:00Z") >= 1_577_836_800_000
    assert clock.now_ms() - 1_577_836_800_000 <= machine_ms() - before
    assert "running" in repr(clock)


def test_a_clock_is_frozen_runs_on_and_returns_to_the_machine() -> None:
    clock = ManualClock.following()
    stood = clock.freeze()
    assert clock.freeze("2020-01-01T00:00Z") == 1_577_836_800_000 < stood
    assert clock.is_frozen
    assert clock.run() >= 1_577_836_800_000
    assert not clock.is_frozen
    before = machine_ms()
    assert before <= clock.follow() <= machine_ms()
    assert not clock.is_frozen


def test_a_running_clock_does_run() -> None:
    clock = ManualClock("2020-01-01T00:00Z")
    clock.run()
    waiting = threading.Event()
    while clock.now_ms() == 1_577_836_800_000:
        waiting.wait(0.001)
    assert 0 < clock.now_ms() - 1_577_836_800_000 < 60_000


def test_a_clock_does_not_leave_64_bits() -> None:
    clock = ManualClock((1 << 63) - 2)
    assert clock.advance(1) == (1 << 63) - 1
    with pytest.raises(ValueError, match="beyond 64 bits"):
        clock.advance(1)
    assert clock.now_ms() == (1 << 63) - 1


def test_turns_by_several_threads_are_all_made() -> None:
    clock = ManualClock(0)

    def turn() -> None:
        for _ in range(500):
            clock.advance(1)

    threads = [threading.Thread(target=turn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now_ms() == 2_000
