"""The header of a batch: of format v2 (KIP-98), or a message of v0 or v1 (KIP-32).

     0  i64  base_offset           23  i32  last_offset_delta     51  i16  producer_epoch
     8  i32  batch_length          27  i64  base_timestamp        53  i32  base_sequence
    12  i32  leader_epoch          35  i64  max_timestamp         57  i32  records_count
    16  i8   magic (2)             43  i64  producer_id           61       records
    17  u32  crc (CRC-32C of all from byte 21)
    21  i16  attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control,
             6 delete horizon in base_timestamp (KIP-534)

`batch_length` counts from byte 12. The CRC leaves out the first 17 bytes, so that a
leader can assign offsets and epoch without touching it.

Messages of formats v0 and v1 share the first twelve bytes and the place of the magic byte:

     0  i64  offset                12  u32  crc (CRC-32 of all from byte 16)
     8  i32  size, from byte 12    16  i8   magic (0, 1)
                                   17  i8   attributes: bits 0-2 codec; v1: 3 LogAppendTime
                                   18  i64  timestamp, v1 only (KIP-32)

Each message is a batch of its own, and is described by the header that it would have in v2. A
compressed one holds others. Its offset is that of the last of them; where it begins, and how many
it holds, is only known once it is decompressed (`old_format`). Until then its base offset is the
smallest that it can have, and its count `UNKNOWN_COUNT`.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.compression import Codec
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType

HEADER_SIZE = 61
LOG_OVERHEAD = 12
MAGIC_POSITION = 16
MAGIC = 2
UNKNOWN_COUNT = -1
"""Count of records of a compressed message of v0 or v1, of which only the header was read."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SIZE_TO_MAGIC = struct.Struct(">iib")  # from byte 8: batch_length, leader_epoch, magic
CRC_START = 21
ATTRIBUTES_LOW_BYTE = 22
_UP_TO_CRC = struct.Struct(">qiibI")  # the header up to byte 21
_CRC_COVERED = struct.Struct(">hiqqqhii")  # and from there on
_SMALLEST_LENGTH = 14  # of any format: an empty message of v0
_SMALLEST_V2_LENGTH = HEADER_SIZE - LOG_OVERHEAD

_MESSAGE = struct.Struct(">qiIbB")  # offset, size, CRC-32, magic, attributes
_MESSAGE_TIMESTAMP = struct.Struct(">q")
_MESSAGE_CRC_START = 16
_MESSAGE_ATTRIBUTES = 17
_MESSAGE_BITS = (0x07, 0x0F)  # attributes with a meaning in v0 and v1
_SMALLEST_MESSAGES = (14, 22)
_MESSAGE_HEADS = (18, 26)  # bytes before the key's length
SMALLEST_BATCH = LOG_OVERHEAD + _SMALLEST_LENGTH
"""Bytes of an empty message of v0: there is no shorter batch."""
_ZSTD = 4

_CODECS = tuple(Codec)
_TIMESTAMP_TYPES = tuple(TimestampType)

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
_KNOWN_BITS = 0x7F
_SEQUENCES = 1 << 31  # after 2147483647 comes 0


class BatchHeader(NamedTuple):
    """A header as it was read; only its magic and a possible length have been checked."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record; compaction keeps it even where that record is removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset that follows the batch."""
        return self.last_offset + 1

    @property
    def codec_number(self) -> int:
        """Number of the codec in the header, 0 to 7; Kafka has 0 (none) to 4."""
        return self.attributes & CODEC_BITS

    @property
    def codec(self) -> Codec:
        """Codec of the records.

        Raises:
            CorruptBatch: the batch names a codec that Kafka does not have (5 to 7), or zstd in a
                message of v0 or v1.
        """
        codec = self.codec_number
        if codec >= len(_CODECS) or (codec == _ZSTD and self.magic != MAGIC):
            raise CorruptBatch(
                f"Unknown compression codec {codec} in the batch of format v{self.magic} at offset "
                f"{self.base_offset}"
            )
        return _CODECS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        """Clock of the records' timestamps: the producer's or the broker's."""
        return _TIMESTAMP_TYPES[self.attributes >> 3 & 1]

    @property
    def timestamp_type_name(self) -> str:
        """Kafka's name of the timestamp type; records of v0 have none."""
        return self.timestamp_type.kafka_name if self.magic else "NoTimestampType"

    @property
    def is_transactional(self) -> bool:
        """True for batches of a transaction, and for markers that end one."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True for a batch of markers, which consumers do not get."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True if `base_timestamp` is a delete horizon (KIP-534), not the first record's time."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping after 2147483647; -1 without sequences."""
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES


