"""Retention and rolling by the clock that a topic's settings choose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from batches import batch
from compacting import COMPACT, clean, put
from storelogs import (
    DAY,
    NOW,
    UnsyncedFiles,
    append,
    followed,
    new_log,
    partition_dir,
    reopened,
)

from horolog.config import TopicConfig
from horolog.record import AppendTimeStretch
from horolog.storage import Log, LogWriter, as_they_are, new_segment

BY_RECORDS = TopicConfig(retention_ms=2 * DAY, message_timestamp_after_max_ms=1 << 62)


def kept(log: Log, now: int) -> int:
    """How many segments retention leaves; a new one that is empty does not count."""
    log.apply_retention(now, now)
    return sum(segment.size > 0 for segment in log.segments)


@contextmanager
def two_segments(path: Path, by: str, *, first: int, second: int) -> Iterator[Log]:
    """A log of two records with these create times, appended a day apart."""
    with new_log(path, replace(BY_RECORDS, horolog_retention_by=by)) as log:
        append(log, first, now=NOW)
        log.roll(NOW)
        append(log, second, now=NOW + DAY)
        yield log


@pytest.mark.parametrize(
    ("by", "left"),
    [
        ("create-time", [0, 0, 0, 0]),
        ("append-time", [2, 2, 1, 0]),
        ("later", [2, 2, 1, 0]),
    ],
)
def test_a_backfill_is_kept_by_the_clock_that_counts(
    tmp_path: Path, by: str, left: list[int]
) -> None:
    nows = (NOW + DAY, NOW + 2 * DAY, NOW + 2 * DAY + 1, NOW + 3 * DAY + 1)
    with two_segments(tmp_path, by, first=NOW - 90 * DAY, second=NOW - 80 * DAY) as log:
        assert [kept(log, now) for now in nows] == left


@pytest.mark.parametrize(
    ("by", "left"), [("create-time", [2, 2]), ("append-time", [1, 0]), ("later", [2, 2])]
)
def test_a_record_of_2255_holds_its_segment_by_create_time_only(
    tmp_path: Path, by: str, left: list[int]
) -> None:
    with two_segments(tmp_path, by, first=9_000_000_000_000, second=NOW) as log:
        assert [kept(log, NOW + days * DAY + 1) for days in (2, 3)] == left


@pytest.mark.parametrize("by", ["create-time", "append-time", "later"])
def test_what_compaction_has_emptied_goes_with_what_follows(tmp_path: Path, by: str) -> None:
    config = replace(
        COMPACT,
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_ms=DAY,
        horolog_retention_by=by,
    )
    with new_log(tmp_path, config) as log:
        for at in range(24):
            put(log, b"a", at=NOW + at, now=NOW + at, value=b"v" * 60)
        clean(log)
        kept = log.segments[-1].base_offset - 1
        assert [each.size > 0 for each in log.segments].index(True) > 3
        assert log.apply_retention(NOW + kept + DAY, 0) == []
        assert log.log_start_offset == 0
        first, *_ = log.look().retention_report(NOW + kept + DAY)
        assert first.reason.startswith("it is empty; of what follows, the ")
        assert first.counts_ms == NOW + kept
        assert log.apply_retention(NOW + kept + DAY + 1, 0)
        assert log.log_start_offset == kept + 1


@pytest.mark.parametrize("by", ["append-time", "later"])
def test_nothing_is_deleted_by_an_append_time_that_is_unknown(tmp_path: Path, by: str) -> None:
    with two_segments(tmp_path / "log", by, first=NOW, second=NOW):
        pass
    for name in ("companion", "appending.deleted"):
        for path in partition_dir(tmp_path / "log").glob(f"*.{name}"):
            path.unlink()
    config = replace(BY_RECORDS, horolog_retention_by=by)
    with reopened(tmp_path / "log", config) as (_, log):
        assert kept(log, NOW + 900 * DAY) == 2
        log.config = replace(config, horolog_retention_by="create-time")
        assert kept(log, NOW + 900 * DAY) == 0


def test_a_reset_bounds_append_times_that_count(tmp_path: Path) -> None:
    config = replace(BY_RECORDS, horolog_retention_by="append-time")
    with new_log(tmp_path, config) as log:
        append(log, NOW, now=NOW + 900 * DAY)
        assert log.reset_append_time(NOW) is not None
        append(log, NOW, now=NOW)
        assert kept(log, NOW + 2 * DAY) == 2
        assert kept(log, NOW + 2 * DAY + 1) == 0


def test_a_segment_is_rolled_by_its_append_times_where_create_times_stand_still(
    tmp_path: Path,
) -> None:
    config = TopicConfig(segment_ms=DAY, horolog_roll_by="append-time", retention_ms=-1)
    with new_log(tmp_path / "log", config) as log:
        for days in (0, 1, 2):
            append(log, NOW, now=NOW + days * DAY + (days > 1))
        assert [segment.base_offset for segment in log.segments] == [0, 2]
    with reopened(tmp_path / "log", config) as (_, log):
        append(log, NOW, now=NOW + 4 * DAY)
        assert [segment.base_offset for segment in log.segments] == [0, 2, 3]


def test_rolling_by_the_largest_time_counts_from_it(tmp_path: Path) -> None:
    config = TopicConfig(segment_ms=DAY, horolog_roll_by="largest-time", retention_ms=-1)
    with new_log(tmp_path, config) as log:
        for days in (-9, -8, -7, -9):
            append(log, NOW + days * DAY)
        assert len(log.segments) == 1
        append(log, NOW - 6 * DAY + 1)
        assert [segment.base_offset for segment in log.segments] == [0, 4]


@pytest.mark.parametrize("by", ["first-time", "largest-time", "append-time"])
def test_an_idle_segment_is_rolled_by_the_clock_when_asked_for(tmp_path: Path, by: str) -> None:
    config = TopicConfig(
        segment_ms=DAY, retention_ms=-1, horolog_roll_by=by, horolog_roll_idle=True
    )
    with new_log(tmp_path, config) as log:
        log.apply_retention(NOW + 9 * DAY, 0)
        assert len(log.segments) == 1, "nothing to roll"
        append(log, NOW, now=NOW)
        for now, segments in ((NOW + DAY, 1), (NOW + DAY + 1, 2), (NOW + 9 * DAY, 2)):
            log.apply_retention(now, 0)
            assert len(log.segments) == segments


@pytest.mark.parametrize("timestamp", [-1, -5000, -(1 << 62)])
def test_without_a_time_after_1970_a_segment_counts_from_its_last_append(
    tmp_path: Path, timestamp: int
) -> None:
    with two_segments(tmp_path, "create-time", first=timestamp, second=timestamp) as log:
        for path in tmp_path.rglob("*.log"):
            os.utime(path, (0, 0))  # as a restored backup's, which says nothing
        nows = (NOW + 2 * DAY, NOW + 2 * DAY + 1, NOW + 3 * DAY, NOW + 3 * DAY + 1)
        assert [kept(log, now) for now in nows] == [2, 1, 1, 0]


@pytest.mark.parametrize("timestamp", [-1, -5000])
def test_without_a_time_after_1970_and_an_append_time_the_file_decides(
    tmp_path: Path, timestamp: int
) -> None:
    with two_segments(tmp_path / "log", "create-time", first=timestamp, second=timestamp):
        pass
    for name in ("companion", "appending.deleted"):
        for path in partition_dir(tmp_path / "log").glob(f"*.{name}"):
            path.unlink()
    with reopened(tmp_path / "log", BY_RECORDS) as (_, log):
        modified = max(segment.modified_ms() for segment in log.segments)
        assert kept(log, modified + 2 * DAY - 60_000) == 2
        (gone, *_) = log.apply_retention(modified + 2 * DAY + 1, modified + 2 * DAY + 1)
        assert "no record has a timestamp that counts" in gone.reason


def test_a_time_before_1970_expires_its_segment_where_the_topic_asks_for_it(tmp_path: Path) -> None:
    config = replace(BY_RECORDS, horolog_retention_before_1970=True)
    with new_log(tmp_path, config) as log:
        append(log, -5000, now=NOW)
        log.roll(NOW)
        append(log, -1, now=NOW)
        assert kept(log, NOW) == 1  # -1 is no time, and says nothing of 1969


def test_one_time_after_1970_decides_for_a_segment_with_older_ones(tmp_path: Path) -> None:
    with new_log(tmp_path, BY_RECORDS) as log:
        append(log, -5000, NOW - 9 * DAY, -7000, now=NOW)
        assert kept(log, NOW) == 0


SEEN = [AppendTimeStretch(0, NOW, is_seen=True)]


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("by", ["append-time", "later"])
def test_a_time_at_which_a_follower_saw_records_counts_only_where_the_topic_asks_for_it(
    tmp_path: Path, by: str, seen: bool
) -> None:
    config = replace(BY_RECORDS, horolog_retention_by=by, horolog_seen_as_append_time=seen)
    followed(partition_dir(tmp_path), batch(NOW - 90 * DAY, base_offset=0), SEEN)
    with reopened(tmp_path, config) as (_, log):
        assert kept(log, NOW + 2 * DAY) == 1
        assert kept(log, NOW + 2 * DAY + 1) == (0 if seen else 1)


def test_without_a_record_time_the_file_counts_and_not_when_a_follower_saw_it(
    tmp_path: Path,
) -> None:
    followed(partition_dir(tmp_path), batch(-1, base_offset=0), SEEN)
    with reopened(tmp_path, BY_RECORDS) as (_, log):
        modified = log.segments[0].modified_ms()
        assert modified > NOW + 3 * DAY, "else the test shows nothing"
        assert kept(log, modified + 2 * DAY) == 1
        assert kept(log, modified + 2 * DAY + 1) == 0


@pytest.mark.parametrize(("seen", "begun"), [(False, [0]), (True, [0, 1])])
def test_a_segment_rolls_by_when_a_follower_saw_it_only_where_the_topic_asks_for_it(
    tmp_path: Path, seen: bool, begun: list[int]
) -> None:
    config = TopicConfig(
        retention_ms=-1,
        segment_ms=1000,
        horolog_roll_by="append-time",
        horolog_seen_as_append_time=seen,
    )
    followed(partition_dir(tmp_path), batch(NOW, base_offset=0), SEEN)
    with reopened(tmp_path, config) as (_, log):
        append(log, NOW, now=NOW + 1001)
        assert [segment.base_offset for segment in log.segments] == begun


@pytest.mark.parametrize(
    ("by", "rolls"), [("first-time", True), ("append-time", True), ("largest-time", False)]
)
def test_what_has_no_append_time_rolls_by_record_time(tmp_path: Path, by: str, rolls: bool) -> None:
    config = TopicConfig(segment_ms=1000, horolog_roll_by=by)
    files = UnsyncedFiles()
    writer = LogWriter(files, str(tmp_path), new_segment(files, str(tmp_path), 0, config, NOW))
    data = b"".join(batch(NOW + 900 * n, base_offset=n) for n in range(3))
    *before, last = as_they_are(data, 0, SEEN)
    writer.append(before, config)
    assert writer.must_roll(last, config, NOW, True) == rolls
    writer.finish()
