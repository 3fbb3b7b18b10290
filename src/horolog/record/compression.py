"""Kafka's five codecs, both ways, with a bound on what decompressing may hold.

A batch of a megabyte can stand for ten gigabytes (zstd packs repetitive JSON
10,000 : 1), so reading goes in chunks: `decompress_chunks` never holds more
than one chunk besides the codec's own window. That window is a few megabytes
at most for gzip and lz4; a zstd frame may ask for 128 MiB, which Kafka's
clients do at their highest level; a block of snappy is held whole, after its
claimed size has been checked against what snappy can pack.

Framing, as Kafka has it: gzip is RFC 1952; lz4 is the standard frame with
independent blocks; zstd is a plain frame; snappy comes in xerial's framing
(`82 SNAPPY 00`, two i32 versions, then blocks of an i32 length and raw
snappy), and bare snappy, which some clients send, is read as well.
"""

import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import TypeAlias

import cramjam
import lz4.frame
import zstandard

from horolog.errors import CorruptBatch, ErrorCode, RequestRefused

Buffer: TypeAlias = bytes | bytearray | memoryview

CHUNK_BYTES = 1 << 20
_FIRST_CHUNK_BYTES = 64 << 10  # most batches end within it; a larger buffer costs more than its use
_INPUT_BYTES = 64 << 10  # what a codec is given at once: it copies what it could not use yet

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10  # what Java's writer uses
_I32 = struct.Struct(">i")
# Snappy's longest copy makes 64 bytes of 3; a block that claims more is lying.
_SNAPPY_BEST_RATIO = 22

