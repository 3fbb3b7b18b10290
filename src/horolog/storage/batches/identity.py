"""Which batch it is, by its first bytes: the CRC in them is of all that follows but the epoch."""

from struct import Struct
from typing import Final

import crc32c

from horolog.buffers import Buffer
from horolog.record.batch import MAGIC, BatchHeader

IDENTITY_SIZE: Final = 21  # bytes: offset, size, epoch, format, and the checksum
_IDENTITY: Final = Struct(">qiibI")  # a v2 header up to its checksum


def identity_of(batch: Buffer) -> int:
    """Identifies a batch, or a message of v0 or v1, by its first `IDENTITY_SIZE` bytes."""
    return crc32c.crc32c(memoryview(batch)[:IDENTITY_SIZE])


def identity_of_header(header: BatchHeader) -> int | None:
    """The same from a header that was read; None of messages of v0 and v1, whose bytes differ."""
    if header.magic != MAGIC:
        return None
    return crc32c.crc32c(_IDENTITY.pack(*header[:5]))
