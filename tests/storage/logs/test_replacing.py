"""Segments that take the place of others, as a cleaner would have them: fewer records, one file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from examples import stride
from faultyfiles import FaultyFiles, Killed
from storelogs import NOW, append, new_log, partition_dir, records_in, reopened

from horolog.config import TopicConfig
from horolog.record import AppendTimeStretch
from horolog.storage import (
    Files,
    LogWriter,
    SegmentReader,
    as_they_are,
    make_alike,
    new_segment,
    replace_segments,
)

CONFIG = TopicConfig(index_interval_bytes=0)
ALL, CLEANED, LATER = [0, 1, 2, 3], [1, 3], [4]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log of three segments: two with two batches each, and the active one."""
    with new_log(tmp_path / "log", CONFIG) as log:
        for number in range(5):
            if number in (2, 4):
                log.roll(NOW)
            append(log, NOW + number, now=NOW + number)
        log.flush()
    return tmp_path / "log"


def replace(files: Files, log_dir: Path) -> None:
    """Clean the first two segments: one takes their place, without some of the records."""
    directory = str(partition_dir(log_dir))
    work = f"{directory}.work"
    shutil.rmtree(work, ignore_errors=True)
    files.make_directory(work)
    kept = b""
    for base in (0, 2):
        path = f"{directory}/{base:020d}.log"
        old = SegmentReader.at(files, path, base)
        for position, header in old.headers(0, old.size):
            if header.base_offset in CLEANED:
                kept += old.read_batch(position, header)
    writer = LogWriter(files, work, new_segment(files, work, 0, CONFIG, NOW))
    times = [AppendTimeStretch(offset, NOW + offset) for offset in CLEANED]
    writer.append(as_they_are(kept, 0, times), CONFIG)
    writer.finish()
    make_alike(files, work, SegmentReader.at(files, f"{directory}/{0:020d}.log", 0))
    replace_segments(files, directory, work)


def found_in(log_dir: Path) -> list[int]:
    """The numbers of the records that the next start serves."""
    with reopened(log_dir, CONFIG) as (_, log):
        found = [record.timestamp - NOW for record in records_in(log)]
        for number in found:
            appended = log.find_by_append_time(NOW + number)
            assert appended is not None
            assert appended.offset == number
        times = {stretch.offset: stretch.ms for stretch in log.append_times(0, 5)}
        assert all(times[number] == NOW + number for number in found)
    return found


def test_new_segments_take_the_place_of_old_ones(log_dir: Path) -> None:
    replace(Files(), log_dir)
    assert sorted(int(log.stem) for log in partition_dir(log_dir).glob("*.log")) == [0, 4]
    assert found_in(log_dir) == CLEANED + LATER


def test_a_kill_at_any_step_leaves_the_old_segments_or_the_new_ones(log_dir: Path) -> None:
    counting = FaultyFiles(None)
    shutil.copytree(log_dir, log_dir.with_name("counted"))
    replace(counting, log_dir.with_name("counted"))
    outcomes = []
    for at in (*range(0, counting.count - 1, stride(3)), counting.count - 1):
        killed = log_dir.with_name(f"killed-{at}")
        shutil.copytree(log_dir, killed)
        with pytest.raises(Killed):
            replace(FaultyFiles(at, Killed()), killed)
        shutil.rmtree(f"{partition_dir(killed)}.work", ignore_errors=True)
        found = found_in(killed)
        assert found in (ALL + LATER, CLEANED + LATER), at
        outcomes.append(found == CLEANED + LATER)
        shutil.rmtree(killed)
    assert outcomes == sorted(outcomes), "once the new ones count, they stay"
    assert outcomes[0] != outcomes[-1]
