"""KIP-32 calls LogAppendTime monotonic; in Kafka it is the clock, here it is as KIP-32 says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from storelogs import (
    APPEND_TIME,
    NOW,
    Truth,
    append,
    new_log,
    partition_dir,
    reopened,
    snapshot_of,
    times_in,
)

from horolog.config import TopicConfig
from horolog.record.timestamps import TimestampType
from horolog.storage.append_times import AppendTimes
from horolog.storage.files import Files

SMALL = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME, segment_bytes=300)
MARK = "append-time-checkpoint"


def test_append_times_never_go_backwards_when_the_clock_does(tmp_path: Path) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        stamped = [
            append(log, 0, now=now).log_append_time_ms
            for now in (NOW, NOW + 50, NOW - 90_000, NOW + 49, NOW + 51)
        ]
        assert stamped == [NOW, NOW + 50, NOW + 50, NOW + 50, NOW + 51]
        assert [record.timestamp for record in times_in(log)] == stamped


def test_how_far_the_floor_is_ahead_of_the_clock_is_told(tmp_path: Path) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        assert append(log, 0, now=NOW).ahead_ms == 0
        assert append(log, 0, now=NOW - 4_000_000).ahead_ms == 4_000_000


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("rolled", [False, True])
def test_the_floor_survives_a_restart(tmp_path: Path, stop: str, rolled: bool) -> None:
    path = tmp_path / "log"
    with new_log(path, SMALL) as log:
        append(log, 0, now=NOW + 70_000)
        if rolled:
            log.roll(NOW)
    if stop == "clean":
        with reopened(path, SMALL) as (log_dir, _):
            log_dir.close()
    with reopened(path, SMALL) as (log_dir, log):
        assert log_dir.was_clean == (stop == "clean")
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 70_000


def test_the_floor_survives_a_kill_after_retention_took_all_records(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, SMALL) as log:
        append(log, 0, now=NOW + 70_000)
        log.apply_retention(NOW * 2, NOW * 2)
        assert log.size == 0
        snapshot_of(path, tmp_path / "killed")
    with reopened(tmp_path / "killed", SMALL) as (_, log):
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 70_000


def test_the_floor_survives_truncation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, SMALL) as log:
        append(log, 0, now=NOW)
        append(log, 0, now=NOW + 70_000)
        log.truncate_to(1, NOW)
        assert append(log, 0, now=NOW + 5).log_append_time_ms == NOW + 70_000
        log.truncate_to(1, NOW)
        snapshot_of(path, tmp_path / "killed")
    with reopened(tmp_path / "killed", SMALL) as (_, log):
        assert log.last_append_time_ms == NOW + 70_000


def test_a_create_time_is_never_a_floor(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, TopicConfig(message_timestamp_after_max_ms=1 << 62)) as log:
        append(log, NOW + 90_000_000)
        assert log.last_append_time_ms is None
    with reopened(path, APPEND_TIME) as (_, log):
        assert append(log, 0, now=NOW).log_append_time_ms == NOW
        assert not (partition_dir(path) / MARK).exists()


def test_a_refused_append_gives_out_no_time(tmp_path: Path) -> None:
    times = AppendTimes(Files(), str(tmp_path / MARK))
    assert times.next(NOW + 50) == NOW + 50
    assert times.next(NOW) == NOW, "nothing was written with the other"
    times.gave(NOW)
    times.gave(NOW - 5)
    assert times.last == NOW


def test_a_damaged_mark_is_passed_over_and_the_log_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    with new_log(path, SMALL) as log:
        append(log, 0, now=NOW + 70_000)
    (partition_dir(path) / MARK).write_text("nonsense")
    with caplog.at_level(logging.WARNING), reopened(path, SMALL) as (_, log):
        assert log.last_append_time_ms == NOW + 70_000
    assert "taken from the log itself" in caplog.text


def test_the_floor_of_somebody_elses_log_is_its_last_append_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, SMALL) as log:
        append(log, 0, now=NOW + 70_000)
        log.roll(NOW)
    with reopened(path, SMALL) as (log_dir, _):
        log_dir.close()
    for ours in (*partition_dir(path).glob("*.seal"), partition_dir(path) / MARK):
        ours.unlink()
    with reopened(path, SMALL, ours=False) as (_, log):
        assert log.last_append_time_ms == NOW + 70_000
        assert times_in(log) == [Truth(0, NOW + 70_000)]
