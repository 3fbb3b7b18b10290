"""Why each segment is there and when it goes: as retention decides it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from storelogs import DAY, NOW, append, new_log, partition_dir, reopened

from horolog.config import TopicConfig
from horolog.json_text import read_as
from horolog.storage import Because, Files, Holder, Log, PartitionReader, SegmentRetention, report

FAR = 9_000_000_000_000  # of 2255
CONFIG = TopicConfig(
    retention_ms=2 * DAY, message_timestamp_after_max_ms=1 << 62, segment_ms=1 << 62
)


def reported(log: Log, *args: Any, **more: Any) -> list[SegmentRetention]:
    return list(log.look().retention_report(*args, **more))


def three_segments(log: Log, *times: int) -> None:
    """Segments of one record each with these create times, appended a day apart."""
    for day, time in enumerate(times):
        if day:
            log.roll(NOW)
        append(log, time, now=NOW + day * DAY)


def test_every_segment_has_the_time_of_its_deletion(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        three_segments(log, NOW, NOW + DAY, NOW + 2 * DAY)
        found = reported(log, NOW + 2 * DAY + 1)
        assert [each.because for each in found] == [Because.EXPIRED, Because.YOUNG, Because.YOUNG]
        assert [each.goes_now for each in found] == [True, False, False]
        assert [each.goes_ms for each in found][1:] == [NOW + 3 * DAY + 1, NOW + 4 * DAY + 1]
        assert [each.counts_ms for each in found] == [NOW, NOW + DAY, NOW + 2 * DAY]
        assert [each.appended_ms for each in found] == [NOW, NOW + DAY, NOW + 2 * DAY]
        assert [(each.base_offset, each.end_offset) for each in found] == [(0, 1), (1, 2), (2, 3)]
        assert [each.is_active for each in found] == [False, False, True]
        assert found[0].size == log.segments[0].size


def test_a_record_of_the_future_is_named_with_the_segments_it_keeps(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        append(log, NOW)
        append(
            log,
            NOW + 1,
            FAR,
            NOW + 2,
            now=NOW + 5,
            producer_id=77,
            producer_epoch=3,
            base_sequence=0,
        )
        log.roll(NOW)
        append(log, NOW, now=NOW + DAY)
        first, second = reported(log, NOW + 9 * DAY)
        assert first.because is Because.AHEAD
        assert first.holder == Holder(2, FAR, NOW + 5, 77, 3)
        assert first.goes_ms == FAR + 2 * DAY + 1
        assert first.is_odd(NOW + 9 * DAY)
        assert (second.because, second.kept_by) == (Because.EXPIRED, 0)
        assert second.goes_ms == first.goes_ms
        assert not second.goes_now
        by_append = replace(CONFIG, horolog_retention_by="append-time")
        assert all(each.goes_now for each in reported(log, NOW + 9 * DAY, by_append))


def test_a_record_little_ahead_is_no_finding(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        append(log, NOW + 1_000)
        (only,) = reported(log, NOW)
        assert only.because is Because.AHEAD
        assert not only.is_odd(NOW)


def test_what_is_appended_behind_a_limit_of_size_is_counted(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        three_segments(log, NOW, NOW, NOW)
        size = log.segments[0].size
        tried = replace(CONFIG, retention_ms=-1, retention_bytes=2 * size + 10)
        assert [each.bytes_to_go for each in reported(log, NOW, tried)] == [
            10,
            size + 10,
            2 * size + 10,
        ]
        assert {each.goes_ms for each in reported(log, NOW, tried)} == {None}
        tried = replace(tried, retention_bytes=2 * size)
        found = reported(log, NOW, tried)
        assert [each.goes_now for each in found] == [True, False, False]
        assert found[0].because is Because.BEYOND_SIZE
        assert found[1].bytes_to_go == size


def test_an_unknown_append_time_is_said_to_keep_its_segment(tmp_path: Path) -> None:
    config = replace(CONFIG, horolog_retention_by="append-time")
    with new_log(tmp_path / "log", config) as log:
        three_segments(log, NOW, NOW)
    for suffix in ("companion", "appending.deleted"):
        path = partition_dir(tmp_path / "log") / f"00000000000000000000.{suffix}"
        path.unlink(missing_ok=True)
    with reopened(tmp_path / "log", config) as (_, log):
        first, second = reported(log, NOW + 90 * DAY)
        assert (first.because, first.goes_ms) == (Because.UNKNOWN_TIME, None)
        assert first.is_odd(NOW)
        assert (second.kept_by, second.goes_ms) == (0, None)


def test_of_an_adopted_log_nothing_goes_until_settings_are_tried(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        three_segments(log, NOW, NOW)
        log.retention_exempt = True
        found = reported(log, NOW + 90 * DAY)
        assert {each.because for each in found} == {Because.EXEMPT}
        assert {each.goes_ms for each in found} == {None}
        assert all(each.goes_now for each in reported(log, NOW + 90 * DAY, CONFIG))


def test_an_empty_active_segment_is_never_due(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        append(log, NOW)
        log.roll(NOW)
        first, active = reported(log, NOW + 90 * DAY)
        assert first.goes_now
        assert (active.because, active.goes_ms, active.largest_ms) == (Because.EMPTY, None, None)


def test_json_has_everything(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        append(log, FAR)
        found = reported(log, NOW)
        told = json.loads(json.dumps([each.as_json() for each in found]))
        assert [read_as(SegmentRetention, each) for each in told] == found
        assert found[0].holder is not None


times = st.sampled_from([-5, -1, NOW - 3 * DAY, NOW - 1, NOW, NOW + DAY, FAR])


@settings(examples(2), suppress_health_check=list(HealthCheck))
@given(
    segments=st.lists(st.lists(times, min_size=1, max_size=3), min_size=1, max_size=4),
    by=st.sampled_from(["create-time", "append-time", "later"]),
    retention_ms=st.sampled_from([-1, 0, DAY, 2 * DAY]),
    limit=st.sampled_from([-1, 0, 100, 250]),
    start=st.integers(0, 12),
    reset=st.booleans(),
)
@example(
    segments=[[-5]], by="create-time", retention_ms=DAY, limit=-1, start=0, reset=True
)  # without a time that counts: it goes by its append time
@example(segments=[[-5], [NOW - 1]], by="later", retention_ms=DAY, limit=-1, start=1, reset=True)
def test_at_any_time_the_report_equals_what_retention_deletes(
    tmp_path_factory: pytest.TempPathFactory,
    segments: list[list[int]],
    by: str,
    retention_ms: int,
    limit: int,
    start: int,
    reset: bool,
) -> None:
    config = replace(
        CONFIG,
        retention_ms=retention_ms,
        retention_bytes=limit,
        horolog_retention_by=by,
        message_timestamp_after_max_ms=1 << 62,
    )
    path = tmp_path_factory.mktemp("log")
    with new_log(path, config) as log:
        for number, each in enumerate(segments):
            if number:
                log.roll(NOW)
            append(log, *each, now=NOW + number * DAY)
        if reset:
            log.reset_append_time(NOW - DAY)
        log.delete_records(min(start, log.log_end_offset))
        for now in (NOW - DAY, NOW, NOW + DAY, NOW + 2 * DAY + 1, NOW + 6 * DAY, FAR + 3 * DAY):
            found = reported(log, now)
            deleted = len(log.deletable(now))
            assert [each.goes_now for each in found] == [n < deleted for n in range(len(found))]
            read_only = PartitionReader(Files(read_only=True), partition_dir(path))
            offline = report(
                read_only.segments,
                config,
                log.log_start_offset,
                read_only.log_end_offset,
                now,
                read_only.resets(),
            )
            if log.segments[-1].size or len(read_only.segments) == len(found):
                assert [each.goes_now for each in offline] == [each.goes_now for each in found]
            for place, each in enumerate(found):
                if each.goes_ms is None or each.goes_now:
                    continue
                assert each.goes_ms > now
                # A reset counts only while an append time is ahead of the clock, and without it
                # the append time may be the later one.
                clocks = {other.counts_by for other in found[: place + 1]}
                if not reset or (by != "later" and clocks <= {"create-time", None}):
                    before = len(log.deletable(each.goes_ms - 1))
                    after = len(log.deletable(each.goes_ms))
                    assert before <= place < after


class CountedFiles(Files):
    """Notes which files are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()

    def read_at(self, file, size, position):  # type: ignore[no-untyped-def]
        self.read.add(Path(file.path).name)
        return super().read_at(file, size, position)


def test_pages_of_a_report_are_the_whole_and_read_the_segments_that_they_show(
    tmp_path: Path,
) -> None:
    files = CountedFiles()
    with new_log(tmp_path, CONFIG, files=files) as log:
        three_segments(log, NOW, FAR, NOW + 1)
        whole = reported(log, NOW + 9 * DAY)
        starts = [each.base_offset for each in whole]
        assert len(starts) == 3
        pages = [
            next(log.look().retention_report(NOW + 9 * DAY, first_offset=start)) for start in starts
        ]
        assert pages == whole
        files.read.clear()
        next(log.look().retention_report(NOW + 9 * DAY, first_offset=starts[1]))
        shown = f"{starts[1]:020d}"
        assert files.read
        assert {Path(name).stem for name in files.read} == {shown}
