from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_reading import Read
from partition_files import PartitionFiles

from horolog.sources import BrokerStretch, ListedSegment, SegmentStretch, left_open, share_out
from horolog.storage import TopicPartition

MB = 1 << 20


def segment(number: int, offsets: int, weight: int) -> SegmentStretch:
    start = 1000 + 10_000_000 * number
    return SegmentStretch(
        "/r",
        ListedSegment(f"/r/{number}.log", start, weight),
        TopicPartition("t", 0),
        start,
        start + offsets,
        weight,
    )


def offsets_of(shares) -> list[tuple]:
    return [
        (stretch.path, offset)
        for share in shares
        for stretch in share
        for offset in (stretch.start, stretch.end)
    ]


SEGMENTS = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500)), max_size=12).map(
    lambda sizes: [segment(number, *size) for number, size in enumerate(sizes)]
)


@given(
    SEGMENTS,
    st.integers(1, 400),
    st.integers(1, 5),
    st.none() | st.integers(1, 30),
    st.none() | st.integers(1, 100),
)
def test_every_offset_is_in_exactly_one_task(segments, weight, cores, least, most) -> None:
    shares = share_out(segments, task_weight=weight, cores=cores, min_tasks=least, max_records=most)
    covered: dict[str, int] = {}
    for share in shares:
        assert share
        for stretch in share:
            assert stretch.start < stretch.end
            assert covered.get(stretch.path, stretch.segment.base_offset) == stretch.start
            covered[stretch.path] = stretch.end
        if most is not None:
            assert sum(stretch.end - stretch.start for stretch in share) <= most
    assert covered == {each.path: each.end for each in segments if each.start < each.end}
    if least is None and most is None:
        assert len(shares) <= 4 * cores


def test_small_segments_end_up_together() -> None:
    shares = share_out([segment(n, 100, MB) for n in range(300)], task_weight=128 * MB, cores=2)
    assert [len(share) for share in shares] == [100, 100, 100]


def test_a_large_segment_is_cut() -> None:
    (only,) = [segment(0, 1_000_000, 1024 * MB)]
    shares = share_out([only], task_weight=128 * MB, cores=2)
    assert [share[0].end - share[0].start for share in shares] == [125_000] * 8


def test_there_are_at_most_four_tasks_a_core() -> None:
    shares = share_out([segment(n, 100, 1024 * MB) for n in range(90)], task_weight=MB, cores=2)
    assert len(shares) == 8


def test_a_log_that_is_worth_it_fills_the_cores() -> None:
    assert len(share_out([segment(0, 10_000, 100 * MB)], task_weight=128 * MB, cores=4)) == 4
    assert len(share_out([segment(0, 10_000, 1 * MB)], task_weight=128 * MB, cores=4)) == 1


def test_a_cut_near_the_border_of_a_segment_is_made_there() -> None:
    sizes = [90, 110, 95, 105]
    segments = [segment(number, 1000, size * MB) for number, size in enumerate(sizes)]
    shares = share_out(segments, task_weight=100 * MB, cores=1)
    assert [[stretch.path for stretch in share] for share in shares] == [
        ["/r/0.log"],
        ["/r/1.log"],
        ["/r/2.log"],
        ["/r/3.log"],
    ]


@pytest.mark.parametrize("least", [1, 3, 7, 20])
def test_min_partitions_asks_for_more_tasks_than_the_log_is_worth(least) -> None:
    ranges = [BrokerStretch(TopicPartition("t", n), 10, 1010) for n in range(3)]
    shares = share_out(ranges, task_weight=1_000_000, cores=1, min_tasks=least)
    assert len(shares) == max(1, least)


def test_no_more_tasks_than_offsets() -> None:
    ranges = [BrokerStretch(TopicPartition("t", 0), 10, 13)]
    shares = share_out(ranges, task_weight=1_000_000, cores=1, min_tasks=50)
    assert [share[0].start for share in shares] == [10, 11, 12]


def test_a_log_without_offsets_needs_no_task() -> None:
    ranges = [BrokerStretch(TopicPartition("t", 0), 10, 10)]
    assert share_out(ranges, task_weight=1, cores=1, min_tasks=9) == []


def test_more_partitions_than_four_a_core_share_tasks() -> None:
    ranges = [BrokerStretch(TopicPartition("t", n), 0, 1_000_000) for n in range(100)]
    assert len(share_out(ranges, task_weight=1_000_000, cores=2)) == 8


def offsets(partition: int, start: int, end: int, **edges: object) -> BrokerStretch:
    return BrokerStretch(TopicPartition("t", partition), start, end, **edges)


def test_the_edges_of_a_log_stay_open_and_no_others() -> None:
    tasks = [(offsets(0, 0, 50),), (offsets(0, 50, 90), offsets(1, 5, 9))]
    zero, one, two = (TopicPartition("t", number) for number in range(3))
    ends = {zero: offsets(0, 90, 90, until=100), two: offsets(2, 7, 7, until=100)}
    assert left_open(tasks, [zero, two], ends) == [
        (
            offsets(0, 0, 50, is_from_earliest=True),
            offsets(2, 7, 7, until=100, is_from_earliest=True),
        ),
        (offsets(0, 50, 90, until=100), offsets(1, 5, 9)),
    ]
    assert left_open([], [], {two: ends[two]}) == [(ends[two],)]
    assert left_open(tasks, [], {}) == tasks
    assert left_open(tasks, [one], {})[1][1].is_from_earliest


def test_what_comes_first_of_a_partition_may_be_any_stretch_of_its_first_task() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    tasks = [(offsets(0, 0, 5), offsets(0, 7, 9), offsets(1, 3, 4)), (offsets(0, 11, 12),)]
    ends = {zero: offsets(0, 20, 20, until=100), one: offsets(1, 6, 6, until=100)}
    first = {"is_from_earliest": True}
    assert left_open(tasks, [zero, one], ends) == [
        (
            offsets(0, 0, 5, **first),
            offsets(0, 7, 9, **first),
            offsets(1, 3, 4, **first),
            offsets(1, 6, 6, until=100, **first),
        ),
        (offsets(0, 11, 12), offsets(0, 20, 20, until=100)),
    ]


def test_options_that_ask_for_many_tiny_tasks_are_said_to_cost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = PartitionFiles(tmp_path)
    files.add([1] * 300)
    Read(tmp_path, maxRecordsPerPartition=100).plan()
    Read(tmp_path).plan()
    assert caplog.records == []
    _, partitions = Read(tmp_path, maxRecordsPerPartition=7).plan()
    assert len(partitions) == 43
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("maxRecordsPerPartition=7 makes 43 tasks of about 7 offsets each, for")
