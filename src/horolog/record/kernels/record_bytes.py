"""A record of format v2 as bytes: what the plain-Python twins write and read."""

from collections.abc import Iterable
from typing import NamedTuple

from horolog.record.kernels.scan_twins import OddError, read_varint, to_int64

_MASK64 = (1 << 64) - 1


class ReadRecord(NamedTuple):
    """The fields of a record."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def read_record(body: bytes) -> ReadRecord | None:
    """A record without its length; None if it is malformed."""
    try:
        time, position = read_varint(body, 1, 10)
        delta, position = read_varint(body, position, 5)
        key, position = _read_bytes(body, position)
        value, position = _read_bytes(body, position)
        count, position = read_varint(body, position, 5)
        if not 0 <= count <= len(body) - position:
            return None
        headers: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            header_key, position = _read_bytes(body, position)
            if header_key is None:
                return None
            header_value, position = _read_bytes(body, position)
            headers.append((header_key, header_value))
    except (IndexError, OddError):
        return None
    return ReadRecord(time, delta, key, value, headers) if position == len(body) else None


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    size, start = read_varint(body, position, 5)
    if size < 0:
        return None, start
    if size > len(body) - start:
        raise OddError
    return body[start : start + size], start + size


def record_bytes(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[bytes, bytes | None]],
) -> bytes:
    """One record as it is in a batch, its length first."""
    body = bytearray(1)  # attributes
    write_varlong(body, timestamp_delta)
    write_varlong(body, offset_delta)
    _write_nullable(body, key)
    _write_nullable(body, value)
    pairs = list(headers)
    write_varlong(body, len(pairs))
    for header_key, header_value in pairs:
        _write_nullable(body, header_key)
        _write_nullable(body, header_value)
    record = bytearray()
    write_varlong(record, len(body))
    return bytes(record + body)


def _write_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varlong(out, -1)
    else:
        write_varlong(out, len(value))
        out += value


def write_varlong(out: bytearray, value: int) -> None:
    """Append `value` in zigzag base 128, wrapped to 64 bits; short values equal Kafka's varints."""
    value = to_int64(value)
    rest = (value << 1 ^ value >> 63) & _MASK64
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
