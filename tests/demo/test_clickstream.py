from horolog.clock import DAY_MS, HOUR_MS
from horolog.demo import clickstream

NOW_MS = 1_763_700_000_000


def test_healthy_clicks_lie_in_the_last_three_days_and_some_come_hours_late() -> None:
    times = [click.timestamp_ms for click in clickstream.healthy(5_000, NOW_MS)]
    assert len(times) == 5_000
    assert all(NOW_MS - 3 * DAY_MS <= at <= NOW_MS for at in times)
    latest, most_late = 0, 0
    for at in times:
        latest = max(latest, at)
        most_late = max(most_late, latest - at)
    assert most_late > HOUR_MS


def test_two_runs_at_one_moment_give_the_same_clicks() -> None:
    assert list(clickstream.healthy(50, NOW_MS)) == list(clickstream.healthy(50, NOW_MS))


def test_faulty_clicks_lie_more_than_an_hour_ahead() -> None:
    faulty = [*clickstream.from_the_future(20, NOW_MS), *clickstream.in_nanoseconds(20, NOW_MS)]
    assert all(click.timestamp_ms > NOW_MS + HOUR_MS for click in faulty)


def test_nanoseconds_lie_within_the_last_hour_once_read_as_such() -> None:
    for click in clickstream.in_nanoseconds(20, NOW_MS):
        assert NOW_MS - HOUR_MS < click.timestamp_ms // 1_000_000 <= NOW_MS
