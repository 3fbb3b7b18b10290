"""Records of format v2 as bytes, written one by one."""

from collections.abc import Iterable

from horolog.record.kernels.machine import int64

_MASK64 = (1 << 64) - 1


def record_bytes(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[bytes, bytes | None]],
) -> bytes:
    """Return a record as a batch contains it, its length first."""
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
    """Append a number in zigzag base 128, wrapped to 64 bits; a short one equals Kafka's varint."""
    value = int64(value)
    rest = (value << 1 ^ value >> 63) & _MASK64
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
