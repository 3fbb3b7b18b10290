"""A process that appends v0 and v1, and changes the format of its log, is killed by the kernel."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from examples import some_of
from killed_appends import run_until_killed
from storelogs import NOW, open_dir, records_in

from horolog.config import TopicConfig
from horolog.record import TimestampType
from horolog.storage import Finding, Severity, TopicPartition, Verification

LAB = Path(__file__).parent.parent / "lab"
# Appends sets of messages in formats that change, and prints a line for each that is acknowledged:
# its first and last offset and its append time.
SCRIPT = """
import os, random, sys
from pathlib import Path
sys.path.insert(0, {support!r})
from storelogs import NOW, TOPIC_ID, open_dir
from horolog.config import TopicConfig
from horolog.record.builder import LogRecord, build_batch
from horolog.record.compression import Codec
from old_messages import build_messages
from horolog.record.timestamps import TimestampType
from horolog.storage import TopicPartition, prepare
rng = random.Random({seed})
small = dict(segment_bytes=30_000, index_interval_bytes=300, segment_ms=1 << 60)
log_dir = open_dir(Path({path!r}), TopicConfig(**small))
key = TopicPartition("events", 3)
log = log_dir.logs.get(key) or log_dir.create("events", 3, TOPIC_ID, TopicConfig(**small), NOW)
now = max(NOW, log.floor.last or 0)
while True:
    magic, source, kind = rng.choice((0, 1, 1, 1, 2)), rng.randrange(3), rng.choice((0, 1))
    log.config = TopicConfig(
        message_format_version=magic, message_timestamp_type=TimestampType(kind), **small
    )
    codec = rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4))
    offset, count = log.log_end_offset, rng.choice((1, 3, 30))
    rows = [
        LogRecord(NOW - 5, b"%d" % (offset + at), b"v" * rng.randrange(60)) for at in range(count)
    ]
    now += rng.choice((0, 0, 1, 7))
    if source == 2:
        sent = build_batch(rows, codec=codec)
    else:
        sent = build_messages(rows, source, codec=codec)
    done = log.append(prepare(sent, log.config, now, produce_version=9 if source == 2 else 2), now)
    os.write(1, b"%d %d %d\\n" % (done.base_offset, done.last_offset, now))
    if done.rolled:
        log.flush_rolled()
        log_dir.checkpoint()
"""


def answers_before_kill(path: Path, seed: int, count: int) -> list[tuple[int, int, int]]:
    """The first and last offset and the append time of each set that was acknowledged."""
    script = SCRIPT.format(support=str(LAB), path=str(path), seed=seed)
    return run_until_killed(script, count)


@pytest.mark.parametrize("seed", some_of([1, 2], 2))
def test_what_was_acknowledged_survives_in_any_format(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged: list[tuple[int, int, int]] = []
    for turn in range(4):
        acknowledged += answers_before_kill(tmp_path, 10 * seed + turn, rng.randrange(20, 300))
    config = TopicConfig(segment_bytes=30_000, index_interval_bytes=300)
    log_dir = open_dir(tmp_path, config)
    log = log_dir.logs[TopicPartition("events", 3)]
    found = {record.offset: record for record in records_in(log)}
    assert sorted(found) == list(range(log.log_end_offset)), "no gap, nothing twice"
    assert all(record.key == b"%d" % offset for offset, record in found.items())
    append_times: dict[int, int | None] = {}
    stretches = log.append_times(0, log.log_end_offset)
    for stretch, following in zip(stretches, [*stretches[1:], None], strict=True):
        end = log.log_end_offset if following is None else following.offset
        append_times |= dict.fromkeys(range(stretch.offset, end), stretch.ms)
    for first, last, append_ms in acknowledged:
        for offset in range(first, last + 1):
            assert append_times[offset] == append_ms
            kind = found[offset].timestamp
            assert kind in (-1, NOW - 5, append_ms)
    known = [ms for ms in append_times.values() if ms is not None]
    assert known == sorted(known)
    formats = {header.magic for s in log.segments for _, header in s.headers(0, s.size)}
    assert formats == {0, 1, 2}
    assert len(log.segments) > 3
    assert TimestampType.LOG_APPEND_TIME in {
        header.timestamp_type for s in log.segments for _, header in s.headers(0, s.size)
    }
    log_dir.close(clean=False)
    wrong = [
        step
        for step in Verification.of(tmp_path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]
    assert wrong == []
