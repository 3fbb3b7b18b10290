"""Logs of formats v0 and v1, and logs that mix formats: searched, rolled, retained (KIP-33)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from old_messages import build_messages
from storelogs import NOW, append, partition_dir, reopened

from horolog.config import TopicConfig
from horolog.record import AppendTimeStretch, Codec, LogRecord, build_batch
from horolog.storage import BatchReader, Files, SegmentReader, whole_batches
from horolog.storage.companion.blocks import blocks_of

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
CODECS = (Codec.NONE, Codec.GZIP)


def rows(*timestamps: int) -> list[LogRecord]:
    return [LogRecord(timestamp, b"k", b"v") for timestamp in timestamps]


def write(path: Path, segments: dict[int, tuple[bytes, int]]) -> None:
    """Segments by their base offset: bytes, and when they were changed last."""
    directory = partition_dir(path)
    directory.mkdir(parents=True)
    for base, (data, modified_ms) in segments.items():
        log = directory / f"{base:020d}.log"
        log.write_bytes(data)
        os.utime(log, ns=(modified_ms * 1_000_000,) * 2)


@pytest.mark.parametrize("codec", CODECS)
def test_segments_without_times_expire_by_when_they_were_changed(
    tmp_path: Path, codec: Codec
) -> None:
    """KIP-33, migration: where no message has a timestamp, the modification time counts."""
    write(
        tmp_path,
        {
            0: (build_messages(rows(0, 0), 0, codec=codec), NOW - 5 * DAY_MS),
            2: (build_messages(rows(0, 0), 0, base_offset=2, codec=codec), NOW - 2 * DAY_MS),
            4: (build_messages(rows(0, 0), 0, base_offset=4, codec=codec), NOW - HOUR_MS),
        },
    )
    config = TopicConfig(retention_ms=3 * DAY_MS)
    with reopened(tmp_path, config) as (_, log):
        assert [each.base_offset for each in log.apply_retention(NOW, NOW)] == [0]
        assert log.log_start_offset == 2
        assert log.find_by_timestamp(0) is None, "there is no time to find"


@pytest.mark.parametrize("magic", [0, 1])
def test_a_gap_of_the_block_map_is_scanned_with_its_own_offsets(tmp_path: Path, magic: int) -> None:
    """A compressed message behind the entries does not begin with the segment."""
    messages = [
        build_messages(rows(NOW, NOW), magic, base_offset=offset, codec=Codec.GZIP)
        for offset in (0, 2, 4)
    ]
    path = tmp_path / f"{0:020d}.log"
    blocks = []
    for count in (1, 3):  # the second time an entry covers the first message
        path.write_bytes(b"".join(messages[:count]))
        segment = SegmentReader.at(Files(), str(path), 0)
        assert segment.blocks.complete(segment.size, stretches_of_a_millisecond)
        blocks = blocks_of(segment.blocks.entries(segment.size))
    assert [(block.base_offset, block.next_offset) for block in blocks] == [(0, 2), (2, 6)]
    assert [block.times.append_min_ms for block in blocks] == [NOW, NOW + 2]


def stretches_of_a_millisecond(from_offset: int, to_offset: int) -> list[AppendTimeStretch]:
    return [AppendTimeStretch(offset, NOW + offset) for offset in range(from_offset, to_offset)]


@pytest.mark.parametrize("codec", CODECS)
def test_one_message_with_a_time_decides_for_its_segment(tmp_path: Path, codec: Codec) -> None:
    """KIP-33, migration: then the largest timestamp counts, not the modification time."""
    mixed = build_messages(rows(0, 0), 0, codec=codec) + build_messages(
        rows(NOW - 9 * DAY_MS), 1, base_offset=2, codec=codec
    )
    last = build_messages(rows(NOW), 1, base_offset=3, codec=codec)
    write(tmp_path, {0: (mixed, NOW), 3: (last, NOW)})
    with reopened(tmp_path, TopicConfig(retention_ms=3 * DAY_MS)) as (_, log):
        assert [each.base_offset for each in log.apply_retention(NOW, NOW)] == [0]


@pytest.mark.parametrize("codec", CODECS)
def test_a_log_that_mixes_formats_is_searched_to_the_record(tmp_path: Path, codec: Codec) -> None:
    data = (
        build_messages(rows(0, 0), 0, codec=codec)
        + build_messages(rows(NOW, NOW + 20, NOW + 10), 1, base_offset=2, codec=codec)
        + build_batch(rows(NOW + 30, NOW + 5), base_offset=5, codec=codec)
    )
    write(tmp_path, {0: (data, NOW)})
    with reopened(tmp_path, TopicConfig(retention_ms=-1)) as (_, log):
        expected = {NOW - 1: 2, NOW: 2, NOW + 1: 3, NOW + 20: 3, NOW + 21: 5, NOW + 31: None}
        for at, offset in expected.items():
            found = log.find_by_timestamp(at)
            assert (None if found is None else found.offset) == offset, at
        largest = log.find_max_timestamp()
        assert largest is not None
        assert (largest.timestamp, largest.offset) == (NOW + 30, 5)
        for offset in range(7):
            assert log.read(offset, 1 << 20).read()


@pytest.mark.parametrize("magic", [0, 1])
def test_appends_to_a_segment_of_an_old_format_roll_by_its_times(
    tmp_path: Path, magic: int
) -> None:
    """A first message without a time leaves it to the clock, as Kafka does."""
    write(tmp_path, {0: (build_messages(rows(NOW), magic), NOW)})
    config = TopicConfig(retention_ms=-1, segment_ms=HOUR_MS)
    with reopened(tmp_path, config) as (_, log):
        append(log, NOW + HOUR_MS // 2)
        assert [segment.base_offset for segment in log.segments] == [0]
        append(log, NOW + 2 * HOUR_MS, now=NOW + 2 * HOUR_MS)
        assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_offsets_before_a_moment_are_where_segments_begin(tmp_path: Path) -> None:
    """ListOffsets 0 uses the files' modification times, whatever the records' times."""
    write(
        tmp_path,
        {
            0: (build_messages(rows(0, 0), 0), NOW - 300),
            2: (build_messages(rows(NOW, NOW), 1, base_offset=2), NOW - 200),
            4: (build_batch(rows(NOW + 9), base_offset=4), NOW - 100),
        },
    )
    with reopened(tmp_path, TopicConfig(retention_ms=-1)) as (_, log):
        changed = log.segments[-1].modified_ms()
        assert changed == NOW - 100
        assert log.offsets_before(NOW - 301, 9, NOW) == []
        assert log.offsets_before(NOW - 300, 9, NOW) == [0]
        assert log.offsets_before(NOW - 150, 9, NOW) == [2, 0]
        assert log.offsets_before(NOW - 100, 9, NOW) == [4, 2, 0]
        assert log.offsets_before(NOW, 9, NOW) == [5, 4, 2, 0]
        assert log.offsets_before(NOW, 2, NOW) == [5, 4]
        assert log.offsets_before(NOW, 0, NOW) == []
        log.delete_records(3)
        assert log.offsets_before(NOW - 150, 9, NOW) == [3]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_whole_messages_behind_damage_are_found(tmp_path: Path, magic: int, codec: Codec) -> None:
    messages = [
        build_messages(rows(NOW, NOW), magic, base_offset=2 * number, codec=codec)
        for number in range(4)
    ]
    broken = bytearray(messages[1])
    broken[8:12] = b"\xff\xff\xff\xff"  # a size leads to no other message
    path = tmp_path / "x.log"
    path.write_bytes(messages[0] + broken + bytes(5_000) + messages[2] + messages[3])
    log = BatchReader.of_file(Files(), str(path))
    found = [header.last_offset for _, header in whole_batches(log)]
    if codec:
        assert found == [1, 5, 7]
    else:  # the second message of the broken pair is whole
        assert found == [0, 1, 3, 4, 5, 6, 7]
