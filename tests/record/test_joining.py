"""Joined batches hold the records of those that they were made of, and nothing else changes."""

import random
from itertools import pairwise

import pytest
from batches import generated_record

from horolog.record import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    Codec,
    Joiner,
    LogRecord,
    TimestampType,
    build_batch,
    iter_headers,
    parse_header,
    read_records,
    verify_crc,
)

PRODUCER = (77, 3)
FAR_MS = (1 << 62) + 5


def added(joiner: Joiner, batch: bytes) -> bool:
    return joiner.add(parse_header(batch), batch)


def rows_of(batches: list[bytes]) -> list[LogRecord]:
    return [row for batch in batches for row in read_records(batch)]


@pytest.mark.parametrize("codec", Codec)
def test_records_are_the_same_whatever_they_hold(codec: Codec) -> None:
    rng = random.Random(codec)
    rows = [generated_record(rng) for _ in range(500)]
    rows = [row for row in rows if abs(row.timestamp) < 1 << 60]  # farther ones are not joined
    cuts = [0]
    while cuts[-1] < len(rows):
        cuts.append(min(len(rows), cuts[-1] + rng.randrange(1, 20)))
    joiner, pending, sequence = Joiner(512 << 10), list[bytes](), 5
    joined: list[bytes] = []
    for start, end in pairwise(cuts):
        batch = build_batch(rows[start:end], base_offset=start + 100, codec=codec)
        if not added(joiner, batch):
            assert pending
            joined.append(joiner.finish(PRODUCER, sequence))
            sequence += sum(parse_header(each).records_count for each in pending)
            pending = []
            assert added(joiner, batch)
        pending.append(batch)
    joined.append(joiner.finish(PRODUCER, sequence))
    found = [row._replace(offset=None) for row in rows_of(joined)]
    assert found == rows
    assert len(joined) < len(cuts) / 4
    sequence = 5
    for batch in joined:
        ((_, header),) = iter_headers(batch)
        verify_crc(batch, 0, header)
        assert (header.codec, header.base_offset, header.producer_id) == (codec, 0, PRODUCER[0])
        assert header.base_sequence == sequence
        assert header.last_offset_delta + 1 == header.records_count
        times = [row.timestamp for row in read_records(batch) if row.timestamp != -1]
        assert header.max_timestamp == max(times, default=-1)
        assert [row.offset for row in read_records(batch)] == list(range(header.records_count))
        sequence += header.records_count


@pytest.mark.parametrize("count", [0, -1, -5, -(1 << 31)])
def test_a_batch_that_claims_to_hold_no_records_is_left_alone(count: int) -> None:
    header = parse_header(build_batch([LogRecord(1_000, b"k", b"v")]))
    header = header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD, records_count=count)
    assert not Joiner(1_000).add(header, bytes(HEADER_SIZE))


def test_what_cannot_be_one_batch_is_left_alone() -> None:
    rows = [LogRecord(1_000 + number, b"k", b"v" * 50) for number in range(20)]
    plain = build_batch(rows)
    others = {
        "another codec": build_batch(rows, codec=Codec.LZ4),
        "append times": build_batch(
            rows, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=5
        ),
        "a base too far away": build_batch([LogRecord(-FAR_MS, b"k", b"v")]),
        "more than half of the room": build_batch([LogRecord(1_000, b"k", bytes(2_100))]),
        "too much when decompressed": build_batch(
            [LogRecord(1_000, b"k", bytes(100_000))], codec=Codec.ZSTD
        ),
        "a time too far from its base": build_batch(
            [LogRecord(1_000, b"k", b"v"), LogRecord(1_000 + FAR_MS, b"k", b"v")]
        ),
    }
    for why, other in others.items():
        joiner = Joiner(4_096)
        assert added(joiner, plain)
        assert not added(joiner, other), why
        assert added(joiner, plain), why
        assert rows_of([joiner.finish(PRODUCER, 0)]) == [
            row._replace(offset=offset) for offset, row in enumerate(rows + rows)
        ]


def test_damaged_batches_are_left_as_they_are(rng: random.Random) -> None:
    rows = [LogRecord(1_000 + number, b"k%d" % number, b"v" * 30) for number in range(10)]
    for codec in Codec:
        batch = build_batch(rows, codec=codec)
        header = parse_header(batch)
        for count in (0, 9, 11, -1, (1 << 31) - 1):
            wrong = header._replace(records_count=count)
            assert not Joiner(1 << 16).add(wrong, batch)
        for _ in range(50):
            wounded = bytearray(batch)
            wounded[rng.randrange(HEADER_SIZE, len(batch))] ^= 1 << rng.randrange(8)
            joiner = Joiner(1 << 16)
            if joiner.add(header, bytes(wounded)):  # in a key or value, say
                assert parse_header(joiner.finish(PRODUCER, 0)).records_count == 10
