"""Keys of batches, the map of their latest offsets, and batches of the records that stay."""

from __future__ import annotations

import random
import tracemalloc
from array import array
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from old_messages import build_messages
from plain_kernels import plain_and_compiled

from horolog.errors import CorruptBatch
from horolog.record import (
    CLEANING_KERNELS,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    Codec,
    LogRecord,
    TimestampType,
    build_batch,
    cleaning,
    cleaning_kernels,
    compress_chunks,
    is_numba_installed,
    layout,
    parse_header,
    read_records,
    verify_crc,
    with_records,
)

NOW = 1_700_000_000_000
SECRET = np.array([0x0706050403020100, 0x0F0E0D0C0B0A0908], np.uint64)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)

some_records = st.lists(
    st.builds(
        LogRecord,
        st.one_of(st.just(-1), st.integers(NOW - 99, NOW + 99), INT64),
        st.one_of(st.none(), st.binary(max_size=20)),
        st.one_of(st.none(), st.binary(max_size=9)),
    ),
    min_size=1,
    max_size=30,
)


def keys_of(data: bytes, secret: np.ndarray = SECRET) -> cleaning.Keys:
    return all_keys(cleaning.open_records(data, parse_header(data)), secret)


def all_keys(opened: cleaning.OpenedRecords, secret: np.ndarray = SECRET) -> cleaning.Keys:
    return cleaning.join_keys(cleaning.read_keys(opened, secret))


def staying(opened: cleaning.OpenedRecords, mask: list[int]) -> cleaning.StayingRecords:
    """Those of a mask, judged as their keys come."""
    found, number = cleaning.StayingRecords(), 0
    for keys in cleaning.read_keys(opened, SECRET):
        keep = np.array(mask[number : number + len(keys.offsets)], np.uint8)
        found.add(keys, cleaning.CleaningVerdict(keep, int(keep.sum()), 0, 0))
        number += len(keep)
    return found


def test_the_hash_is_siphash_as_its_authors_publish_it() -> None:
    """SipHash-2-4 of 128 bits of nothing and of one zero byte, under the key 00 01 .. 0f."""
    data = build_batch([LogRecord(NOW, b"", b""), LogRecord(NOW, b"\0", b"")])
    found = keys_of(data).hashes.tobytes()
    assert found[:16].hex() == "a3817f04ba25a8e66df67214c7550293"
    assert found[16:].hex() == "da87c1d86b99af44347659119b22fc45"


@pytest.mark.parametrize("codec", list(Codec))
def test_keys_are_those_of_the_records(codec: Codec) -> None:
    records = [LogRecord(NOW, b"a", b"1"), LogRecord(NOW, None, b"2", (("h", None),))]
    records.append(LogRecord(NOW, b"a", None))
    found = keys_of(build_batch(records, base_offset=70, codec=codec))
    assert found.offsets.tolist() == [70, 71, 72]
    assert found.flags.tolist() == [
        cleaning_kernels.HAS_KEY | cleaning_kernels.IS_BARE,
        0,
        cleaning_kernels.HAS_KEY | cleaning_kernels.IS_TOMBSTONE | cleaning_kernels.IS_BARE,
    ]
    first, second, third = found.hashes.reshape(3, 2).tolist()
    assert first == third != second == [0, 0]


def read_in_pieces(
    module: Any, pieces: list[bytes], count: int, last_delta: int
) -> tuple[int, list[Any]]:
    """What a module answers for records that come in pieces, and the keys that it found."""
    state = array("q", bytes(8 * cleaning_kernels.KEYS_STATE_SIZE))
    state[cleaning_kernels.KEYS_RECORDS], state[cleaning_kernels.KEYS_BASE_OFFSET] = count, 5
    state[cleaning_kernels.KEYS_LAST_DELTA] = last_delta
    found: list[Any] = []
    carry, status = b"", layout.DONE
    for piece in pieces:
        carry += piece
        keys = np.zeros(count, np.int64), np.zeros(2 * count, np.uint64), np.zeros(count, np.uint8)
        status = module.read_keys(carry, state, SECRET, *keys)
        if status != layout.DONE:
            break
        carry, rows = (
            carry[state[cleaning_kernels.KEYS_POSITION] :],
            state[cleaning_kernels.KEYS_ROWS],
        )
        found += zip(keys[0][:rows], keys[1].reshape(-1, 2)[:rows].tolist(), keys[2], strict=False)
    if carry or state[cleaning_kernels.KEYS_RECORDS] or state[cleaning_kernels.KEYS_REST]:
        status = layout.MALFORMED
    return status, found


