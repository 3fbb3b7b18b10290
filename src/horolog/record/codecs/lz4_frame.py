"""Codec lz4: a frame with independent blocks, up to its end mark.

Kafka reads with KafkaLZ4BlockInputStream: one frame with independent blocks and without a
dictionary; bytes after the end mark are ignored. This reader is stricter than Java in two points. A
wrong content size or content checksum is refused, because other clients do not read such a frame.
An empty block is refused wherever it is, because Java misreads it unless it is the last.
"""

import struct
from collections.abc import Iterator
from typing import Final

import cramjam
import lz4.block
import lz4.frame

from horolog.buffers import Buffer
from horolog.record.codecs.stream import (
    FIRST_CHUNK_BYTES,
    Codec,
    Packer,
    corrupt,
    ends_early,
)

_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS: Final = 4  # byte of the frame
_RESERVED: Final = 0x03  # bit 0 would be a dictionary
_CONTENT_SIZE: Final = 0x08
_BLOCK_CHECKSUM: Final = 0x10
_INDEPENDENT: Final = 0x20
_DESCRIPTOR_END: Final = 7  # without a content size
_END_MARK: Final = 0
_EMPTY_BLOCKS: Final = (1 << 31, 1)  # uncompressed, and compressed to its one token
_SIZE_BITS: Final = 0x7FFFFFFF
_BLOCK_BYTES: Final = {
    lz4.frame.BLOCKSIZE_MAX64KB: 64 << 10,
    lz4.frame.BLOCKSIZE_MAX256KB: 256 << 10,
    lz4.frame.BLOCKSIZE_MAX1MB: 1 << 20,
}
_INPUT_BYTES: Final = 256 << 10  # given at once: the library copies what it could not use yet
_U32: Final = struct.Struct("<I")


def compress(data: Buffer, level: int | None) -> bytes:
    """Return data as one frame; `level` None is lz4's default."""
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=level or 0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def with_v0_checksum(frame: Buffer) -> bytes:
    """Return a frame of `compress` with the header checksum of messages of v0.

    Kafka before 0.10 computed the checksum of the frame's descriptor over the four bytes of the
    frame's magic too (KAFKA-3160), and readers of v0 continue to expect that.
    """
    return _with_checksum(frame, 0)


def with_true_checksum(frame: Buffer) -> bytes:
    """Return a frame of a message of v0 with the header checksum that lz4's library expects.

    Raises:
        CorruptBatch: it is no frame, or ends early.
    """
    if bytes(frame[: len(_MAGIC)]) != _MAGIC:
        raise corrupt(Codec.LZ4, "there is no lz4 frame")
    if len(frame) <= _FLAGS or len(frame) < _descriptor_end(frame[_FLAGS]):
        raise ends_early(Codec.LZ4)
    return _with_checksum(frame, _FLAGS)


def _with_checksum(frame: Buffer, start: int) -> bytes:
    """Return a frame with the checksum of its bytes from `start` to the end of the descriptor."""
    import xxhash  # noqa: PLC0415 - only messages of v0 need it

    changed = bytearray(frame)
    at = _descriptor_end(changed[_FLAGS]) - 1
    changed[at] = xxhash.xxh32_intdigest(changed[start:at]) >> 8 & 0xFF
    return bytes(changed)


def _descriptor_end(flags: int) -> int:
    return _DESCRIPTOR_END + (8 if flags & _CONTENT_SIZE else 0)


_USUAL_HEADERS: Final = {
    lz4.frame.LZ4FrameCompressor(block_size=code, block_linked=False).begin(): block_bytes
    for code, block_bytes in _BLOCK_BYTES.items()
}
"""The most bytes of a block, by a frame's magic and descriptor."""


_THOROUGH: Final = 9  # a level that compares each place with all others


class _Lz4Packer:
    def __init__(self, level: int | None, *, is_far: bool) -> None:
        sizes = lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB
        self._frame = lz4.frame.LZ4FrameCompressor(
            compression_level=_THOROUGH if is_far else level or 0,
            block_size=sizes[is_far],
            block_linked=False,  # Kafka's reader refuses others
        )
        self._header: bytes = self._frame.begin()

    def compress(self, data: Buffer) -> bytes:
        header, self._header = self._header, b""
        packed: bytes = self._frame.compress(data)
        return header + packed

    def flush(self) -> bytes:
        rest: bytes = self._frame.flush()
        return self._header + rest


def packer(level: int | None, *, is_far: bool = False) -> Packer:
    """Return a compressor of pieces; `is_far` finds all repetitions that the format can hold."""
    return _Lz4Packer(level, is_far=is_far)


