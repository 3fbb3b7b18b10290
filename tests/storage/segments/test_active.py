from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from batches import batch
from hypothesis import given
from hypothesis import strategies as st
from storelogs import DAY, EVERY_BATCH, NOW, append, index_entries, new_log, partition_dir

from horolog.config import TopicConfig
from horolog.record import HEADER_SIZE, parse_header, restamp, scan_batch
from horolog.storage import (
    NO_PARTICULARS,
    ActiveSegment,
    Files,
    IndexBuilder,
    Segment,
    TimeEntry,
    as_it_is,
)

BASE = 40


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ActiveSegment]:
    def make(config: TopicConfig = EVERY_BATCH) -> ActiveSegment:
        return ActiveSegment.create(Files(), str(tmp_path), BASE, config, created_ms=NOW)

    return make


def put(active: ActiveSegment, *timestamps: int, size: int = 20) -> None:
    """Append as a log does, with the offsets that follow."""
    sent = batch(*timestamps, value=b"v" * size)
    header = parse_header(sent)
    base = active.segment.end.next_offset
    stamped = restamp(header, sent, base_offset=base, leader_epoch=3)
    facts = scan_batch(sent, header, max_bytes=1 << 20)
    active.make_ready(NOW)
    numbered = as_it_is(parse_header(stamped), [stamped, memoryview(sent)[HEADER_SIZE:]], NOW)
    numbered.counts, numbered.particulars = facts.counts.tobytes(), NO_PARTICULARS
    active.append(numbered)


def test_a_new_segment_has_kafkas_three_files_preallocated(
    make: Callable[..., ActiveSegment], tmp_path: Path
) -> None:
    make(TopicConfig())
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes == {
        "00000000000000000040.log": 0,
        "00000000000000000040.index": 10485760,
        "00000000000000000040.timeindex": 10485756,
    }
    assert sum(path.stat().st_blocks for path in tmp_path.iterdir()) == 0, "sparse"


def test_every_batch_but_the_first_is_indexed_with_an_interval_of_zero(
    make: Callable[..., ActiveSegment], tmp_path: Path
) -> None:
    active = make()
    size = 0
    sizes = []
    for number in range(4):
        put(active, NOW + number, NOW)
        sizes.append(active.segment.size - size)
        size = active.segment.size
    active.finish()
    offsets = index_entries(tmp_path / "00000000000000000040.index", 8)
    assert offsets == [
        (3).to_bytes(4, "big") + sizes[0].to_bytes(4, "big"),
        (5).to_bytes(4, "big") + (sizes[0] * 2).to_bytes(4, "big"),
        (7).to_bytes(4, "big") + (sizes[0] * 3).to_bytes(4, "big"),
    ]
    times = index_entries(tmp_path / "00000000000000000040.timeindex", 12)
    assert times == [
        (NOW + number).to_bytes(8, "big") + (2 * number + 1).to_bytes(4, "big")
        for number in (1, 2, 3)
    ]


def test_the_interval_must_be_exceeded_by_the_bytes_before_the_batch(
    make: Callable[..., ActiveSegment], tmp_path: Path
) -> None:
    size = len(batch(NOW))
    for interval, entries in ((size * 2 - 1, 2), (size * 2, 1)):
        active = make(TopicConfig(index_interval_bytes=interval))
        for number in range(5):
            put(active, NOW + number)
        assert len(active.segment.indexes.offsets.entries) == entries


def test_finishing_writes_the_largest_time_and_trims(
    make: Callable[..., ActiveSegment], tmp_path: Path
) -> None:
    active = make(TopicConfig())
    put(active, NOW + 5)
    put(active, NOW)
    assert (tmp_path / "00000000000000000040.timeindex").stat().st_size == 10485756
    active.finish()
    assert (tmp_path / "00000000000000000040.index").read_bytes() == b""
    expected = (NOW + 5).to_bytes(8, "big") + bytes(4)
    assert (tmp_path / "00000000000000000040.timeindex").read_bytes() == expected


