"""Cases of lookup by time that have a name; the random ones are in test_lookup_model.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from examples import stride
from faulty_calls import noted_calls
from interleave import at_each_line
from storelogs import ANY_TIME, NOW, append, new_log

from horolog.config import TopicConfig
from horolog.record import HEADER_SIZE, Codec, parse_header, with_records
from horolog.storage import Files, Log, TimestampOffset, WouldBlock

CONFIG = TopicConfig(index_interval_bytes=0, segment_ms=1 << 60, **ANY_TIME)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with new_log(tmp_path, CONFIG) as log:
        yield log


def offset_at(log: Log, timestamp: int) -> int | None:
    found = log.find_by_timestamp(timestamp)
    return None if found is None else found.offset


def test_a_late_record_does_not_hide_an_earlier_one(log: Log) -> None:
    append(log, 100, 130)
    append(log, 90)
    append(log, 200)
    expected = {90: 0, 95: 0, 100: 0, 101: 1, 120: 1, 130: 1, 131: 3, 200: 3, 201: None}
    assert {moment: offset_at(log, moment) for moment in expected} == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_the_answer_is_the_record_inside_the_batch(log: Log, codec: Codec) -> None:
    append(log, NOW, NOW + 20, NOW + 10, codec=codec)
    assert log.find_by_timestamp(NOW + 5) == TimestampOffset(NOW + 20, 1, 0)
    assert log.find_by_timestamp(NOW + 11) == TimestampOffset(NOW + 20, 1, 0)
    assert log.find_max_timestamp() == TimestampOffset(NOW + 20, 1, 0)


def test_the_leader_epoch_is_that_of_the_batch(log: Log) -> None:
    append(log, NOW)
    log.leader_epoch = 5
    append(log, NOW + 10)
    assert log.find_by_timestamp(NOW + 1) == TimestampOffset(NOW + 10, 1, 5)
    assert log.find_by_timestamp(NOW) == TimestampOffset(NOW, 0, 0)


def test_the_search_goes_on_past_segments_without_times(log: Log) -> None:
    """Kafka stops at the first segment whose file is young enough, and finds nothing."""
    append(log, -1)
    log.roll(NOW)
    append(log, 1000)
    assert offset_at(log, 500) == 1


def test_the_search_goes_on_past_matches_that_lie_before_the_log_start(log: Log) -> None:
    """Kafka looks into the first segment that reaches the target, and only there."""
    append(log, 1000)
    append(log, 10)
    log.roll(NOW)
    append(log, 2000)
    log.delete_records(1)
    assert offset_at(log, 500) == 2


def test_segments_may_overlap_in_any_order(log: Log) -> None:
    for times in ([500, 100], [900, 50], [300, 400], [950]):
        append(log, *times)
        log.roll(NOW)
    expected = {50: 0, 500: 0, 501: 2, 900: 2, 901: 6, 951: None}
    assert {moment: offset_at(log, moment) for moment in expected} == expected


def test_nothing_is_distinguished_from_the_first_offset(log: Log) -> None:
    assert log.find_by_timestamp(0) is None
    assert log.find_max_timestamp() is None
    append(log, 0)
    assert log.find_by_timestamp(0) == TimestampOffset(0, 0, 0)
    assert log.find_by_timestamp(1) is None


def test_minus_one_is_no_time_and_others_below_zero_are(log: Log) -> None:
    append(log, -1, -5000)
    append(log, -2, -1)
    append(log, 0)
    expected = {-6000: 1, -5000: 1, -4999: 2, -2: 2, -1: 4, 0: 4}
    assert {moment: offset_at(log, moment) for moment in expected} == expected


def test_a_time_before_1970_is_found_where_kafka_wrote_minus_one(log: Log, tmp_path: Path) -> None:
    """A leader of Kafka puts -1 into the header of a batch whose times are all below zero."""
    append(log, -5000, -7000)
    path = next(tmp_path.glob("events-3/*.log"))
    data = path.read_bytes()
    header = parse_header(data)._replace(max_timestamp=-1)
    path.write_bytes(with_records(header, data[HEADER_SIZE:]))
    assert log.find_by_timestamp(-6000) == TimestampOffset(-5000, 0, 0)


def test_the_largest_time_is_the_first_of_equals(log: Log) -> None:
    append(log, NOW)
    append(log, NOW + 5, NOW)
    append(log, NOW + 5)
    log.roll(NOW)
    append(log, NOW + 5)
    assert log.find_max_timestamp() == TimestampOffset(NOW + 5, 1, 0)


def test_the_largest_time_is_at_or_after_the_log_start(log: Log) -> None:
    append(log, NOW + 50, NOW + 40, NOW + 45)
    append(log, NOW + 10)
    log.delete_records(1)
    assert log.find_max_timestamp() == TimestampOffset(NOW + 45, 2, 0)
    log.delete_records(3)
    assert log.find_max_timestamp() == TimestampOffset(NOW + 10, 3, 0)


def test_without_any_time_the_first_record_is_named_as_in_kafka(log: Log) -> None:
    append(log, -1, -1)
    append(log, -1)
    assert log.find_max_timestamp() == TimestampOffset(-1, 0, 0)
    append(log, -5000)
    assert log.find_max_timestamp() == TimestampOffset(-5000, 3, 0)


def test_two_logs_alike_but_for_their_indexes_answer_alike(tmp_path: Path) -> None:
    answers = []
    for interval in (0, 333, 4096, 1 << 30):
        config = replace(CONFIG, index_interval_bytes=interval, segment_bytes=2000)
        with new_log(tmp_path / str(interval), config) as log:
            for number in range(60):
                append(log, number * 37 % 100, number)
            answers.append([log.find_by_timestamp(moment) for moment in range(102)])
    assert answers.count(answers[0]) == 4


def reads_of(log: Log, moment: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the disk is read for a lookup that was done before."""
    log.find_by_timestamp(moment)
    with monkeypatch.context() as patch:
        reads = noted_calls(patch, Files, "read_at")
        log.find_by_timestamp(moment)
    return len(reads)


