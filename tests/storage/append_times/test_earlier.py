"""Append times of directories that were written before the companion was one file."""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from damage import DAMAGES
from examples import some_of
from faultyfiles import FaultyFiles, Killed
from storelogs import ANY_TIME, NOW, append, partition_dir, placed, reopened, snapshot_of

from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import Log
from horolog.storage.append_times.earlier import converted_file
from horolog.storage.append_times.kept_times import KeptTimes
from horolog.storage.files import Files
from horolog.storage.offline.converting import Conversion
from horolog.storage.offline.copied_log import CopiedEnd, CopiedLog, copying
from horolog.storage.offline.reindex import Reindexing
from horolog.storage.verify import Checked, Severity, Verification, find_target

SMALL = TopicConfig(segment_bytes=600, retention_ms=-1, **ANY_TIME)
WRITTEN = Path(__file__).with_name("earlier")
"""By horolog at commit 3c9747d: 14 batches of one record, two in a millisecond, then 7 later."""
TRUTH = {offset: NOW + offset // 2 * 7 for offset in range(14)}
EARLIER = (".appendtimes", ".seal", ".blocks")


def times_of(log: Log) -> dict[int, int | None]:
    end = log.log_end_offset
    return {offset: log.append_times(offset, offset + 1)[0].ms for offset in range(end)}


@pytest.fixture(params=["clean", "killed"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy; that of a broker that was killed has its marker, as on the same machine."""
    path = Path(shutil.copytree(WRITTEN / request.param, tmp_path / "log"))
    for marker in partition_dir(path).glob("*.appending.deleted"):
        log = marker.with_name(marker.name.replace(".appending.deleted", ".log"))
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        marker.write_text(f"{boot} {log.stat().st_ino}")
    return path


def test_append_times_are_taken_over_and_all_else_is_made_again(path: Path, tmp_path: Path) -> None:
    with reopened(path, SMALL) as (log_dir, log):
        assert times_of(log) == TRUTH
        assert log.last_append_time_ms == max(TRUTH.values())
        assert not [each for each in partition_dir(path).iterdir() if each.suffix in EARLIER]
        append(log, NOW, now=NOW + 100)
        snapshot_of(path, tmp_path / "killed again")
        assert log_dir.close() == []
    expected = {**TRUTH, 14: NOW + 100}
    for again in (path, tmp_path / "killed again"):
        with reopened(again, SMALL) as (log_dir, log):
            assert times_of(log) == expected
            log_dir.close()
    found = [each for each in Verification.of(path).steps() if not isinstance(each, Checked)]
    assert Severity.FAULT not in {each.severity for each in found}


@pytest.mark.parametrize("step", some_of(range(26), 3))
def test_a_start_that_ends_while_they_are_taken_over_loses_none(path: Path, step: int) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    files = FaultyFiles(step, Killed() if step % 2 else full)
    with suppress(Killed, StorageFailed, KeyError), reopened(path, SMALL, files=files):
        pass  # a partition that cannot be opened is not there
    gc.collect()  # and with it the lock of what was killed
    with reopened(path, SMALL) as (_, log):
        assert times_of(log) == TRUTH


def reindex(path: Path) -> None:
    for index in path.glob("*/*index"):
        index.unlink()
    work = Reindexing(find_target(path), 4096)
    with work.locked():
        deque(work.steps(), 0)


def convert(path: Path) -> None:
    work = Conversion(find_target(path), 1, NOW)
    with work.locked():
        deque(work.steps(), 0)


@pytest.mark.parametrize("work", [reindex, convert])
def test_what_works_on_files_before_the_first_start_keeps_them(
    path: Path, work: Callable[[Path], None]
) -> None:
    work(path)
    assert list(partition_dir(path).glob("*.companion"))
    with reopened(path, SMALL) as (_, log):
        assert times_of(log) == TRUTH


def test_a_copy_that_was_begun_before_goes_on_with_them(path: Path) -> None:
    directory = partition_dir(path)
    last = max(directory.glob("*.log"))
    known = CopiedEnd(14, int(last.stem), last.stat().st_size)
    with closing(Files()) as files, copying(str(directory)):
        copy = CopiedLog(files, str(directory), known, segment_bytes=600)
        added = placed(14)
        copy.append(added, [AppendTimeStretch(14, NOW + 100)])
        copy.sync()
    with reopened(path, SMALL) as (_, log):
        assert times_of(log) == {**TRUTH, 14: NOW + 100}


@pytest.mark.parametrize("how", [*DAMAGES, "longer than any"])
@pytest.mark.parametrize("suffix", [".appendtimes", ".seal"])
@pytest.mark.parametrize("path", ["killed"], indirect=True)
def test_whatever_is_in_the_place_of_one_stops_no_start(path: Path, suffix: str, how: str) -> None:
    file = sorted(partition_dir(path).glob("*" + suffix))[1]
    if how == "longer than any":
        os.truncate(file, 3 << 30)
    else:
        DAMAGES[how](file)
    with reopened(path, SMALL) as (_, log):
        found = times_of(log)
        assert all(ms in (None, TRUTH[offset]) for offset, ms in found.items())
        assert found == TRUTH or suffix == ".appendtimes"
        assert [found[offset] for offset in (*range(6), 12, 13)] == [
            TRUTH[offset] for offset in (*range(6), 12, 13)
        ]


def test_files_of_other_names_are_no_earlier_form(path: Path) -> None:
    notes = [partition_dir(path) / name for name in ("notes.seal", "x.blocks", "a.appendtimes")]
    for note in notes:
        note.write_text("mine")
    with reopened(path, SMALL):
        assert [note.read_text() for note in notes] == ["mine"] * 3


@pytest.mark.parametrize("at", [*range(0, 56, 5), 58, 63, 70, -3])
def test_what_is_damaged_is_unknown_and_nothing_is_wrong(path: Path, at: int) -> None:
    for each in partition_dir(path).glob("*.appendtimes"):
        content = bytearray(each.read_bytes())
        content[at % len(content)] ^= 4
        each.write_bytes(content)
    with reopened(path, SMALL) as (_, log):
        assert all(ms in (None, TRUTH[offset]) for offset, ms in times_of(log).items())


def test_other_bytes_are_no_append_times(tmp_path: Path) -> None:
    for content in (b"", b"hat1", bytes(52), b"hat1" + bytes(60)):
        assert converted_file(content) is None


def test_append_times_that_were_set_aside_are_read(path: Path) -> None:
    for each in partition_dir(path).glob("*.appendtimes"):
        base_offset = int(each.stem)
        content = converted_file(each.read_bytes())
        assert content is not None
        kept = KeptTimes(content, base_offset)
        known = {o: ms for o in TRUTH if (ms := kept.at(o).known_ms) is not None}
        assert known.items() <= TRUTH.items()


def test_a_time_too_far_from_the_first_is_unknown(tmp_path: Path) -> None:
    year = 365 * 86_400_000
    content = converted_file((WRITTEN / "far.appendtimes").read_bytes())
    assert content is not None
    kept = KeptTimes(content, 0)
    assert kept.at(0).known_ms == NOW
    assert kept.at(1).known_ms in (None, NOW + 300 * year)
    assert kept.at(1).ms is None
