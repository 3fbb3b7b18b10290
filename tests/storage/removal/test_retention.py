from __future__ import annotations

import pytest

from horolog.config import TopicConfig
from horolog.record import AppendTimeStretch
from horolog.storage import AppendTimeReset, Candidate, SegmentTime, bounded, going, judge

NOW = 1_700_000_000_000


class Times:
    """A segment's time, which may be asked for only if there is one."""

    def __init__(self, *times: int, of_record: bool = True) -> None:
        self.times, self.of_record = times, of_record

    def largest_ms(self) -> int | None:
        return self.times[0] if self.of_record else None

    def last_append(self) -> AppendTimeStretch:
        return AppendTimeStretch(0, None)

    def modified_ms(self) -> int:
        return self.times[0]


def log(*sizes: int) -> list[Candidate]:
    """Segments of ten offsets each from 40 on."""
    last = len(sizes) - 1
    return [
        Candidate(40 + 10 * i, 50 + 10 * i if size else 40 + 10 * i, size, i == last, Times())
        for i, size in enumerate(sizes)
    ]


def count(
    segments: list[Candidate],
    *,
    times: list[int] | None = None,
    start: int = 40,
    high_watermark: int = 1000,
    **config: object,
) -> int:
    settings: dict[str, object] = {"retention_ms": -1, "retention_bytes": -1}
    timed = [
        segment._replace(times=Times(*(times or [])[place : place + 1]))
        for place, segment in enumerate(segments)
    ]
    judged = judge(timed, TopicConfig(**{**settings, **config}), start, high_watermark, NOW)
    return len(going(judged))


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        pytest.param([5, 5, 5], -1, 0, id="no limit"),
        pytest.param([5, 5, 5], 15, 0, id="exactly the limit stays"),
        pytest.param([5, 5, 5], 14, 0, id="never below the limit"),
        pytest.param([5, 5, 5], 10, 1, id="down to the limit"),
        pytest.param([5, 5, 5], 9, 1, id="as near as whole segments get"),
        pytest.param([5, 5, 5], 0, 3, id="the active segment too"),
        pytest.param([5, 5, 0], 0, 2, id="but not when it is empty"),
        pytest.param([5, 20, 5], 5, 2, id="a large one counts whole"),
        pytest.param([20, 5, 5], 15, 0, id="the oldest must fit or nothing goes"),
    ],
)
def test_by_size(sizes: list[int], limit: int, expected: int) -> None:
    assert count(log(*sizes), retention_bytes=limit) == expected


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        pytest.param([101, 101, 101], 3, id="all, the active one too"),
        pytest.param([101, 100, 101], 1, id="exactly as old as allowed stays, and what follows"),
        pytest.param([100, 101, 101], 0, id="a young one in front keeps all"),
        pytest.param([-5000, 101, 101], 0, id="and so does one from the future"),
    ],
)
def test_by_time(ages: list[int], expected: int) -> None:
    times = [NOW - age for age in ages]
    assert count(log(5, 5, 5), times=times, retention_ms=100) == expected


def test_without_a_limit_on_time_no_time_is_asked_for() -> None:
    assert count(log(5, 5, 5), times=None, retention_ms=-1) == 0


def test_no_more_times_are_asked_for_than_needed() -> None:
    assert count(log(5, 5, 5), times=[NOW], retention_ms=100) == 0


@pytest.mark.parametrize(
    ("start", "expected"), [(40, 0), (49, 0), (50, 1), (59, 1), (60, 2), (70, 2)]
)
def test_segments_before_the_log_start_are_deleted_but_never_the_active_one(
    start: int, expected: int
) -> None:
    assert count(log(5, 5, 5), start=start) == expected


def test_a_topic_that_is_only_compacted_loses_what_is_before_the_log_start() -> None:
    policy = frozenset({"compact"})
    assert (
        count(log(5, 5, 5), start=50, cleanup_policy=policy, retention_bytes=0, retention_ms=0) == 1
    )


@pytest.mark.parametrize(("high_watermark", "expected"), [(49, 0), (50, 1), (69, 2), (70, 3)])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, expected: int) -> None:
    times = [0, 0, 0]
    assert (
        count(log(5, 5, 5), times=times, retention_ms=1, high_watermark=high_watermark) == expected
    )


def test_the_passes_go_on_where_the_one_before_stopped() -> None:
    """Before the start one, for its size another, and then one for its age."""
    times = [NOW, NOW, NOW - 101, NOW]
    segments = log(5, 5, 5, 5)
    assert count(segments, start=50, retention_bytes=10, times=times, retention_ms=100) == 3


def test_every_reason_names_what_decided() -> None:
    segments = [
        segment._replace(times=Times(NOW - 200, of_record=segment.base_offset == 60))
        for segment in log(5, 5, 5, 5)
    ]
    config = TopicConfig(retention_bytes=10, retention_ms=100)
    judged = judge(segments, config, 50, 1000, NOW)
    before_start, for_size, for_age, for_its_change = (verdict.reason for verdict in going(judged))
    assert before_start == "it is before the log start offset 50"
    assert for_size == "the log has 15 bytes, retention.bytes is 10"
    assert for_age == "its largest timestamp 1699999999800 is 200 ms old, retention.ms is 100"
    assert for_its_change.startswith(
        "its last change (no record has a timestamp that counts) 1699999999800 is"
    )


HOUR = 3_600_000
AHEAD = NOW + 100 * 24 * HOUR


@pytest.mark.parametrize(
    ("time", "end_offset", "resets", "counts"),
    [
        pytest.param(AHEAD, 50, [(50, AHEAD, NOW - HOUR)], NOW - HOUR, id="appended before it"),
        pytest.param(AHEAD, 51, [(50, AHEAD, NOW - HOUR)], AHEAD, id="appended after it too"),
        pytest.param(AHEAD + 1, 50, [(50, AHEAD, NOW - HOUR)], AHEAD + 1, id="a create time"),
        pytest.param(NOW - 5, 50, [(50, NOW - 5, 0)], NOW - 5, id="reset under a wrong clock"),
        pytest.param(NOW, 50, [(50, AHEAD, NOW - HOUR)], NOW, id="the clock has caught up"),
        pytest.param(
            AHEAD,
            40,
            [(50, AHEAD, NOW + HOUR), (50, NOW + HOUR, NOW - HOUR)],
            NOW - HOUR,
            id="reset twice, as the clock came back",
        ),
        pytest.param(
            AHEAD,
            40,
            [(45, AHEAD, NOW - 2 * HOUR), (50, AHEAD, NOW - HOUR)],
            NOW - 2 * HOUR,
            id="the first reset after it",
        ),
        pytest.param(AHEAD, 50, [], AHEAD, id="never reset"),
    ],
)
def test_what_a_clock_far_ahead_has_stamped_counts_from_the_reset(
    time: int, end_offset: int, resets: list[tuple[int, int, int]], counts: int
) -> None:
    known = [AppendTimeReset(at, old, clock, clock) for at, old, clock in resets]
    found = bounded(SegmentTime(time, is_record_time=True), end_offset, known, NOW)[:3]
    assert found == (counts, True, counts != time)


def test_a_segment_without_record_times_has_nothing_to_be_reset() -> None:
    known = [AppendTimeReset(50, AHEAD, NOW - HOUR, NOW - HOUR)]
    changed = SegmentTime(AHEAD, is_record_time=False)
    assert bounded(changed, 50, known, NOW) == changed
