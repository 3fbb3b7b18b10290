"""Codec snappy, in xerial's framing, which Java writes, and bare, which some clients send.

    82 SNAPPY 00, i32 version, i32 compatible version; then blocks: i32 length, raw snappy

Java's SnappyInputStream allows a stream to follow another. A length of less than four bytes ends
the stream. The version of the first header is not checked, versions of later headers are.
"""

import struct
from collections.abc import Iterator
from typing import Final

import cramjam

from horolog.buffers import Buffer
from horolog.record.codecs.stream import Codec, Packer, corrupt

_MAGIC: Final = b"\x82SNAPPY\x00"
_MAGIC_AS_LENGTH: Final = _MAGIC[:4]  # distinguishes a header from a block
_VERSIONS: Final = struct.Struct(">ii")
_HEADER: Final = _MAGIC + _VERSIONS.pack(1, 1)
_OLDEST_VERSION: Final = 1
_BLOCK_BYTES: Final = 32 << 10  # what Java's writer uses
_I32: Final = struct.Struct(">i")
# Snappy's longest copy makes 64 bytes of 3; a block that claims more is lying.
_BEST_RATIO: Final = 22


def compress(data: Buffer) -> bytes:
    """Return data as a stream of xerial's framing."""
    stream = packer()
    return stream.compress(data) + stream.flush()


class _Packer:
    """Compressor to blocks of 32 KiB, the last one shorter."""

    def __init__(self) -> None:
        self._pending = b""
        self._header = _HEADER

    def compress(self, data: Buffer) -> bytes:
        view = memoryview(self._pending + data if self._pending else data)
        whole = len(view) - len(view) % _BLOCK_BYTES
        out = bytearray(self._header)
        self._header = b""
        for start in range(0, whole, _BLOCK_BYTES):
            out += _packed_block(view[start : start + _BLOCK_BYTES])
        self._pending = bytes(view[whole:])
        return bytes(out)

    def flush(self) -> bytes:
        out = self._header
        return out + _packed_block(self._pending) if self._pending else out


def _packed_block(data: Buffer) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return _I32.pack(len(block)) + block


def packer() -> Packer:
    """Return a compressor of pieces, one after the other."""
    return _Packer()


def into(packed: memoryview, room: memoryview) -> int | None:
    """Decompress a stream of xerial's framing to the start of `room`; None as `decompress_into`."""
    position, end = len(_HEADER), len(packed)
    if end < position or bytes(packed[: len(_MAGIC)]) != _MAGIC:
        return None
    blocks: list[memoryview] = []
    claimed = filled = 0
    try:
        while position < end:
            if end - position < _I32.size:
                return None
            (size,) = _I32.unpack_from(packed, position)
            position += _I32.size
            if not 0 < size <= end - position:  # or another stream follows
                return None
            block = packed[position : position + size]
            position += size
            claimed += cramjam.snappy.decompress_raw_len(block)
            if claimed > len(room):
                return None
            blocks.append(block)
        for block in blocks:
            filled += cramjam.snappy.decompress_raw_into(block, room[filled:])
    except cramjam.DecompressionError:
        return None
    return filled


def chunks(
    packed: memoryview, chunk_bytes: int, scratch: memoryview | None = None
) -> Iterator[Buffer]:
    """Yield the bytes of all blocks, in pieces of at most `chunk_bytes`; a block is held whole.

    Blocks that fit are decompressed in `scratch`.

    Raises:
        CorruptBatch: a block is damaged, ends early, or claims more than snappy can pack.
    """
    if len(packed) < len(_HEADER) or bytes(packed[: len(_MAGIC)]) != _MAGIC:
        yield from _block(packed, chunk_bytes, scratch)
        return
    position = len(_HEADER)
    while len(packed) - position >= _I32.size:
        if bytes(packed[position : position + _I32.size]) == _MAGIC_AS_LENGTH:
            header = bytes(packed[position : position + len(_HEADER)])
            if len(header) < len(_HEADER):
                raise corrupt(Codec.SNAPPY, "the header of a stream that follows ends early")
            if header[: len(_MAGIC)] != _MAGIC:
                return
            version, _ = _VERSIONS.unpack_from(header, len(_MAGIC))
            if version < _OLDEST_VERSION:
                raise corrupt(Codec.SNAPPY, f"a stream that follows is of version {version}")
            position += len(_HEADER)
            continue
        (size,) = _I32.unpack_from(packed, position)
        position += _I32.size
        if not 0 < size <= len(packed) - position:
            raise corrupt(Codec.SNAPPY, f"a block of {size} bytes of {len(packed) - position} left")
        yield from _block(packed[position : position + size], chunk_bytes, scratch)
        position += size


def _block(block: memoryview, chunk_bytes: int, scratch: memoryview | None) -> Iterator[Buffer]:
    if not len(block):
        raise corrupt(Codec.SNAPPY, "there is nothing to decompress")
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > len(block) * _BEST_RATIO:
            raise corrupt(Codec.SNAPPY, f"{len(block)} bytes claim to hold {claimed}")
        view = scratch
        if view is None or claimed > len(view):
            view = memoryview(bytearray(claimed))
        written = cramjam.snappy.decompress_raw_into(block, view[:claimed]) if claimed else 0
    except cramjam.DecompressionError as error:
        raise corrupt(Codec.SNAPPY, error) from None
    if written != claimed:
        raise corrupt(Codec.SNAPPY, f"{written} bytes came of {claimed} promised")
    for start in range(0, claimed, chunk_bytes):
        yield view[start : min(start + chunk_bytes, claimed)]
