"""Records of v2 as message sets of v0 and v1.

The result is what Apache Kafka writes: plain messages one after the other, or one compressed
message that contains them. Offset, timestamp and type follow the rules of KIP-31 and KIP-32.
"""

import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, ErrorCode, RequestRefused
from horolog.record.batch import LOG_APPEND_TIME_BIT, BatchHeader
from horolog.record.codecs.lz4_frame import with_v0_checksum
from horolog.record.compression import CHUNK_BYTES, Codec, compress_chunks
from horolog.record.kernels.layout import FULL, MALFORMED
from horolog.record.kernels.message_kernels import (
    CHANGE_APPEND_TIME,
    CHANGE_BASE_TIME,
    CHANGE_COUNT,
    CHANGE_FILLED,
    CHANGE_FIRST_OFFSET,
    CHANGE_HEADERS,
    CHANGE_LAST_OFFSET,
    CHANGE_MAGIC,
    CHANGE_MAX,
    CHANGE_MODE,
    CHANGE_NEED,
    CHANGE_POSITION,
    CHANGE_SKIP_BELOW,
    CHANGE_TIMED,
    KEEP_TIMES,
)
from horolog.record.old_format import reading
from horolog.record.old_format.reading import MessageTooLong, new_state, to_messages
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP

MAX_SET_BYTES = (1 << 31) - 1 - 64
INT64_MIN = -(1 << 63)
_HEAD = struct.Struct(">qiI")  # offset, size, CRC-32
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class WrittenMessages(NamedTuple):
    """A message set, and counts of data that it cannot contain."""

    messages: bytes
    records: int
    headers_lost: int
    timestamps: int
    """Records that have one, whether the format holds it or not."""
    last_offset: int
    """Offset of the last record. The batch's may be larger, where compaction removed records."""


def write_messages(
    magic: int,
    header: BatchHeader,
    pieces: Iterable[Buffer],
    *,
    codec: Codec,
    level: int | None = None,
    max_bytes: int = MAX_SET_BYTES,
    start_offset: int | None = None,
) -> WrittenMessages:
    """Write the records of a batch as plain messages of v0 or v1, or as one compressed message.

    Args:
        magic: 0 or 1.
        header: header of the batch of records, as v2 has it.
        pieces: its records, decompressed, cut anywhere.
        codec: codec of the message that contains them; NONE for plain ones.
        level: level of the codec; None is its default.
        start_offset: records before it are left out of plain messages, if given.

    Raises:
        CorruptBatch: the records are malformed.
        MessageTooLong: a record is longer than `MOST_MESSAGE_BYTES`.
        RequestRefused: it would be longer than `max_bytes`, or messages cannot be compressed with
            the codec (76): zstd came with format v2.
    """
    if codec is Codec.ZSTD:
        raise RequestRefused(
            ErrorCode.unsupported_compression_type,
            f"Messages of format v{magic} cannot be compressed with zstd",
        )
    state = new_state(header)
    state[CHANGE_MAGIC] = magic
    if codec is not Codec.NONE:  # the message that holds them has the append time
        state[CHANGE_MODE] = KEEP_TIMES
    if codec is not Codec.NONE or not state[CHANGE_APPEND_TIME]:
        state[CHANGE_BASE_TIME] = header.base_timestamp
    is_relative = magic == 1 and codec is not Codec.NONE
    state[CHANGE_FIRST_OFFSET] = 0 if is_relative else header.base_offset
    state[CHANGE_SKIP_BELOW] = INT64_MIN if start_offset is None else start_offset
    sets = _message_pieces(pieces, state)
    messages = compress_chunks(codec, sets, level, max_bytes=max_bytes)
    if messages is None:
        raise _too_long(magic, max_bytes)
    count = state[CHANGE_COUNT]
    last = state[CHANGE_LAST_OFFSET]
    if not count:
        return WrittenMessages(b"", 0, 0, 0, header.last_offset)
    if is_relative:
        last += header.base_offset
    timed = state[CHANGE_TIMED]
    is_append_time = header.timestamp_type is LOG_APPEND_TIME
    if is_append_time:
        timed = 0 if header.max_timestamp == NO_TIMESTAMP else count
    if codec is not Codec.NONE:
        largest = state[CHANGE_MAX] if state[CHANGE_TIMED] else NO_TIMESTAMP
        messages = message_bytes(
            magic,
            last,
            None,
            with_v0_checksum(messages) if codec is Codec.LZ4 and magic == 0 else messages,
            header.max_timestamp if is_append_time else largest,
            codec=codec,
            is_append_time=is_append_time,
        )
        if len(messages) > max_bytes:
            raise _too_long(magic, max_bytes)
    return WrittenMessages(messages, count, state[CHANGE_HEADERS], timed, last)


def _message_pieces(pieces: Iterable[Buffer], state: "array[int]") -> Iterator[Buffer]:
    """Yield messages of the records in `pieces`, each valid until the next is asked for."""
    out = memoryview(bytearray(CHUNK_BYTES))
    carry = bytearray()
    need = 0
    for piece in pieces:
        if carry:
            carry += piece
            if len(carry) < need:
                if len(carry) > reading.MOST_MESSAGE_BYTES:
                    raise MessageTooLong(state[CHANGE_MAGIC])
                continue
        data = memoryview(carry or piece)
        status = FULL
        while status == FULL:
            status = to_messages(data, state, out)
            yield out[: state[CHANGE_FILLED]]
            data = data[state[CHANGE_POSITION] :]
            need = state[CHANGE_NEED]
            if status == FULL and need > len(out):
                out = memoryview(bytearray(need))
        if status == MALFORMED:
            break
        carry = bytearray(data)
    else:
        if not carry:
            return
    raise CorruptBatch(f"Record {state[CHANGE_COUNT]} of the batch is malformed")


def _too_long(magic: int, max_bytes: int) -> RequestRefused:
    return RequestRefused(
        ErrorCode.message_too_large,
        f"The records are larger than {max_bytes} bytes as messages of format v{magic}",
    )


def message_bytes(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    timestamp: int = NO_TIMESTAMP,
    *,
    codec: int = 0,
    is_append_time: bool = False,
) -> bytes:
    """Return a message of format v0 or v1, offset and size first; v0 has no time."""
    body = bytearray((magic, codec | (LOG_APPEND_TIME_BIT if magic and is_append_time else 0)))
    if magic:
        body += _I64.pack(timestamp)
    for field in (key, value):
        body += _I32.pack(-1) if field is None else _I32.pack(len(field)) + field
    crc = zlib.crc32(body)
    return _HEAD.pack(offset, len(body) + 4, crc) + body
