"""Batches of one time are those that a builder makes, and a scan finds what is known of them."""

from hypothesis import example, given
from hypothesis import strategies as st

from horolog.record import (
    LogRecord,
    build_batch,
    parse_header,
    scan_batch,
    stamped_batch,
    verify_crc,
)

pairs = st.lists(
    st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=80
)


@given(pairs, st.integers(-(1 << 62), 1 << 62))
@example([(b"", None)], -1)
@example([(b"k" * 63, b"v" * 64)], 0)
@example([(b"k" * 64, b"v" * 70_000)] * 130, 1_700_000_000_000)
def test_it_is_the_batch_that_a_builder_makes_and_a_scan_finds_the_same(
    of_records: list[tuple[bytes, bytes | None]], now_ms: int
) -> None:
    records = [LogRecord(now_ms, key, value) for key, value in of_records]
    header, data, facts = stamped_batch(records, now_ms)
    assert data == build_batch(records)
    verify_crc(data)
    assert header == parse_header(data)
    scanned = scan_batch(data, header, max_bytes=len(data), arrival_ms=now_ms)
    assert facts._replace(longest=scanned.longest) == scanned
