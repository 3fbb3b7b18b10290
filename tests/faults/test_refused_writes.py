"""A disk that refuses: nothing half-written is ever seen, and service resumes by itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from faultyfiles import FaultyFiles
from storelogs import NOW, TOPIC_ID, batch, open_dir, reopened, snapshot_of, times_in

from horolog.config import TimestampType, TopicConfig
from horolog.errors import StorageFailed
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
    ("code", "for_ops"), [(errno.ENOSPC, 1), (errno.EIO, 2), (errno.ENOSPC, 7)]
)
def test_a_refusal_at_any_step_is_an_error_and_then_all_goes_on(
    tmp_path: Path, code: int, for_ops: int
) -> None:
    refused = 0
    for step in range(count_steps(tmp_path / "whole")):
        path = tmp_path / f"step-{step}"
        files = FaultyFiles(None, OSError(code, os.strerror(code)), for_ops)
        log_dir = open_dir(path, CONFIG, files=files)
        log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
        files._at = files.count + step
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
                for index, wanted in (
                    (segment.indexes.offsets, facts.offset_entries),
                    (segment.indexes.times, facts.time_entries),
                ):
                    found = Path(index.entries.path).read_bytes()
                    assert found[: len(wanted)] == wanted
                    assert not any(found[len(wanted) :])
    assert refused > COUNT


def test_a_disk_that_stays_full_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    files = FaultyFiles(None, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), for_ops=1 << 40)
    log_dir = open_dir(tmp_path, CONFIG, files=files)
    log = log_dir.create("events", 3, TOPIC_ID, CONFIG, NOW)
    for sequence in range(5):
        assert append(log, sequence)
    files._at = files.count
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
    files._at = files.count
    with pytest.raises(StorageFailed, match="Cannot sync"):
        log.flush()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 1
    log_dir.close(clean=False)
