"""Indexes rebuilt from the log: what Kafka's own recovery makes, and nothing half-way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from faultyfiles import FaultyFiles, Killed
from partition_files import PartitionFiles, files_of
from storelogs import APPEND_TIME, NOW, append, new_log, partition_dir, reopened, times_in

from golden import GOLDEN, copy_directory, extract_killed, partitions
from horolog.buffers import Buffer
from horolog.config import TopicConfig
from horolog.errors import Misconfigured
from horolog.storage import (
    Checked,
    Files,
    Finding,
    IndexBuilder,
    Reindexed,
    Reindexing,
    Severity,
    Verification,
    find_target,
)

SUFFIXES = (".index", ".timeindex")


def reindexed(
    path: Path, *, interval: int = 4096, files: Files | None = None, **options: bool
) -> list[Reindexed]:
    work = Reindexing(find_target(path), interval, files=files or Files(), **options)
    steps = work.steps()
    with work.locked():
        while True:
            try:
                assert isinstance(next(steps), Checked)
            except StopIteration as ended:
                return ended.value


def all_faults(path: Path) -> list[Finding]:
    return [
        step
        for step in Verification.of(path).steps()
        if not isinstance(step, Checked) and step.severity is not Severity.NOTE
    ]


def faults(path: Path) -> list[str]:
    return [each.what for each in all_faults(path) if each.path.endswith((*SUFFIXES, ".companion"))]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    with new_log(tmp_path / "log", TopicConfig(index_interval_bytes=0, segment_bytes=600)) as log:
        for number in range(30):
            append(log, NOW + number * 7 % 20, NOW + number)
    return tmp_path / "log"


def test_what_is_written_is_what_kafkas_recovery_wrote(tmp_path: Path) -> None:
    for golden in partitions("killed"):
        interval = int(golden.answers["config"].get("index.interval.bytes", 4096))
        shutil.copytree(golden.path, tmp_path / golden.name)
        expected = files_of(golden.path, *SUFFIXES)
        for name in expected:
            (tmp_path / golden.name / name).unlink()
        reindexed(tmp_path / golden.name, interval=interval)
        assert files_of(tmp_path / golden.name, *SUFFIXES) == expected, golden.name


def test_afterwards_nothing_is_wrong_with_any_index(tmp_path: Path) -> None:
    path = copy_directory("clean", tmp_path / "clean")
    logs = files_of(path, ".log", ".txnindex", ".snapshot")
    for number, index in enumerate(sorted(path.glob("*/*.*index"))):
        if index.suffix in SUFFIXES:
            index.unlink() if number % 2 else index.write_bytes(b"\xff" * 17)
    assert faults(path)
    done = reindexed(path)
    assert all(each.written and not each.refused for each in done)
    assert faults(path) == []
    assert files_of(path, ".log", ".txnindex", ".snapshot") == logs


def test_what_is_right_is_left_alone_unless_all_is_asked_for(log_dir: Path) -> None:
    wrong = sorted(log_dir.rglob("*.timeindex"))[1]
    wrong.unlink()
    before = {path: path.stat().st_mtime_ns for path in log_dir.rglob("*.*index")}
    done = [each for each in reindexed(log_dir, interval=0) if each.wrong or each.written]
    assert [each.path for each in done] == [str(wrong.with_suffix(".log"))]
    assert str(wrong) in done[0].written
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sum(1 for each in reindexed(log_dir, rebuild_all=True) if each.written) > 1
    assert faults(log_dir) == []


def test_a_damaged_last_append_time_is_removed_and_found_in_the_log_again(tmp_path: Path) -> None:
    with new_log(tmp_path, APPEND_TIME) as log:
        append(log, 0, now=NOW + 70)
    path = partition_dir(tmp_path) / "append-time-checkpoint"
    path.write_bytes(b"0\n17")
    assert path.name in [Path(each.path).name for each in all_faults(tmp_path)]
    (done,) = reindexed(tmp_path, dry_run=True)
    assert (done.removed, path.exists()) == ([str(path)], True)
    (done,) = reindexed(tmp_path)
    assert (done.removed, path.exists()) == ([str(path)], False)
    assert all_faults(tmp_path) == []
    with reopened(tmp_path, APPEND_TIME) as (_, log):
        assert append(log, 0, now=NOW).log_append_time_ms == NOW + 70


def test_a_dry_run_only_reports(log_dir: Path) -> None:
    wrong = min(log_dir.rglob("*.index"))
    wrong.write_bytes(b"\xff" * 16)
    before = files_of(log_dir, *SUFFIXES, ".companion", ".tmp")
    done = reindexed(log_dir, interval=0, dry_run=True)
    assert done[0].written == [str(wrong)]
    assert files_of(log_dir, *SUFFIXES, ".companion", ".tmp") == before


def test_a_damaged_segment_is_left_alone_and_its_end_is_not(tmp_path: Path) -> None:
    path = extract_killed(tmp_path / "killed")
    for index in path.glob("*/*.index"):
        index.unlink()
    refused = {each.path: each.refused for each in reindexed(path) if each.refused}
    assert refused == {}  # of both damaged logs it is the last segment, which a start cuts
    recovered = GOLDEN / "recovered"
    for name in ("torn-0", "flipped-0"):
        ours = {file: len(data) for file, data in files_of(path / name, ".index").items()}
        theirs = {file: len(data) for file, data in files_of(recovered / name, ".index").items()}
        assert ours.keys() == theirs.keys()
    first = min((path / "segments-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    first.with_suffix(".timeindex").unlink()
    (done,) = reindexed(first)
    assert "damaged at byte 0" in (done.refused or "")
    assert not first.with_suffix(".timeindex").exists()


def test_a_kill_leaves_the_old_index_or_the_new_one(log_dir: Path, tmp_path: Path) -> None:
    for index in log_dir.rglob("*.*index"):
        index.write_bytes(b"\xff" * 24)
    new = tmp_path / "new"
    shutil.copytree(log_dir, new)
    counting = FaultyFiles(None)
    reindexed(new, interval=0, files=counting)
    expected = files_of(new, *SUFFIXES)
    for at in range(0, counting.count, 3):
        killed = tmp_path / f"killed-{at}"
        shutil.copytree(log_dir, killed)
        with pytest.raises(Killed):
            reindexed(killed, interval=0, files=FaultyFiles(at, Killed()))
        for name, data in files_of(killed, *SUFFIXES).items():
            assert data in (b"\xff" * 24, expected[name])
        reindexed(killed, interval=0)
        assert files_of(killed, *SUFFIXES) == expected


def test_an_index_stays_whose_it_was(log_dir: Path) -> None:
    log = min(log_dir.rglob("*.log"))
    os.chmod(log, 0o640)
    log.with_suffix(".index").unlink()
    reindexed(log, interval=0)
    assert log.with_suffix(".index").stat().st_mode & 0o777 == 0o640


def test_a_directory_in_use_is_refused_with_the_name_of_its_lock(tmp_path: Path) -> None:
    with new_log(tmp_path / "log") as log:
        append(log, NOW)
        for path in (tmp_path / "log", partition_dir(tmp_path / "log")):
            with pytest.raises(Misconfigured, match=r"log/\.lock is locked"):
                reindexed(path)


def test_a_broker_trusts_rebuilt_indexes(log_dir: Path) -> None:
    with reopened(log_dir) as (_, log):
        truth = times_in(log)
    for index in log_dir.rglob("*.*index"):
        index.unlink()
    reindexed(log_dir)
    with reopened(log_dir) as (_, log):
        assert times_in(log) == truth
        found = log.find_by_timestamp(NOW + 19)
        assert found is not None
        assert found.timestamp == NOW + 19


@pytest.mark.parametrize("at", [0, 20, 23, 60, 140, 148, 160, 172, 196, 300, -5])
def test_damaged_append_times_are_taken_out_and_the_others_kept(tmp_path: Path, at: int) -> None:
    log_dir = tmp_path / "log"
    with new_log(log_dir, TopicConfig(segment_bytes=600)) as log:
        for number in range(30):
            append(log, NOW, now=NOW + number)
    with reopened(log_dir) as (opened, log):
        truth = {stretch.offset: stretch.ms for stretch in log.append_times(0, 30)}
        opened.close()
    path = partition_dir(log_dir) / "00000000000000000000.companion"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    (done, *others) = reindexed(log_dir)
    assert done.written[0].endswith(path.name)
    assert [each.written for each in others] == [[]] * len(others)
    said = [step for step in Verification.of(log_dir).steps() if not isinstance(step, Checked)]
    assert Severity.FAULT not in [step.severity for step in said]
    with reopened(log_dir) as (_, log):
        found = [stretch for stretch in log.append_times(0, 30) if stretch.ms is not None]
        assert all(truth[stretch.offset] == stretch.ms for stretch in found)
        in_segment = log.segments[1].base_offset
        assert len(found) >= 30 - (in_segment if 0 <= at < 24 else 2)


class LosingDisk(Files):
    """Says that it has written what it has not."""

    def os_pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        written = super().os_pwritev(fd, parts, position)
        if written > 8:
            os.pwrite(fd, b"\x7f", position + written - 5)
        return written


def test_a_new_index_that_is_not_right_does_not_replace_the_old_one(log_dir: Path) -> None:
    wrong = min(log_dir.rglob("*.index"))
    wrong.write_bytes(b"\xff" * 16)
    before = files_of(log_dir, *SUFFIXES)
    done = reindexed(log_dir, interval=0, files=LosingDisk())
    assert "does not hold what was written" in str(done[0].refused)
    assert files_of(log_dir, *SUFFIXES) == before
    reindexed(log_dir, interval=0)
    assert faults(log_dir) == []


def test_a_new_index_is_compared_with_the_log(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of the builder is found before it does harm."""
    before = files_of(log_dir, *SUFFIXES)
    finish = IndexBuilder.finish

    def finish_wrongly(builder: IndexBuilder) -> None:
        finish(builder)
        if builder.offset_entries:
            builder.offset_entries[-1] ^= 1

    monkeypatch.setattr(IndexBuilder, "finish", finish_wrongly)
    done = reindexed(log_dir, interval=0, rebuild_all=True)
    assert sum("does not fit the log" in str(each.refused) for each in done) > 1
    assert files_of(log_dir, *SUFFIXES) == before