def retain_in_pieces(
    module: Any, pieces: list[bytes], keep: np.ndarray, shift: int
) -> tuple[int, bytes, list[int]]:
    """What a module answers for records that come in pieces, what it wrote, and their times."""
    state = array("q", bytes(8 * cleaning_kernels.RETAIN_STATE_SIZE))
    state[cleaning_kernels.RETAIN_BASE], state[cleaning_kernels.RETAIN_TIME_SHIFT] = NOW, shift
    written, number = b"", 0
    carry, status = b"", layout.DONE
    for piece in pieces:
        carry += piece
        mask = keep[number:]
        out = np.zeros(len(carry) + 15 * len(mask), np.uint8)
        status = module.retain(carry, state, mask, out)
        if status != layout.DONE:
            break
        carry, number = (
            carry[state[cleaning_kernels.RETAIN_POSITION] :],
            number + state[cleaning_kernels.RETAIN_ROWS],
        )
        written += out[: state[cleaning_kernels.RETAIN_FILLED]].tobytes()
    if carry or number < len(keep) or state[cleaning_kernels.RETAIN_REST]:
        status = layout.MALFORMED
    return (
        status,
        written,
        list(state[cleaning_kernels.RETAIN_TIMED : cleaning_kernels.RETAIN_MAX + 1]),
    )


@given(some_records, st.randoms(use_true_random=False), st.integers(1, 12))
def test_compiled_and_plain_agree_however_records_are_cut(
    records: list[LogRecord], rng: Any, longest: int
) -> None:
    body = bytearray(build_batch(records, base_offset=5)[HEADER_SIZE:])
    if rng.random() < 0.4:
        at = rng.randrange(len(body))
        body[at] = rng.randrange(256)
    whole, count = bytes(body), len(records)
    keep = np.array([rng.random() < 0.5 for _ in records], np.uint8)
    cuts = [0]
    while cuts[-1] < len(whole):
        cuts.append(cuts[-1] + rng.randrange(1, longest + 1))
    pieces = [whole[start:end] for start, end in pairwise(cuts)]
    plain, compiled = plain_and_compiled(CLEANING_KERNELS)
    expected = read_in_pieces(compiled, [whole], count, count - 1)
    assert expected == read_in_pieces(plain, [whole], count, count - 1)
    bare = np.uint8(cleaning_kernels.IS_BARE)
    for module in (plain, compiled):
        status, found = read_in_pieces(module, pieces, count, count - 1)
        assert status == expected[0]
        if status == layout.DONE:  # of records that are cut it is not known whether they are bare
            assert [(*row[:2], row[2] & ~bare) for row in found] == [
                (*row[:2], row[2] & ~bare) for row in expected[1]
            ]
    for shift in (0, 1000):
        answers = [
            retain_in_pieces(module, some, keep, shift)
            for module in (plain, compiled)
            for some in ([whole], pieces)
        ]
        assert {answer[0] for answer in answers} in ({layout.DONE}, {layout.MALFORMED})
        if answers[0][0] == layout.DONE:
            assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize(
    "sizes",
    [
        (8, 20_000_000),
        pytest.param(
            (20_000_000, 8),
            marks=pytest.mark.skipif(not is_numba_installed(), reason="minutes of hashing"),
        ),
        (40, 60_000),
    ],
)
def test_neither_a_batch_nor_a_record_is_ever_unpacked_whole(
    codec: Codec, sizes: tuple[int, int]
) -> None:
    """Of values, of keys, and of many records."""
    cleaning.load_kernels()
    key, value = (size * b"x" for size in sizes)
    count = 3 if max(sizes) > 1 << 20 else 500
    records = [LogRecord(NOW + at, b"%d" % (at % 2) + key, value) for at in range(count)]
    before = build_batch(records, codec=codec)
    header = parse_header(before)
    del records
    tracemalloc.start()
    try:
        opened = cleaning.open_records(before, header)
        judged = staying(opened, [0] + [1] * (count - 1))
        after = cleaning.retained(opened, header, judged, horizon_ms=NOW + 9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
    assert [record.value for record in read_records(after)] == [value] * (count - 1)
    assert parse_header(after).max_timestamp == NOW + count - 1
    hashes = keys_of(before).hashes.reshape(-1, 2).tolist()
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize(("codec", "period"), [(Codec.ZSTD, 3 << 20), (Codec.LZ4, 50_000)])
def test_a_batch_that_was_packed_thoroughly_stays_small(codec: Codec, period: int) -> None:
    """What repeats is farther apart than the codec looks by itself."""
    unlike = min(period, 900_000)
    some = random.Random(1).randbytes(unlike) + bytes(period - unlike)
    count = (30 << 20) // period
    records = [LogRecord(NOW, b"%d" % at, some) for at in range(count)]
    plain = build_batch(records)
    header = parse_header(plain)
    payload = compress_chunks(codec, (plain[HEADER_SIZE:],), max_bytes=1 << 30, is_far=True)
    assert payload is not None
    before = with_records(header._replace(attributes=header.attributes | codec), payload)
    header = parse_header(before)
    opened = cleaning.open_records(before, header)
    after = cleaning.retained(opened, header, staying(opened, [0] + [1] * (count - 1)))
    assert len(after) < 2 * len(before) + (1 << 20)
    assert parse_header(after).max_timestamp == NOW
    assert [record.key for record in read_records(after)] == [one.key for one in records[1:]]


@given(some_records, st.data(), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]))
def test_a_batch_keeps_its_offsets_and_the_records_of_the_mask(
    records: list[LogRecord], data: st.DataObject, codec: Codec
) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    if not any(mask):
        mask[0] = True
    before = build_batch(records, base_offset=100, codec=codec, producer_id=7, base_sequence=3)
    header = parse_header(before)
    opened = cleaning.open_records(before, header)
    judged = staying(opened, mask)
    expected = [one for one, stays in zip(read_records(before), mask, strict=True) if stays]
    for horizon_ms in (None, NOW + 5):
        after = cleaning.retained(opened, header, judged, horizon_ms=horizon_ms)
        new = parse_header(after)
        verify_crc(after, 0, new)
        assert list(read_records(after)) == expected
        assert new.has_delete_horizon == (horizon_ms is not None)
        same = ("base_offset", "last_offset", "producer_id", "base_sequence", "last_sequence")
        assert all(getattr(new, name) == getattr(header, name) for name in same)
        assert new.records_count == len(expected)
        times = [one.timestamp for one in expected if one.timestamp != -1]
        assert new.max_timestamp == max(times, default=-1)


