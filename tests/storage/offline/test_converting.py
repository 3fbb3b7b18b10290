"""Segments are rewritten in another format, or left as they are: never lost, never half."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from batches import batch
from compacting import COMPACT, clean, put
from faultyfiles import FaultyFiles, Killed
from old_messages import build_messages
from partition_files import PartitionFiles, formats_in, records_in_files
from storelogs import NOW, TOPIC_ID, append, followed, new_log, partition_dir, reopened

from golden import GOLDEN, copy_directory
from horolog.config import TopicConfig
from horolog.errors import Misconfigured, StorageFailed
from horolog.record import AppendTimeStretch, Codec, LogRecord, build_batch
from horolog.storage import (
    Conversion,
    ConvertedSegment,
    Files,
    Finding,
    Severity,
    Verification,
    find_target,
)

ROWS = [LogRecord(NOW + place, b"key-%d" % place, b"value" * place) for place in range(12)]


def convert(
    path: Path, magic: int, files: Files | None = None, **options
) -> list[ConvertedSegment]:
    work = Conversion(find_target(path), magic, NOW, files=files or Files(), **options)
    with work.locked():
        steps = work.steps()
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                return ended.value


def modified_in(partition: Path) -> dict[str, int]:
    return {log.name: log.stat().st_mtime_ns // 1_000_000 for log in partition.glob("*.log")}


def without_times(records: list[LogRecord]) -> list[LogRecord]:
    return [record._replace(timestamp=-1) for record in records]


def wrong(path: Path) -> list[Finding]:
    return [
        step
        for step in Verification.of(path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two segments of v0, v1 and v2, plain and compressed."""
    directory = tmp_path / "events-0"
    directory.mkdir()
    first = (
        build_messages(ROWS[:3], 0)
        + build_messages(ROWS[3:5], 1, base_offset=3)
        + build_messages(ROWS[5:8], 1, base_offset=5, codec=Codec.GZIP)
    )
    (directory / "00000000000000000000.log").write_bytes(first)
    second = build_batch(ROWS[8:10], base_offset=8, codec=Codec.LZ4) + build_batch(
        ROWS[10:], base_offset=10
    )
    (directory / "00000000000000000008.log").write_bytes(second)
    return directory


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_segment_gets_the_format_and_keeps_its_records(mixed: Path, magic: int) -> None:
    before = records_in_files(mixed)
    modified = modified_in(mixed)
    done = convert(mixed, magic)
    assert [each.refused for each in done] == [None, None]
    assert formats_in(mixed) == {magic}
    after = records_in_files(mixed)
    assert after == (before if magic else without_times(before))
    changed = {each.path.removesuffix(".log") for each in done if each.is_changed}
    found = [each for each in wrong(mixed) if each.path.rpartition(".")[0] in changed]
    assert found == []
    assert modified_in(mixed) == modified
    assert not (mixed / "converting").exists()
    assert not [each for each in mixed.iterdir() if each.suffix in (".cleaned", ".swap")]
    again = convert(mixed, magic)
    assert not any(each.is_changed for each in again), "what has the format is left alone"


def test_a_segment_that_has_the_format_keeps_its_bytes(mixed: Path) -> None:
    kept = (mixed / "00000000000000000008.log").read_bytes()
    convert(mixed, 2)
    assert (mixed / "00000000000000000008.log").read_bytes() == kept


def test_kafkas_logs_go_there_and_back(tmp_path: Path) -> None:
    path = copy_directory("old-formats", tmp_path / "old")
    for name in ("v1-gzip-0", "v1-none-0", "v1-append-time-gzip-0", "v1-segments-0", "v1-lz4-0"):
        before = records_in_files(path / name)
        logs = {log.name: log.read_bytes() for log in (path / name).glob("*.log")}
        convert(path / name, 2)
        assert formats_in(path / name) == {2}
        assert records_in_files(path / name) == before
        assert wrong(path / name) == []
        convert(path / name, 1)
        assert records_in_files(path / name) == before
        if name in ("v1-none-0", "v1-segments-0"):
            assert {log.name: log.read_bytes() for log in (path / name).glob("*.log")} == logs


