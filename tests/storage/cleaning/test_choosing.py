"""What of a log may be cleaned, and when it is worth it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from storelogs import DAY, NOW, append, new_log

from horolog.config import LONG_MAX, TopicConfig
from horolog.record import AppendTimeStretch, TimestampType
from horolog.storage import Candidate, Cleanable, Log, choose, cleanable, first_dirty

COMPACT = TopicConfig(cleanup_policy=frozenset({"compact"}))


class Times:
    """A segment's time, which may be asked for only if there is one."""

    def __init__(self, *times: int) -> None:
        self.times = times

    def largest_ms(self) -> int | None:
        return self.times[0]

    def last_append(self) -> AppendTimeStretch:
        return AppendTimeStretch(0, None)

    def modified_ms(self) -> int:
        raise AssertionError


def chosen(
    *,
    point: int = 0,
    stable: int = 1000,
    latest: list[int] | None = None,
    first: list[int] | None = None,
    **config: object,
) -> Cleanable:
    segments = [
        Candidate(10 * at, 10 * at + 10, 100, False, Times(*(latest or [])[at : at + 1]))
        for at in range(4)
    ]
    return choose(
        segments,
        replace(COMPACT, **config),
        point,
        stable,
        NOW,
        (),
        lambda each: (first or [])[each.base_offset // 10],
    )


@pytest.mark.parametrize(
    ("point", "stable", "expected"),
    [
        pytest.param(0, 1000, (0, 40, 0, 400), id="never cleaned"),
        pytest.param(20, 1000, (20, 40, 200, 200), id="half of it clean"),
        pytest.param(25, 1000, (25, 40, 200, 200), id="a segment that is partly clean is dirty"),
        pytest.param(40, 1000, (40, 40, 400, 0), id="nothing new"),
        pytest.param(55, 1000, (55, 55, 400, 0), id="within the active segment"),
        pytest.param(0, 40, (0, 40, 0, 400), id="stable up to the end"),
        pytest.param(0, 39, (0, 30, 0, 300), id="the segment with the stable end is left"),
        pytest.param(20, 15, (20, 20, 200, 0), id="stable only up to before the dirty part"),
    ],
)
def test_finished_segments_may_be_cleaned_as_far_as_they_are_stable(
    point: int, stable: int, expected: tuple[int, int, int, int]
) -> None:
    found = chosen(point=point, stable=stable)
    assert found[:4] == expected


def test_a_log_is_due_when_more_than_the_ratio_is_dirty() -> None:
    half = chosen(point=20)
    assert half.ratio == 0.5
    assert not half.is_due(COMPACT)
    assert half.is_due(replace(COMPACT, min_cleanable_dirty_ratio=0.49))
    assert not chosen(point=40).is_due(replace(COMPACT, min_cleanable_dirty_ratio=0.0))


def test_what_is_younger_than_the_lag_waits_and_all_that_follows() -> None:
    latest = [NOW - 500, NOW - 99, NOW - 500, NOW - 500]
    found = chosen(latest=latest, min_compaction_lag_ms=100)
    assert (found.end, found.dirty_bytes) == (10, 100)
    assert chosen(latest=latest, min_compaction_lag_ms=99).end == 40
    assert chosen(latest=latest, point=20, min_compaction_lag_ms=100).end == 40


def test_what_is_older_than_the_lag_is_due_whatever_the_ratio() -> None:
    never = {"min_cleanable_dirty_ratio": 1.0}
    first = [NOW - 900, NOW - 500, NOW - 300, NOW - 200]
    found = chosen(first=first, point=10, max_compaction_lag_ms=499, **never)
    assert found.overdue_ms == 1
    assert found.is_due(replace(COMPACT, **never))
    found = chosen(first=first, point=10, max_compaction_lag_ms=500, **never)
    assert not found.is_due(replace(COMPACT, **never))
    assert chosen(first=first, point=40, max_compaction_lag_ms=1, **never).overdue_ms == 0
    assert chosen(first=[0] * 4, max_compaction_lag_ms=LONG_MAX).overdue_ms == 0


@pytest.mark.parametrize(
    ("point", "expected"), [(None, 7), (3, 7), (8, 8), (50, 50), (51, 7), (1 << 62, 7)]
)
def test_a_cleaner_point_counts_within_the_log(point: int | None, expected: int) -> None:
    assert first_dirty(point, 7, 50) == expected


# Of a log on the disk.


def of(log: Log, now_ms: int, **config: object) -> Cleanable:
    return cleanable(
        log.segments,
        replace(COMPACT, **config),
        None,
        log.log_start_offset,
        log.last_stable_offset,
        now_ms,
        log.floor.resets,
    )


def three(log: Log, *times: int) -> None:
    """A finished segment for each record, appended a second after the one before."""
    for at, ms in enumerate(times):
        append(log, ms, now=NOW + 1000 * at)
        log.roll(NOW)


ANY = {"message_timestamp_after_max_ms": LONG_MAX}


def test_a_record_from_the_future_holds_back_what_follows_by_create_time_alone(
    tmp_path: Path,
) -> None:
    with new_log(tmp_path, replace(COMPACT, **ANY)) as log:
        three(log, NOW, NOW + 1000 * DAY, NOW)
        now, lag = NOW + DAY, {"min_compaction_lag_ms": 1000}
        assert of(log, now, **lag).end == 1
        assert of(log, now, horolog_retention_by="later", **lag).end == 1
        assert of(log, now, horolog_retention_by="append-time", **lag).end == 3
        assert of(log, NOW + 2500, horolog_retention_by="append-time", **lag).end == 2


def test_a_backfill_is_overdue_by_create_time_and_not_by_append_time(tmp_path: Path) -> None:
    with new_log(tmp_path, COMPACT) as log:
        three(log, NOW - 5 * DAY, NOW - 5 * DAY)
        lag = {"max_compaction_lag_ms": DAY}
        assert of(log, NOW, **lag).overdue_ms == 4 * DAY
        for by in ("append-time", "later"):
            assert of(log, NOW, horolog_retention_by=by, **lag).overdue_ms == 0
            assert of(log, NOW + DAY + 7, horolog_retention_by=by, **lag).overdue_ms == 7


def test_append_times_that_were_reset_do_not_hold_back_cleaning(tmp_path: Path) -> None:
    config = replace(COMPACT, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    with new_log(tmp_path, config) as log:
        append(log, NOW, now=NOW + 900 * DAY)
        log.reset_append_time(NOW)
        three(log, NOW)
        assert of(log, NOW + 5000, min_compaction_lag_ms=2000).end == 2