def test_a_lookup_reads_no_more_in_a_log_of_many_segments(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for number in range(60):
        append(log, NOW + 10 * number, NOW + 10 * number + 5)
        append(log, NOW + 10 * number + 6)
        log.roll(NOW)
        if number in (3, 59):
            counts.append(max(reads_of(log, NOW + at, monkeypatch) for at in (15, 16, 25)))
    assert counts[0] == counts[1] < 12


def test_what_is_remembered_of_segments_goes_with_them(log: Log) -> None:
    for times in ([500], [900], [300], [950]):
        append(log, *times)
        log.roll(NOW)
    assert offset_at(log, 600) == 1
    log.truncate_to(1, NOW)
    assert offset_at(log, 600) is None
    append(log, 700)
    log.roll(NOW)
    append(log, 100)
    assert offset_at(log, 600) == 1
    log.delete_records(2)
    assert offset_at(log, 600) is None
    assert offset_at(log, 50) == 2


def test_the_largest_time_is_looked_for_elsewhere_if_its_record_is_gone(log: Log) -> None:
    append(log, NOW + 90, NOW + 10)
    log.roll(NOW)
    append(log, NOW + 50)
    log.roll(NOW)
    append(log, NOW + 50)
    log.delete_records(1)
    assert log.find_max_timestamp() == TimestampOffset(NOW + 50, 2, 0)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="no reads from the page cache alone")