def into(packed: memoryview, room: memoryview) -> int | None:
    """Decompress a usual frame to the start of `room`; None as `compression.decompress_into`."""
    block_bytes = _USUAL_HEADERS.get(bytes(packed[:_DESCRIPTOR_END]))
    if block_bytes is None:
        return None
    blocks: list[tuple[memoryview, bool]] = []
    most_blocks = len(room) // block_bytes + 1  # all but the last are full, as a rule
    position, end = _DESCRIPTOR_END, len(packed)
    while end - position >= _U32.size and len(blocks) <= most_blocks:
        (size,) = _U32.unpack_from(packed, position)
        if size == _END_MARK:
            break
        position += _U32.size
        block = packed[position : position + (size & _SIZE_BITS)]
        position += len(block)
        if size in _EMPTY_BLOCKS or len(block) > block_bytes or len(block) != size & _SIZE_BITS:
            return None
        blocks.append((block, size > _SIZE_BITS))
    else:
        return None
    filled = 0
    for block, is_stored in blocks:
        left = room[filled : filled + block_bytes]
        if is_stored:
            if len(block) > len(left):
                return None
            left[: len(block)] = block
            filled += len(block)
            continue
        try:
            filled += cramjam.lz4.decompress_block_into(block, left, output_len=len(left))
        except cramjam.DecompressionError:
            return None
    return filled


def chunks(
    packed: memoryview, chunk_bytes: int, _scratch: memoryview | None = None
) -> Iterator[Buffer]:
    """Yield the bytes of a frame, in pieces of at most `chunk_bytes`.

    Raises:
        CorruptBatch: the frame is damaged or is one that Kafka cannot read; after all that can be
            read, if it ends early.
    """
    _check_frame(packed)
    frame = lz4.frame.LZ4FrameDecompressor()
    position = 0
    size = min(FIRST_CHUNK_BYTES, chunk_bytes)
    while not frame.eof:
        pending: Buffer = b""
        if frame.needs_input:
            pending = packed[position : position + _INPUT_BYTES]
            if not len(pending):
                raise ends_early(Codec.LZ4)
            position += len(pending)
        try:
            chunk = frame.decompress(pending, size)
        except RuntimeError as error:
            raise corrupt(Codec.LZ4, error) from None
        size = chunk_bytes
        yield chunk


def blocks(packed: memoryview, chunk_bytes: int) -> Iterator[Buffer]:
    """Yield the bytes of a frame block by block, where it is one that clients usually write.

    A search of the first records decompresses no more than it needs.
    """
    block_bytes = _USUAL_HEADERS.get(bytes(packed[:_DESCRIPTOR_END]), chunk_bytes + 1)
    if block_bytes > chunk_bytes or not _check_frame(packed):
        yield from chunks(packed, chunk_bytes)
        return
    position = _DESCRIPTOR_END
    while (size := _U32.unpack_from(packed, position)[0]) != _END_MARK:
        position += _U32.size
        block = packed[position : position + (size & _SIZE_BITS)]
        position += len(block)
        if len(block) > block_bytes:
            raise corrupt(Codec.LZ4, f"a block of {len(block)} bytes is larger than the frame says")
        data: Buffer = block
        if size <= _SIZE_BITS:
            try:
                data = lz4.block.decompress(block, uncompressed_size=block_bytes)
            except lz4.block.LZ4BlockError as error:
                raise corrupt(Codec.LZ4, error) from None
        yield data
        if len(data) < block_bytes and _U32.unpack_from(packed, position)[0] != _END_MARK:
            # Clients fill all but the last. A hundred thousand blocks of a byte are read as one.
            rest = b"".join((packed[:_DESCRIPTOR_END], packed[position:]))
            yield from chunks(memoryview(rest), chunk_bytes)
            return


def _check_frame(packed: memoryview) -> bool:
    """Refuse a frame that lz4's library reads and Kafka's reader does not.

    Returns:
        True if the frame has an end mark.
    """
    if bytes(packed[: len(_MAGIC)]) != _MAGIC:
        raise corrupt(Codec.LZ4, "there is no lz4 frame")
    if len(packed) <= _FLAGS:
        raise ends_early(Codec.LZ4)
    flags = packed[_FLAGS]
    if not flags & _INDEPENDENT:
        raise corrupt(
            Codec.LZ4, "the frame has blocks that depend on each other, which Kafka cannot read"
        )
    if flags & _RESERVED:
        raise corrupt(Codec.LZ4, "the frame needs a dictionary, or has a reserved bit set")
    position = _descriptor_end(flags)
    checksum = 4 if flags & _BLOCK_CHECKSUM else 0
    while len(packed) - position >= _U32.size:
        (size,) = _U32.unpack_from(packed, position)
        if size == _END_MARK:
            return True
        if size in _EMPTY_BLOCKS:
            raise corrupt(Codec.LZ4, "the frame has an empty block, which Kafka cannot read")
        position += _U32.size + (size & _SIZE_BITS) + checksum
    return False