def parse_header(buffer: Buffer, position: int = 0, least_offset: int = 0) -> BatchHeader:
    """Read the header at `position`, of any format; the records may be missing.

    A compressed message of v0 or v1 is assumed to begin at `least_offset`, which should be the
    offset after the previous batch.

    Raises:
        CorruptBatch: too few bytes, an unknown format, or a length that no batch can have.
    """
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        return _short_header(buffer, position, least_offset)
    fields = _HEADER.unpack_from(buffer, position)
    if fields[3] != MAGIC or fields[1] < _SMALLEST_V2_LENGTH:
        _check_size_and_magic(fields[1], fields[3], position)
        return _message_header(buffer, position, least_offset)
    return tuple.__new__(BatchHeader, fields)  # `_make` would count the fields once more


def _short_header(buffer: Buffer, position: int, least_offset: int) -> BatchHeader:
    left = 0 if position < 0 else max(0, len(buffer) - position)
    if left > MAGIC_POSITION:
        length, _, magic = _SIZE_TO_MAGIC.unpack_from(buffer, position + 8)
        if magic in (0, 1) and left >= _MESSAGE_HEADS[magic]:
            _check_size_and_magic(length, magic, position)
            return _message_header(buffer, position, least_offset)
    raise CorruptBatch(
        f"Record batch is corrupt (the size {left} is smaller than the minimum allowed overhead "
        f"{HEADER_SIZE})",
        position,
    )


def _message_header(buffer: Buffer, position: int, least_offset: int) -> BatchHeader:
    """Read the header of a message of v0 or v1 that is long enough."""
    offset, size, crc, magic, attributes = _MESSAGE.unpack_from(buffer, position)
    attributes &= _MESSAGE_BITS[magic]
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _MESSAGE_TIMESTAMP.unpack_from(buffer, position + _MESSAGE.size)
    is_compressed = attributes & CODEC_BITS
    base_offset = min(least_offset, offset) if is_compressed else offset
    return BatchHeader(
        base_offset=base_offset,
        batch_length=size,
        leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=offset - base_offset,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=UNKNOWN_COUNT if is_compressed else 1,
    )


def codec_number_of(batch: Buffer) -> int:
    """Return the codec number of a batch that was not parsed; 0 if the batch is too short."""
    if len(batch) <= ATTRIBUTES_LOW_BYTE:
        return 0
    at = ATTRIBUTES_LOW_BYTE if batch[MAGIC_POSITION] == MAGIC else _MESSAGE_ATTRIBUTES
    return batch[at] & CODEC_BITS


