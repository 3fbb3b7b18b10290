"""Damaged indexes are found before they are used, and rebuilt."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from overrides import override
from storelogs import (
    EVERY_BATCH,
    NOW,
    TOPIC_ID,
    Truth,
    UnsyncedFiles,
    append,
    first_at_or_after,
    moments,
    new_log,
    open_dir,
    partition_dir,
    reopened,
    times_in,
)

from companions import companion_of, has_seal, lose_seals, put_seal, seal_in
from horolog.config import TopicConfig
from horolog.storage import (
    Files,
    FileSum,
    LastBatch,
    Log,
    OpenFile,
    Seal,
    TimeEntry,
    TopicPartition,
    packed_seal,
    parsed_seal,
    read_seal,
)

CONFIG = TopicConfig(index_interval_bytes=0, segment_bytes=1000)
BATCHES = [[NOW + number * 7 % 50, NOW + number] for number in range(30)]
FIRST = "00000000000000000000"

Damage = Callable[[bytes], bytes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of several segments, closed cleanly."""
    log_dir = open_dir(tmp_path / "log", CONFIG)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for times in BATCHES:
        append(log, *times)
    assert len(log.segments) > 2
    assert log_dir.close() == []
    return tmp_path / "log"


def expect_every_answer(log: Log) -> None:
    truth = times_in(log)
    assert truth == [Truth(n, t) for n, t in enumerate(t for times in BATCHES for t in times)]
    for moment in moments(truth):
        found = log.find_by_timestamp(moment)
        assert (found and Truth(found.offset, found.timestamp)) == first_at_or_after(truth, moment)


