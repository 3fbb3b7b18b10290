"""Codec zstd (RFC 8878): frames one after another, each to its last block and checksum.

Kafka reads with zstd-jni's ZstdInputStream: several frames and skippable ones are read as one
stream; incomplete frames and other bytes are refused. Java ignores a last frame that ends within
its header; it is refused here.
"""

import struct
import sys
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

import zstandard

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.codecs.stream import FIRST_CHUNK_BYTES, Codec, Packer, corrupt, ends_early

_DEFAULT_LEVEL: Final = 3
_MAX_WINDOW_BYTES: Final = 128 << 20  # what Kafka's clients ask for at their highest level
_MAX_KEPT_WINDOW_BYTES: Final = 8 << 20  # what they ask for at any usual one

_U32: Final = struct.Struct("<I")
_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50  # or up to 15 more
_SKIPPABLE_HEADER_BYTES: Final = 8
_CHECKSUM: Final = 0x04  # flags in the frame's descriptor
_SINGLE_SEGMENT: Final = 0x20
_DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)  # by bits 0 and 1 of the descriptor
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)  # by bits 6 and 7; 1 for 0 in a single segment
_BLOCK_BYTES: Final = 128 << 10  # the most that a block holds
_RLE: Final = 1  # a block's type: one byte, repeated


def compress(data: Buffer, level: int | None) -> bytes:
    """Return data as one frame; `level` None is zstd's default."""
    return zstandard.ZstdCompressor(level=_DEFAULT_LEVEL if level is None else level).compress(data)


def packer(level: int | None, *, is_far: bool = False) -> Packer:
    """Return a compressor of pieces.

    The frame does not contain its size.

    `is_far` finds repetitions as far back as any reader can.
    """
    if is_far:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _DEFAULT_LEVEL, window_log=_MAX_WINDOW_BYTES.bit_length() - 1, enable_ldm=True
        )
        return zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return zstandard.ZstdCompressor(level=_DEFAULT_LEVEL if level is None else level).compressobj()


class _ZstdPerThread(threading.local):
    """A decompressor for each thread: it costs more to make than a batch to read."""

    decompressor: zstandard.ZstdDecompressor | None = None


_local = _ZstdPerThread()


def _take_decompressor() -> zstandard.ZstdDecompressor:
    """Take this thread's decompressor, or a new one while another reader of the thread has it."""
    decompressor, _local.decompressor = _local.decompressor, None
    return decompressor or zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)


def into(packed: memoryview, room: memoryview) -> int | None:
    """Decompress frames to the start of `room`; None as `compression.decompress_into`."""
    frames = _walk_frames(packed)
    if (
        frames.fault is not None
        or frames.at_most > len(room)
        or frames.window > _MAX_KEPT_WINDOW_BYTES
    ):
        return None
    decompressor, filled = _take_decompressor(), 0
    try:
        size = zstandard.frame_content_size(packed) if frames.is_one else 0
        if size and size <= frames.at_most <= _BLOCK_BYTES:
            # In one call, which is half of the time for so little; of no bytes it checks nothing.
            data = decompressor.decompress(packed, max_output_size=frames.at_most)
            filled = len(data)
            room[:filled] = data
        else:
            with decompressor.stream_reader(packed, read_across_frames=True) as reader:
                while read := reader.readinto(room[filled:]):
                    filled += read
    except zstandard.ZstdError:
        return None
    finally:
        _local.decompressor = decompressor
    return filled


def chunks(
    packed: memoryview, chunk_bytes: int, scratch: memoryview | None = None
) -> Iterator[Buffer]:
    """Yield the bytes of all frames, in pieces of at most `chunk_bytes`; in `scratch` if given.

    Raises:
        CorruptBatch: a frame is damaged or asks for more than 128 MiB of window; after all that
            can be read, if it ends early.
    """
    frames = _walk_frames(packed)
    decompressor = _take_decompressor()
    # Few pieces are best: each call waits for the interpreter's lock when it returns.
    first_bytes = FIRST_CHUNK_BYTES if scratch is None else len(scratch)
    size = max(1, min(frames.at_most, chunk_bytes, first_bytes))
    try:
        with decompressor.stream_reader(packed, read_across_frames=True) as reader:
            while True:
                if scratch is None:
                    chunk: Buffer = reader.read(size)
                else:
                    chunk = scratch[: reader.readinto(scratch[:size])]
                yield chunk
                if len(chunk) < size:
                    break
                size = chunk_bytes if scratch is None else min(chunk_bytes, len(scratch))
    except zstandard.ZstdError as error:
        raise corrupt(Codec.ZSTD, error) from None
    finally:  # also where the caller has seen enough
        if frames.window <= _MAX_KEPT_WINDOW_BYTES:
            _local.decompressor = decompressor
    if frames.fault is not None:  # the library reads a frame that ends early as if it were whole
        raise frames.fault


class _Frames(NamedTuple):
    window: int
    """The largest window that a frame asks for, in bytes."""
    at_most: int
    """Most bytes that all frames can contain."""
    is_one: bool
    """True if there is one frame, and no other data."""
    fault: CorruptBatch | None
    """First fault of the framing; None if it is sound."""


def _walk_frames(packed: memoryview) -> _Frames:
    window = at_most = position = count = 0
    fault = None if len(packed) else ends_early(Codec.ZSTD)
    try:
        while position < len(packed):
            (magic,) = _U32.unpack_from(packed, position)
            count += 1
            if magic == _MAGIC:
                frame_window, blocks, position = _pass_frame(packed, position + _U32.size)
                window = max(window, frame_window)
                at_most += blocks * min(_BLOCK_BYTES, frame_window)
            elif magic & ~0xF == _SKIPPABLE_MAGIC:
                (size,) = _U32.unpack_from(packed, position + _U32.size)
                position += _SKIPPABLE_HEADER_BYTES + size
            else:
                fault = corrupt(Codec.ZSTD, f"there is no zstd frame at byte {position}")
                break
    except (IndexError, struct.error):
        fault = ends_early(Codec.ZSTD)
    if position > len(packed):
        fault = ends_early(Codec.ZSTD)
    if fault is not None:
        at_most = sys.maxsize
    return _Frames(window, at_most, count == 1 and magic == _MAGIC, fault)


def _pass_frame(packed: memoryview, position: int) -> tuple[int, int, int]:
    """Return a frame's window, its number of blocks, and its end."""
    descriptor = packed[position]
    position += 1
    window = 0
    content_size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6]
    if descriptor & _SINGLE_SEGMENT:
        content_size_bytes = content_size_bytes or 1
    else:
        window = (8 + (packed[position] & 7)) << 7 + (packed[position] >> 3)
        position += 1
    position += _DICTIONARY_ID_BYTES[descriptor & 3]
    if descriptor & _SINGLE_SEGMENT:
        window = int.from_bytes(packed[position : position + content_size_bytes], "little")
        window += 256 if content_size_bytes == 2 else 0
    position += content_size_bytes
    blocks, last = 0, 0
    while not last:
        head = packed[position] | packed[position + 1] << 8 | packed[position + 2] << 16
        position += 3 + (1 if head >> 1 & 3 == _RLE else head >> 3)
        blocks += 1
        last = head & 1
    return window, blocks, position + (4 if descriptor & _CHECKSUM else 0)