def iter_headers(
    buffer: Buffer, start: int = 0, least_offset: int = 0
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every whole batch from `start` on, of any format.

    A batch that is cut off at the end is left out: fetches and live files end with such batches.

    Raises:
        CorruptBatch: the bytes are no batch.
    """
    end = len(buffer)
    position = start
    while end - position > MAGIC_POSITION:
        length, _, magic = _SIZE_TO_MAGIC.unpack_from(buffer, position + 8)
        if magic != MAGIC or length < _SMALLEST_V2_LENGTH:
            _check_size_and_magic(length, magic, position)
        if end - position < length + LOG_OVERHEAD:
            return
        header: BatchHeader
        if magic == MAGIC:
            header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
        else:
            header = _message_header(buffer, position, least_offset)
        yield position, header
        position += length + LOG_OVERHEAD
        least_offset = header.next_offset


def _check_size_and_magic(length: int, magic: int, position: int) -> None:
    if length < _SMALLEST_LENGTH:
        raise CorruptBatch(
            f"Record size {length} is less than the minimum record overhead ({_SMALLEST_LENGTH})",
            position,
        )
    if not 0 <= magic <= MAGIC:
        raise CorruptBatch(f"Invalid magic found in record: {magic}", position)
    if magic != MAGIC and length < _SMALLEST_MESSAGES[magic]:
        raise CorruptBatch(
            f"Record is corrupt (the size {length} is smaller than that of an empty message of "
            f"format v{magic}, {_SMALLEST_MESSAGES[magic]})",
            position,
        )
    if magic == MAGIC and length < _SMALLEST_V2_LENGTH:
        raise CorruptBatch(
            f"Record batch is corrupt (the size {length + LOG_OVERHEAD} is smaller than the "
            f"minimum allowed overhead {HEADER_SIZE})",
            position,
        )


def verify_crc(buffer: Buffer, position: int = 0, header: BatchHeader | None = None) -> None:
    """Compare the batch at `position` with its checksum.

    Raises:
        CorruptBatch: the checksum differs, or the buffer ends within the batch.
    """
    header = header or parse_header(buffer, position)
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(
            f"The batch at offset {header.base_offset} is {header.size} bytes long and only "
            f"{len(buffer) - position} are there",
            position,
        )
    if header.magic == MAGIC:
        computed = crc32c.crc32c(memoryview(buffer)[position + CRC_START : end])
    else:
        computed = zlib.crc32(memoryview(buffer)[position + _MESSAGE_CRC_START : end])
    if computed != header.crc:
        raise CorruptBatch(
            f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})", position
        )


def restamp(
    header: BatchHeader,
    batch: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_type: TimestampType | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Return the 61 header bytes of `batch` as a leader stores them, with unchanged records.

    Only a change of timestamp type or largest timestamp costs a pass over the
    records, for the CRC; as in Kafka, attribute bits without a meaning (7 to 15)
    are then dropped.
    """
    _, length, _, _, crc, attributes, *rest = header
    if timestamp_type is not None:
        attributes = (attributes & ~LOG_APPEND_TIME_BIT) | (timestamp_type << 3)
    if max_timestamp is None:
        max_timestamp = header.max_timestamp
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        attributes &= _KNOWN_BITS
        rest[2] = max_timestamp
        covered = _CRC_COVERED.pack(attributes, *rest)
        records = memoryview(batch)[HEADER_SIZE : header.size]
        crc = crc32c.crc32c(records, crc32c.crc32c(covered))
    return _HEADER.pack(base_offset, length, leader_epoch, MAGIC, crc, attributes, *rest)


def next_sequence(sequence: int, records: int) -> int:
    """Return the sequence that follows `records` records, wrapping after 2147483647 (KIP-98)."""
    return (sequence + records) % _SEQUENCES


def new_batch_header(
    base_offset: int, length: int, leader_epoch: int, covered: tuple[int, ...], records: Buffer
) -> tuple[BatchHeader, bytes]:
    """Return the header of a new batch, and its bytes.

    Args:
        length: bytes that follow the length.
        leader_epoch: -1 where it is to be given.
        covered: the fields from `attributes` on, which the checksum covers.
        records: the rest of the batch.
    """
    crc = crc32c.crc32c(records, crc32c.crc32c(_CRC_COVERED.pack(*covered)))
    fields = base_offset, length, leader_epoch, MAGIC, crc, *covered
    header = tuple.__new__(BatchHeader, fields)
    return header, _HEADER.pack(*header)


def new_head(
    base_offset: int, length: int, leader_epoch: int, covered: Sequence[int], records: Buffer
) -> bytes:
    """Return the bytes of `new_batch_header` alone, which cost less."""
    rest = _CRC_COVERED.pack(*covered)
    crc = crc32c.crc32c(records, crc32c.crc32c(rest))
    return _UP_TO_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc) + rest


def with_records(header: BatchHeader, records: Buffer) -> bytes:
    """Return a batch of v2 with these records; length and CRC in `header` are replaced."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    head = new_head(header.base_offset, length, header.leader_epoch, header[5:], records)
    return b"".join((head, records))