def test_a_stamped_batch_keeps_the_create_times_below_its_append_time() -> None:
    records = [LogRecord(NOW + at, b"%d" % at, b"v") for at in range(3)]
    before = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=NOW)
    header = parse_header(before)
    opened = cleaning.open_records(before, header)
    after = cleaning.retained(opened, header, staying(opened, [0, 1, 1]))
    assert parse_header(after).max_timestamp == header.max_timestamp
    assert after[HEADER_SIZE:] in before, "the records' bytes are as they were"


def test_an_emptied_batch_says_how_far_its_producer_and_the_log_are() -> None:
    before = build_batch(
        [LogRecord(NOW, b"a", b"v")] * 4, base_offset=9, producer_id=7, base_sequence=3
    )
    header = parse_header(before)
    after = cleaning.emptied(header)
    new = parse_header(after)
    verify_crc(after, 0, new)
    assert (len(after), new.records_count) == (HEADER_SIZE, 0)
    assert (new.base_offset, new.last_offset) == (9, 12)
    assert (new.producer_id, new.last_sequence) == (7, 6)
    assert new.max_timestamp == -1


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_message_has_the_offset_and_time_of_the_last_that_stays(magic: int) -> None:
    records = [LogRecord(NOW + at, b"%d" % at, b"v", offset=40 + at) for at in range(5)]
    before = bytes(build_messages(records, magic, codec=Codec.GZIP))
    header = parse_header(before, 0, 40)
    opened = cleaning.open_records(before, header)
    assert all_keys(opened).offsets.tolist() == [40, 41, 42, 43, 44]
    after = cleaning.retained(opened, header, staying(opened, [0, 1, 0, 1, 0]))
    new = parse_header(after, 0, 40)
    assert new.last_offset == 43
    if magic:
        assert new.max_timestamp == NOW + 3
    left = cleaning.open_records(after, new)
    assert all_keys(left).offsets.tolist() == [41, 43]


