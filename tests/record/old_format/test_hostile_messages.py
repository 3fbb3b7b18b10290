"""Damaged and hostile messages of v0 and v1: read or refused, never anything else."""

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

from old_messages import build_messages
from plain_kernels import without_numba

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record import (
    COLUMN_KERNELS,
    MESSAGE_KERNELS,
    SCAN_KERNELS,
    BatchHeader,
    Codec,
    LogRecord,
    Sent,
    build_batch,
    convert_all,
    decode,
    down_convert,
    iter_headers,
    read_records,
    scan_batch,
)

CASES = 120
MOST = 1 << 20
ROWS = [
    LogRecord(1_000 + at, b"k%d" % at if at % 3 else None, b"v" * at if at % 4 else None)
    for at in range(12)
]
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
SEEDS = [
    build_messages(ROWS[:5], magic, base_offset=3, codec=codec)
    + build_messages(ROWS[5:], magic, base_offset=8, codec=codec)
    for magic in (0, 1)
    for codec in CODECS
] + [
    build_messages(ROWS[:4], 0)
    + build_batch(ROWS[4:8], base_offset=4)
    + build_messages(ROWS[8:], 1, base_offset=8, codec=Codec.LZ4)
]
SIZES = (0, -1, 1, 13, 14, 22, 1 << 30, -(1 << 31), (1 << 31) - 1)


def damaged(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) or 1)
        match rng.randrange(5):
            case 0 | 1 | 2:
                data[at : at + 1] = bytes([(data[at] if data else 0) ^ 1 << rng.randrange(8)])
            case 3:
                data[at : at + 4] = struct.pack(">i", rng.choice(SIZES))
            case _:
                del data[at:]
    return with_checksums(data) if rng.random() < 0.7 else bytes(data)


def with_checksums(data: bytearray) -> bytes:
    """Outer ones that are right: what is wrong is met further in."""
    position = 0
    while position + 26 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        end = position + 12 + size
        if size < 14 or end > len(data):
            break
        if data[position + 16] < 2:
            crc = zlib.crc32(data[position + 16 : end])
            data[position + 12 : position + 16] = struct.pack(">I", crc)
        position = end
    return bytes(data)


def answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (CorruptBatch, RequestRefused) as error:
        return str(error)


def of_batch(batch: bytes, header: BatchHeader) -> tuple[Any, Any]:
    return (
        answer(lambda: scan_batch(batch, header, max_bytes=MOST)),
        answer(lambda: list(read_records(batch, max_bytes=MOST))),
    )


def all_answers(data: bytes) -> list[Any]:
    def columns() -> list[dict]:
        return [row for table in decode(data, max_batch_bytes=MOST) for row in table.to_pylist()]

    def facts() -> list[Any]:
        return [
            of_batch(data[position : position + header.size], header)
            for position, header in iter_headers(data)
        ]

    def converted(magic: int) -> bytes:
        parts = convert_all(data, magic, max_batch_bytes=MOST)
        return b"".join(bytes(part.data) for part in parts)

    def fetched() -> bytes:
        parts = down_convert(data, 0, max_batch_bytes=MOST)
        return b"".join(bytes(part.data) for part in parts)

    return [
        answer(columns),
        answer(facts),
        answer(fetched),
        answer(lambda: Sent(data, max_batch_bytes=MOST).as_batch()),
        *(answer(lambda magic=magic: converted(magic)) for magic in (0, 1, 2)),
    ]


def test_hostile_messages_are_read_or_refused_alike_by_plain_and_compiled_kernels(rng, monkeypatch):
    lazies = (SCAN_KERNELS, COLUMN_KERNELS, MESSAGE_KERNELS)
    for lazy in lazies:
        lazy.load()
    refused = 0
    for _ in range(CASES):
        data = damaged(rng)
        told = []
        told.append(all_answers(data))
        with monkeypatch.context() as patched:
            for lazy in lazies:
                without_numba(lazy, patched)
            told.append(all_answers(data))
        assert told[0] == told[1]
        refused += isinstance(told[0][0], str)
    assert 0 < refused < CASES
