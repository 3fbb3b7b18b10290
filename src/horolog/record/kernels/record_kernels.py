"""The text that kernels share: zigzag numbers, and the fields of records.

Text reads hostile bytes. Each read is checked against the end of the data first; sizes are compared
with the bytes that are left and never added up before. Errors are returned as positions, not
raised.
"""

from horolog.record.kernels.machine import Bytes, byte_at, inlined, int64

TRUNCATED = -1
TOO_LONG = -2

_MASK32 = (1 << 32) - 1
_POSITIVE = (1 << 63) - 1


def read_varint(data: Bytes, position: int, end: int, longest: int) -> tuple[int, int]:
    """Return a zigzag number and the position after it, or TRUNCATED or TOO_LONG as position."""
    if position < end:
        byte = byte_at(data, position)
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        if position + 1 < end:
            second = byte_at(data, position + 1)
            if second < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                return (raw >> 1) ^ -(raw & 1), position + 2
    return _long_varint(data, position, end, longest)


def _long_varint(data: Bytes, position: int, end: int, longest: int) -> tuple[int, int]:
    raw = 0
    for index in range(longest):
        if position >= end:
            return 0, TRUNCATED
        byte = byte_at(data, position)
        position += 1
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            # Java drops the bits that do not fit.
            raw = raw & _MASK32 if longest == 5 else int64(raw)
            return ((raw >> 1) & _POSITIVE) ^ -(raw & 1), position
    return 0, TOO_LONG


def read_bytes(data: Bytes, position: int, end: int) -> tuple[int, int, int]:
    """Return size (negative for null), start and end of bytes; -1 as the end if malformed."""
    size, start = read_varint(data, position, end, 5)
    if start < 0 or size > end - start:
        return size, start, -1
    return size, start, start + max(size, 0)


def pass_headers(data: Bytes, position: int, end: int, count: int) -> int:
    """Return where `count` headers end; -1 if they are malformed or extend past `end`."""
    for _ in range(count):
        size, _start, position = read_bytes(data, position, end)
        if position < 0 or size < 0:
            return -1
        _size, _start, position = read_bytes(data, position, end)
        if position < 0:
            return -1
    return position


@inlined
def read_fields(data: Bytes, body: int, end: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the fields of a record, from behind its length to its end.

    The fields are deltas of time and offset, size and start of key and value, number and start of
    headers. The start of headers is -1 if the record is malformed, or longer than its fields.
    """
    key_size, key_start, value_size, value_start, headers = 0, 0, 0, 0, 0
    delta, headers_start = 0, -1
    time, cursor = read_varint(data, body + 1, end, 10)
    if cursor >= 0:
        delta, cursor = read_varint(data, cursor, end, 5)
    if cursor >= 0:
        key_size, key_start, cursor = read_bytes(data, cursor, end)
    if cursor >= 0:
        value_size, value_start, cursor = read_bytes(data, cursor, end)
    if cursor >= 0:
        headers, cursor = read_varint(data, cursor, end, 5)
    if cursor >= 0 and headers >= 0 and pass_headers(data, cursor, end, headers) == end:
        headers_start = cursor
    return time, delta, key_size, key_start, value_size, value_start, headers, headers_start


def varint_size(value):
    """Return the bytes of a zigzag number."""
    raw = int64(value << 1) ^ (value >> 63)
    size = 1
    while raw & ~0x7F != 0:
        raw = (raw >> 7) & (_POSITIVE >> 6)
        size += 1
    return size


def put_varint(out, position, value):
    """Write a zigzag number, for which there is room; return where it ends."""
    raw = int64(value << 1) ^ (value >> 63)
    while raw & ~0x7F != 0:
        out[position] = raw & 0x7F | 0x80
        raw = (raw >> 7) & (_POSITIVE >> 6)
        position += 1
    out[position] = raw
    return position + 1
