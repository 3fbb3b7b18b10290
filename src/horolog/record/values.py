"""The values of the records of one batch of format v2, and nothing else of them.

For records that Kafka writes without keys, thousands to a batch (its metadata): a value costs a
slice, where `read_records` makes an object of several.
"""

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import HEADER_SIZE, MAGIC, parse_header
from horolog.record.compression import decompress

_MAX_BYTES = 1 << 30
_MASK32 = (1 << 32) - 1


def read_values(batch: Buffer, *, max_bytes: int = _MAX_BYTES) -> list[bytes | None]:
    """The value of each record, in order.

    Raises:
        CorruptBatch: the batch breaks the format, or is not v2. The CRC is not looked at.
        RequestRefused: it decompresses to more than `max_bytes`.
    """
    header = parse_header(batch)
    count = header.records_count
    if header.magic != MAGIC or header.size > len(batch) or count < 0:
        raise CorruptBatch("no whole batch of format v2")
    if not count:
        return []
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    data = bytes(decompress(header.codec, payload, max_bytes=max_bytes))
    values: list[bytes | None] = []
    position = 0
    try:
        for _ in range(count):
            length, position = _varint(data, position)
            end = position + length
            position += 1  # attributes
            for _ in range(2):  # deltas of timestamp and offset
                while data[position] >= 0x80:
                    position += 1
                position += 1
            length, position = _varint(data, position)  # of the key
            position += max(length, 0)
            length, position = _varint(data, position)
            value = None
            if length >= 0:
                value = data[position : position + length]
                position += length
            if not position < end <= len(data):
                raise CorruptBatch("a record is longer or shorter than it says", position)
            values.append(value)
            position = end  # behind headers
    except IndexError:
        raise CorruptBatch("a record ends too early", position) from None
    if position != len(data):
        raise CorruptBatch("records remain behind the last one", position)
    return values


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position behind it."""
    byte = data[position]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while shift < 35:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= _MASK32
            return value >> 1 ^ -(value & 1), position + 1
        shift += 7
    raise CorruptBatch("a varint is longer than 5 bytes", position)
