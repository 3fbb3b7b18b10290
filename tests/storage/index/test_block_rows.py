"""Batches that are kept as rows, and the entries that the kernel and Python make of them."""

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.record import scan
from horolog.record.scan import NO_TALLY, TallyFields, tally_of
from horolog.storage.index import block_rows
from horolog.storage.index.block_rows import folded, known_of, met_of_row, row_of, sum_with
from horolog.storage.index.blocks import (
    ENTRY_SIZE,
    HAS_APPEND_TIMES,
    IS_CONTROL,
    LACKS_APPEND_TIMES,
    NOTHING,
    OF_APPEND_TIME,
    OF_CREATE_TIME,
    Met,
    fold,
    sum_of,
    unpack,
)

BLOCK = 1_000
UINT32_MAX = (1 << 32) - 1
TIMES = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 2)
COUNTS = st.integers(0, 3) | st.sampled_from([UINT32_MAX - 1, UINT32_MAX, UINT32_MAX + 5])


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    scan.load_kernels()


@st.composite
def tallies(draw: st.DrawFn) -> "array[int]":
    records = draw(COUNTS)
    timed = draw(st.integers(0, records))
    times = [draw(TIMES) if timed else 0 for _ in range(4)]
    latencies = tuple(min(draw(COUNTS), records) for _ in range(scan.LATENCY_COUNT))
    return tally_of(TallyFields(records, timed, *times, draw(COUNTS), latencies))


@st.composite
def batches(draw: st.DrawFn) -> list[Met]:
    """Such as follow one another in a log."""
    position, offset, found = draw(st.integers(0, 1 << 31)), draw(st.integers(0, 1 << 62)), []
    for _ in range(draw(st.integers(0, 9))):
        size = draw(st.sampled_from([61, 300, 700, BLOCK, 5 * BLOCK]))
        last_offset = offset + draw(st.integers(0, 1 << 20))
        flags = draw(st.sampled_from([OF_CREATE_TIME, OF_APPEND_TIME]))
        flags |= draw(st.sampled_from([HAS_APPEND_TIMES, LACKS_APPEND_TIMES]))
        flags |= draw(st.sampled_from([0, 0, IS_CONTROL]))
        append_ms = draw(TIMES) if flags & HAS_APPEND_TIMES else 0
        header = draw(st.binary(min_size=61, max_size=61) | st.binary(min_size=14, max_size=34))
        tally = draw(st.none() | tallies())
        found.append((position, size, header, offset, last_offset, flags, append_ms, tally))
        position, offset = position + size, last_offset + draw(st.integers(1, 9))
    return found


@given(batches())
def test_a_row_says_all_of_its_batch(mets: list[Met]) -> None:
    assert [met_of_row(row_of(*met)) for met in mets] == mets


@given(mets=batches(), cuts=st.lists(st.integers(0, 9)), is_closed=st.booleans())
def test_the_kernel_makes_the_entries_that_python_makes(
    mets: list[Met], cuts: list[int], is_closed: bool
) -> None:
    rows = [row_of(*met) for met in mets]
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    total = expected_total = sum_with(None, NOTHING)
    for begin, end in pairwise(bounds):
        before = total[:]
        part, closing = rows[begin:end], is_closed and end == len(rows)
        entries, after = folded(total, part, BLOCK, closing=closing)
        expected = block_rows._folded_in_python(expected_total, part, BLOCK, closing=closing)
        assert entries == expected[0]
        assert total == before, "readers may have it"
        total, expected_total = after, expected[1]
        assert known_of(total) == known_of(expected_total)


@given(mets=batches())
def test_entries_are_those_of_blocks_that_were_read(mets: list[Met]) -> None:
    rows = [row_of(*met) for met in mets]
    entries, _ = folded(sum_with(None, NOTHING), rows, BLOCK, closing=True)
    blocks = [unpack(entries, place) for place in range(0, len(entries), ENTRY_SIZE)]
    assert sum(block.batches for block in blocks) == len(mets)
    for block in blocks:
        within = [met for met in mets if block.position <= met[0] < block.end]
        assert block.size <= BLOCK or block.batches == 1
        assert block.pack() == fold(within).pack()


@given(mets=batches())
def test_a_sum_is_kept_as_numbers(mets: list[Met]) -> None:
    assert known_of(sum_with(None, NOTHING)) == (None, NOTHING)
    if mets:
        block = fold(mets[:1])
        begin, known = (block.position, block.base_offset), sum_of(block)
        assert known_of(sum_with(begin, known)) == (begin, known)


def test_nothing_that_is_closed_is_no_entry() -> None:
    assert folded(sum_with(None, NOTHING), [], BLOCK, closing=True)[0] == b""
    met = (0, 61, bytes(61), 0, 0, OF_CREATE_TIME | HAS_APPEND_TIMES, 7, NO_TALLY)
    entries, total = folded(sum_with(None, NOTHING), [row_of(*met)], BLOCK)
    assert entries == b""
    entries, total = folded(total, [], BLOCK, closing=True)
    assert entries == fold([met]).pack()
    assert known_of(total) == (None, NOTHING)
