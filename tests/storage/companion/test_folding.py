"""Batches that are kept as rows, and the entries that the kernel and Python make of them."""

from array import array
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_kernels import without_numba

from horolog.record import scan
from horolog.record.kernels import layout
from horolog.record.kernels.loading import BLOCK_KERNELS
from horolog.record.time_stats import (
    LATENCY_COUNT,
    NO_COUNTS,
    OF_APPEND_TIME,
    OF_CREATE_TIME,
    Counts,
    TimeStats,
)
from horolog.storage.companion.blocks import ENTRY_SIZE, Block, unpack
from horolog.storage.companion.folding import NO_BLOCK, block_of, folded, place_of, row_of

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
        row = row_of(
            position,
            size,
            offset,
            last_offset,
            draw(st.integers(0, UINT32_MAX)),
            draw(st.sampled_from([OF_CREATE_TIME, OF_APPEND_TIME])),
            draw(st.none() | TIMES),
            draw(st.none() | counts()),
            is_control=draw(st.sampled_from([False, False, True])),
            batches=draw(st.sampled_from([1, 1, 7])),
            last_position=position + draw(st.integers(0, size - 1)),
        )
        found.append(row)
        position, offset = position + size, last_offset + draw(st.integers(1, 9))
    return found


@given(batches())
def test_a_block_is_kept_as_numbers(rows: list[bytes]) -> None:
    for row in rows:
        block = block_of(row)
        assert block.numbers().tobytes() == row
        assert (block.position, block.size) == place_of(row)


def added_up(
    total: "array[int]", rows: list[bytes], *, closing: bool
) -> tuple[bytes, "array[int]"]:
    entries = bytearray()
    block = Block.of_numbers(total) if total[layout.BLOCK_BATCHES] else None
    for batch in map(block_of, rows):
        if block is not None and block.size + batch.size > BLOCK:
            entries += block.pack()
            block = None
        block = batch if block is None else block.followed_by(batch)
    if closing and block is not None:
        entries += block.pack()
        block = None
    return bytes(entries), NO_BLOCK[:] if block is None else block.numbers()


@given(rows=batches(), cuts=st.lists(st.integers(0, 9)), is_closed=st.booleans())
def test_the_kernel_makes_the_entries_of_blocks_that_follow_each_other(
    rows: list[bytes], cuts: list[int], is_closed: bool
) -> None:
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    total = expected_total = NO_BLOCK
    for begin, end in pairwise(bounds):
        before = total[:]
        part, closing = rows[begin:end], is_closed and end == len(rows)
        with pytest.MonkeyPatch.context() as patched:
            without_numba(BLOCK_KERNELS, patched)
            plain = folded(total, part, BLOCK, closing=closing)
        entries, after = folded(total, part, BLOCK, closing=closing)
        assert (entries, after) == plain
        expected = added_up(expected_total, part, closing=closing)
        assert entries == expected[0]
        assert total == before, "readers may have it"
        total, expected_total = after, expected[1]
        assert total == expected_total


@given(rows=batches())
def test_entries_are_the_blocks_that_batches_add_up_to(rows: list[bytes]) -> None:
    entries, _ = folded(NO_BLOCK, rows, BLOCK, closing=True)
    blocks = [unpack(entries, place) for place in range(0, len(entries), ENTRY_SIZE)]
    every = [block_of(row) for row in rows]
    assert sum(block.batches for block in blocks) == sum(batch.batches for batch in every)
    for block in blocks:
        within = [each for each in every if block.position <= each.position < block.end]
        assert block.size <= BLOCK or len(within) == 1
        assert block.pack() == reduce(Block.followed_by, within).pack()


@given(rows=batches())
def test_an_entry_says_all_of_its_block_but_counts_that_are_too_large(rows: list[bytes]) -> None:
    for row in rows:
        block = unpack(block_of(row).pack(), 0)
        if block_of(row).is_exact and block.times.control_records < UINT32_MAX:
            assert block == block_of(row)
        else:
            assert not block.is_exact or block.times.control_records == UINT32_MAX


def test_markers_are_no_records_and_their_times_count() -> None:
    marker = TimeStats(1, 0, 0, 5, 5, 5, 5, None, None, (0,) * LATENCY_COUNT).counts()
    row = row_of(0, 78, 40, 40, 1, OF_CREATE_TIME, 7, marker, is_control=True)
    times = unpack(folded(NO_BLOCK, [row], BLOCK, closing=True)[0], 0).times
    assert (times.records, times.control_records, times.create_min_ms) == (0, 1, 5)


def test_nothing_that_is_closed_is_no_entry() -> None:
    assert folded(NO_BLOCK, [], BLOCK, closing=True)[0] == b""
    row = row_of(0, 61, 0, 0, 3, OF_CREATE_TIME, 7, NO_COUNTS)
    entries, total = folded(NO_BLOCK, [row], BLOCK)
    assert entries == b""
    entries, total = folded(total, [], BLOCK, closing=True)
    assert entries == block_of(row).pack()
    assert not total[layout.BLOCK_BATCHES]
