"""Codec gzip (RFC 1952): one member or several, each with its checksum and size.

Kafka reads with Java's GZIPInputStream. Bytes after a member are ignored unless they begin with a
whole header of a member. After such a header the member must be whole. Java ignores a member of up
to 18 bytes, unless its read buffer happens to end within it.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from horolog.buffers import Buffer
from horolog.record.codecs.stream import (
    FIRST_CHUNK_BYTES,
    INPUT_BYTES,
    Codec,
    Packer,
    corrupt,
    ends_early,
)

_MAGIC_AND_METHOD: Final = b"\x1f\x8b\x08"
_FLAGS: Final = 3  # byte of the header; the other flags have no meaning, and Java ignores them
_HEADER_CRC: Final = 0x02
_EXTRA: Final = 0x04
_NAME: Final = 0x08
_COMMENT: Final = 0x10
_HEADER_BYTES: Final = 10
_U16: Final = struct.Struct("<H")
_TRAILER: Final = struct.Struct("<II")  # CRC-32 and size, both of 32 bits


def compress(data: Buffer, level: int | None) -> bytes:
    """Return data as one gzip member; `level` None is zlib's default."""
    return zlib.compress(data, -1 if level is None else level, wbits=31)


def packer(level: int | None) -> Packer:
    """Return a compressor of pieces, one after the other."""
    return zlib.compressobj(-1 if level is None else level, wbits=31)


def into(packed: memoryview, room: memoryview) -> int | None:
    """Decompress a single member to the start of `room`; None as `compression.decompress_into`."""
    most = len(room)
    if not most or len(packed) < _HEADER_BYTES + _TRAILER.size:
        return None
    if _TRAILER.unpack_from(packed, len(packed) - _TRAILER.size)[1] > most:
        return None
    member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        data = member.decompress(packed, most)
    except zlib.error:
        return None
    if not member.eof or member.unused_data:
        return None
    room[: len(data)] = data
    return len(data)


def chunks(
    packed: memoryview, chunk_bytes: int, _scratch: memoryview | None = None
) -> Iterator[Buffer]:
    """Yield the bytes of all members, in pieces of at most `chunk_bytes`.

    Raises:
        CorruptBatch: a member is damaged or ends early.
    """
    data = bytes(packed)
    view = memoryview(data)
    position = _after_header(data, 0)
    if position is None:
        raise corrupt(Codec.GZIP, "there is no header of a gzip member")
    size = min(FIRST_CHUNK_BYTES, chunk_bytes)
    while position is not None:
        member = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        crc = length = 0
        pending: Buffer = b""
        while not member.eof:
            if not pending:
                pending = view[position : position + INPUT_BYTES]
                position += len(pending)
                if not pending:
                    raise ends_early(Codec.GZIP)
            try:
                chunk = member.decompress(pending, size)
            except zlib.error as error:
                raise corrupt(Codec.GZIP, error) from None
            pending = member.unconsumed_tail
            size = chunk_bytes
            crc = zlib.crc32(chunk, crc)
            length += len(chunk)
            yield chunk
        position -= len(member.unused_data)
        if len(data) - position < _TRAILER.size:
            raise ends_early(Codec.GZIP)
        if _TRAILER.unpack_from(data, position) != (crc, length & 0xFFFFFFFF):
            raise corrupt(Codec.GZIP, "checksum or size is not that of the data")
        position = _after_header(data, position + _TRAILER.size)


def _after_header(data: bytes, start: int) -> int | None:
    """Return where the data of the member at `start` begins; None without a whole header."""
    if data[start : start + 3] != _MAGIC_AND_METHOD or len(data) - start < _HEADER_BYTES:
        return None
    flags = data[start + _FLAGS]
    position = start + _HEADER_BYTES
    if flags & _EXTRA:
        if len(data) - position < _U16.size:
            return None
        position += _U16.size + _U16.unpack_from(data, position)[0]
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            position = data.find(0, position) + 1
            if not position:
                return None
    if flags & _HEADER_CRC:
        crc = zlib.crc32(memoryview(data)[start:position]) & 0xFFFF
        if len(data) - position < _U16.size or _U16.unpack_from(data, position)[0] != crc:
            return None
        position += _U16.size
    return position if position <= len(data) else None
