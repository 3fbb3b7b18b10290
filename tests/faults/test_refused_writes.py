"""A disk that refuses: nothing half-written is ever seen, and service resumes by itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from batches import batch
from examples import stride
from faultyfiles import FaultyFiles, ForgetfulFiles
from storelogs import NOW, TOPIC_ID, open_dir, reopened, snapshot_of, times_in

from horolog.config import TopicConfig
from horolog.errors import StorageFailed
from horolog.record import TimestampType
from horolog.storage import Log, prepare

CONFIG = TopicConfig(
    segment_bytes=300,
    segment_index_bytes=1200,
    index_interval_bytes=0,
    message_timestamp_type=TimestampType.LOG_APPEND_TIME,
)
PRODUCER = {"producer_id": 9, "producer_epoch": 0}
COUNT = 9


def append(log: Log, sequence: int, attempt: int = 0) -> bool:
    """Send one record; whether it was acknowledged. A retry is shorter than what was refused."""
    sent = batch(NOW, base_sequence=sequence, value=b"v" * (30 - 3 * attempt), **PRODUCER)
    prepared = prepare(sent, log.config, NOW)
    end_offset = log.log_end_offset
    try:
        done = log.append(prepared, NOW)
    except StorageFailed:
        assert log.log_end_offset == end_offset
        assert [record.offset for record in times_in(log)] == list(range(end_offset))
        return False
    assert (done.base_offset, done.duplicate) == (sequence, False)
    return True


def count_steps(path: Path) -> int:
    files = FaultyFiles(None)
    log_dir = open_dir(path, CONFIG, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    start = files.count
    for sequence in range(COUNT):
        append(log, sequence)
    steps = files.count - start
    log_dir.close(clean=False)
    return steps


@pytest.mark.parametrize(
    ("code", "for_ops"),
    [
        (errno.ENOSPC, 1),
        pytest.param(errno.ENOSPC, 7, marks=pytest.mark.slow),
        (errno.EIO, 2),
    ],
)
def test_a_refusal_at_any_step_is_an_error_and_then_all_goes_on(
    tmp_path: Path, code: int, for_ops: int
) -> None:
    refused = 0
    for step in range(0, count_steps(tmp_path / "whole"), stride(4)):
        path = tmp_path / f"step-{step}"
        files = FaultyFiles(None, OSError(code, os.strerror(code)), for_ops)
        log_dir = open_dir(path, CONFIG, files=files)
        log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
        files.at = files.count + step
        for sequence in range(COUNT):
            for attempt in range(10):
                if append(log, sequence, attempt):
                    break
                refused += 1
            else:
                pytest.fail(f"record {sequence} is never taken, refused at step {step}")
            if sequence == COUNT // 2:
                killed = snapshot_of(path, tmp_path / f"killed-{step}")
        assert [record.offset for record in times_in(log)] == list(range(COUNT))
        assert log_dir.close() == []
        with reopened(killed, CONFIG) as (_, log):
            assert [record.offset for record in times_in(log)] == list(range(COUNT // 2 + 1))
            assert append(log, COUNT // 2 + 1)
        with reopened(path, CONFIG) as (again, log):
            assert again.was_clean
            assert [record.offset for record in times_in(log)] == list(range(COUNT))
            for segment in log.segments:
                assert os.path.getsize(segment.log.path) == segment.size
                assert segment.indexes.check(segment.size)
                facts = segment.indexes.scan(segment.size, keep=False)
                for index, expected in (
                    (segment.indexes.offsets, facts.offset_entries),
                    (segment.indexes.times, facts.time_entries),
                ):
                    found = Path(index.entries.path).read_bytes()
                    assert found[: len(expected)] == expected
                    assert not any(found[len(expected) :])
    assert refused > COUNT


def test_a_disk_that_stays_full_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    files = FaultyFiles(None, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), for_ops=1 << 40)
    log_dir = open_dir(tmp_path, CONFIG, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for sequence in range(5):
        assert append(log, sequence)
    files.at = files.count
    for _ in range(5):
        assert not append(log, 5)
    assert [record.offset for record in times_in(log)] == list(range(5))
    assert log.find_by_timestamp(NOW) is not None
    assert log_dir.logs
    files.heal()
    assert append(log, 5)
    assert log_dir.close() == []


def test_a_failed_sync_does_not_move_the_recovery_point(tmp_path: Path) -> None:
    files = FaultyFiles(None, OSError(errno.EIO, os.strerror(errno.EIO)))
    log_dir = open_dir(tmp_path, CONFIG, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    assert append(log, 0)
    files.at = files.count
    with pytest.raises(StorageFailed, match="Cannot sync"):
        log.flush()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 1
    log_dir.close(clean=False)


# --- a sync that fails makes Linux forget what it should have written ------------------------


@pytest.mark.parametrize("is_started_again", [False, True])
def test_after_a_failed_sync_all_is_written_again_before_it_counts_as_safe(
    tmp_path: Path, is_started_again: bool
) -> None:
    files = ForgetfulFiles()
    log_dir = open_dir(tmp_path, CONFIG, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for sequence in range(4):
        assert append(log, sequence)
    log.flush()
    for sequence in range(4, 9):
        assert append(log, sequence)
    assert len(log.segments) > 2
    files.fails = True
    with pytest.raises(StorageFailed, match="Cannot sync"):
        log.flush()
    assert not append(log, 9)
    with pytest.raises(StorageFailed, match="Cannot sync"):
        log.flush()
    files.fails = False
    if is_started_again:
        log_dir.close(clean=False)
        log_dir = open_dir(tmp_path, CONFIG, files=files)
        (log,) = log_dir.logs.values()
        assert log.recovery_point == 0  # no checkpoint was written
    assert not append(log, 9), "nothing is taken before a flush has succeeded"
    log.flush()
    assert log.recovery_point == log.log_end_offset == 9
    for segment in log.segments:
        expected = Path(segment.log.path).read_bytes()[: segment.size]
        assert files.on_disk(segment.log.path)[: segment.size] == expected
    assert append(log, 9)
    assert log_dir.close() == []
    with reopened(tmp_path, CONFIG) as (again, log):
        assert again.was_clean
        assert append(log, 10)


def test_a_flush_that_a_batch_asked_for_and_that_failed_is_not_made_good_by_a_retry(
    tmp_path: Path,
) -> None:
    files = ForgetfulFiles()
    config = TopicConfig(flush_messages=1)
    log_dir = open_dir(tmp_path, config, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, config, NOW)
    assert append(log, 0)
    sent = prepare(batch(NOW, base_sequence=1, **PRODUCER), config, NOW)
    files.fails = True
    for _ in range(3):
        with pytest.raises(StorageFailed):
            log.append(sent, NOW)
    files.fails = False
    log.flush()
    assert log.append(sent, NOW).duplicate
    assert (log.recovery_point, log.log_end_offset) == (2, 2)
    log_dir.close(clean=False)


def test_a_log_that_a_power_cut_would_shorten_is_not_marked_clean(tmp_path: Path) -> None:
    files = ForgetfulFiles()
    log_dir = open_dir(tmp_path, CONFIG, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    assert append(log, 0)
    files.fails = True
    assert log_dir.close() != []
    with reopened(tmp_path, CONFIG) as (again, log):
        assert not again.was_clean
        log.flush()
        assert append(log, 1)


def test_what_memory_has_forgotten_too_is_not_written_again(tmp_path: Path) -> None:
    files = ForgetfulFiles()
    log_dir = open_dir(tmp_path, CONFIG, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for sequence in range(9):
        assert append(log, sequence)
    files.fails = True
    with pytest.raises(StorageFailed):
        log.flush()
    files.fails = False
    damaged = log.segments[1]
    with Path(damaged.log.path).open("r+b") as file:
        file.seek(70)
        file.write(b"\0\0\0\0")
    for _ in range(2):
        with pytest.raises(StorageFailed, match="lacks what was written"):
            log.flush()
        assert log.recovery_point <= damaged.base_offset
        assert not append(log, 9)
    log_dir.close(clean=False)
    with reopened(tmp_path, CONFIG) as (_, log):
        assert log.log_end_offset == damaged.base_offset
        log.flush()
        assert append(log, damaged.base_offset)
