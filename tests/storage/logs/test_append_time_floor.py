"""KIP-32 calls LogAppendTime monotonic; in Kafka it is the clock, here it is as KIP-32 says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from faultyfiles import FaultyFiles, Killed
from storelogs import (
    APPEND_TIME,
    DAY,
    NOW,
    Truth,
    append,
    first_at_or_after,
    moments,
    new_log,
    open_dir,
    partition_dir,
    reopened,
    snapshot_of,
    times_in,
)

from companions import lose_seals
from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record import TimestampType
from horolog.storage import AppendTimes, Files, Finding, Log, TopicPartition, Verification

SMALL = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME, segment_bytes=300)
MARK = "append-time-checkpoint"
RESETS = "append-time-resets"


def test_append_times_never_go_backwards_when_the_clock_does(tmp_path: Path) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        stamped = [
            append(log, 0, now=now).log_append_time_ms
            for now in (NOW, NOW + 50, NOW - 90_000, NOW + 49, NOW + 51)
        ]
        assert stamped == [NOW, NOW + 50, NOW + 50, NOW + 50, NOW + 51]
        assert [record.timestamp for record in times_in(log)] == stamped


def test_how_far_the_floor_is_ahead_of_the_clock_is_reported(tmp_path: Path) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        assert append(log, 0, now=NOW).remarks is None
        remarks = append(log, 0, now=NOW - 4_000_000).remarks
        assert remarks is not None
        assert remarks.ahead_ms == 4_000_000


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


def empty_by_retention(log: Log) -> None:
    now = (log.floor.last or 0) + 8 * DAY
    log.apply_retention(now, now)
    assert (log.is_empty, log.size) == (True, 0)


def empty_by_delete_records(log: Log) -> None:
    assert log.delete_records(-1) == log.log_end_offset
    assert log.size > 0, "what was deleted is still in the file"


@pytest.mark.parametrize("days", [100, 300 * 365])
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("empty", [empty_by_retention, empty_by_delete_records])
def test_a_log_whose_records_are_all_gone_follows_the_clock_again(
    tmp_path: Path, empty: Callable[[Log], None], kill: bool, days: int
) -> None:
    path = tmp_path / "log"
    with new_log(path, APPEND_TIME) as log:
        append(log, 0, now=NOW - 1)
        append(log, 0, now=NOW + days * DAY)
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + days * DAY
        empty(log)
        assert log.append_time_ahead_ms(NOW) == 0
        if not kill:
            check_followed(log, days)
        snapshot_of(path, tmp_path / "killed")
    (tmp_path / "killed" / "log-start-offset-checkpoint").write_text("0\n1\nevents 3 3\n")
    with reopened(tmp_path / "killed", APPEND_TIME) as (_, log):
        if kill:
            check_followed(log, days)
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 2
        now = NOW + 2 + 8 * DAY
        log.apply_retention(now, now)
        assert log.is_empty, "expired by the append times that it has now"


def check_followed(log: Log, days: int) -> None:
    appended = append(log, 0, now=NOW + 2)
    assert (appended.base_offset, appended.log_append_time_ms, appended.remarks) == (
        3,
        NOW + 2,
        None,
    )
    assert log.floor.resets == ((3, NOW + days * DAY, NOW + 2, NOW + 2),)
    assert [segment.base_offset for segment in log.segments][-1] == 3, "nothing deleted beside it"
    assert append(log, 0, now=NOW).log_append_time_ms == NOW + 2


def test_one_record_is_enough_to_hold_the_floor(tmp_path: Path) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        append(log, 0, 0, 0, now=NOW + 100 * DAY)
        log.delete_records(2)
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 100 * DAY
        assert log.append_time_ahead_ms(NOW) == 100 * DAY
        assert log.floor.resets == ()


@pytest.mark.parametrize("days", [100, 300 * 365])
def test_a_reset_lowers_the_floor_to_the_clock_and_is_written_down(
    tmp_path: Path, days: int
) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        append(log, 0, now=NOW + days * DAY)
        append(log, 0, now=NOW)
        reset = log.reset_append_time(NOW + 5)
        assert reset == (2, NOW + days * DAY, NOW + 5, NOW + 5)
        assert log.append_time_ahead_ms(NOW) == 5
        text = (partition_dir(tmp_path) / RESETS).read_text()
        assert text == f"0\n1\n2 {NOW + days * DAY} {NOW + 5} {NOW + 5}\n"
        assert log.recovery_point == 2, "all before it is on the disk"
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 5
        assert append(log, 0, now=NOW + 9).log_append_time_ms == NOW + 9
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        truth = times_in(log)
        for moment in moments(truth):
            found = log.find_by_timestamp(moment)
            assert (found and Truth(found.offset, found.timestamp)) == first_at_or_after(
                truth, moment
            )


def test_retention_ends_what_a_clock_far_ahead_has_stamped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, APPEND_TIME) as log:
        append(log, 0, now=NOW + 100 * DAY)
        log.reset_append_time(NOW)
        append(log, 0, now=NOW + 1)
    with reopened(path, APPEND_TIME) as (_, log):
        assert log.apply_retention(NOW + 7 * DAY, 0) == []
        (gone,) = log.apply_retention(NOW + 7 * DAY + 1, 0)
        assert gone.base_offset == 0
        assert "append time is ahead of the clock" in gone.reason
        (gone,) = log.apply_retention(NOW + 7 * DAY + 2, 0)
        assert gone.base_offset == 1


def test_there_is_nothing_to_reset_where_the_clock_is_not_behind(tmp_path: Path) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        assert log.reset_append_time(NOW) is None
        append(log, 0, now=NOW)
        assert log.reset_append_time(NOW) is None
        assert len(log.segments) == 1
        assert not (partition_dir(tmp_path) / RESETS).exists()


def test_a_reset_is_not_undone_by_a_restart_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, APPEND_TIME) as log:
        append(log, 0, now=NOW + 100 * DAY)
        log.reset_append_time(NOW)
        append(log, 0, now=NOW + 70)
        append(log, 0, now=NOW + 30 * DAY)
        log.reset_append_time(NOW + 1)
        snapshot_of(path, tmp_path / "idle")
        append(log, 0, now=NOW + 2)
        snapshot_of(path, tmp_path / "killed")
        snapshot_of(path, tmp_path / "clean")
    for name in ("idle", "killed", "clean"):
        if name == "clean":
            with reopened(tmp_path / name, APPEND_TIME) as (log_dir, _):
                assert log_dir.close() == []
        with reopened(tmp_path / name, APPEND_TIME) as (_, log):
            assert [reset.offset for reset in log.floor.resets] == [1, 3]
            assert append(log, 0, now=NOW).log_append_time_ms == NOW + 1 + (name != "idle")


@pytest.mark.parametrize("damage", ["missing", "damaged", "directory"])
@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("config", [APPEND_TIME, TopicConfig()])
def test_the_floor_is_found_again_after_a_clean_stop(
    tmp_path: Path, config: TopicConfig, damage: str, is_reset: bool
) -> None:
    with new_log(tmp_path, config) as log:
        append(log, NOW, now=NOW + 100 * DAY)
        if is_reset:
            log.reset_append_time(NOW)
            append(log, NOW, now=NOW + 70)
    with reopened(tmp_path, config) as (log_dir, _):
        assert log_dir.close() == []
    mark = partition_dir(tmp_path) / MARK
    mark.write_text("none")
    if damage != "damaged":
        mark.unlink()
    if damage == "directory":
        mark.mkdir()
    with reopened(tmp_path, config) as (_, log):
        append(log, NOW, now=NOW + 1)
        times = log.append_times(0, log.log_end_offset)
        assert times[-1].ms == NOW + (70 if is_reset else 100 * DAY)


@pytest.mark.parametrize("now", [-(1 << 63), (1 << 63) - 1])
def test_the_first_and_the_last_time_can_be_append_times(tmp_path: Path, now: int) -> None:
    with new_log(tmp_path / "log", now=now) as log:
        append(log, NOW, now=now)
        append(log, NOW, now=now)
        assert [stretch.ms for stretch in log.append_times(0, 2)] == [now]


def test_a_reset_applies_from_the_end_on_where_later_records_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, APPEND_TIME) as log:
        for _ in range(3):
            append(log, 0, now=NOW + 100 * DAY)
        log.reset_append_time(NOW)
        append(log, 0, now=NOW + 1)
        log.truncate_to(2, NOW)
        assert [reset.offset for reset in log.floor.resets] == [2]
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 1
        assert [segment.base_offset for segment in log.segments] == [0, 2]
    (path / "recovery-point-offset-checkpoint").unlink()
    data = partition_dir(path) / f"{0:020d}.log"
    data.write_bytes(data.read_bytes()[:-1])  # as after a power cut
    with reopened(path, APPEND_TIME) as (_, log):
        assert log.log_end_offset == 1
        assert [reset.offset for reset in log.floor.resets] == [1]
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 1
        assert [segment.base_offset for segment in log.segments] == [0, 1]


@pytest.mark.parametrize("cause", ["command", "empty"])
def test_a_kill_at_any_step_of_a_reset_leaves_the_old_floor_or_the_new(
    tmp_path: Path, cause: str
) -> None:
    seen = set()
    for step in range(10_000):
        path = tmp_path / str(step)
        with new_log(path, APPEND_TIME) as log:
            append(log, 0, now=NOW + 100 * DAY)
            if cause == "empty":
                log.delete_records(-1)
            log_dir_checkpoint = f"0\n1\nevents 3 {log.log_start_offset}\n"
        (path / "log-start-offset-checkpoint").write_text(log_dir_checkpoint)
        files, was_killed = FaultyFiles(None), False
        log_dir = open_dir(path, APPEND_TIME, files=files)
        files.fail_after(step, Killed())
        try:
            log = log_dir.logs[TopicPartition("events", 3)]
            if cause == "command":
                log.reset_append_time(NOW)
            else:
                append(log, 0, now=NOW)
        except Killed:
            was_killed = True
        finally:
            log_dir.close(clean=False)
        with reopened(path, APPEND_TIME) as (_, log):
            was_reset = bool(log.floor.resets)
            seen.add(was_reset)
            assert was_reset or was_killed, "what was answered holds"
            expected = NOW if was_reset or cause == "empty" else NOW + 100 * DAY
            offset = log.log_end_offset
            for _ in range(2):
                assert append(log, 0, now=NOW).log_append_time_ms == expected, step
            for reset in log.floor.resets:
                assert reset == (1, NOW + 100 * DAY, NOW, NOW)
            assert [record.timestamp for record in times_in(log)][-2:] == [expected] * 2
            assert log.log_end_offset == offset + 2
            bases = [segment.base_offset for segment in log.segments]
            assert (1 in bases) or not was_reset
        if not was_killed:
            break
    assert step > 10
    assert seen == {False, True}


def test_a_reset_that_the_disk_refuses_changes_nothing(tmp_path: Path) -> None:
    path, files = tmp_path / "log", FaultyFiles(None)
    refused = 0
    with new_log(path, APPEND_TIME, files=files) as log:
        for step in range(10_000):
            append(log, 0, now=NOW + 100 * DAY)
            files.fail_after(step, OSError(28, "No space left on device"))
            before, faults = log.floor.resets, len(files.faults)
            try:
                log.reset_append_time(NOW)
            except StorageFailed:
                refused += 1
                files.heal()
                assert log.floor.resets == before
                with suppress(StorageFailed):
                    log.flush()
                assert append(log, 0, now=NOW).log_append_time_ms == NOW + 100 * DAY
                snapshot_of(path, tmp_path / str(step))
                with reopened(tmp_path / str(step), APPEND_TIME) as (_, again):
                    assert append(again, 0, now=NOW).log_append_time_ms == NOW + 100 * DAY
                continue
            files.heal()
            if len(files.faults) == faults:
                break
    assert refused > 5


def test_damaged_resets_are_skipped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    with new_log(path, APPEND_TIME) as log:
        append(log, 0, now=NOW + 100 * DAY)
        log.reset_append_time(NOW)
        append(log, 0, now=NOW + 1)
    for content in (
        "nonsense",
        "0\n1\n1 2 3\n",
        f"0\n1\n-1 {NOW} {NOW} {NOW}\n",
        f"0\n2\n5 {NOW} {NOW} {NOW}\n4 {NOW} {NOW} {NOW}\n",
        f"0\n1\n1 {NOW} {NOW + 1} {NOW}\n",
        f"0\n1\n1 {1 << 63} {NOW} {NOW}\n",
    ):
        (partition_dir(path) / RESETS).write_text(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING), reopened(path, APPEND_TIME) as (_, log):
            assert log.floor.resets == ()
            assert (log.floor.last or 0) >= NOW + 1
        assert "Where append times were reset is unknown" in caplog.text
        steps = Verification.of(path).steps()
        said = [str(step.path) for step in steps if isinstance(step, Finding)]
        assert str(partition_dir(path) / RESETS) in said


def test_a_create_time_beyond_any_append_time_is_no_floor_and_stays_findable(
    tmp_path: Path,
) -> None:
    far, path = 9_000_000_000_000, tmp_path / "log"  # 2255
    with new_log(path, TopicConfig(message_timestamp_after_max_ms=(1 << 63) - 1)) as log:
        append(log, far)
        log.config = APPEND_TIME
        assert append(log, 0, now=NOW).log_append_time_ms == NOW
        append(log, 0, now=NOW + 100 * DAY)
        assert log.reset_append_time(NOW + 1) is not None
        assert append(log, 0, now=NOW + 1).log_append_time_ms == NOW + 1
        found = log.find_by_timestamp(NOW + 101 * DAY)
        assert (found and found.timestamp) == far
        later = NOW + 200 * DAY
        assert log.apply_retention(later, later) == [], "a create time holds its segment"


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
        assert log.floor.last == NOW + 70_000


def test_a_create_time_is_never_a_floor(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, TopicConfig(message_timestamp_after_max_ms=1 << 62)) as log:
        append(log, NOW + 90_000_000)
        assert log.floor.last == NOW, "when it was appended"
    with reopened(path, APPEND_TIME) as (_, log):
        assert append(log, 0, now=NOW - 1).log_append_time_ms == NOW


def test_a_refused_append_gives_out_no_time(tmp_path: Path) -> None:
    times = AppendTimes(Files(), str(tmp_path))
    assert times.next(NOW + 50) == NOW + 50
    assert times.next(NOW) == NOW, "nothing was written with the other"
    times.gave(NOW)
    times.gave(NOW - 5)
    assert times.last == NOW


def test_a_damaged_mark_is_skipped_and_the_log_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    with new_log(path, SMALL) as log:
        append(log, 0, now=NOW + 70_000)
    (partition_dir(path) / MARK).write_text("nonsense")
    with caplog.at_level(logging.WARNING), reopened(path, SMALL) as (_, log):
        assert log.floor.last == NOW + 70_000
    assert "taken from the log itself" in caplog.text


def test_the_append_time_floor_of_a_foreign_log_is_its_last_append_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with new_log(path, SMALL) as log:
        append(log, 0, now=NOW + 70_000)
        log.roll(NOW)
    with reopened(path, SMALL) as (log_dir, _):
        log_dir.close()
    lose_seals(partition_dir(path))
    (partition_dir(path) / MARK).unlink()
    with reopened(path, SMALL, ours=False) as (_, log):
        assert log.floor.last == NOW + 70_000
        assert times_in(log) == [Truth(0, NOW + 70_000)]
