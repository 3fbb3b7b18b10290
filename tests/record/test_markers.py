from __future__ import annotations

from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.record import (
    HEADER_SIZE,
    Codec,
    LogRecord,
    Marker,
    TimestampType,
    TransactionEnd,
    build_batch,
    build_marker,
    parse_header,
    read_marker,
    restamp,
    scan_batch,
    stamped_marker,
    verify_crc,
)


def control(*records: LogRecord, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        list(records),
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        codec=codec,
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\0\0\0\0", b"\0\0\0\0\0\5", Marker(is_abort=True, coordinator_epoch=5)),
        (b"\0\0\0\1", b"\0\0\xff\xff\xff\xff", Marker(is_abort=False, coordinator_epoch=-1)),
        (b"\0\1\0\0more", b"\0\1\0\0\0\2more", Marker(is_abort=True, coordinator_epoch=2)),
        (b"\0\0\0\1", b"", Marker(is_abort=False, coordinator_epoch=None)),
        (b"\0\0\0\1", None, Marker(is_abort=False, coordinator_epoch=None)),
        (b"\0\0\0\7", b"\0\0\0\0\0\5", None),
        (b"\0\0", b"", None),
        (None, None, None),
    ],
)
def test_a_marker_has_the_outcome_of_its_transaction(
    key: bytes | None, value: bytes | None, expected: Marker | None
) -> None:
    assert read_marker(control(LogRecord(5, key, value))) == expected


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_what_is_far_too_large_for_a_marker_is_not_unpacked(codec: Codec) -> None:
    with pytest.raises(CorruptBatch, match="no marker"):
        read_marker(control(LogRecord(5, b"key", bytes(64 << 20)), codec=codec))


@given(
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 15) - 1),
    st.integers(0, (1 << 31) - 1),
    st.booleans(),
    st.integers(-(1 << 62), 1 << 62),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 62),
    st.integers(0, (1 << 31) - 1),
    st.sampled_from(TimestampType),
)
@example(1, 0, 0, True, -1, 0, 5, 3, TimestampType.CREATE_TIME)
@example(1, 0, 0, True, 1_700_000_000_000, 0, 5, 3, TimestampType.CREATE_TIME)
@example(1, 0, 0, False, 1_700_000_000_000, 0, 5, 3, TimestampType.LOG_APPEND_TIME)
@example(1, 0, 0, False, 1_700_000_000_000, 7, 5, 3, TimestampType.LOG_APPEND_TIME)
def test_a_stamped_marker_is_the_one_that_is_built_then_stamped_and_scanned(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    is_commit: bool,
    now_ms: int,
    ahead_ms: int,
    base_offset: int,
    leader_epoch: int,
    timestamp_type: TimestampType,
) -> None:
    ended = TransactionEnd(producer_id, producer_epoch, coordinator_epoch, is_commit)
    append_ms = now_ms + ahead_ms
    stamped = stamped_marker(
        ended,
        now_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        append_ms=append_ms,
        timestamp_type=timestamp_type,
    )
    key, value = pack(">hh", 0, is_commit), pack(">hi", 0, coordinator_epoch)
    built = build_batch(
        [LogRecord(now_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    assert build_marker(ended, now_ms) == built
    header = parse_header(built)
    head = restamp(
        header,
        built,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_type=timestamp_type,
        max_timestamp=append_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else None,
    )
    facts = scan_batch(built, header, max_bytes=len(built), arrival_ms=append_ms)
    assert b"".join(stamped.parts) == head + built[HEADER_SIZE:]
    assert (len(stamped.parts[0]), stamped.header) == (HEADER_SIZE, parse_header(head))
    assert stamped.counts == facts.counts
    verify_crc(b"".join(stamped.parts))
    expected = Marker(not is_commit, coordinator_epoch)
    assert read_marker(b"".join(stamped.parts)) == expected
