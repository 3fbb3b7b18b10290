"""A kill between any two things that storage does to the disk, and in the middle of each write.

One life of a log, from an empty directory to a clean close and on, is lived once for
every step in it; each time it ends at that step, and a new process finds the disk so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from batches import batch
from examples import stride
from faultyfiles import FaultyFiles, Killed
from storelogs import NOW, TOPIC_ID, open_dir, records_in

from horolog.config import TopicConfig
from horolog.record import TimestampType
from horolog.storage import Files, Log, LogDir, TopicPartition, prepare

PARTITION = TopicPartition("events", 3)
PRODUCER = {"producer_id": 9, "producer_epoch": 0}


@dataclass
class Life:
    """What was acknowledged, and what was under way when it ended."""

    path: Path
    config: TopicConfig
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Sequence to offset."""
    sequence: int = 0
    deleted_before: int = 0
    last_append_time: int = 0
    log_dir: LogDir | None = None

    def append(self, log: Log, now: int) -> None:
        sent = batch(NOW + self.sequence % 7, base_sequence=self.sequence, **PRODUCER)
        done = log.append(prepare(sent, log.config, now), now)
        assert not done.duplicate
        self.acknowledged[self.sequence] = done.base_offset
        self.last_append_time = max(self.last_append_time, done.log_append_time_ms)
        self.sequence += 1
        if done.rolled:
            log.flush_rolled()

    def live(self, files: Files) -> None:
        log_dir = self.log_dir = open_dir(self.path, self.config, files=files)
        log = log_dir.create(*PARTITION, TOPIC_ID, self.config, NOW)
        for number in range(8):
            self.append(log, NOW + 50 * (number % 3))
        self.deleted_before = 2
        log.delete_records(2)
        log_dir.checkpoint()
        self.deleted_before = 6
        log.delete_records(5)
        log.apply_retention(NOW, NOW)
        self.append(log, NOW)
        log.removed_files.remove_due(NOW * 2)
        log_dir.close()
        self.log_dir = None
        log_dir = self.log_dir = open_dir(self.path, self.config, files=files)
        log = log_dir.logs[PARTITION]
        self.append(log, NOW - 900)
        self.last_append_time = min(self.last_append_time, NOW - 800)  # or what it was
        log.reset_append_time(NOW - 800)
        self.append(log, NOW - 700)
        log_dir.close(clean=False)


def config_for(timestamp_type: TimestampType) -> TopicConfig:
    return TopicConfig(
        segment_bytes=300,
        segment_index_bytes=1200,
        index_interval_bytes=0,
        flush_messages=5,
        message_timestamp_type=timestamp_type,
    )


def verify(life: Life, log_dir: LogDir) -> None:
    log = log_dir.logs.get(PARTITION)
    if log is None:
        assert life.acknowledged == {}, "a topic that was acknowledged is gone"
        return
    found = records_in(log)
    offsets = [record.offset for record in found]
    assert offsets == list(range(log.log_start_offset, log.log_end_offset)), "dense"
    for offset in life.acknowledged.values():
        assert offset < log.log_end_offset
        assert offset in offsets or offset < life.deleted_before
    extra = log.log_end_offset - len(life.acknowledged)
    assert extra in (0, 1), "at most what was under way"
    for segment in log.segments[:-1]:
        facts = segment.indexes.scan(segment.size, keep=False)
        assert segment.indexes.check(segment.size)
        assert Path(segment.indexes.offsets.entries.path).read_bytes() == facts.offset_entries
        assert Path(segment.indexes.times.entries.path).read_bytes() == facts.time_entries
    for record in found:
        hit = log.find_by_timestamp(record.timestamp)
        first = next(r for r in found if r.timestamp >= record.timestamp)
        assert hit is not None
        assert (hit.offset, hit.timestamp) == (first.offset, first.timestamp)
    # The producer sends again what it had no answer for, and continues.
    sent = batch(NOW, base_sequence=life.sequence, **PRODUCER)
    done = log.append(prepare(sent, log.config, NOW - 900), NOW - 900)
    assert done.duplicate == (extra == 1)
    assert done.base_offset == len(life.acknowledged)
    if life.acknowledged:
        newest = max(life.acknowledged)
        sent = batch(NOW + newest % 7, base_sequence=newest, **PRODUCER)
        done = log.append(prepare(sent, log.config, NOW), NOW)
        assert (done.duplicate, done.base_offset) == (True, life.acknowledged[newest])
    if log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        assert (log.floor.last or 0) >= life.last_append_time


def steps(path: Path, config: TopicConfig) -> int:
    files = FaultyFiles(None)
    Life(path, config).live(files)
    return files.count


@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, timestamp_type: TimestampType
) -> None:
    config = config_for(timestamp_type)
    total = steps(tmp_path / "whole", config)
    assert total > 150
    for step in range(timestamp_type, total, 2 * stride(4)):  # each type others
        life = Life(tmp_path / str(step), config)
        with pytest.raises(Killed):
            live_until_killed(life, FaultyFiles(step, Killed()))
        log_dir = open_dir(life.path, config)
        try:
            verify(life, log_dir)
        except AssertionError as error:
            raise AssertionError(f"killed at step {step} of {total}") from error
        assert log_dir.close() == []
        log_dir = open_dir(life.path, config)
        assert log_dir.was_clean
        assert all(not recovery.notes for recovery in log_dir.recoveries)
        log_dir.close(clean=False)


def live_until_killed(life: Life, files: FaultyFiles) -> None:
    """A kill releases the lock; in a test it is released here."""
    try:
        life.live(files)
    finally:
        log_dir = life.log_dir
        if log_dir is not None:
            log_dir.close(clean=False)
