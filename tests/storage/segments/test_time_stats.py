"""Facts about times from the block map alone: those of the records, or none."""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_reading import bytes_read_by
from storelogs import ANY_TIME, NOW, append, new_log, partition_dir, records_in

from companions import lose_maps
from horolog.config import TopicConfig
from horolog.record import (
    LACKS_APPEND_TIMES,
    LATENCY_BOUNDS,
    LATENCY_COUNT,
    NO_RECORDS,
    OF_APPEND_TIME,
    OF_CREATE_TIME,
    Codec,
    TimestampType,
    TimeStats,
    latency_class,
)
from horolog.storage import Files, Log, PartitionReader

CONFIG = TopicConfig(retention_ms=-1, segment_ms=1 << 62, **ANY_TIME)


def of_records(log: Log, created: list[int]) -> TimeStats:
    """What a scan of all records says; `created` are their create times."""
    offsets = [record.offset for record in records_in(log)]
    appended = {
        offset: next(s.ms for s in reversed(log.append_times(0, offset + 1)) if s.offset <= offset)
        for offset in offsets
        if offset is not None
    }
    timed = [ms for ms in created if ms != -1]
    classes = [0] * LATENCY_COUNT
    for offset, ms in zip(offsets, created, strict=True):
        if ms != -1 and offset is not None and (at := appended[offset]) is not None:
            classes[bisect_right(LATENCY_BOUNDS, at - ms)] += 1
    known = [ms for ms in appended.values() if ms is not None]
    is_stamped = log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    return TimeStats(
        len(created),
        len(created) - len(timed),
        sum(after < before for before, after in pairwise(timed)),
        min(timed, default=None),
        max(timed, default=None),
        timed[0] if timed else None,
        timed[-1] if timed else None,
        min(known, default=None),
        max(known, default=None),
        tuple(classes),
        flags=(OF_APPEND_TIME if is_stamped else OF_CREATE_TIME)
        | LACKS_APPEND_TIMES * (len(known) < len(created)),
    )


def added_up(found: list[TimeStats | None]) -> TimeStats:
    known = [each for each in found if each is not None]
    return reduce(TimeStats.followed_by, known, NO_RECORDS)


times = st.sampled_from([-1, -7, 0, NOW - 40 * 86_400_000, NOW - 5, NOW, NOW + 1, NOW + 10**9])


@given(
    batches=st.lists(st.lists(times, min_size=1, max_size=4), min_size=1, max_size=12),
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    kind=st.sampled_from(list(TimestampType)[:2]),
    rolls=st.sets(st.integers(1, 11)),
    large=st.booleans(),
)
def test_the_map_says_what_a_scan_of_the_records_says(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[int]],
    codec: Codec,
    kind: TimestampType,
    rolls: set[int],
    large: bool,
) -> None:
    config = TopicConfig(
        retention_ms=-1, segment_ms=1 << 62, message_timestamp_type=kind, **ANY_TIME
    )
    path = tmp_path_factory.mktemp("log")
    with new_log(path, config) as log:
        for number, each in enumerate(batches):
            if number in rolls:
                log.roll(NOW)
            value = bytes(100_000) if large and codec is Codec.NONE else b"v"
            append(log, *each, now=NOW + number, codec=codec, value=value)
        expected = of_records(log, [ms for each in batches for ms in each])
        found = [segment.blocks.times(segment.size) for segment in log.segments]
        assert None not in found
        assert added_up(found) == expected
        log.roll(NOW)  # which writes the last block
    log_dir = PartitionReader(Files(read_only=True), partition_dir(path))
    again = [segment.blocks.times(segment.size) for segment in log_dir.segments]
    assert added_up(again) == expected


def test_no_record_is_read(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        for number in range(40):
            append(log, NOW + number, value=bytes(50_000))
        log.roll(NOW)
    reader = PartitionReader(Files(read_only=True), partition_dir(tmp_path)).segments[0]
    found: list[TimeStats | None] = []
    assert bytes_read_by(lambda: found.append(reader.blocks.times(reader.size))) < 20_000
    assert found[0] is not None
    assert found[0].records == 40


@pytest.mark.parametrize("damage", ["missing", "torn", "of another log", "flipped"])
def test_a_map_that_does_not_prove_the_whole_log_says_nothing(tmp_path: Path, damage: str) -> None:
    with new_log(tmp_path, CONFIG) as log:
        for number in range(8):
            append(log, NOW + number, value=bytes(100_000))
        log.roll(NOW)
        append(log, NOW)
        first = log.segments[0]
        assert first.blocks.times(first.size) is not None
        path = Path(first.path_of(".companion"))
        content = bytearray(path.read_bytes())
        if damage == "missing":
            lose_maps(path.parent)
        elif damage == "torn":
            path.write_bytes(content[:-1])
        elif damage == "flipped":
            content[-10] ^= 1
            path.write_bytes(content)
        else:
            log_path = Path(first.path_of(".log"))
            data = bytearray(log_path.read_bytes())
            *_, (position, _) = first.headers(0, first.size)
            data[position + 20] ^= 1  # of the last batch's checksum
            log_path.write_bytes(data)
        reader = PartitionReader(Files(read_only=True), partition_dir(tmp_path)).segments[0]
        assert reader.blocks.times(reader.size) is None


def test_an_empty_segment_has_no_records(tmp_path: Path) -> None:
    with new_log(tmp_path, CONFIG) as log:
        assert log.segments[0].blocks.times(log.segments[0].size) == NO_RECORDS


def test_latencies_have_bounds_by_share() -> None:
    facts = NO_RECORDS._replace(latencies=(1, 5, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1))
    assert facts.ahead == 1
    assert latency_class(facts.latencies, 0.1) == (None, 0)
    assert latency_class(facts.latencies, 0.5) == (0, 10)
    assert latency_class(facts.latencies, 0.9) == (10, 100)
    assert latency_class(facts.latencies, 0.95) == (LATENCY_BOUNDS[-1], None)
    assert latency_class(NO_RECORDS.latencies, 0.5) is None