@pytest.mark.parametrize("times", [(-1,), (-5000, -1), (-5000,)])
def test_without_a_time_after_1970_the_time_index_ends_empty(
    make: Callable[..., ActiveSegment], tmp_path: Path, times: tuple[int, ...]
) -> None:
    active = make()
    for timestamp in times * 3:
        put(active, timestamp)
    active.finish()
    assert (tmp_path / "00000000000000000040.timeindex").read_bytes() == b""
    assert (tmp_path / "00000000000000000040.index").stat().st_size > 0


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([-1, -1], None),
        ([-1, -5000, -7000], TimeEntry(-5000, 41)),
        ([-5000, 0], TimeEntry(0, 41)),
        ([NOW, NOW, NOW - 1], TimeEntry(NOW, 40)),
    ],
)
def test_the_largest_time_is_the_first_of_its_kind_and_minus_one_is_none(
    make: Callable[..., ActiveSegment], times: list[int], expected: TimeEntry | None
) -> None:
    active = make()
    for timestamp in times:
        put(active, timestamp)
    assert active.segment.largest() == expected
    active.finish()
    again = Segment(
        Files(),
        str(Path(active.segment.log.path).parent),
        BASE,
        EVERY_BATCH,
        size=active.segment.size,
    )
    assert again.largest() == expected


@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(-3, 60), min_size=1, max_size=4), st.integers(0, 200)),
        max_size=25,
    ),
    interval=st.sampled_from([0, 100, 300, 4096]),
)
def test_indexes_rebuilt_from_the_log_are_those_that_appending_wrote(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[int], int]],
    interval: int,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    config = TopicConfig(index_interval_bytes=interval)
    active = ActiveSegment.create(Files(), str(directory), BASE, config, created_ms=NOW)
    for times, size in batches:
        put(active, *times, size=size)
    active.finish()
    facts = IndexBuilder(BASE, interval).add_all(
        active.segment.log.batches(active.segment.size).stretches()
    )
    assert (directory / "00000000000000000040.index").read_bytes() == facts.offset_entries
    assert (directory / "00000000000000000040.timeindex").read_bytes() == facts.time_entries
    assert facts.largest == active.segment.largest()
    assert (facts.end, facts.next_offset) == active.segment.end[:2]


# Rolling.


def test_a_segment_without_batches_has_waited_by_the_clock(
    make: Callable[..., ActiveSegment],
) -> None:
    assert make().age_ms(EVERY_BATCH, NOW + 5, None, NOW + 100) == 100


@pytest.mark.parametrize(
    ("first", "incoming", "now", "expected"),
    [
        pytest.param(NOW, NOW + 50, NOW + 900, 50, id="record time, whatever the clock says"),
        pytest.param(NOW, NOW - 50, NOW + 900, -50, id="an older record does not roll"),
        pytest.param(NOW, -1, NOW + 900, 0, id="a record without a time does not roll"),
        pytest.param(-1, NOW + 50, NOW + 900, 900, id="a first one without: the clock"),
        pytest.param(-5000, NOW, NOW + 900, NOW + 5000, id="a first one before 1970 has a time"),
        pytest.param(0, 50, NOW + 900, 50, id="and so has one at the epoch"),
    ],
)
def test_how_long_a_segment_has_waited(
    make: Callable[..., ActiveSegment], first: int, incoming: int, now: int, expected: int
) -> None:
    active = make()
    put(active, first)
    put(active, NOW + 40_000)
    assert active.age_ms(EVERY_BATCH, incoming, None, now) == expected


def test_the_largest_time_of_the_first_batch_counts(make: Callable[..., ActiveSegment]) -> None:
    active = make()
    put(active, NOW, NOW + 30, NOW + 10)
    assert active.segment.first_timestamp == NOW + 30


