"""The header: what Kafka's own bytes say, and what is refused."""

import struct

import crc32c
import pytest
from batches import BASE_OFFSET, generated_log, joined, make_batch
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptBatch
from horolog.record import (
    HEADER_SIZE,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    iter_headers,
    parse_header,
    read_records,
    restamp,
    verify_crc,
)

# Kafka's MemoryRecordsTest.testChecksum, and two more with a position and negative times.
TWO_KEYS = bytes.fromhex(
    "000000000000000000000055ffffffff02e58cf1ff00000000000100000000000454c300000000000454c3ff"
    "ffffffffffffffffffffffffff0000000220000000086b6579310c76616c756531002400e1bf2202086b6579"
    "320c76616c75653200"
)
AT_SEVEN = bytes.fromhex(
    "0000000000000007000000410000000302f5759daf00000000000100000000000003e800000000000003edff"
    "ffffffffffffffffffffffffff0000000210000000026b0276000c000a02010100"
)
BEFORE_1970 = bytes.fromhex(
    "00000000000000000000003affffffff02920f6f80000000000000ffffffffffffec78ffffffffffffec78ff"
    "ffffffffffffffffffffffffff0000000110000000026b027600"
)


def test_kafkas_own_batch_is_read_and_its_checksum_holds():
    header = parse_header(TWO_KEYS)
    verify_crc(TWO_KEYS)
    assert header.crc == 3851219455
    assert (header.base_offset, header.size, header.leader_epoch) == (0, 97, -1)
    assert (header.base_timestamp, header.max_timestamp) == (283843, 283843)
    assert (header.last_offset, header.next_offset, header.records_count) == (1, 2, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.codec is Codec.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert [(r.timestamp, r.key, r.value) for r in read_records(TWO_KEYS)] == [
        (283843, b"key1", b"value1"),
        (1234, b"key2", b"value2"),
    ]


def test_a_batch_in_the_middle_of_a_log_knows_its_offsets_and_its_leader():
    header = parse_header(b"junk" + AT_SEVEN, 4)
    verify_crc(b"junk" + AT_SEVEN, 4, header)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (7, 8, 3)
    assert list(read_records(AT_SEVEN)) == [
        LogRecord(1000, b"k", b"v", (), 7),
        LogRecord(1005, None, None, (), 8),
    ]


def test_a_time_before_1970_is_read_as_sent():
    verify_crc(BEFORE_1970)
    assert parse_header(BEFORE_1970).max_timestamp == -5000
    assert [r.timestamp for r in read_records(BEFORE_1970)] == [-5000]


@pytest.mark.parametrize(
    ("golden", "records", "fields"),
    [
        (
            TWO_KEYS,
            [LogRecord(283843, b"key1", b"value1"), LogRecord(1234, b"key2", b"value2")],
            {},
        ),
        (
            AT_SEVEN,
            [LogRecord(1000, b"k", b"v"), LogRecord(1005, None, None)],
            {"base_offset": 7, "leader_epoch": 3},
        ),
        (BEFORE_1970, [LogRecord(-5000, b"k", b"v")], {}),
    ],
)
def test_kafkas_bytes_are_built_to_the_last_bit(golden, records, fields):
    assert build_batch(records, **fields) == golden


@pytest.mark.parametrize(
    ("attributes", "name"),
    [(0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")],
)
def test_an_attribute_bit_sets_its_property_and_no_other(attributes, name):
    header = parse_header(TWO_KEYS)._replace(attributes=attributes)
    flags = ("is_transactional", "is_control", "has_delete_horizon")
    assert {flag for flag in flags if getattr(header, flag)} == {name}
    assert header.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("others", [0, 0x7FF7])
def test_bit_3_of_the_attributes_alone_is_the_timestamp_type(others):
    header = parse_header(TWO_KEYS)
    assert header._replace(attributes=others).timestamp_type is TimestampType.CREATE_TIME
    assert header._replace(attributes=others | 8).timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(("number", "codec"), list(enumerate(Codec)))
def test_the_codec_is_read_whatever_the_other_bits(number, codec):
    assert parse_header(TWO_KEYS)._replace(attributes=number | 0x7FF8).codec is codec
    assert parse_header(TWO_KEYS)._replace(attributes=number - 0x8000).codec is codec


def test_a_codec_that_kafka_does_not_have_is_corrupt():
    with pytest.raises(CorruptBatch, match="codec 5"):
        _ = parse_header(TWO_KEYS)._replace(attributes=5).codec


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(-1, 5, -1), (10, 5, 15), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0)],
)
def test_sequences_begin_again_at_zero(base, delta, last):
    header = parse_header(TWO_KEYS)._replace(base_sequence=base, last_offset_delta=delta)
    assert header.last_sequence == last