_ZSTD_MAX_WINDOW_BYTES = 128 << 20
_ZSTD_DEFAULT_LEVEL = 3


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` as the records of a batch of this codec; `level` None is the codec's default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, -1 if level is None else level, wbits=31)
        case Codec.SNAPPY:
            return _snappy_compress(memoryview(data))
        case Codec.LZ4:
            return _lz4_compress(data, level or 0)
        case Codec.ZSTD:
            return _zstd_compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level)


def decompress(codec: Codec, data: Buffer, *, max_bytes: int) -> bytes:
    """All of `data` at once; see `decompress_chunks` for what may go wrong."""
    return b"".join(decompress_chunks(codec, data, max_bytes=max_bytes))


def decompress_chunks(
    codec: Codec, data: Buffer, *, max_bytes: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Buffer]:
    """The decompressed bytes in order, in pieces of 1 to `chunk_bytes` (or `max_bytes`) bytes.

    Bytes that are not compressed come back as they are, in one piece and not
    copied. A truncated zstd or lz4 stream may just end early: what is missing
    shows when the records are counted.

    Raises:
        RequestRefused: there are more than `max_bytes` (MESSAGE_TOO_LARGE).
        CorruptBatch: the codec cannot make sense of `data`.
    """
    if codec is Codec.NONE:
        if len(data):
            yield data
        return
    produced = 0
    chunk_bytes = max(1, min(chunk_bytes, max_bytes))  # more would be for nothing
    for chunk in _DECOMPRESSORS[codec](memoryview(data), chunk_bytes):
        produced += len(chunk)
        if produced > max_bytes:
            raise RequestRefused(
                ErrorCode.message_too_large,
                f"A record batch of {len(data)} compressed bytes ({codec.name.lower()}) holds more "
                f"than {max_bytes} bytes, the most that is decompressed for one batch",
            )
        if len(chunk):
            yield chunk


def _corrupt(codec: Codec, error: object) -> CorruptBatch:
    return CorruptBatch(f"Records cannot be decompressed with {codec.name.lower()}: {error}")


def _gzip_chunks(data: memoryview, chunk_bytes: int) -> Iterator[Buffer]:
    position, pending = 0, b""
    size = min(_FIRST_CHUNK_BYTES, chunk_bytes)
    while pending or position < len(data):  # one turn per member: gzip may be concatenated
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if not pending:
                pending = bytes(data[position : position + _INPUT_BYTES])
                position += len(pending)
                if not pending:
                    raise _corrupt(Codec.GZIP, "the stream ends early")
            try:
                chunk = member.decompress(pending, size)
            except zlib.error as error:
                raise _corrupt(Codec.GZIP, error) from None
            pending = member.unconsumed_tail
            size = chunk_bytes
            yield chunk
        pending = member.unused_data


def _snappy_compress(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += _I32.pack(len(block))
        out += block
    return bytes(out)


def _snappy_chunks(data: memoryview, chunk_bytes: int) -> Iterator[Buffer]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield from _snappy_block(data, chunk_bytes)
        return
    position = 0
    while position < len(data):
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # streams may be concatenated, as Java's reader allows
            continue
        if position + _I32.size > len(data):
            raise _corrupt(Codec.SNAPPY, "the last block has no whole length")
        (size,) = _I32.unpack_from(data, position)
        position += _I32.size
        if not 0 < size <= len(data) - position:
            raise _corrupt(Codec.SNAPPY, f"a block of {size} bytes of {len(data) - position} left")
        yield from _snappy_block(data[position : position + size], chunk_bytes)
        position += size


def _snappy_block(block: memoryview, chunk_bytes: int) -> Iterator[Buffer]:
    if not len(block):
        raise _corrupt(Codec.SNAPPY, "there is nothing to decompress")
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > len(block) * _SNAPPY_BEST_RATIO:
            raise _corrupt(Codec.SNAPPY, f"{len(block)} bytes claim to hold {claimed}")
        out = bytearray(claimed)
        written = cramjam.snappy.decompress_raw_into(block, out) if claimed else 0
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from None
    if written != claimed:
        raise _corrupt(Codec.SNAPPY, f"{written} bytes came of {claimed} promised")
    view = memoryview(out)
    for start in range(0, claimed, chunk_bytes):
        yield view[start : start + chunk_bytes]


def _lz4_compress(data: Buffer, level: int) -> bytes:
    # Java's reader refuses blocks that lean on the block before.
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def _lz4_chunks(data: memoryview, chunk_bytes: int) -> Iterator[Buffer]:
    frame = lz4.frame.LZ4FrameDecompressor()
    position = 0
    size = min(_FIRST_CHUNK_BYTES, chunk_bytes)
    while position < len(data) or not frame.needs_input:
        pending = data[position : position + _INPUT_BYTES] if frame.needs_input else b""
        position += len(pending)
        try:
            chunk = frame.decompress(pending, size)
        except RuntimeError as error:
            raise _corrupt(Codec.LZ4, error) from None
        size = chunk_bytes
        yield chunk
        if frame.eof:
            return  # Java's reader stops at the end mark too


def _zstd_compress(data: Buffer, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


class _ThreadLocal(threading.local):
    """A zstd context costs more to make than a batch to read, and serves one thread at a time."""

    zstd: zstandard.ZstdDecompressor | None = None


_local = _ThreadLocal()


def _zstd_chunks(data: memoryview, chunk_bytes: int) -> Iterator[Buffer]:
    decompressor = _local.zstd
    _local.zstd = (
        None  # taken: a second reader on this thread, half-way through this one, makes its own
    )
    if decompressor is None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    size = min(_FIRST_CHUNK_BYTES, chunk_bytes)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while chunk := reader.read(size):
                size = chunk_bytes
                yield chunk
    except zstandard.ZstdError as error:
        raise _corrupt(Codec.ZSTD, error) from None
    _local.zstd = decompressor


_DECOMPRESSORS: Mapping[Codec, Callable[[memoryview, int], Iterator[Buffer]]] = {
    Codec.GZIP: _gzip_chunks,
    Codec.SNAPPY: _snappy_chunks,
    Codec.LZ4: _lz4_chunks,
    Codec.ZSTD: _zstd_chunks,
}
