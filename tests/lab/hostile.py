"""Batches that are small to send and much work to check, or that claim what cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import batches

from horolog.record import Codec, compress_chunks

PIECE_BYTES = 1 << 20


class Batch(NamedTuple):
    """What is sent, and how much its records are decompressed."""

    data: bytes
    uncompressed_bytes: int


def varint(value: int) -> bytes:
    """As a record has it: zigzag, base 128."""
    raw = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def batch_of(codec: Codec, pieces: Iterator[bytes], count: int, now_ms: int) -> Batch:
    """A batch of these pieces of records; they are never held together."""
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            size += len(piece)
            yield piece

    payload = compress_chunks(codec, counted(), None, max_bytes=1 << 30)
    assert payload is not None
    return Batch(batches.batch_of(codec, count, payload, now_ms, step_ms=0), size)


def flood(codec: Codec, record: bytes, size: int, now_ms: int, *, last: bytes = b"") -> Batch:
    """About `size` bytes of one record over and over, offset delta included, then another."""
    count = size // len(record)

    def pieces() -> Iterator[bytes]:
        each = PIECE_BYTES // len(record)
        for start in range(0, count, each):
            yield record * min(each, count - start)
        yield last

    return batch_of(codec, pieces(), count + bool(last), now_ms)


def record_of(body: bytes) -> bytes:
    """A record with these bytes after its attributes, its length put before it."""
    return varint(1 + len(body)) + b"\0" + body


START = varint(0) + varint(0)  # timestamp delta and offset delta

EDGES = {
    "2^31-1 headers": record_of(START + varint(-1) + varint(-1) + varint((1 << 31) - 1)),
    "-2^31 headers": record_of(START + varint(-1) + varint(-1) + varint(-(1 << 31))),
    "-1 headers": record_of(START + varint(-1) + varint(-1) + varint(-1)),
    "one header too many": record_of(START + varint(-1) * 2 + varint(2) + varint(0) + varint(0)),
    "a header without a key": record_of(START + varint(-1) * 2 + varint(1) + varint(-1) * 2),
    "key of 2^31-1": record_of(START + varint((1 << 31) - 1) + varint(0) + varint(0)),
    "key of 2^40": record_of(START + varint(1 << 40) + varint(0) + varint(0)),
    "value of 2^31-1": record_of(START + varint(0) + varint((1 << 31) - 1) + varint(0)),
    "header value of 2^31-1": record_of(
        START + varint(-1) * 2 + varint(1) + varint(0) + varint((1 << 31) - 1)
    ),
    "length of 2^31-1": varint((1 << 31) - 1) + bytes(9),
    "length of -1": varint(-1) + bytes(9),
    "length of -2^31": varint(-(1 << 31)) + bytes(9),
    "length 0": varint(0) + bytes(9),
    "a varint without an end": b"\x80" * 20,
    "a length of five full bytes": b"\xff" * 5 + bytes(9),
    "a timestamp of eleven bytes": record_of(b"\x80" * 10 + b"\x01" + varint(0) * 4),
    "an offset delta of six bytes": record_of(varint(0) + b"\x80" * 5 + b"\x01" + varint(0) * 3),
    "one byte more than its fields": record_of(START + varint(-1) * 2 + varint(0) + b"\0"),
    "one byte less than its fields": varint(5) + b"\0" + START + varint(-1) * 2 + varint(0),
    "nothing after its attributes": record_of(b""),
}
"""Records that no leader may take, and the least of it is that they are wrong."""