@pytest.mark.parametrize("magic", [1, 2])
def test_a_kill_at_any_step_leaves_the_log_whole_and_the_work_goes_on(
    mixed: Path, tmp_path: Path, magic: int
) -> None:
    before = records_in_files(mixed)
    expected = without_times(before) if magic == 0 else before
    original = tmp_path / "original"
    shutil.copytree(mixed, original)
    counting = FaultyFiles(None)
    convert(mixed, magic, counting)
    assert counting.count > 20
    for at in range(counting.count):
        shutil.rmtree(mixed)
        shutil.copytree(original, mixed)
        files = FaultyFiles(at, Killed())
        with pytest.raises(Killed):
            convert(mixed, magic, files)
        # What a start of a broker makes of it: finishes a swap, and reads what is there.
        started = tmp_path / "started"
        shutil.copytree(mixed, started / "events-3")
        with reopened(started, TopicConfig(retention_ms=-1), ours=False) as (_, log):
            assert log.log_end_offset == 12, at
            offsets = [record.offset for record in records_in_files(started / "events-3")]
            assert offsets == list(range(12)), at
        shutil.rmtree(started)
        convert(mixed, magic)
        assert formats_in(mixed) == {magic}, at
        assert records_in_files(mixed) == expected, at
        assert not [each for each in mixed.iterdir() if each.suffix in (".cleaned", ".swap")]
        assert not (mixed / "converting").exists()


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_disk_that_refuses_leaves_the_segment_as_it_was(mixed: Path, at: int) -> None:
    before = records_in_files(mixed)
    files = FaultyFiles(at, OSError(28, "No space left on device"))
    with suppress(StorageFailed):
        convert(mixed, 2, files)
    convert(mixed, 2)
    assert records_in_files(mixed) == before
    assert formats_in(mixed) == {2}


def test_a_segment_that_would_grow_too_large_becomes_several(mixed: Path) -> None:
    before = records_in_files(mixed)
    convert(mixed, 1, max_segment_bytes=200)
    assert len(list(mixed.glob("*.log"))) > 2
    assert records_in_files(mixed) == before
    assert wrong(mixed) == []


def test_damage_is_refused_and_left_alone(mixed: Path) -> None:
    log = mixed / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[22] ^= 1  # in the key
    log.write_bytes(data)
    first, second = convert(mixed, 2)
    assert "its log is damaged" in (first.refused or "")
    assert log.read_bytes() == bytes(data)
    assert second.refused is None
    data = bytearray((mixed / "00000000000000000008.log").read_bytes())
    (mixed / "00000000000000000008.log").write_bytes(data[:-1])
    assert "does not fit" in (convert(mixed, 1)[1].refused or "")


def test_transactions_have_no_place_before_v2(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "clean" / "transactions-0", tmp_path / "transactions-0")
    before = {log.name: log.read_bytes() for log in (tmp_path / "transactions-0").glob("*.log")}
    done = convert(tmp_path / "transactions-0", 1)
    assert any("transaction" in (each.refused or "") for each in done)
    refused = {Path(each.path).name for each in done if each.refused}
    for name in refused:
        assert (tmp_path / "transactions-0" / name).read_bytes() == before[name]


def test_zstd_needs_another_codec_before_v2(tmp_path: Path) -> None:
    directory = tmp_path / "events-0"
    directory.mkdir()
    log = directory / "00000000000000000000.log"
    log.write_bytes(build_batch(ROWS, codec=Codec.ZSTD))
    (done,) = convert(directory, 1)
    assert "zstd" in (done.refused or "")
    (done,) = convert(directory, 1, zstd_as=Codec.GZIP)
    assert done.refused is None
    assert [record.value for record in records_in_files(directory)] == [row.value for row in ROWS]


