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
from horolog.record.old_format.reading import open_message
from horolog.record.record_bytes import record_bytes
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType

Header = tuple[str, bytes | None]

_MASK32 = (1 << 32) - 1
_MASK64 = (1 << 64) - 1
_MAX_BYTES = 1 << 30  # what reading a batch may decompress


class LogRecord(NamedTuple):
    """One record; a timestamp of -1 is none, `offset` is known once it was read from a log."""

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
    """A whole batch whose records take consecutive offsets from `base_offset` on.

    The base timestamp is the first record's; `max_timestamp` None is the largest
    that any record carries (-1 if none carries one). Without records this is the
    empty batch that compaction leaves behind.
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


def empty_batch(first_offset: int, last_offset: int) -> bytes:
    """A batch without records that covers these offsets: consumers continue behind it."""
    header = parse_header(build_batch((), base_offset=first_offset))
    return with_records(header._replace(last_offset_delta=last_offset - first_offset), b"")


def read_records(batch: Buffer, *, max_bytes: int = _MAX_BYTES) -> Iterator[LogRecord]:
    """The records of one whole batch with offsets and their true timestamps.

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
    """The same with the time that each record's own bytes hold.

    In a batch of v2, or a compressed message of v1, that is stamped with LogAppendTime this is the
    create time, unless a broker packed it anew (KIP-32, rejected option 1). Elsewhere, so in plain
    messages of v1, it is the record's timestamp.

    Raises:
        CorruptBatch, RequestRefused: as `read_records`.
    """
    header = parse_header(batch)
    if header.magic != MAGIC:
        header, pieces = open_message(batch, header, max_bytes=max_bytes)
        reader = _Reader(b"".join(pieces))
        for _ in range(header.records_count):
            yield reader.record(header)
        return
    if header.size > len(batch):
        raise CorruptBatch(f"The batch is {header.size} bytes long and {len(batch)} are there")
    if header.records_count < 0:
        raise CorruptBatch(f"Found invalid record count {header.records_count} in magic v2 batch")
    if header.records_count == 0:
        return
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    reader = _Reader(decompress(header.codec, payload, max_bytes=max_bytes))
    for _ in range(header.records_count):
        yield reader.record(header)
    if reader.position != len(reader.data):
        raise CorruptBatch(
            "Incorrect declared batch size, records still remaining in file", reader.position
        )


class _Reader:
    """A position in decompressed records."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def record(self, header: BatchHeader) -> tuple[LogRecord, int]:
        length = self.varint()
        end = self.position + length
        self.take(1)
        timestamp = created = int64(header.base_timestamp + self.varlong())
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp = header.max_timestamp
        offset = header.base_offset + self.varint()
        key, value = self.nullable(), self.nullable()
        count = self.varint()
        if not 0 <= count <= len(self.data) - self.position:
            raise CorruptBatch(f"Found invalid number of record headers {count}", self.position)
        headers = tuple(self.header() for _ in range(count)) if count else ()
        if self.position != end:
            raise CorruptBatch(
                f"Invalid record size: expected to read {length} bytes in record payload, but "
                f"instead read {self.position - end + length}",
                self.position,
            )
        return LogRecord(timestamp, key, value, headers, offset), created

    def header(self) -> Header:
        length = self.varint()
        if length < 0:
            raise CorruptBatch(f"Invalid negative header key size {length}", self.position)
        return self.take(length).decode("utf-8", "replace"), self.nullable()

    def nullable(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.take(length)

    def take(self, length: int) -> bytes:
        start, self.position = self.position, self.position + length
        if self.position > len(self.data):
            raise CorruptBatch("Incorrect declared batch size, premature EOF reached", start)
        return self.data[start : self.position]

    def varint(self) -> int:
        data, position = self.data, self.position
        if position < len(data) and (value := data[position]) < 0x80:  # as most are
            self.position = position + 1
            return value >> 1 ^ -(value & 1)
        value = self._unsigned(5) & _MASK32
        return value >> 1 ^ -(value & 1)

    def varlong(self) -> int:
        value = self._unsigned(10) & _MASK64
        return value >> 1 ^ -(value & 1)

    def _unsigned(self, longest: int) -> int:
        data, start = self.data, self.position
        value = 0
        for index in range(min(longest, len(data) - start)):
            byte = data[start + index]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                self.position = start + index + 1
                return value
        if len(data) - start < longest:
            raise CorruptBatch("Incorrect declared batch size, premature EOF reached", len(data))
        raise CorruptBatch(f"A varint is longer than {longest} bytes", start + longest)
