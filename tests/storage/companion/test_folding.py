"""Batches that are kept as rows, and the entries that the kernel and Python make of them."""

from array import array
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_kernels import without_numba
from time_sums import stats_of

from horolog.record import (
    BLOCK_KERNELS,
    LATENCY_COUNT,
    NO_COUNTS,
    OF_APPEND_TIME,
    OF_CREATE_TIME,
    Counts,
    TimeStats,
    layout,
    scan,
)
from horolog.storage import ENTRY_SIZE, NO_BLOCK, Block, folded, place_of, row_of, unpack

BLOCK = 1_000
UINT32_MAX = (1 << 32) - 1
TIMES = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 2)
COUNTS = st.integers(0, 3) | st.sampled_from([UINT32_MAX - 1, UINT32_MAX, UINT32_MAX + 5])


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    scan.load_kernels()


@st.composite
def counts(draw: st.DrawFn) -> Counts:
    records = draw(COUNTS)
    timed = draw(st.integers(0, records))
    times = [draw(TIMES) if timed else 0 for _ in range(4)]
    latencies = [min(draw(COUNTS), records) for _ in range(LATENCY_COUNT)]
    return array("q", [records, timed, *times, draw(COUNTS), *latencies])


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Such as follow one another in a log."""
    position, offset, found = draw(st.integers(0, 1 << 31)), draw(st.integers(0, 1 << 62)), []
    for _ in range(draw(st.integers(0, 9))):
        size = draw(st.sampled_from([61, 300, 700, BLOCK, 5 * BLOCK]))
        last_offset = offset + draw(st.integers(0, 1 << 20))
        counted = draw(st.none() | counts())
        row = row_of(
            position,
            size,
            offset,
            last_offset,
            draw(st.integers(0, UINT32_MAX)),
            0 if counted is None or draw(st.integers(0, 2)) else counted[0],
            draw(st.none() | TIMES),
            draw(st.sampled_from([OF_CREATE_TIME, OF_APPEND_TIME])),
            None if counted is None else counted.tobytes(),
            batches=draw(st.sampled_from([1, 1, 7])),
            last_position=position + draw(st.integers(0, size - 1)),
        )
        found.append(row)
        position, offset = position + size, last_offset + draw(st.integers(1, 9))
    return found


def batch_of(row: bytes) -> Block:
    numbers = array("q", row)
    return Block._make((*numbers[: layout.BLOCK_STATS], stats_of(numbers[layout.BLOCK_STATS :])))


def joined(one: Block, other: Block) -> Block:
    return other._replace(
        position=one.position,
        size=one.size + other.size,
        batches=one.batches + other.batches,
        base_offset=one.base_offset,
        times=one.times.followed_by(other.times),
    )


def as_stored(block: Block) -> Block:
    """Counts are no larger than an entry can say."""
    times = block.times
    return block._replace(
        times=times._replace(
            records=min(times.records, UINT32_MAX),
            untimed=min(times.untimed, UINT32_MAX),
            out_of_order=min(times.out_of_order, UINT32_MAX),
            latencies=tuple(min(count, UINT32_MAX) for count in times.latencies),
            control_records=min(times.control_records, UINT32_MAX),
        )
    )


def blocks_of(entries: bytes) -> list[Block]:
    return [unpack(entries, place) for place in range(0, len(entries), ENTRY_SIZE)]


@given(rows=batches(), cuts=st.lists(st.integers(0, 9)), is_closed=st.booleans())
def test_the_kernel_makes_the_entries_of_blocks_that_follow_each_other(
    rows: list[bytes], cuts: list[int], is_closed: bool
) -> None:
    written = b""
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    total = NO_BLOCK
    for begin, end in pairwise(bounds):
        before = total[:]
        part, closing = rows[begin:end], is_closed and end == len(rows)
        with pytest.MonkeyPatch.context() as patched:
            without_numba(BLOCK_KERNELS, patched)
            plain = folded(total, part, BLOCK, closing=closing)
        entries, after = folded(total, part, BLOCK, closing=closing)
        assert (entries, after) == plain
        assert total == before, "readers may have it"
        total, written = after, written + entries
    at_once, left = folded(NO_BLOCK, rows, BLOCK, closing=is_closed)
    assert written == at_once
    assert total == left


@given(rows=batches())
def test_entries_are_the_blocks_that_batches_add_up_to(rows: list[bytes]) -> None:
    blocks = blocks_of(folded(NO_BLOCK, rows, BLOCK, closing=True)[0])
    every = [batch_of(row) for row in rows]
    assert [place_of(row) for row in rows] == [(batch.position, batch.size) for batch in every]
    assert sum(block.batches for block in blocks) == sum(batch.batches for batch in every)
    for block in blocks:
        within = [each for each in every if block.position <= each.position < block.end]
        assert block.size <= BLOCK or len(within) == 1
        assert block == as_stored(reduce(joined, within))


@given(rows=batches())
def test_a_count_that_is_too_large_for_an_entry_makes_it_inexact(rows: list[bytes]) -> None:
    for row in rows:
        (block,) = blocks_of(folded(NO_BLOCK, [row], BLOCK, closing=True)[0])
        if batch_of(row).is_exact:
            assert block.is_exact or max(batch_of(row).times.latencies) >= UINT32_MAX
        assert block.is_exact == as_stored(batch_of(row)).is_exact


def test_markers_are_no_records_and_their_times_count() -> None:
    marker = TimeStats(1, 0, 0, 5, 5, 5, 5, None, None, (0,) * LATENCY_COUNT).counts()
    row = row_of(0, 78, 40, 40, 1, 1, 7, OF_CREATE_TIME, marker.tobytes())
    times = unpack(folded(NO_BLOCK, [row], BLOCK, closing=True)[0], 0).times
    assert (times.records, times.control_records, times.create_min_ms) == (0, 1, 5)


def test_nothing_that_is_closed_is_no_entry() -> None:
    assert folded(NO_BLOCK, [], BLOCK, closing=True)[0] == b""
    row = row_of(0, 61, 0, 0, 3, 0, 7, OF_CREATE_TIME, NO_COUNTS.tobytes())
    entries, total = folded(NO_BLOCK, [row], BLOCK)
    assert entries == b""
    entries, total = folded(total, [], BLOCK, closing=True)
    assert blocks_of(entries) == [batch_of(row)]
    assert not total[layout.BLOCK_BATCHES]