def test_offsets_at_the_end_of_a_log_are_not_given_out_twice(tmp_path: Path) -> None:
    """Compaction leaves them in the header of the last batch; older formats cannot."""
    shutil.copytree(GOLDEN / "clean" / "compacted-0", tmp_path / "compacted-0")
    last = max((tmp_path / "compacted-0").glob("*.log"))
    emptied = build_batch([], base_offset=int(last.stem) + 1_000)
    last.write_bytes(last.read_bytes() + emptied)
    *_, done = convert(tmp_path / "compacted-0", 1)
    assert "given out twice" in (done.refused or "")


def test_topics_that_kafka_keeps_for_itself_are_never_changed(tmp_path: Path) -> None:
    path = copy_directory("clean", tmp_path / "clean")
    own = [each for each in path.iterdir() if each.name.startswith("__")]
    before = {log: log.read_bytes() for each in own for log in each.glob("*.log")}
    assert len(before) >= 3
    done = convert(path, 1)
    assert not [each for each in done if "/__" in each.path]
    assert convert(path / "__cluster_metadata-0", 1) == []
    (refused,) = convert(path / "__consumer_offsets-0", 1)
    assert "never changed" in (refused.refused or "")
    assert {log: log.read_bytes() for each in own for log in each.glob("*.log")} == before
    assert formats_in(path / "client-gzip-0") == {1}


