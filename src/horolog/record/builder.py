"""Records to batch bytes and back, one Python object per record: for tools, tests and small writes.

A record of format v2, after a varint with the length of the rest:

    i8 attributes (0) · varlong timestamp delta · varint offset delta
    varint key length (-1 null), key · varint value length (-1 null), value
    varint header count, and for each: varint key length, key, varint value length (-1 null), value

Varints are zigzag, base 128, at most 5 bytes; varlongs at most 10. Deltas count from the
batch's base and wrap at 64 bits as Java's do.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    new_head,
    parse_header,
    with_records,
)
from horolog.record.compression import Codec, compress, decompress
from horolog.record.kernels.machine import int64
from horolog.record.kernels.record_kernels import read_bytes, read_fields, read_varint
from horolog.record.old_format.reading import open_message
from horolog.record.record_bytes import record_bytes
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType

Header = tuple[str, bytes | None]

_MAX_BYTES = 1 << 30  # what reading a batch may decompress
_SMALLEST_BODY = 6  # attributes, two deltas, two sizes, number of headers
_NULL = 1  # the size -1 as a varint


class LogRecord(NamedTuple):
    """One record; timestamp -1 is none, `offset` is set on records that were read from a log."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    offset: int | None = None


def build_batch(
    records: Iterable[LogRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    max_timestamp: int | None = None,
) -> bytes:
    """Return a whole batch whose records take consecutive offsets from `base_offset` on.

    The base timestamp is the first record's. `max_timestamp` None is the largest timestamp of the
    records, or -1. Without records the result is the empty batch that compaction leaves behind.
    """
    rows = list(records)
    base_timestamp = rows[0].timestamp if rows else NO_TIMESTAMP
    if max_timestamp is None:
        timed = (row.timestamp for row in rows if row.timestamp != NO_TIMESTAMP)
        max_timestamp = max(timed, default=NO_TIMESTAMP)
    body = bytearray()
    for delta, row in enumerate(rows):
        headers = ((name.encode(), value) for name, value in row.headers)
        body += record_bytes(row.timestamp - base_timestamp, delta, row.key, row.value, headers)
    payload = compress(codec, body) if rows else b""
    attributes = codec | timestamp_type << 3 | is_transactional << 4 | is_control << 5
    producer = producer_id, producer_epoch, base_sequence
    last_delta, times = max(0, len(rows) - 1), (base_timestamp, max_timestamp)
    covered = attributes, last_delta, *times, *producer, len(rows)
    length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    return new_head(base_offset, length, leader_epoch, covered, payload) + payload


def empty_batch(first_offset: int, last_offset: int, leader_epoch: int = -1) -> bytes:
    """Return a batch without records that covers these offsets: consumers continue behind it."""
    header = parse_header(build_batch((), base_offset=first_offset, leader_epoch=leader_epoch))
    return with_records(header._replace(last_offset_delta=last_offset - first_offset), b"")


def read_records(batch: Buffer, *, max_bytes: int = _MAX_BYTES) -> Iterator[LogRecord]:
    """Yield the records of one whole batch with offsets and their true timestamps.

    Invalid UTF-8 in a header's key is replaced (U+FFFD), as Java's consumer does.

    Raises:
        CorruptBatch: the batch breaks the format. The CRC is not looked at.
        RequestRefused: it decompresses to more than `max_bytes`.
    """
    for record, _ in read_with_create_times(batch, max_bytes=max_bytes):
        yield record


def read_with_create_times(
    batch: Buffer, *, max_bytes: int = _MAX_BYTES
) -> Iterator[tuple[LogRecord, int]]:
    """Yield each record with the time that its own bytes hold.

    In a batch of v2, or a compressed message of v1, that is stamped with LogAppendTime this is the
    create time, unless a broker packed it anew (KIP-32, rejected option 1). Elsewhere, so in plain
    messages of v1, it is the record's timestamp.

    Raises:
        CorruptBatch, RequestRefused: as `read_records`.
    """
    header, data = _opened(batch, parse_header(batch), max_bytes)
    for number, body, record_end in _spans_of(header, data):
        time, delta, key_size, key_start, value_size, value_start, count, position = read_fields(
            data, body, record_end
        )
        if position < 0:
            raise _malformed(header, number, record_end)
        timestamp = created = int64(header.base_timestamp + time)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp = header.max_timestamp
        headers = []
        for _ in range(count):
            _, start, end = read_bytes(data, position, len(data))
            size, value, position = read_bytes(data, end, len(data))
            of_header = None if size < 0 else data[value:position]
            headers.append((data[start:end].decode("utf-8", "replace"), of_header))
        record = LogRecord(
            timestamp,
            None if key_size < 0 else data[key_start : key_start + key_size],
            None if value_size < 0 else data[value_start : value_start + value_size],
            tuple(headers),
            header.base_offset + delta,
        )
        yield record, created


def read_values(batch: Buffer, *, max_bytes: int = _MAX_BYTES) -> list[bytes | None]:
    """Return the value of each record, in order.

    Kafka writes thousands of records without keys to a batch of its metadata: a value alone takes a
    third of the time of a `LogRecord`.

    Raises:
        CorruptBatch, RequestRefused: as `read_records`, or the batch is not of format v2.
    """
    header = parse_header(batch)
    if header.magic != MAGIC:
        raise CorruptBatch(f"A batch of format v{header.magic}, where v2 is expected")
    header, data = _opened(batch, header, max_bytes)
    values: list[bytes | None] = []
    for number, body, end in _spans_of(header, data):
        size, start = _bare_value(data, body, end)
        if start < 0:
            *_, size, start, _, headers_start = read_fields(data, body, end)
            if headers_start < 0:
                raise _malformed(header, number, end)
        values.append(None if size < 0 else data[start : start + size])
    return values


def _bare_value(data: bytes, body: int, end: int) -> tuple[int, int]:
    """Return size and start of the value of a record without key, headers and time delta.

    The start is -1 for other records, whose fields are read one by one.
    """
    if end - body < _SMALLEST_BODY or data[body + 1]:
        return 0, -1
    key = body + 3 if data[body + 2] < 0x80 else body + 4  # behind an offset delta of 1 or 2 bytes
    if data[key - 1] >= 0x80 or data[key] != _NULL or data[end - 1]:
        return 0, -1
    size, start = read_varint(data, key + 1, end, 5)
    return (size, start) if 0 <= size == end - start - 1 else (0, -1)


def _opened(batch: Buffer, header: BatchHeader, max_bytes: int) -> tuple[BatchHeader, bytes]:
    """Return the records of a batch of any format as those of format v2, decompressed."""
    if header.magic != MAGIC:
        header, pieces = open_message(batch, header, max_bytes=max_bytes)
        return header, b"".join(pieces)
    if header.size > len(batch):
        raise CorruptBatch(f"The batch is {header.size} bytes long and {len(batch)} are there")
    if header.records_count < 0:
        raise CorruptBatch(f"Found invalid record count {header.records_count} in magic v2 batch")
    if header.records_count == 0:
        return header, b""
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    return header, decompress(header.codec, payload, max_bytes=max_bytes)


def _spans_of(header: BatchHeader, data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield number, start behind the length, and end of each record."""
    position, end = 0, len(data)
    for number in range(header.records_count):
        size, body = read_varint(data, position, end, 5)
        if body < 0 or not 0 < size <= end - body:
            raise _malformed(header, number, position)
        position = body + size
        yield number, body, position
    if position != end:
        raise CorruptBatch(
            "Incorrect declared batch size, records still remaining in file", position
        )


def _malformed(header: BatchHeader, number: int, position: int) -> CorruptBatch:
    return CorruptBatch(
        f"Record {number} of the batch at offset {header.base_offset} is malformed", position
    )