def test_records_that_break_the_format_are_refused() -> None:
    data = build_batch([LogRecord(NOW, b"a", b"v")] * 3)
    header = parse_header(data)
    for wrong in (header._replace(records_count=2), header._replace(records_count=4)):
        opened = cleaning.OpenedRecords.of(wrong, data[HEADER_SIZE:])
        with pytest.raises(CorruptBatch):
            all_keys(opened)
    with pytest.raises(CorruptBatch):
        all_keys(cleaning.OpenedRecords.of(header._replace(records_count=1 << 30), b""))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_that_end_behind_their_value_are_all_read(codec: Codec) -> None:
    """No producer leaves the number of headers out, but a directory or a source may."""
    headless = b"".join(bytes([10, 0, 0, 2 * number, 1, 1]) for number in range(60))
    header = parse_header(
        build_batch([LogRecord(NOW, None, None)] * 60, base_offset=7, codec=codec)
    )
    packed = compress_chunks(codec, [headless], max_bytes=1 << 20)
    batch = with_records(header, packed or b"")
    opened = cleaning.open_records(batch, parse_header(batch))
    assert all_keys(opened).offsets.tolist() == list(range(7, 67))
    one = staying(opened, [0] * 59 + [1])
    written = cleaning.retained(opened, parse_header(batch), one)
    assert parse_header(written).records_count == 1