def test_a_start_removes_what_a_conversion_left_behind(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
    left = partition_dir(tmp_path) / "converting"
    left.mkdir()
    (left / "00000000000000000000.log").write_bytes(b"half")
    with reopened(tmp_path) as (_, log):
        assert log.log_end_offset == 1
    assert not left.exists()


def test_append_times_are_carried_over(tmp_path: Path) -> None:
    config = TopicConfig(retention_ms=-1)
    with new_log(tmp_path, config) as log:
        for number in range(6):
            append(log, NOW - 900 + number, now=NOW + 10 * number)
        known = [log.segments[0].append_times.at(offset) for offset in range(6)]
    assert known == [NOW + 10 * number for number in range(6)]
    for magic in (1, 2):
        (done,) = convert(partition_dir(tmp_path), magic)
        assert done.refused is None
        assert formats_in(partition_dir(tmp_path)) == {magic}
        with reopened(tmp_path, config) as (_, log):
            assert [log.segments[0].append_times.at(offset) for offset in range(6)] == known


def test_times_at_which_a_follower_saw_records_are_carried_over(tmp_path: Path) -> None:
    config = TopicConfig(retention_ms=-1)
    rows = [batch(NOW + number, base_offset=number) for number in range(4)]
    times = [(0, NOW + 10, True), (1, NOW + 20), (2, NOW + 20, True), (3, None)]
    expected = [AppendTimeStretch(*each) for each in times]
    followed(partition_dir(tmp_path), b"".join(rows), expected)
    for magic in (1, 2):
        (done,) = convert(partition_dir(tmp_path), magic)
        assert done.refused is None
        with reopened(tmp_path, config) as (_, log):
            assert log.append_times(0, 4, seen=True) == expected
            assert [each.ms for each in log.append_times(0, 4)] == [None, NOW + 20, None]


def test_it_refuses_while_a_broker_has_the_directory(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
        with pytest.raises(Misconfigured, match="a broker is at work"):
            convert(partition_dir(tmp_path), 1)
    convert(partition_dir(tmp_path), 1)
    assert formats_in(partition_dir(tmp_path)) == {1}


def test_a_converted_log_is_served_and_appended_to(tmp_path: Path) -> None:
    config = TopicConfig(retention_ms=-1)
    with new_log(tmp_path, config) as log:
        for number in range(4):
            append(log, NOW + number, codec=Codec(number))
    convert(partition_dir(tmp_path), 1)
    with reopened(tmp_path, config) as (_, log):
        assert log.topic_id == TOPIC_ID
        assert log.log_end_offset == 4
        found = log.find_by_timestamp(NOW + 2)
        assert found is not None
        assert found.offset == 2
        append(log, NOW + 50)
        assert log.log_end_offset == 5
    assert formats_in(partition_dir(tmp_path)) == {1, 2}


def test_a_dry_run_tells_what_a_conversion_does_and_writes_nothing(mixed: Path) -> None:
    before = {path.name: path.read_bytes() for path in mixed.iterdir()}
    for magic in 0, 1, 2:
        told = convert(mixed, magic, dry_run=True)
        assert {path.name: path.read_bytes() for path in mixed.iterdir()} == before
        copy = mixed.parent / f"copy-{magic}"
        shutil.copytree(mixed, copy)
        done = convert(copy, magic)
        assert [(each.records, each.bytes_after, each.losses, each.refused) for each in told] == [
            (each.records, each.bytes_after, each.losses, each.refused) for each in done
        ]


def test_a_dry_run_tells_what_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "events-0"
    directory.mkdir()
    log = directory / "00000000000000000000.log"
    log.write_bytes(build_batch(ROWS, codec=Codec.ZSTD))
    (told,) = convert(directory, 1, dry_run=True)
    assert "zstd" in str(told.refused)
    (told,) = convert(directory, 1, dry_run=True, zstd_as=Codec.GZIP)
    assert told.refused is None
    assert told.records == len(ROWS)


class Pausing(Files):
    """Lets another thread try its best before the first file gets its name."""

    def __init__(self, meanwhile: threading.Thread) -> None:
        super().__init__()
        self._meanwhile: threading.Thread | None = meanwhile

    def os_rename(self, source: str, target: str) -> None:
        if target.endswith(".swap") and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile.start()
            meanwhile.join(0.3)
        super().os_rename(source, target)


@pytest.mark.parametrize("other", ["00000000000000000008.log", "00000000000000000000.log"])
def test_processes_convert_segments_of_one_partition_at_once(mixed: Path, other: str) -> None:
    """Its neighbour, or, as Spark repeats tasks, the same segment."""
    before = records_in_files(mixed)
    results: list[ConvertedSegment] = []
    second = threading.Thread(target=lambda: results.extend(convert(mixed / other, 1)))
    first = convert(mixed / "00000000000000000000.log", 1, Pausing(second))
    second.join()
    assert [each.refused for each in (*first, *results)] == [None, None]
    assert first[0].is_changed
    assert results[0].is_changed == (other != "00000000000000000000.log")
    convert(mixed, 1)
    assert formats_in(mixed) == {1}
    assert records_in_files(mixed) == before
    assert not (mixed / "converting").exists()
    assert not [each for each in mixed.iterdir() if each.suffix in (".cleaned", ".swap")]


def test_what_a_killed_conversion_was_writing_is_removed_by_the_next(mixed: Path) -> None:
    for base in (0, 8):
        left = mixed / "converting" / f"{base:020d}"
        left.mkdir(parents=True)
        (left / f"{base:020d}.log").write_bytes(b"half")
    convert(mixed, 2)
    assert not (mixed / "converting").exists()
    assert formats_in(mixed) == {2}


def test_offsets_that_compaction_left_out_are_no_damage_after_a_conversion(tmp_path: Path) -> None:
    small = replace(COMPACT, segment_bytes=90, message_format_version=1)
    with new_log(tmp_path / "log", small) as log:
        for key in b"a", b"b", b"b", b"c":
            put(log, key)
        log.config = replace(small, segment_bytes=120)
        clean(log)
        directory = tmp_path / "alone" / "events-3"
        shutil.copytree(log.directory, directory)
    assert wrong(directory) == []
    before = [record.offset for record in records_in_files(directory)]
    assert any(done.bytes_after for done in convert(directory, 2))
    assert [record.offset for record in records_in_files(directory)] == before == [0, 2, 3]
    assert wrong(directory) == []


def test_a_converted_segment_is_sealed_with_its_aborted_transactions(tmp_path: Path) -> None:
    made = PartitionFiles(tmp_path, base_offset=0)
    made.write(build_messages(ROWS[:1], 1))
    made.add([NOW], producer_id=7)
    made.end_transaction(7, commit=False)
    made.write_indexes()
    assert any(done.bytes_after for done in convert(made.directory, 2))
    found = [each for each in Verification.of(made.directory).steps() if isinstance(each, Finding)]
    assert [each for each in found if each.path.endswith(".txnindex")] == []
