"""A lookup is exact whatever an index says: also where each entry is true of its own batch."""

from __future__ import annotations

import logging
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storelogs import (
    NOW,
    TOPIC_ID,
    Truth,
    append,
    first_at_or_after,
    largest,
    moments,
    open_dir,
    partition_dir,
    reopened,
    times_in,
)

from companions import companion_of, has_seal, lose_seals
from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, StorageFailed
from horolog.record import iter_headers
from horolog.storage import Files, Log, OpenFile, TimestampOffset, TopicPartition, read_seal

CONFIG = TopicConfig(index_interval_bytes=0, segment_bytes=1000)
TIMES = [NOW + number * 37 % 50 for number in range(40)]
AT_ONCE = "horolog.storage.lookup.index_checks.CHECKED_INLINE_BYTES"

Choice = Callable[[int], bool]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of several segments that another broker has left: there is no seal."""
    log_dir = open_dir(tmp_path / "log", CONFIG)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for time in TIMES:
        append(log, time, time - 3)
    assert len(log.segments) > 4
    assert log_dir.close() == []
    lose_seals(tmp_path / "log")
    return tmp_path / "log"


def lie(log_dir: Path, chosen: Choice) -> None:
    """Let each time index say of some batches that nothing before them is later.

    Its entries are in order, and each is true of the batch that it names.
    """
    for log in sorted(partition_dir(log_dir).glob("*.log")):
        base, entries, last = int(log.stem), b"", -1
        for position, header in iter_headers(log.read_bytes()):
            if header.max_timestamp > last and chosen(position):
                last = header.max_timestamp
                entries += struct.pack(">qi", last, header.last_offset - base)
        log.with_suffix(".timeindex").write_bytes(entries)


def skipping_the_largest(log_dir: Path) -> Choice:
    """Only batches from the middle of a segment on, so that earlier ones may be later."""
    return lambda position: position > 500


def wrong_answers(log: Log) -> list[object]:
    truth = times_in(log)
    assert len(truth) == 2 * len(TIMES)
    wrong: list[object] = []
    for moment in moments(truth):
        found = log.find_by_timestamp(moment)
        if (found and Truth(found.offset, found.timestamp)) != first_at_or_after(truth, moment):
            wrong.append((moment, found))
    found = log.find_max_timestamp()
    if (found and Truth(found.offset, found.timestamp)) != largest(truth):
        wrong.append(("largest", found))
    return wrong


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(chosen=st.lists(st.booleans(), min_size=12, max_size=12))
def test_entries_that_are_true_of_their_batches_and_lie_about_earlier_ones_change_no_answer(
    path: Path, chosen: Sequence[bool]
) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as copy:
        log_dir = Path(shutil.copytree(path, Path(copy) / "log"))
        lie(log_dir, lambda position: chosen[position // 100 % 12])
        with reopened(log_dir, CONFIG) as (_, log):
            assert wrong_answers(log) == []
            assert not log.wants_index_check


def test_a_lie_in_a_small_log_is_found_by_the_first_lookup_and_sealed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    honest = {each: each.read_bytes() for each in partition_dir(path).glob("*.timeindex")}
    lie(path, skipping_the_largest(path))
    with reopened(path, CONFIG) as (_, log), caplog.at_level(logging.WARNING):
        assert log.find_by_timestamp(max(TIMES)) is not None
        assert "do not fit" in caplog.text
        assert wrong_answers(log) == []
        seals = [read_seal(companion_of(each)) for each in sorted(honest)]
        assert [seal and seal.next_offset for seal in seals[:-1]] == [
            segment.base_offset for segment in log.segments[1:]
        ]


def test_lookups_in_a_large_log_are_exact_once_its_indexes_were_checked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AT_ONCE, 0)
    lie(path, skipping_the_largest(path))
    with reopened(path, CONFIG) as (_, log):
        assert not log.wants_index_check
        assert wrong_answers(log) != [], "else this log proves nothing"
        assert log.wants_index_check
        assert not has_seal(partition_dir(path) / f"{0:020d}.log")
        rounds = 0
        while log.check_indexes():
            rounds += 1
            assert log.wants_index_check
        assert rounds == len(log.segments) - 1
        assert not log.wants_index_check
        assert wrong_answers(log) == []
    with reopened(path, CONFIG) as (_, log):
        assert wrong_answers(log) == [], "what was found out was written down"
        assert not log.wants_index_check


def test_honest_indexes_of_a_large_log_answer_right_before_they_are_checked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AT_ONCE, 0)
    before = {each: each.read_bytes() for each in partition_dir(path).glob("*index")}
    with reopened(path, CONFIG) as (_, log):
        assert wrong_answers(log) == []
        while log.check_indexes():
            assert wrong_answers(log) == []
    assert {each: each.read_bytes()[: len(before[each])] for each in before} == before


def test_a_seal_vouches_only_for_the_indexes_it_was_made_for(path: Path) -> None:
    """As many entries as before, each true of its batch, and yet not those that were sealed."""
    with reopened(path, CONFIG) as (log_dir, log):
        assert wrong_answers(log) == []
        assert log_dir.close() == []
    changed = 0
    for index in partition_dir(path).glob("*.timeindex"):
        entries = index.stat().st_size // 12
        batches = [header for _, header in iter_headers(index.with_suffix(".log").read_bytes())]
        last = [(header.max_timestamp, header.last_offset) for header in batches[-entries:]]
        if last == sorted(last):
            base, before = int(index.stem), index.read_bytes()
            lies = b"".join(struct.pack(">qi", time, offset - base) for time, offset in last)
            changed += lies != before
            index.write_bytes(lies)
    assert changed
    with reopened(path, CONFIG) as (_, log):
        assert wrong_answers(log) == []


def test_a_damaged_log_is_searched_by_what_its_batches_prove_and_tried_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = min(partition_dir(path).glob("*.log"))
    data = bytearray(first.read_bytes())
    positions = [position for position, _ in iter_headers(data)]
    data[positions[2] + 16] = 77  # no such format
    first.write_bytes(data)
    with reopened(path, CONFIG) as (_, log), caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert log.find_by_timestamp(NOW + 48) == TimestampOffset(NOW + 48, 8, 0)
            with pytest.raises(CorruptBatch):
                log.find_by_timestamp(NOW + 46)
        assert caplog.text.count("cannot be checked") == 1
        assert not log.wants_index_check


def test_indexes_are_checked_once_however_often_is_asked(path: Path) -> None:
    reads: list[str] = []

    class Counting(Files):
        def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
            reads.append(file.path)
            return super().read_at(file, size, position)

    with reopened(path, replace(CONFIG), files=Counting()) as (_, log):
        assert log.find_by_timestamp(NOW + 20) is not None
        reads.clear()
        assert log.find_by_timestamp(NOW + 20) is not None
        assert len(reads) < 12


def test_a_check_that_goes_on_beyond_the_close_replaces_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker may have the directory by then."""
    monkeypatch.setattr(AT_ONCE, 0)
    lie(path, skipping_the_largest(path))
    closing: list[Callable[[], object]] = []

    class Closing(Files):
        def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
            while closing:
                closing.pop()()
            return super().read_at(file, size, position)

    log_dir = open_dir(path, CONFIG, files=Closing())
    log = log_dir.logs[TopicPartition("events", 3)]
    assert log.find_by_timestamp(NOW) is not None
    closing.append(log_dir.close)
    first = min(partition_dir(path).glob("*.timeindex"))
    before = first.read_bytes()
    with suppress(StorageFailed):
        log.check_indexes()
    assert not closing
    assert first.read_bytes() == before
    assert not has_seal(first)
