"""Kafka's primitive types: numbers, strings, lengths, tagged fields.

All functions but `read_uvarint` return the encoded bytes. "Compact" lengths are unsigned varints of
length + 1, zero for null (KIP-482).
"""

from struct import Struct
from typing import Final
from uuid import UUID

from horolog.buffers import Buffer

__all__ = [
    "EMPTY_TAGS",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "MAX_STRING_BYTES",
    "MOST_INT8",
    "NO_UUID",
    "NULL",
    "NUMBERS",
    "THERE",
    "compact_string",
    "read_uvarint",
    "string",
    "tagged",
    "uuid_bytes",
    "uvarint",
]

INT8: Final = Struct(">b")
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
NUMBERS: Final = {
    "bool": Struct(">?"),
    "int8": INT8,
    "int16": INT16,
    "uint16": Struct(">H"),
    "int32": INT32,
    "uint32": Struct(">I"),
    "int64": INT64,
    "float64": Struct(">d"),
}
"""The types of fixed size, under kio's names."""
NO_UUID: Final = bytes(16)
EMPTY_TAGS: Final = b"\x00"
NULL: Final = b"\xff"
"""Before a structure that is null; a positive byte is before one that is there."""
THERE: Final = b"\x01"
MOST_INT8: Final = 127
MAX_STRING_BYTES: Final = 0x7FFF
"""The limit of every string, compact or not, as in Apache Kafka."""

_SMALL: Final = tuple(bytes([n]) for n in range(128))


def uvarint(value: int) -> bytes:
    """Return an unsigned varint of at most 35 bits."""
    if 0 <= value < 128:
        return _SMALL[value]
    if not 0 <= value < 1 << 35:
        raise ValueError(f"{value} does not fit an unsigned varint of five bytes")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 35 bits, and the position behind it.

    Raises:
        IndexError: the data end before it.
        ValueError: it has more than five bytes.
    """
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError(f"a varint of more than five bytes ends at byte {position}")


def string(text: str | None) -> bytes:
    """Return a string with a two-byte length; -1 for null."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(data)} bytes, at most {MAX_STRING_BYTES} fit")
    return INT16.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    """Return a string with a varint length."""
    if text is None:
        return b"\x00"
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(data)} bytes, at most {MAX_STRING_BYTES} fit")
    return uvarint(len(data) + 1) + data


def uuid_bytes(value: UUID | None) -> bytes:
    """Return sixteen bytes; zeros for `None`."""
    return NO_UUID if value is None else value.bytes


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """Return the tagged fields at the end of a flexible structure; `fields` ascend by tag."""
    if not fields:
        return EMPTY_TAGS
    return uvarint(len(fields)) + b"".join(
        uvarint(tag) + uvarint(len(data)) + data for tag, data in fields
    )
