"""Batches of a log as compaction reads them. Small batches come several at a time."""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import (
    CODEC_BITS,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    parse_header,
    verify_crc,
)
from horolog.record.cleaning import (
    BoolArray,
    Keys,
    SmallBatches,
    UInt64Array,
    read_small_batches,
)
from horolog.record.kernels.cleaning_kernels import NOT_PLAIN, SMALL_BYTES
from horolog.storage import names
from horolog.storage.batches.reader import BatchReader

_PEEKED: Final = Struct(">8xi4xB4xh")
"""Length, magic and attributes of a batch."""


class Part(NamedTuple):
    """Batch, or message of v0 or v1."""

    header: BatchHeader
    data: memoryview

    @property
    def next_offset(self) -> int:
        """Offset just past the last record."""
        return self.header.next_offset


class SmallParts(NamedTuple):
    """Consecutive small batches, with their keys."""

    view: memoryview
    small: SmallBatches

    @property
    def next_offset(self) -> int:
        """Offset just past the last batch."""
        return int(self.small.next_offsets[-1])

    def part(self, number: int) -> Part:
        """Return one of the batches."""
        start, end = self.small.starts[number : number + 2].tolist()
        data = self.view[start:end]
        return Part(parse_header(data), data)

    def keys_behind(self, offset: int, are_left_out: BoolArray) -> Keys:
        """Return the keys of batches that end behind an offset, without those that are left out."""
        small = self.small
        are_left_out = are_left_out | (small.next_offsets <= offset)
        if not are_left_out.any():
            return small.keys
        stay = ~small.of_records(are_left_out)
        offsets, hashes, flags = small.keys
        return Keys(offsets[stay], hashes[np.repeat(stay, 2)], flags[stay])


def parts_in(log: BatchReader, secret: UInt64Array) -> Iterator[Part | SmallParts]:
    """Yield all batches of a log.

    Each is valid until the next one.

    Raises:
        CorruptBatch: what follows is damaged, not whole, or its offsets do not follow.
        StorageFailed: the disk refused.
    """
    read, least = 0, log.least_offset
    for buffer in log.selected(0, names.MAX_OFFSET, None):
        for part in parts_of(buffer, least, secret):
            if part.next_offset <= least:
                raise log.corrupt(read, f"behind it come offsets from {part.next_offset} on")
            least = part.next_offset
            yield part
        read += len(buffer)


def parts_of(
    buffer: Buffer, least_offset: int, secret: UInt64Array, *, all_kinds: bool = False
) -> Iterator[Part | SmallParts]:
    """Yield the batches in a buffer.

    Small ones come several at a time.

    Checksums are compared. `all_kinds` is that of `read_small_batches`.

    Raises:
        CorruptBatch: one is damaged, or is not whole.
    """
    view, position = memoryview(buffer), 0
    while position < len(view):
        small = None
        if _is_small(view, position, all_kinds=all_kinds):
            small = read_small_batches(view, position, secret, all_kinds=all_kinds)
        if small is not None:
            parts = SmallParts(view, small)
            yield parts
            position, least_offset = int(small.starts[-1]), parts.next_offset
            continue
        header = parse_header(view, position, least_offset)
        end = position + header.size
        if end > len(view):
            raise CorruptBatch(f"The batch at offset {header.base_offset} is not whole")
        verify_crc(view, position, header)
        if header.magic == MAGIC and header.records_count < 0:
            raise CorruptBatch(
                f"The batch at offset {header.base_offset} has {header.records_count} records"
            )
        yield Part(header, view[position:end])
        position, least_offset = end, header.next_offset


def _is_small(view: memoryview, position: int, *, all_kinds: bool) -> bool:
    """Return True if `read_small_batches` may read a batch here."""
    if len(view) - position < HEADER_SIZE:
        return False
    length, magic, attributes = _PEEKED.unpack_from(view, position)
    others = CODEC_BITS if all_kinds else NOT_PLAIN
    return magic == MAGIC and not attributes & others and length + LOG_OVERHEAD <= SMALL_BYTES
