"""A process that appends is killed by the kernel; what it had acknowledged is there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killed_appends import run_until_killed
from storelogs import NOW, open_dir, records_in

from horolog.config import TopicConfig
from horolog.record import TimestampType
from horolog.storage import TopicPartition

CONFIG = TopicConfig(
    segment_bytes=20_000,
    index_interval_bytes=300,
    message_timestamp_type=TimestampType.LOG_APPEND_TIME,
)
LAB = Path(__file__).parent.parent / "lab"
# Sends again what it has no answer for, as a producer does, and continues; a line for each answer.
SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, {support!r})
from storelogs import NOW, TOPIC_ID, batch, open_dir
from horolog.config import TopicConfig
from horolog.record.timestamps import TimestampType
from horolog.storage import TopicPartition, prepare
config = TopicConfig(
    segment_bytes=20_000,
    index_interval_bytes=300,
    message_timestamp_type=TimestampType.LOG_APPEND_TIME,
)
log_dir = open_dir(Path({path!r}), config)
key = TopicPartition("events", 3)
log = log_dir.logs.get(key) or log_dir.create("events", 3, TOPIC_ID, config, NOW)
sequence = {sequence}
while True:
    sent = batch(NOW, value=b"%08d" % sequence, producer_id=9, producer_epoch=0,
                 base_sequence=sequence)
    now = NOW + 1000 - sequence % 700
    done = log.append(prepare(sent, config, now), now)
    os.write(1, b"%d %d %d\\n" % (sequence, done.base_offset, done.log_append_time_ms))
    if done.rolled:
        log.flush_rolled()
        log_dir.checkpoint()
    sequence += 1
"""


def answers_before_kill(path: Path, sequence: int, count: int) -> list[tuple[int, int, int]]:
    """The answers (sequence, offset, append time) that came before the kill."""
    script = SCRIPT.format(support=str(LAB), path=str(path), sequence=sequence)
    return run_until_killed(script, count, more_s=random.random() / 100)


@pytest.mark.parametrize("seed", [1])
def test_what_was_acknowledged_survives_sigkill_again_and_again(tmp_path: Path, seed: int) -> None:
    random.seed(seed)
    acknowledged: list[tuple[int, int, int]] = []
    for _ in range(3):
        acknowledged += answers_before_kill(tmp_path, len(acknowledged), random.randrange(50, 900))
        assert [sequence for sequence, _, _ in acknowledged] == list(range(len(acknowledged)))
    assert [offset for _, offset, _ in acknowledged] == list(range(len(acknowledged)))
    log_dir = open_dir(tmp_path, CONFIG)
    log = log_dir.logs[TopicPartition("events", 3)]
    found = records_in(log)
    assert len(found) - len(acknowledged) in (0, 1)
    assert [record.value for record in found] == [b"%08d" % n for n in range(len(found))]
    times = [record.timestamp for record in found]
    assert times == sorted(times)
    assert times[: len(acknowledged)] == [time_ms for _, _, time_ms in acknowledged]
    assert len(log.segments) > 3
    for segment in log.segments:
        facts = segment.indexes.scan(segment.size, keep=False)
        assert segment.indexes.check(segment.size)
        index = Path(segment.indexes.offsets.entries.path).read_bytes()
        assert index[: len(facts.offset_entries)] == facts.offset_entries
    moment = NOW + 500
    hit = log.find_by_timestamp(moment)
    first = next((record for record in found if record.timestamp >= moment), None)
    assert (hit and hit.offset) == (first and first.offset)
    log_dir.close(clean=False)
