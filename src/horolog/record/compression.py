"""Kafka's five codecs, both ways, with a bound on what decompressing may hold.

A batch of a megabyte can decompress to ten gigabytes (zstd packs repetitive JSON
10,000 : 1), so reading goes in chunks: `decompress_chunks` never holds more
than one chunk besides the codec's own window. That window is a few megabytes
at most for gzip and lz4; a zstd frame may ask for 128 MiB, which Kafka's
clients do at their highest level; a block of snappy is held whole, after its
claimed size has been checked against what snappy can pack.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from horolog.buffers import Buffer
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.codecs import gzip_stream, lz4_frame, snappy_stream, zstd_frame
from horolog.record.codecs.stream import Codec, Packer

__all__ = [
    "CHUNK_BYTES",
    "Buffer",
    "Codec",
    "UncompressedTooLarge",
    "compress",
    "compress_chunks",
    "decompress",
    "decompress_chunks",
    "decompress_into",
    "fleeting_chunks",
]

CHUNK_BYTES = 1 << 20


class UncompressedTooLarge(RequestRefused):
    """Refusal of a batch that decompresses to more than the caller allows (MESSAGE_TOO_LARGE)."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return data as the records of a batch of this codec; `level` None is the codec's default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return gzip_stream.compress(data, level)
        case Codec.SNAPPY:
            return snappy_stream.compress(data)
        case Codec.LZ4:
            return lz4_frame.compress(data, level)
        case Codec.ZSTD:
            return zstd_frame.compress(data, level)


def compress_chunks(
    codec: Codec,
    pieces: Iterable[Buffer],
    level: int | None = None,
    *,
    max_bytes: int,
    is_far: bool = False,
) -> bytes | None:
    """Compress pieces as one; None as soon as the result has more than `max_bytes`.

    `is_far` finds all repetitions that a producer may have found, which takes longer.
    """
    packer = _packer(codec, level, is_far=is_far)
    out = bytearray()
    for piece in pieces:
        out += piece if packer is None else packer.compress(piece)
        if len(out) > max_bytes:
            return None
    if packer is not None:
        out += packer.flush()
    return bytes(out) if len(out) <= max_bytes else None


def _packer(codec: Codec, level: int | None, *, is_far: bool) -> Packer | None:
    match codec:
        case Codec.NONE:
            return None
        case Codec.GZIP:
            return gzip_stream.packer(level)
        case Codec.SNAPPY:
            return snappy_stream.packer()
        case Codec.LZ4:
            return lz4_frame.packer(level, is_far=is_far)
        case Codec.ZSTD:
            return zstd_frame.packer(level, is_far=is_far)


def decompress(codec: Codec, data: Buffer, *, max_bytes: int) -> bytes:
    """Decompress all data at once; raises as `decompress_chunks`."""
    return b"".join(decompress_chunks(codec, data, max_bytes=max_bytes))


class _ThreadLocal(threading.local):
    """Memory of a thread to decompress into: fresh pages cost as much as lz4's writes to them."""

    scratch: memoryview | None = None


_local = _ThreadLocal()


def fleeting_chunks(
    codec: Codec, data: Buffer, *, max_bytes: int, is_search: bool = False
) -> Iterator[Buffer]:
    """Yield decompressed pieces, each valid only until the next is asked for.

    With `is_search` the first pieces are small if the codec makes that cheap: a search may need no
    more.
    """
    if is_search and codec is Codec.LZ4:
        blocks = lz4_frame.blocks(memoryview(data), max(1, min(CHUNK_BYTES, max_bytes)))
        return _bounded(blocks, codec, data, max_bytes)
    if codec is Codec.NONE:
        return _chunks(codec, data, max_bytes, CHUNK_BYTES, None)
    return _chunks_in_scratch(codec, data, max_bytes)


def _chunks_in_scratch(codec: Codec, data: Buffer, max_bytes: int) -> Iterator[Buffer]:
    # Taken: a second reader on this thread, half-way through this one, makes its own.
    scratch, _local.scratch = _local.scratch, None
    if scratch is None:
        scratch = memoryview(bytearray(CHUNK_BYTES))
    try:
        size = decompress_into(codec, data, scratch[: max(0, max_bytes)])
        if size is None:
            yield from _chunks(codec, data, max_bytes, CHUNK_BYTES, scratch)
        elif size:
            yield scratch[:size]
    finally:
        _local.scratch = scratch


def decompress_into(codec: Codec, data: Buffer, room: memoryview) -> int | None:
    """Decompress to the start of `room`, in few calls; return the number of bytes.

    None if the bytes do not fit, are damaged, or are packed in an unusual way. `decompress_chunks`
    then has the answer, and `room` may contain anything.
    """
    return _INTO[codec](memoryview(data), room)


def decompress_chunks(
    codec: Codec, data: Buffer, *, max_bytes: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Buffer]:
    """Yield the decompressed bytes in order, in pieces of 1 to `chunk_bytes` bytes.

    Bytes that are not compressed are returned in one piece and not copied. The end of the stream is
    checked after the last piece, when the iterator ends.

    Raises:
        UncompressedTooLarge: there are more than `max_bytes`.
        CorruptBatch: the stream is damaged or ends early.
    """
    return _chunks(codec, data, max_bytes, chunk_bytes, None)


def _chunks(
    codec: Codec, data: Buffer, max_bytes: int, chunk_bytes: int, scratch: memoryview | None
) -> Iterator[Buffer]:
    if codec is Codec.NONE:
        if len(data):
            yield data
        return
    chunk_bytes = max(1, min(chunk_bytes, max_bytes))  # more would be for nothing
    chunks = _DECOMPRESSORS[codec](memoryview(data), chunk_bytes, scratch)
    yield from _bounded(chunks, codec, data, max_bytes)


def _bounded(
    chunks: Iterator[Buffer], codec: Codec, data: Buffer, max_bytes: int
) -> Iterator[Buffer]:
    produced = 0
    for chunk in chunks:
        produced += len(chunk)
        if produced > max_bytes:
            raise UncompressedTooLarge(
                ErrorCode.message_too_large,
                f"A record batch of {len(data)} compressed bytes ({codec.name.lower()}) holds more "
                f"than {max_bytes} bytes, the most that is decompressed for one batch",
            )
        if len(chunk):
            yield chunk


_DECOMPRESSORS: Mapping[Codec, Callable[[memoryview, int, memoryview | None], Iterator[Buffer]]] = {
    Codec.GZIP: gzip_stream.chunks,
    Codec.SNAPPY: snappy_stream.chunks,
    Codec.LZ4: lz4_frame.chunks,
    Codec.ZSTD: zstd_frame.chunks,
}
_INTO: Mapping[Codec, Callable[[memoryview, memoryview], int | None]] = {
    Codec.GZIP: gzip_stream.into,
    Codec.SNAPPY: snappy_stream.into,
    Codec.LZ4: lz4_frame.into,
    Codec.ZSTD: zstd_frame.into,
}
