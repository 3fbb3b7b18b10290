"""Parts that the codecs share."""

from enum import IntEnum
from typing import Final, Protocol

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch

FIRST_CHUNK_BYTES: Final = 64 << 10
"""Most batches end within it; a larger buffer costs more than its use."""
INPUT_BYTES: Final = 64 << 10
"""Bytes that a codec's library is given at once. It copies what it could not use yet."""


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Packer(Protocol):
    """Takes data in pieces and gives the stream in pieces."""

    def compress(self, data: Buffer, /) -> bytes:
        """The part of the stream that is ready."""
        ...

    def flush(self) -> bytes:
        """The rest of it; nothing may follow."""
        ...


def corrupt(codec: Codec, what: object) -> CorruptBatch:
    """The error for records that cannot be decompressed."""
    return CorruptBatch(f"Records cannot be decompressed with {codec.name.lower()}: {what}")


def ends_early(codec: Codec) -> CorruptBatch:
    """The error for a stream that does not reach its end."""
    return corrupt(codec, "the stream ends early")
