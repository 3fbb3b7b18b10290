"""Messages of v0 and v1 are read as their records, whatever holds them."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages
from plain_kernels import without_numba

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record import (
    MESSAGE_KERNELS,
    UNKNOWN_COUNT,
    Codec,
    DecodeStatistics,
    LogRecord,
    TimestampType,
    build_batch,
    compress,
    decode,
    find_at_or_after,
    iter_headers,
    message_bytes,
    parse_header,
    read_records,
    read_with_create_times,
    scan_batch,
    verify_crc,
)
from horolog.record.scan import timestamps

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
COMPRESSED = CODECS[1:]
ROWS = [
    LogRecord(1_000, b"k0", b"v0"),
    LogRecord(3_000, None, b"v1"),
    LogRecord(2_000, b"k2", None),
    LogRecord(-1, b"", b""),
]
MAX = 1 << 30
LAT = TimestampType.LOG_APPEND_TIME


def read_all(data: bytes) -> list[LogRecord]:
    return [
        record
        for position, header in iter_headers(data)
        for record in read_records(data[position : position + header.size])
    ]


def expected(rows: list[LogRecord], magic: int, base_offset: int = 0) -> list[LogRecord]:
    return [
        LogRecord(row.timestamp if magic else -1, row.key, row.value, (), base_offset + place)
        for place, row in enumerate(rows)
    ]


def test_bytes_are_those_that_kafka_writes():
    v0 = bytes.fromhex("0000000000000005000000101fecd70a0000000000016b0000000176")
    v1 = bytes.fromhex("000000000000000500000018e4e321bc010000000000000003e8000000016b0000000176")
    row = [LogRecord(1_000, b"k", b"v")]
    assert build_messages(row, 0, base_offset=5) == v0
    assert build_messages(row, 1, base_offset=5) == v1
    # MemoryRecordsTest.testChecksum
    two = [LogRecord(283_843, b"key1", b"value1"), LogRecord(1_234, b"key2", b"value2")]
    assert parse_header(build_messages(two, 0)).crc == 1978725405
    assert parse_header(build_messages(two, 1)).crc == 109425508


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_hold_their_records_at_their_offsets(magic, codec):
    data = build_messages(ROWS, magic, base_offset=70, codec=codec)
    assert read_all(data) == expected(ROWS, magic, 70)
    headers = [header for _, header in iter_headers(data)]
    assert headers[-1].last_offset == 73
    assert headers[-1].next_offset == 74
    for position, header in iter_headers(data):
        verify_crc(data, position, header)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_compressed_message_has_its_last_offset_but_not_its_first(codec):
    data = build_messages(ROWS, 1, base_offset=70, codec=codec)
    header = parse_header(data, 0, 50)
    assert (header.base_offset, header.last_offset) == (50, 73)
    assert header.records_count == UNKNOWN_COUNT
    assert header.max_timestamp == 3_000


@pytest.mark.parametrize("codec", COMPRESSED)
def test_offsets_in_a_compressed_message_count_from_its_last_one(codec):
    """KIP-31: compaction leaves gaps, and the last inner offset is what the outer one is for."""
    kept = [row._replace(offset=offset) for row, offset in zip(ROWS, (90, 93, 94, 99), strict=True)]
    data = build_messages(kept, 1, codec=codec)
    assert [record.offset for record in read_all(data)] == [90, 93, 94, 99]
    assert [record.offset for record in read_all(build_messages(kept, 0, codec=codec))] == [
        90, 93, 94, 99
    ]  # fmt: skip


def test_an_outer_offset_of_zero_leaves_inner_offsets_as_they_are():
    """As some releases of librdkafka send them."""
    data = bytearray(build_messages(ROWS, 1, codec=Codec.GZIP))
    data[:8] = bytes(8)
    assert [record.offset for record in read_records(data)] == [0, 1, 2, 3]


def test_an_outer_offset_below_the_inner_ones_is_refused():
    data = bytearray(build_messages(ROWS, 1, codec=Codec.GZIP))
    data[:8] = struct.pack(">q", 2)
    with pytest.raises(CorruptBatch, match="more than its own offset"):
        list(read_records(data))


def test_a_compressed_message_of_append_times_gives_its_time_to_all():
    """KIP-32: the type bit of the message that holds the others decides."""
    data = build_messages(ROWS, 1, codec=Codec.SNAPPY, timestamp_type=LAT, append_time=9_000)
    assert [record.timestamp for record in read_records(data)] == [9_000] * 4
    (table,) = decode(data)
    assert table.column("timestamp_ms").to_pylist() == [9_000] * 4
    assert table.column("timestamp_type").to_pylist() == [1] * 4


@pytest.mark.parametrize("codec", COMPRESSED)
def test_create_times_below_an_append_time_can_be_read(codec):
    """KIP-32, proposed changes 2a: the broker stamps the outer message and leaves those in it."""
    data = build_messages(ROWS, 1, codec=codec, timestamp_type=LAT, append_time=9_000)
    created = [row.timestamp for row in ROWS]
    assert [(record.timestamp, ms) for record, ms in read_with_create_times(data)] == [
        (9_000, ms) for ms in created
    ]
    (table,) = decode(data, as_created=True)
    assert table.column("timestamp_ms").to_pylist() == created
    header = parse_header(data)
    assert scan_batch(data, header, max_bytes=MAX).min_timestamp == 9_000
    facts = scan_batch(data, header, max_bytes=MAX, create_times=True)
    assert (facts.min_timestamp, facts.max_timestamp) == (1_000, 3_000)


def test_a_plain_message_with_an_append_time_holds_no_other():
    data = build_messages(ROWS[:1], 1, timestamp_type=LAT, append_time=9_000)
    assert [ms for _, ms in read_with_create_times(data)] == [9_000]
    (table,) = decode(data, as_created=True)
    assert table.column("timestamp_ms").to_pylist() == [9_000]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_scan_and_a_lookup_see_the_records(magic, codec):
    data = build_messages(ROWS, magic, base_offset=70, codec=codec)
    found = []
    for position, header in iter_headers(data, 0, 60):
        batch = data[position : position + header.size]
        facts = scan_batch(batch, header, max_bytes=MAX)
        if codec:
            assert (facts.count, facts.has_null_key) == (4, True)
            assert header.base_offset + facts.last_offset_delta == 73
            assert facts.max_timestamp == (3_000 if magic else None)
        found += list(timestamps(batch, header, max_bytes=MAX))
        if magic and codec:
            assert find_at_or_after(batch, header, 1_500, 0) == (3_000, 71)
            assert find_at_or_after(batch, header, 1_500, 72) == (2_000, 72)
    assert found == [1_000, 3_000, 2_000, -1] if magic else [-1] * 4


@pytest.mark.parametrize("codec", CODECS)
def test_columns_span_all_formats_in_one_buffer(codec):
    data = (
        build_messages(ROWS, 0, base_offset=0, codec=codec)
        + build_messages(ROWS, 1, base_offset=4, codec=codec)
        + build_batch(ROWS, base_offset=8, codec=codec)
        + build_messages(ROWS, 1, base_offset=12, codec=codec, timestamp_type=LAT, append_time=7)
        + build_messages(ROWS, 0, base_offset=16, codec=codec)
    )
    statistics = DecodeStatistics()
    rows = [row for table in decode(data, statistics=statistics) for row in table.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(20))
    assert [row["timestamp_type"] for row in rows] == [-1] * 4 + [0] * 8 + [1] * 4 + [-1] * 4
    times = [1_000, 3_000, 2_000, -1]
    assert [row["timestamp_ms"] for row in rows] == [-1] * 4 + times * 2 + [7] * 4 + [-1] * 4
    assert [row["key"] for row in rows] == [b"k0", None, b"k2", b""] * 5
    assert statistics.next_offset == 20
    assert statistics.batches == (5 if codec else 17)
    within = [
        row["offset"]
        for table in decode(data, from_ms=1_500, to_ms=3_000, start_offset=5, end_offset=11)
        for row in table.to_pylist()
    ]
    assert within == [6, 10]


def test_a_part_of_a_message_at_the_end_is_no_message():
    data = build_messages(ROWS, 1)
    for cut in range(len(data)):
        records = read_all(data[:cut])
        assert records == expected(ROWS, 1)[: len(records)]


def nested(magic: int) -> bytes:
    inner = build_messages(ROWS[:1], magic, codec=Codec.GZIP)
    return message_bytes(magic, 0, None, compress(Codec.GZIP, inner), 1_000, codec=Codec.GZIP)


def mixed(magic: int) -> bytes:
    inner = build_messages(ROWS[:1], 1 - magic)
    return message_bytes(magic, 0, None, compress(Codec.GZIP, inner), 1_000, codec=Codec.GZIP)


def damaged(magic: int) -> bytes:
    inner = bytearray(build_messages(ROWS[:1], magic))
    inner[-1] ^= 1
    return message_bytes(magic, 0, None, compress(Codec.GZIP, inner), 1_000, codec=Codec.GZIP)


def empty(magic: int) -> bytes:
    return message_bytes(magic, 0, None, compress(Codec.GZIP, b""), codec=Codec.GZIP)


def null(magic: int) -> bytes:
    return message_bytes(magic, 0, None, None, codec=Codec.GZIP)


def cut(magic: int) -> bytes:
    inner = build_messages(ROWS[:2], magic)[:-1]
    return message_bytes(magic, 0, None, compress(Codec.GZIP, inner), codec=Codec.GZIP)


def zstd(magic: int) -> bytes:
    inner = build_messages(ROWS[:2], magic)
    return message_bytes(magic, 0, None, compress(Codec.ZSTD, inner), codec=Codec.ZSTD)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (nested, "compressed within a compressed"),
        (mixed, "of another format"),
        (damaged, "checksum"),
        (empty, "holds no messages"),
        (null, "its value is null"),
        (cut, "runs past the end"),
        (zstd, "codec 4"),
    ],
)
def test_a_malformed_message_is_refused_by_every_reader(magic, make, says):
    data = make(magic)
    header = parse_header(data)
    with pytest.raises(CorruptBatch, match=says):
        list(read_records(data))
    with pytest.raises(CorruptBatch, match=says):
        scan_batch(data, header, max_bytes=MAX)
    good = build_messages(ROWS, magic)
    tables = decode(good + data)
    with pytest.raises(CorruptBatch, match=says):
        list(tables)
    assert sum(table.num_rows for table in _until_error(decode(good + data))) == 4


def _until_error(tables):
    try:
        yield from tables
    except CorruptBatch:
        return


def test_what_a_message_may_decompress_to_is_bounded():
    data = build_messages([LogRecord(0, None, bytes(1 << 20))] * 3, 1, codec=Codec.GZIP)
    with pytest.raises(RequestRefused):
        scan_batch(data, parse_header(data), max_bytes=2 << 20)
    with pytest.raises(RequestRefused):
        list(decode(data, max_batch_bytes=2 << 20))


@pytest.mark.parametrize("loads_kernels", [False, True])
def test_a_message_larger_than_a_piece_is_read_as_a_whole(monkeypatch, rng, loads_kernels):
    if loads_kernels:
        MESSAGE_KERNELS.load()
    else:
        without_numba(MESSAGE_KERNELS, monkeypatch)
    rows = [LogRecord(place, None, rng.randbytes(size)) for place, size in enumerate(
        (10, 3 << 20, 20, 1 << 20, 700_000, 700_000)
    )]  # fmt: skip
    data = build_messages(rows, 1, base_offset=11, codec=Codec.LZ4)
    assert read_all(data) == expected(rows, 1, 11)
    values = [row for table in decode(data) for row in table.column("value").to_pylist()]
    assert values == [row.value for row in rows]


records = st.builds(
    LogRecord,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=40),
    st.just(()),
    st.none(),
)


@given(
    st.lists(records, min_size=1, max_size=12),
    st.sampled_from([0, 1]),
    st.sampled_from(CODECS),
    st.integers(0, 1 << 40),
)
def test_any_records_come_back(rows, magic, codec, base_offset):
    data = build_messages(rows, magic, base_offset=base_offset, codec=codec)
    assert read_all(data) == expected(rows, magic, base_offset)
    told = [(row.offset, row.timestamp, row.value) for row in expected(rows, magic, base_offset)]
    columns = [row for table in decode(data) for row in table.to_pylist()]
    assert [(row["offset"], row["timestamp_ms"], row["value"]) for row in columns] == told


@given(st.binary(min_size=18, max_size=120), st.integers(0, 1))
def test_any_bytes_are_read_or_refused(noise, magic):
    body = bytearray(noise)
    body[4] = magic
    body[0:4] = struct.pack(">I", zlib.crc32(body[4:]))
    data = struct.pack(">qi", 5, len(body)) + body
    try:
        list(read_records(data))
        list(decode(data))
    except (CorruptBatch, RequestRefused):
        return