def test_the_first_time_is_read_again_from_the_log(make: Callable[..., ActiveSegment]) -> None:
    active = make()
    put(active, NOW + 30)
    put(active, NOW + 99)
    directory = str(Path(active.segment.log.path).parent)
    again = Segment(Files(), directory, BASE, EVERY_BATCH, size=active.segment.size)
    assert again.first_timestamp == NOW + 30


def test_there_is_room_up_to_the_last_byte_and_offset(make: Callable[..., ActiveSegment]) -> None:
    active = make()
    put(active, NOW)
    free = 1000 - active.segment.size
    assert active.has_room(free, BASE + 1, 1000, NOW)
    assert not active.has_room(free + 1, BASE + 1, 1000, NOW)
    assert active.has_room(1, BASE + (1 << 31) - 1, 1000, NOW)
    assert not active.has_room(1, BASE + (1 << 31), 1000, NOW)
    assert active.has_room(1, BASE + 1, 1000, NOW + 200 * 365 * DAY)
    assert not active.has_room(1, BASE + 1, 1000, NOW + 250 * 365 * DAY)


@pytest.mark.parametrize(("index_bytes", "room_for"), [(24, 1), (36, 2), (48, 3), (16, 0)])
def test_a_full_index_leaves_no_room(
    make: Callable[..., ActiveSegment], index_bytes: int, room_for: int
) -> None:
    """The last slot of the time index is kept for the entry that finishing writes."""
    active = make(replace(EVERY_BATCH, segment_index_bytes=index_bytes))
    for number in range(room_for + 1):
        assert active.has_room(1, BASE + 1, 1 << 30, NOW) == (room_for > 0 or number == -1)
        put(active, NOW + number)
    assert not active.has_room(1, BASE + 1, 1 << 30, NOW)


# Reading.


def test_an_offset_is_found_in_its_batch(make: Callable[..., ActiveSegment]) -> None:
    for config in (EVERY_BATCH, TopicConfig()):
        active = make(config)
        for number in range(50):
            put(active, NOW + number, NOW, NOW)
        for offset in range(BASE, BASE + 150):
            found = active.segment.locate(offset)
            assert found is not None
            _, header = found
            assert header.base_offset <= offset <= header.last_offset
        assert active.segment.locate(BASE + 150) is None


def test_a_slice_may_end_within_a_batch_but_holds_one_if_asked(
    make: Callable[..., ActiveSegment],
) -> None:
    active = make()
    put(active, NOW)
    first = active.segment.size
    put(active, NOW)
    for limit, at_least_one, expected in (
        (10_000, True, 2 * first),
        (first + 10, True, first + 10),
        (first - 1, True, first),
        (0, True, first),
        (first - 1, False, 0),
        (first, False, first),
    ):
        found = active.segment.slice(BASE, limit, min_one_batch=at_least_one)
        assert found is not None
        assert found.size == expected
        assert len(found.read()) == expected


def test_preallocated_space_is_given_back_at_the_end(
    make: Callable[..., ActiveSegment], tmp_path: Path
) -> None:
    active = make(TopicConfig(preallocate=True, segment_bytes=100_000))
    log = tmp_path / "00000000000000000040.log"
    assert log.stat().st_size == 100_000
    put(active, NOW)
    active.finish()
    assert log.stat().st_size == active.segment.size


def test_a_reader_that_holds_a_deleted_segment_goes_on_reading(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        append(log, NOW)
        segment = log.segments[0]
        held = log.read(0, 1000)
        sent = bytes(held.read())
        for path in segment.mark_deleted():
            assert path.endswith(".deleted")
        assert not (partition_dir(tmp_path) / "00000000000000000000.log").exists()
        assert segment.slice(0, 1000, min_one_batch=True).read() == sent
        (partition_dir(tmp_path) / "00000000000000000000.log.deleted").unlink()
        assert held.read() == sent