def test_headers_of_whole_batches_come_with_their_positions(rng):
    log = generated_log(rng, 5)
    found = list(iter_headers(b"xyz" + joined(log), 3))
    position = 3
    for (at, header), batch in zip(found, log, strict=True):
        assert at == position
        assert header == parse_header(batch.data)
        assert header.base_offset == batch.base_offset
        position += len(batch.data)


@given(cut=st.integers(0, len(AT_SEVEN) - 1))
def test_a_batch_that_is_not_all_there_ends_the_walk_in_silence(cut):
    found = list(iter_headers(TWO_KEYS + AT_SEVEN[:cut]))
    assert [position for position, _ in found] == [0]


@pytest.mark.parametrize(
    ("patch_at", "patch", "says"),
    [
        (8, struct.pack(">i", 21) + bytes(4) + b"\x01", "an empty message of format v1, 22"),
        (16, b"\x03", "Invalid magic found in record: 3"),
        (16, b"\xff", "Invalid magic found in record: -1"),
        (8, struct.pack(">i", 13), "less than the minimum record overhead"),
        (8, struct.pack(">i", -1), "less than the minimum record overhead"),
        (8, struct.pack(">i", 48), "smaller than the minimum allowed overhead 61"),
    ],
)
def test_nonsense_in_a_header_is_named_with_its_place(patch_at, patch, says):
    bad = bytearray(AT_SEVEN)
    bad[patch_at : patch_at + len(patch)] = patch
    with pytest.raises(CorruptBatch, match=says):
        parse_header(bad)
    with pytest.raises(CorruptBatch, match=says) as caught:
        list(iter_headers(TWO_KEYS + bad))
    assert caught.value.position == len(TWO_KEYS)


@pytest.mark.parametrize("size", [0, 16, 60])
def test_too_few_bytes_for_a_header_are_corrupt(size):
    with pytest.raises(CorruptBatch, match=f"the size {size} is smaller"):
        parse_header(AT_SEVEN[:size])


@given(at=st.integers(21, len(AT_SEVEN) - 1), bit=st.integers(0, 7))
def test_every_flipped_bit_under_the_checksum_is_seen(at, bit):
    bad = bytearray(AT_SEVEN)
    bad[at] ^= 1 << bit
    with pytest.raises(
        CorruptBatch, match=r"Record is corrupt \(stored crc = 4118125999, computed"
    ):
        verify_crc(bad)


def test_a_checksum_needs_the_whole_batch():
    with pytest.raises(CorruptBatch, match="only 70 are there"):
        verify_crc(AT_SEVEN[:70])


def test_offsets_and_epoch_are_stamped_without_touching_the_checksum():
    header = parse_header(TWO_KEYS)
    stamped = restamp(header, b"", base_offset=BASE_OFFSET, leader_epoch=5) + TWO_KEYS[HEADER_SIZE:]
    verify_crc(stamped)
    again = parse_header(stamped)
    assert again == header._replace(base_offset=BASE_OFFSET, leader_epoch=5)


def test_unknown_attribute_bits_stay_while_the_header_needs_no_change():
    odd = _with_attributes(TWO_KEYS, 0x4040)
    kept = restamp(parse_header(odd), odd, base_offset=1, leader_epoch=1, max_timestamp=283843)
    assert parse_header(kept).attributes == 0x4040
    dropped = restamp(parse_header(odd), odd, base_offset=1, leader_epoch=1, max_timestamp=9)
    assert parse_header(dropped).attributes == 0x40


def test_a_stamp_of_append_time_changes_type_and_maximum_and_keeps_the_records():
    batch = make_batch([LogRecord(5, b"k", b"v"), LogRecord(3, None, b"w")], codec=Codec.GZIP)
    header = parse_header(batch.data)
    stamped = restamp(
        header,
        batch.data,
        base_offset=BASE_OFFSET,
        leader_epoch=1,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=77,
    )
    stored = stamped + batch.data[HEADER_SIZE:]
    verify_crc(stored)
    again = parse_header(stored)
    assert again.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert again.codec is Codec.GZIP
    assert (again.base_timestamp, again.max_timestamp) == (5, 77)
    assert [r.timestamp for r in read_records(stored)] == [77, 77]


def _with_attributes(batch: bytes, attributes: int) -> bytes:
    bad = bytearray(batch)
    struct.pack_into(">H", bad, 21, attributes)
    struct.pack_into(">I", bad, 17, crc32c.crc32c(bad[21:]))
    return bytes(bad)