@given(
    st.lists(some_records.map(lambda records: records[:5]), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_small_batches_are_read_as_one_by_one(batches: list[list[LogRecord]], rng: object) -> None:
    """Up to the first that is another kind, damaged or not whole; whatever lies around them."""
    cleaning.load_kernels()
    made, base = [], 7
    for records in batches:
        made.append(build_batch(records, base_offset=base))
        base += len(records) + rng.randrange(3)  # type: ignore[attr-defined]
    data = bytearray(b"".join(made))
    if rng.random() < 0.5:  # type: ignore[attr-defined]
        at = rng.randrange(len(data))  # type: ignore[attr-defined]
        data[at] ^= 1 << rng.randrange(8)  # type: ignore[attr-defined]
    data = data[: len(data) - rng.choice((0, 0, 1, 40, 99))]  # type: ignore[attr-defined]
    expected, position = [], 0
    while position < len(data):
        try:
            header = parse_header(data, position)
            verify_crc(data, position, header)
            batch = bytes(data[position : position + header.size])
            keys = keys_of(batch)
        except CorruptBatch:
            break
        if header.attributes & cleaning_kernels.NOT_PLAIN or not header.records_count:
            break
        if not 0 <= header.base_offset <= 1 << 62 or header.last_offset_delta < 0:
            break
        expected.append((position, header.next_offset, *(each.tolist() for each in keys)))
        position += header.size
    for poison in (b"\0", b"\xff"):
        lying = poison * 64 + bytes(data) + poison * 64
        found = cleaning.read_small_batches(memoryview(lying)[: 64 + len(data)], 64, SECRET)
        if not expected:
            assert found is None
            continue
        assert found is not None
        firsts = found.firsts.tolist()
        assert found.starts.tolist() == [
            *(64 + start for start, *_ in expected),
            64 + position,
        ]
        assert found.next_offsets.tolist() == [following for _, following, *_ in expected]
        assert len(firsts) == len(expected) + 1
        for (_, _, offsets, hashes, flags), first, end in zip(
            expected, firsts[:-1], firsts[1:], strict=True
        ):
            assert found.keys.offsets[first:end].tolist() == offsets
            assert found.keys.hashes[2 * first : 2 * end].tolist() == hashes
            assert found.keys.flags[first:end].tolist() == flags


@examples(1)
@given(
    st.lists(some_records.map(lambda records: records[:5]), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
    st.sampled_from([NOW, NOW + 10**9, -1, (1 << 63) - 1]),
)
def test_small_batches_are_written_as_one_by_one(
    batches: list[list[LogRecord]], rng: object, horizon_ms: int
) -> None:
    """With a delete horizon if a tombstone stays; stamped ones keep their append time.

    A marker gets one if it may go, whatever its record looks like, and a batch that has one keeps
    it.
    """
    cleaning.load_kernels()
    made = []
    for base, records in enumerate(batches):
        more = {}
        if rng.random() < 0.3:  # type: ignore[attr-defined]
            more = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "max_timestamp": NOW}
        is_control = rng.random() < 0.2  # type: ignore[attr-defined]
        if is_control:
            records = [record._replace(headers=()) for record in records]
        batch = build_batch(
            records,
            base_offset=9 * base,
            producer_id=7,
            is_control=is_control,
            **more,  # type: ignore[arg-type]
        )
        if rng.random() < 0.2:  # type: ignore[attr-defined]
            has_horizon = parse_header(batch).attributes | DELETE_HORIZON_BIT
            header, payload = parse_header(batch), batch[HEADER_SIZE:]
            batch = with_records(header._replace(attributes=has_horizon), payload)
        made.append(batch)
    data = b"".join(made)
    small = cleaning.read_small_batches(data, 0, SECRET, all_kinds=True)
    assert small is not None
    assert len(small.next_offsets) == len(made)
    may_go = np.array([rng.random() < 0.5 for _ in made], np.uint8)  # type: ignore[attr-defined]
    keep = np.array([rng.random() < 0.6 for _ in small.keys.offsets], np.uint8)  # type: ignore[attr-defined]
    first = rng.randrange(len(made))  # type: ignore[attr-defined]
    end = rng.randrange(first, len(made) + 1)  # type: ignore[attr-defined]
    expected = []
    for number in range(first, end):
        at = slice(*small.firsts[number : number + 2].tolist())
        header, mask = parse_header(made[number]), keep[at]
        gets_horizon = (mask & (small.keys.flags[at] & cleaning_kernels.IS_TOMBSTONE > 0)).any()
        if header.is_control:
            gets_horizon = may_go[number]
        gets_horizon = gets_horizon and not header.has_delete_horizon
        if mask.all() and not gets_horizon:
            expected.append(made[number])
        elif mask.any():
            opened = cleaning.open_records(made[number], header)
            horizon = horizon_ms if gets_horizon else None
            judged = staying(opened, mask.tolist())
            expected.append(cleaning.retained(opened, header, judged, horizon_ms=horizon))
    written = cleaning.write_small_batches(data, small, keep, may_go, first, end, horizon_ms)
    assert written.data == b"".join(expected)
    headers = [parse_header(batch) for batch in expected]
    assert written.starts.tolist() == [
        sum(map(len, expected[:number])) for number in range(len(expected))
    ]
    assert written.base_offsets.tolist() == [header.base_offset for header in headers]
    assert written.next_offsets.tolist() == [header.next_offset for header in headers]
    assert written.max_timestamps.tolist() == [header.max_timestamp for header in headers]
    for at in range(1, len(expected)):
        left, right = written.between(0, at), written.between(at, len(expected))
        assert bytes(left.data) + bytes(right.data) == written.data
        assert [*left.starts, *(right.starts + len(left.data))] == written.starts.tolist()


def test_small_batches_that_have_changed_are_not_written() -> None:
    cleaning.load_kernels()
    data = bytearray(build_batch([LogRecord(NOW, b"k", b"v"), LogRecord(NOW, b"l", b"v")]))
    small = cleaning.read_small_batches(data, 0, SECRET)
    assert small is not None
    data[HEADER_SIZE] = 0xFF
    keep, may_go = np.array([1, 0], np.uint8), np.zeros(1, np.uint8)
    with pytest.raises(CorruptBatch, match="has changed"):
        cleaning.write_small_batches(data, small, keep, may_go, 0, 1, NOW)


@pytest.mark.parametrize(
    "batch",
    [
        build_batch([LogRecord(NOW, b"k", b"v")], codec=Codec.GZIP),
        build_batch([LogRecord(NOW, b"k", b"v" * 4000)]),
        build_batch(
            [LogRecord(NOW, b"k", b"v")],
            is_transactional=True,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
        ),
        build_messages([LogRecord(NOW, b"k", b"v")], magic=1),
        b"",
        bytes(61),
    ],
    ids=["compressed", "large", "of a transaction", "v1", "nothing", "zeros"],
)
def test_other_batches_are_not_read_as_small_ones(batch: bytes) -> None:
    cleaning.load_kernels()
    assert cleaning.read_small_batches(batch, 0, SECRET) is None