def test_a_lookup_without_blocking_answers_the_same_or_raises(disk_path: Path) -> None:
    files = Files()
    with new_log(disk_path, CONFIG, files=files) as log:
        for number in range(5):
            append(log, NOW + number)
            log.roll(NOW)
        moments = range(NOW - 1, NOW + 7)
        patient = [log.find_by_timestamp(moment) for moment in moments]
        try:
            assert [
                files.without_blocking(partial(log.find_by_timestamp, m)) for m in moments
            ] == patient
        except WouldBlock:
            pytest.skip("this file system does not tell what is cached")
        files.close()
        with pytest.raises(WouldBlock):
            files.without_blocking(lambda: log.find_by_timestamp(NOW + 2))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_little_is_decompressed_on_the_event_loop_and_much_in_threads(
    disk_path: Path, codec: Codec
) -> None:
    files = Files()
    with new_log(disk_path, CONFIG, files=files) as log:
        append(log, NOW - 1)
        append(log, *range(NOW, NOW + 20_000), codec=codec)
        assert log.segments[0].size < 256 << 10, "more is not even looked into"
        try:
            files.without_blocking(lambda: log.find_by_timestamp(NOW - 1))
        except WouldBlock:
            pytest.skip("this file system does not tell what is cached")
        found = files.without_blocking(lambda: log.find_by_timestamp(NOW + 5))
        assert found == log.find_by_timestamp(NOW + 5)
        with pytest.raises(WouldBlock):
            files.without_blocking(lambda: log.find_by_timestamp(NOW + 19_999))
        assert offset_at(log, NOW + 19_999) == 20_000


def append_one(log: Log) -> None:
    append(log, NOW + log.log_end_offset)


def append_a_late_one(log: Log) -> None:
    append(log, NOW + log.log_end_offset // 2)


def roll_and_append(log: Log) -> None:
    log.roll(NOW)
    append_one(log)


CHANGES = [append_one, append_a_late_one, pytest.param(roll_and_append, marks=pytest.mark.slow)]


class Logs:
    """Small logs, a new one when the last has grown, in which a change and a question meet."""

    def __init__(self, path: Path, config: TopicConfig) -> None:
        self._path, self._config = path, config
        self._stack, self._count = ExitStack(), 0
        self.new()

    def new(self) -> None:
        self._stack.close()
        self._count += 1
        self.log = self._stack.enter_context(new_log(self._path / str(self._count), self._config))
        for _ in range(3):
            append_one(self.log)
        self.aim()

    def aim(self) -> None:
        """Ask for times around the end of the log as it is now."""
        if len(self.log.segments) > 2 or self.log.log_end_offset > 15:
            self.new()
        newest = NOW + self.log.log_end_offset - 1
        self.moments = [NOW, NOW + 2, newest - 1, newest, newest + 1]

    def close(self) -> None:
        self._stack.close()

    def answer(self, moment: int | None) -> TimestampOffset | None:
        return (
            self.log.find_max_timestamp() if moment is None else self.log.find_by_timestamp(moment)
        )

    def answers(self) -> list[TimestampOffset | None]:
        return [self.answer(moment) for moment in (*self.moments, None)]


@pytest.fixture(params=[0, pytest.param(150, marks=pytest.mark.slow)])
def logs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Logs]:
    with closing(Logs(tmp_path, replace(CONFIG, index_interval_bytes=request.param))) as logs:
        yield logs


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("which", [3, 4, None], ids=["newest", "beyond", "largest"])
def test_a_lookup_during_which_the_log_changes_answers_as_before_or_after(
    logs: Logs, change: Callable[[Log], None], which: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The change comes before each line of the lookup in turn."""

    def question() -> TimestampOffset | None:
        return logs.answer(None if which is None else logs.moments[which])

    before = question()
    for found in at_each_line(question, lambda: change(logs.log), every=stride(2)):
        assert found in (before, question())
        logs.aim()
        before = question()
    assert caplog.text == "", "a true index was taken for a wrong one"


@pytest.mark.parametrize("change", CHANGES)
def test_a_lookup_in_the_middle_of_a_change_answers_as_before_or_after_it(
    logs: Logs, change: Callable[[Log], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The lookup comes before each line of the change in turn."""
    asked: list[object] = []
    before = logs.answers()
    for _ in at_each_line(
        lambda: change(logs.log), lambda: asked.append(logs.answers()), every=stride(2)
    ):
        after = logs.answers()
        assert asked in ([before], [after])
        asked.clear()
        logs.aim()
        before = logs.answers()
    assert caplog.text == "", "a true index was taken for a wrong one"
