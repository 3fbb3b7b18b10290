"""Headers of many batches at once: the same bytes, fields and refusals as one by one."""

import random

import pytest
from batches import generated_log, joined
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.record import (
    MAGIC,
    BatchHeader,
    HeaderTable,
    LogRecord,
    build_batch,
    convert_all,
    iter_headers,
    parse_header,
    positions_of,
    verify_crc,
    with_records,
)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


HEADERS = st.builds(
    BatchHeader,
    base_offset=signed(64),
    batch_length=st.just(0),
    leader_epoch=signed(32),
    magic=st.just(MAGIC),
    crc=st.just(0),
    attributes=signed(16),
    last_offset_delta=signed(32),
    base_timestamp=signed(64),
    max_timestamp=signed(64),
    producer_id=signed(64),
    producer_epoch=signed(16),
    base_sequence=signed(32),
    records_count=signed(32),
)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=40))))
def test_packed_headers_are_those_that_are_packed_one_by_one_and_read_back(
    batches: list[tuple[BatchHeader, bytes]],
) -> None:
    table = HeaderTable.empty(len(batches))
    for place, (header, _) in enumerate(batches):
        table.columns[place] = header
    parts = table.packed([records for _, records in batches])
    expected = [with_records(header, records) for header, records in batches]
    assert list(map(b"".join, zip(parts[::2], parts[1::2], strict=True))) == expected
    log = b"".join(map(bytes, parts))
    positions = positions_of(log)
    assert positions is not None
    for position in positions:
        verify_crc(log, position)
    one_by_one = [header for _, header in iter_headers(log)]
    assert HeaderTable.read(log, positions).headers() == table.headers() == one_by_one


def outcome(buffer: bytes) -> list[int] | str | None:
    try:
        return positions_of(buffer)
    except CorruptBatch as error:
        return str(error)


def expected_outcome(buffer: bytes) -> list[int] | str | None:
    """What a walk header by header says, up to the first that is of an older format."""
    found = []
    try:
        for position, header in iter_headers(buffer):
            if header.magic != MAGIC:
                return None
            found.append(position)
    except CorruptBatch as error:
        return str(error)
    return found


LOG = joined(generated_log(random.Random(3), 3))


@given(
    cut=st.integers(0, len(LOG)),
    flips=st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(0, 255)), max_size=3),
)
@example(cut=len(LOG), flips=[])
@example(cut=len(LOG), flips=[(16, 1)])
@example(cut=30, flips=[(16, 1)])
@example(cut=len(LOG), flips=[(16, 3)])
@example(cut=len(LOG), flips=[(8, 255)])
def test_positions_are_those_of_a_walk_header_by_header(
    cut: int, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(LOG)
    for at, byte in flips:
        damaged[at] = byte
    data = bytes(damaged[:cut])
    assert outcome(data) == expected_outcome(data)


def test_a_log_with_a_batch_of_an_older_format_has_no_positions() -> None:
    batch = build_batch([LogRecord(1, b"k", b"v")])
    (old,) = convert_all(batch, 1)
    assert positions_of(batch + bytes(old.data)) is None
    assert positions_of(batch) == [0]


@pytest.mark.parametrize("delta", [-(1 << 31), -1, 0, 1, (1 << 31) - 1])
@pytest.mark.parametrize("from_edge", [0, 1, 99, 1 << 31, 1 << 40])
def test_last_offsets_at_the_edge_of_their_type_do_not_wrap(delta: int, from_edge: int) -> None:
    largest = (1 << 63) - 1
    table = HeaderTable.empty(2)
    bases = (largest - from_edge, -largest - 1 + from_edge)
    table.columns["base_offset"], table.columns["last_offset_delta"] = bases, delta
    expected = [min(max(-largest - 1, base + delta), largest) for base in bases]
    assert table.last_offsets.tolist() == expected


@pytest.mark.parametrize("count", [0, 1])
def test_no_headers_are_a_table_too(count: int) -> None:
    batch = build_batch([LogRecord(1, b"k", b"v")])
    table = HeaderTable.read(batch, [0] * count)
    assert len(table) == len(table.sizes) == len(table.headers()) == count
    assert table.headers() == [parse_header(batch)] * count
    assert HeaderTable.empty(0).packed([]) == []
