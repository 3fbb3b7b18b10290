"""Any records in any format become any other, equal up to what that format cannot hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages
from plain_kernels import without_numba

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record import (
    MESSAGE_KERNELS,
    Codec,
    LogRecord,
    Losses,
    Sent,
    TimestampType,
    build_batch,
    convert_all,
    convert_batch,
    down_convert,
    iter_headers,
    parse_header,
    read_records,
    read_with_create_times,
    verify_crc,
    write_batch,
)

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
TYPES = tuple(TimestampType)
APPEND_TIME = 77_000
ROWS = [
    LogRecord(1_000, b"k0", b"v0", (("a", b"1"), ("b", None))),
    LogRecord(3_000, None, b"v1"),
    LogRecord(-5_000, b"k2", None),
    LogRecord(-1, b"", b""),
]

records = st.builds(
    LogRecord,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=40),
    st.just(()) | st.just((("h", b"v"), ("i", None))),
    st.none(),
)


def build(rows, magic, *, base_offset=0, codec=Codec.NONE, kind=TimestampType.CREATE_TIME):
    if magic == 2:
        return build_batch(
            rows,
            base_offset=base_offset,
            codec=codec,
            timestamp_type=kind,
            max_timestamp=APPEND_TIME if kind else None,
        )
    return build_messages(
        rows,
        magic,
        base_offset=base_offset,
        codec=codec,
        timestamp_type=kind,
        append_time=APPEND_TIME,
    )


def read_all(data) -> list[LogRecord]:
    return [
        record
        for position, header in iter_headers(data)
        for record in read_records(data[position : position + header.size])
    ]


def convert(data, magic: int, **options) -> bytes:
    return b"".join(bytes(part.data) for part in convert_all(data, magic, **options))


def without_losses(rows: list[LogRecord], magic: int) -> list[LogRecord]:
    if magic < 2:
        rows = [row._replace(headers=()) for row in rows]
    return [row._replace(timestamp=-1) for row in rows] if magic == 0 else rows


@given(
    st.lists(records, min_size=1, max_size=8),
    st.tuples(*[st.integers(0, 2)] * 3),
    st.sampled_from(OLD_CODECS),
    st.sampled_from(TYPES),
    st.integers(0, 1 << 40),
)
def test_any_records_in_any_format_become_any_other(rows, path, codec, kind, base_offset):
    source, first, second = path
    data = build(rows, source, base_offset=base_offset, codec=codec, kind=kind)
    known = read_all(data)
    assert [row.offset for row in known] == list(range(base_offset, base_offset + len(rows)))
    for magic in (first, second):
        data = convert(data, magic)
        known = without_losses(known, magic)
        assert read_all(data) == known
        for position, header in iter_headers(data):
            assert header.magic == magic
            assert header.codec is codec
            verify_crc(data, position, header)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_has_the_format_is_left_as_it_is_and_not_decompressed(magic, codec):
    data = bytearray(build(ROWS, magic, codec=codec))
    data[-1] ^= 0xFF  # no reader would take it
    parts = list(convert_all(data, magic, check_crcs=False))
    assert b"".join(bytes(part.data) for part in parts) == bytes(data)
    assert all(part.is_untouched and not any(part.losses) for part in parts)


@pytest.mark.parametrize("source", [0, 1])
def test_a_fetch_gets_older_formats_than_it_asks_for_as_they_are(source):
    data = build(ROWS, source, codec=Codec.GZIP)
    assert b"".join(bytes(part.data) for part in down_convert(data, 1)) == data


def test_a_fetch_of_any_formats_has_what_is_old_enough_untouched_and_in_one_piece():
    v0, v1 = build(ROWS, 0), build(ROWS, 1, base_offset=4)
    v2, more = build(ROWS, 2, base_offset=8, codec=Codec.LZ4), build(ROWS, 1, base_offset=12)
    torn = build(ROWS, 2, base_offset=16)[:-1]
    parts = list(down_convert(v0 + v1 + v2 + more + torn, 1))
    assert [part.is_untouched for part in parts] == [True, False, True]
    assert (bytes(parts[0].data), bytes(parts[2].data)) == (v0 + v1, more)
    assert [part.next_offset for part in parts] == [8, 12, 16]
    parts = list(down_convert(v0 + v1 + v2 + more + torn, 0, start_offset=6))
    assert [part.is_untouched for part in parts] == [True, False, False, False]
    told = [record for part in parts for record in read_all(bytes(part.data))]
    assert [record.offset for record in told] == [0, 1, 2, 3, *range(6, 16)]
    assert {record.timestamp for record in told} == {-1}


def test_losses_are_counted():
    (part,) = convert_all(build(ROWS, 2), 1)
    assert part.losses == Losses(headers=2)
    (part,) = convert_all(build(ROWS, 2), 0)
    assert part.losses == Losses(headers=2, timestamps=3)
    idempotent = build_batch(ROWS, producer_id=5, producer_epoch=0, base_sequence=0)
    (part,) = convert_all(idempotent, 1)
    assert part.losses == Losses(headers=2, producer_batches=1)
    marker = build_batch([LogRecord(0, b"\0\0\0\0", b"\0" * 6)], is_control=True, producer_id=5)
    (part,) = convert_all(marker, 1)
    assert (bytes(part.data), part.losses, part.next_offset) == (b"", Losses(control_batches=1), 1)
    # Compaction leaves the last offset of a batch whose last record is gone.
    data = bytearray(build_batch(ROWS))
    header = parse_header(data)._replace(last_offset_delta=9)
    (part,) = convert_all(write_batch(header, [bytes(data[61:])], codec=Codec.NONE), 1)
    assert (part.next_offset, part.losses.trailing_offsets) == (10, 6)


def test_zstd_has_no_older_form_unless_another_codec_is_named():
    data = build(ROWS, 2, codec=Codec.ZSTD)
    with pytest.raises(RequestRefused, match="zstd") as caught:
        list(down_convert(data, 1))
    assert caught.value.code == 76
    assert read_all(convert(data, 1, zstd_as=Codec.GZIP)) == without_losses(read_all(data), 1)


def test_a_fetch_of_plain_messages_begins_with_the_offset_that_was_asked_for():
    """As in Kafka: old consumers take the first message for the one they asked for."""
    plain, packed = build(ROWS, 2, base_offset=10), build(ROWS, 2, base_offset=14, codec=Codec.LZ4)
    parts = list(down_convert(plain + packed, 1, start_offset=12))
    told = [[record.offset for record in read_all(bytes(part.data))] for part in parts]
    assert told == [[12, 13], [14, 15, 16, 17]]


def test_plain_messages_of_a_log_become_batches_of_a_bounded_size():
    rows = [LogRecord(place, b"k", bytes(90)) for place in range(100)]
    data = build(rows, 1, base_offset=5)
    parts = list(convert_all(data, 2, run_bytes=2_000))
    assert all(len(part.data) < 2_100 for part in parts)
    assert len(parts) > 5
    assert read_all(b"".join(bytes(part.data) for part in parts)) == read_all(data)


def test_append_times_stay_those_of_each_message():
    data = b"".join(
        build_messages(
            ROWS[:2],
            1,
            base_offset=2 * place,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            append_time=1_000 + place // 2,
        )
        for place in range(6)
    )
    converted = convert(data, 2)
    headers = [header for _, header in iter_headers(converted)]
    assert [header.max_timestamp for header in headers] == [1_000, 1_001, 1_002]
    assert {header.timestamp_type for header in headers} == {TimestampType.LOG_APPEND_TIME}
    assert read_all(converted) == read_all(data)


@pytest.mark.parametrize("with_kernels", [False, True])
@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_create_times_below_append_times_go_from_format_to_format(codec, with_kernels, monkeypatch):
    if with_kernels:
        MESSAGE_KERNELS.load()
    else:
        without_numba(MESSAGE_KERNELS, monkeypatch)
    stamped = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "append_time": 9_000}
    data = build_messages(ROWS, 1, codec=codec, **stamped)
    known = list(read_with_create_times(data))
    assert {ms for _, ms in known} == {row.timestamp for row in ROWS}
    for magic in (2, 1, 2):
        data = convert(data, magic)
        assert list(read_with_create_times(data)) == known


@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_damage_is_not_converted(source, codec):
    sound = build(ROWS, source, codec=codec)
    data = bytearray(sound + build(ROWS, source, base_offset=4, codec=codec))
    data[-1] ^= 1
    for magic in (0, 1, 2):
        parts = convert_all(data, magic)
        with pytest.raises(CorruptBatch):
            list(parts)
        if magic < source:
            parts = down_convert(data, magic)
            before = without_losses(read_all(sound), magic)
            assert read_all(bytes(next(parts).data))[: len(before)] == before
            with pytest.raises(CorruptBatch):
                list(parts)


def test_a_batch_that_declares_other_records_than_it_has_is_refused():
    data = build(ROWS, 2)
    header = parse_header(data)._replace(records_count=5)
    with pytest.raises(CorruptBatch, match="declares 5 records"):
        convert_batch(data, header, 1)


@pytest.mark.parametrize("with_kernels", [False, True])
def test_batches_larger_than_a_piece_are_converted(monkeypatch, rng, with_kernels):
    if with_kernels:
        MESSAGE_KERNELS.load()
    else:
        without_numba(MESSAGE_KERNELS, monkeypatch)
    sizes = (10, 3 << 20, 20, 1 << 20, 700_000, 700_000)
    rows = [LogRecord(place, None, rng.randbytes(size)) for place, size in enumerate(sizes)]
    for codec in (Codec.NONE, Codec.LZ4):
        data = build(rows, 2, base_offset=11, codec=codec)
        old = convert(data, 1)
        assert read_all(old) == read_all(data)
        assert read_all(convert(old, 2)) == read_all(data)


# What producers send.


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_an_old_producer_sends_is_one_batch(magic, codec):
    sent = build(ROWS[:2], magic, codec=codec) + build(ROWS[2:], magic, base_offset=50, codec=codec)
    batch = Sent(sent + sent[:20]).as_batch()
    header = parse_header(batch)
    verify_crc(batch, 0, header)
    assert (header.base_offset, header.records_count, header.last_offset_delta) == (0, 4, 3)
    assert header.codec is codec
    assert read_all(batch) == [
        row._replace(offset=place, headers=(), timestamp=row.timestamp if magic else -1)
        for place, row in enumerate(ROWS)
    ]
    assert header.max_timestamp == (3_000 if magic else -1)


def test_offsets_of_an_old_producer_do_not_matter():
    sent = b"".join(build_messages([row], 1, base_offset=0) for row in ROWS)
    assert [record.offset for record in read_all(Sent(sent).as_batch())] == [0, 1, 2, 3]


def test_plain_and_compressed_messages_may_be_sent_together():
    sent = build(ROWS[:1], 1) + build(ROWS[1:3], 1, codec=Codec.GZIP) + build(ROWS[3:], 1)
    batch = Sent(sent).as_batch()
    assert parse_header(batch).codec is Codec.GZIP
    assert [record.value for record in read_all(batch)] == [row.value for row in ROWS]


def test_a_producers_claim_of_an_append_time_is_kept_for_the_leader_to_refuse():
    sent = build(ROWS[:1], 1) + build(ROWS, 1, kind=TimestampType.LOG_APPEND_TIME)
    assert parse_header(Sent(sent).as_batch()).timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("at", [0, 1])
def test_damage_in_what_was_sent_is_refused(at):
    sound = build(ROWS[:1], 1)
    bad = bytearray(sound)
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        Sent(sound * at + bytes(bad) + sound).as_batch()
    packed = bytearray(build(ROWS, 1, codec=Codec.SNAPPY))
    packed[-1] ^= 1
    with pytest.raises(CorruptBatch, match="corrupt"):
        Sent(sound * at + bytes(packed)).as_batch()
    with pytest.raises(CorruptBatch, match="mixed"):
        Sent(sound + build(ROWS[:1], 0)).as_batch()
    with pytest.raises(CorruptBatch, match="no whole message"):
        Sent(sound[:-1]).as_batch()


def test_what_was_sent_is_bounded():
    sent = build([LogRecord(0, None, bytes(1 << 20))] * 3, 1, codec=Codec.GZIP)
    with pytest.raises(RequestRefused):
        Sent(sent, max_batch_bytes=2 << 20).as_batch()
    with pytest.raises(RequestRefused):
        Sent(build([LogRecord(0, None, bytes(5_000))], 1)).as_batch(max_bytes=4_000)