DAMAGES: dict[str, Damage] = {
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: bytes(b ^ 0xA5 for b in data),
    "one bit": lambda data: data[:3] + bytes([data[3] ^ 0x10]) + data[4:],
    "last bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "cut to half": lambda data: data[: len(data) // 24 * 12],
    "cut within an entry": lambda data: data[:-5],
    "emptied": lambda data: b"",
    "too long by zeros": lambda data: data + bytes(120),
    "too long by garbage": lambda data: data + b"\x7f" * 120,
    "reversed": lambda data: data[::-1],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("seals", ["kept", "lost"])
def test_a_damaged_index_changes_no_answer_and_is_rebuilt(
    path: Path, damage: Damage, suffix: str, seals: str
) -> None:
    good = {}
    for index in partition_dir(path).glob(f"*{suffix}"):
        good[index] = index.read_bytes()
        index.write_bytes(damage(good[index]))
    if seals == "lost":
        lose_seals(path)
    with reopened(path, CONFIG) as (_, log):
        expect_every_answer(log)
        for segment in log.segments:  # those that no answer needed
            segment.indexes.check(segment.size)
        last = max(good)
        for index, data in good.items():
            assert index.read_bytes()[: len(data)] == data
            assert index == last or index.stat().st_size == len(data)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_of_another_segment_are_not_trusted(path: Path, suffix: str) -> None:
    first, second, *_ = sorted(partition_dir(path).glob(f"*{suffix}"))
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    with reopened(path, CONFIG) as (_, log):
        expect_every_answer(log)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_indexes_change_no_answer_and_are_rebuilt(path: Path, suffix: str) -> None:
    for index in partition_dir(path).glob(f"*{suffix}"):
        index.unlink()
    with reopened(path, CONFIG) as (log_dir, log):
        assert log_dir.was_clean
        expect_every_answer(log)
        assert (partition_dir(path) / f"{FIRST}{suffix}").exists()


def test_without_seals_a_lookup_in_a_large_log_reads_little_and_retention_walks_and_seals(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.storage", CHECKED_INLINE_BYTES=0)
    lose_seals(path)
    reads: dict[str, int] = {}

    class Counting(Files):
        def read_at(self, file: OpenFile, size: int, position: int) -> bytes:
            data = super().read_at(file, size, position)
            reads[Path(file.path).name] = reads.get(Path(file.path).name, 0) + len(data)
            return data

    config = replace(CONFIG, retention_ms=1000)
    with reopened(path, config, files=Counting()) as (_, log):
        reads.clear()
        assert log.find_by_timestamp(NOW + 1) is not None
        assert sum(reads.values()) < 2 * log.size, "not once for each segment"
        expect_every_answer(log)
        assert not has_seal(partition_dir(path) / f"{FIRST}.log")
        assert len(log.deletable(NOW + 1_000_000)) > 1
        assert has_seal(partition_dir(path) / f"{FIRST}.log")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("checked_inline", [0, 1 << 20])
def test_no_damage_to_indexes_without_seals_changes_an_answer(
    path: Path, checked_inline: int, data: st.DataObject
) -> None:
    with (
        mock.patch("horolog.storage.lookup.index_checks.CHECKED_INLINE_BYTES", checked_inline),
        tempfile.TemporaryDirectory(dir=path.parent) as copy,
    ):
        log_dir = Path(shutil.copytree(path, Path(copy) / "log"))
        lose_seals(log_dir)
        for index in sorted(partition_dir(log_dir).glob("*index")):
            content = bytearray(index.read_bytes())
            for _ in range(data.draw(st.integers(0, 2), label=index.name)):
                at = data.draw(st.integers(0, len(content)))
                width = data.draw(st.integers(0, 30))
                content[at : at + width] = data.draw(
                    st.one_of(st.binary(max_size=30), st.just(bytes(width)))
                )
            index.write_bytes(content)
        with reopened(log_dir, CONFIG) as (_, log):
            expect_every_answer(log)


def test_a_wrong_index_of_the_growing_segment_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with new_log(tmp_path, EVERY_BATCH) as log:
        for number in range(20):
            append(log, NOW + number)
        for suffix in (".index", ".timeindex"):
            with (partition_dir(tmp_path) / f"{FIRST}{suffix}").open("r+b") as file:
                file.seek(0)
                file.write(b"\0\0\0\1" * 60)
        truth = [Truth(number, NOW + number) for number in range(20)]
        with caplog.at_level(logging.WARNING):
            assert times_in(log) == truth
            for moment in moments(truth):
                found = log.find_by_timestamp(moment)
                assert (found and found[:2][::-1]) == first_at_or_after(truth, moment)
        assert "does not fit its log" in caplog.text
        log.roll(NOW)
        append(log, NOW + 100)
        assert times_in(log) == [*truth, Truth(20, NOW + 100)]
        index = (partition_dir(tmp_path) / f"{FIRST}.index").read_bytes()
        assert len(index) == 19 * 8


@pytest.mark.parametrize("damage", ["half", "empty", "gone", "garbage"])
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
def test_indexes_that_are_damaged_while_they_are_in_use_change_no_answer(
    tmp_path: Path, damage: str, suffixes: tuple[str, ...]
) -> None:
    files = UnsyncedFiles()
    with new_log(tmp_path, CONFIG, files=files) as log:
        for times in BATCHES:
            append(log, *times)
        expect_every_answer(log)
        for path in list(partition_dir(tmp_path).iterdir()):
            if path.suffix not in suffixes:
                continue
            data = path.read_bytes()
            if damage == "gone":
                path.unlink()
                files.forget(str(path))
            else:
                path.write_bytes(
                    {"half": data[: len(data) // 24 * 12], "empty": b""}.get(
                        damage, bytes(byte ^ 0x55 for byte in data[:200])
                    )
                )
        expect_every_answer(log)
        for number in range(20):
            append(log, NOW + 1000 + number)
        log.truncate_to(2 * len(BATCHES), NOW)
        expect_every_answer(log)
        for segment in log.segments[:-1]:
            assert segment.indexes.check(segment.size)
    with reopened(tmp_path, CONFIG) as (_, log):
        expect_every_answer(log)


def test_correct_entries_without_a_seal_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A close in the middle of a segment has written a time that no append would have."""
    sparse = replace(CONFIG, index_interval_bytes=4096)
    with new_log(tmp_path, CONFIG) as log:
        append(log, NOW)
        append(log, NOW + 1)
    for config in (sparse, CONFIG, sparse):
        with reopened(tmp_path, config) as (log_dir, log):
            append(log, NOW + log.log_end_offset)
            append(log, NOW + log.log_end_offset)
            log.roll(NOW) if log.log_end_offset == 8 else None
            log_dir.close()
    directory = partition_dir(tmp_path)
    before = {path.name: path.read_bytes() for path in directory.glob("0*0.*index")}
    assert len(before[f"{FIRST}.timeindex"]) > len(before[f"{FIRST}.index"]) // 8 * 12
    lose_seals(directory)
    with caplog.at_level(logging.WARNING), reopened(tmp_path, sparse) as (_, log):
        assert log.segments[0].indexes.check(log.segments[0].size)
    assert caplog.text == ""
    assert {path.name: path.read_bytes() for path in directory.glob("0*0.*index")} == before


def test_a_segment_that_another_program_changed_is_checked_again(path: Path) -> None:
    """A Kafka that went on with our directory knows nothing of seals."""
    last = max(partition_dir(path).glob("*.log"))
    stale = seal_in(last)
    with reopened(path, CONFIG) as (log_dir, log):
        append(log, NOW + 100_000)
        log_dir.close()
    put_seal(last, stale)
    with reopened(path, CONFIG) as (_, log):
        assert log.find_by_timestamp(NOW + 60) is not None
        assert log.log_end_offset == 61


def test_a_seal_of_another_log_of_the_same_size_is_ignored(tmp_path: Path) -> None:
    """A Kafka may have cut our segment and filled it again with as many bytes."""
    paths = []
    for name, first in (("old", NOW), ("new", NOW + 5000)):
        path = tmp_path / name
        log_dir = open_dir(path, CONFIG)
        log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
        for number in range(20):
            append(log, first + number)
        assert log_dir.close() == []
        paths.append(path)
    old, new = paths
    for log in partition_dir(old).glob("*.log"):
        put_seal(partition_dir(new) / log.name, seal_in(log))
    with reopened(new, replace(CONFIG, retention_ms=1000)) as (_, log):
        assert log.find_by_timestamp(NOW + 4000) is not None
        assert log.apply_retention(NOW + 3000, NOW + 3000) == []
        assert log.log_end_offset == 20


@pytest.mark.parametrize("largest", [None, TimeEntry(-5000, 41), TimeEntry(NOW, 77)])
def test_a_seal_is_read_as_written(tmp_path: Path, largest: TimeEntry | None) -> None:
    sums = FileSum(8, 0xFFFFFFFF), FileSum(12, 7), FileSum(34, 1)
    seal = Seal(1 << 40, largest, *sums, LastBatch((1 << 30) - 70, 1 << 30, 9))
    assert len(packed_seal(seal)) == 80
    put_seal(tmp_path / f"{FIRST}.log", packed_seal(seal))
    assert read_seal(companion_of(tmp_path / f"{FIRST}.log")) == seal


@pytest.mark.parametrize("position", range(0, 80, 5))
def test_a_damaged_seal_is_none(position: int) -> None:
    sums = FileSum(8, 1), FileSum(12, 2), FileSum(0, 0)
    data = bytearray(packed_seal(Seal(45, TimeEntry(NOW, 44), *sums, LastBatch(30, 100, 3))))
    data[position] ^= 4
    assert parsed_seal(bytes(data)) is None
    assert parsed_seal(bytes(data[:79])) is None


def test_retention_deletes_nothing_on_the_word_of_an_index(path: Path) -> None:
    """The time index claims that all is old; the log knows better."""
    for index in partition_dir(path).glob("*.timeindex"):
        size = index.stat().st_size
        index.write_bytes(((5).to_bytes(8, "big") + bytes(4) + bytes(size))[:size])
    config = TopicConfig(index_interval_bytes=0, segment_bytes=1000, retention_ms=1000)
    lose_seals(path)
    log_dir = open_dir(path, config)
    log = log_dir.logs[TopicPartition("events", 3)]
    assert log.apply_retention(NOW + 60, NOW + 60) == []
    assert log.apply_retention(NOW + 2000, NOW + 2000) != []
    log_dir.close(clean=False)
