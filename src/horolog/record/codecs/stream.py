"""Limits, codec numbers and errors that all codecs share."""

from enum import IntEnum
from typing import Final, Protocol

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch

FIRST_CHUNK_BYTES: Final = 64 << 10
"""Most batches end within it; a larger buffer costs more than its use."""
INPUT_BYTES: Final = 64 << 10
"""Bytes passed to a codec's library at once; it copies bytes that it could not use yet."""


class Codec(IntEnum):
    """Compression codec, in bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Packer(Protocol):
    """Compressor that takes data in pieces and returns the stream in pieces."""

    def compress(self, data: Buffer, /) -> bytes:
        """Return the part of the stream that is ready."""
        ...

    def flush(self) -> bytes:
        """Return the rest of the stream; no data may follow."""
        ...


def corrupt(codec: Codec, what: object) -> CorruptBatch:
    """Return the error for records that cannot be decompressed."""
    return CorruptBatch(f"Records cannot be decompressed with {codec.name.lower()}: {what}")


def ends_early(codec: Codec) -> CorruptBatch:
    """Return the error for a stream that ends early."""
    return corrupt(codec, "the stream ends early")