def test_the_seal_is_of_the_indexes_that_were_written(log_dir: Path) -> None:
    """Those that were there before were open, and are gone."""
    for index in log_dir.glob("**/*.timeindex"):
        index.unlink()
    done = reindexed(log_dir, interval=1 << 20)
    assert any(path.endswith(".index") for each in done for path in each.written)
    notes = [
        step.what
        for step in Verification.of(log_dir).steps()
        if not isinstance(step, Checked) and "sealed" in step.what
    ]
    assert notes == []


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("is_removed", [False, True])
def test_an_index_of_aborted_transactions_is_rebuilt_from_the_markers(
    tmp_path: Path, across: bool, is_removed: bool
) -> None:
    made = PartitionFiles(tmp_path, base_offset=0, leader_epoch=3)
    made.add([NOW], producer_id=9)
    if across:
        made.roll()
    base = made.next_offset - (not across)
    made.end_transaction(9, commit=False, at_ms=NOW + 1)
    made.roll()
    made.add([NOW + 2])
    made.write_indexes()
    index = made.directory / f"{base:020d}.txnindex"
    whole = index.read_bytes()
    if is_removed:
        index.unlink()
    else:
        index.write_bytes(whole[:9] + b"\7" + whole[10:])  # another producer
    (planned,) = [each for each in reindexed(tmp_path, dry_run=True) if each.written]
    assert str(index) in planned.written
    assert index.exists() == (not is_removed)
    reindexed(tmp_path)
    assert index.read_bytes() == whole
    found = [step for step in Verification.of(tmp_path).steps() if not isinstance(step, Checked)]
    assert [step for step in found if step.severity is not Severity.NOTE] == []
