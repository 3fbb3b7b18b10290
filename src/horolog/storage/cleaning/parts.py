"""The batches of a log as compaction reads them: plain messages and small ones some at a time."""

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record import cleaning
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
    OpenedRecords,
    SmallBatches,
    UInt64Array,
    read_small_batches,
)
from horolog.record.kernels.cleaning_kernels import NOT_PLAIN, SMALL_BYTES
from horolog.record.old_format.plain import PlainMessages, list_messages
from horolog.record.old_format.reading import open_run
from horolog.record.timestamps import LOG_APPEND_TIME
from horolog.storage import names
from horolog.storage.batches.reader import BatchReader

_PEEKED: Final = Struct(">8xi4xB4xh")
"""Length, magic and attributes of a batch."""
_RUN_BYTES: Final = 512 << 10  # of plain messages of v0 and v1 that are judged together


class Part(NamedTuple):
    """A batch, or plain messages of v0 or v1 that follow each other."""

    header: BatchHeader
    """Of the first message."""
    data: memoryview
    next_offset: int
    listed: PlainMessages | None = None

    @property
    def is_run(self) -> bool:
        """Whether it is plain messages."""
        return self.listed is not None

    @property
    def positions(self) -> "array[int]":
        """Where each of the plain messages begins in the data."""
        assert self.listed is not None
        start = self.listed.positions[0]
        return array("q", [position - start for position in self.listed.positions])

    @property
    def last_header(self) -> BatchHeader:
        """Header of the batch, or of the last of the plain messages."""
        if self.listed is None:
            return self.header
        return self.listed.header_of(len(self.listed.offsets) - 1)

    def open(self) -> OpenedRecords:
        """Its records.

        Raises:
            CorruptBatch: it breaks the format.
            RequestRefused: it decompresses to too much.
        """
        if self.listed is None:
            return cleaning.open_records(self.data, self.header)
        run = open_run(self.data, self.header)
        if run.size < len(self.data):
            raise CorruptBatch(
                f"A message behind offset {self.header.base_offset} breaks the format"
            )
        return OpenedRecords.of(run.opened.header, b"".join(run.opened.pieces))


class SmallParts(NamedTuple):
    """Small batches that follow each other, with their keys."""

    view: memoryview
    small: SmallBatches

    @property
    def next_offset(self) -> int:
        """The offset behind the last of them."""
        return int(self.small.next_offsets[-1])

    def part(self, number: int) -> Part:
        """One of them."""
        start, end = self.small.starts[number : number + 2].tolist()
        data = self.view[start:end]
        return Part(parse_header(data), data, int(self.small.next_offsets[number]))

    def keys_behind(self, offset: int, are_left_out: BoolArray) -> Keys:
        """Those of the batches that do not end before an offset, but of some that are left out."""
        small = self.small
        are_left_out = are_left_out | (small.next_offsets <= offset)
        if not are_left_out.any():
            return small.keys
        stay = ~small.of_records(are_left_out)
        offsets, hashes, flags = small.keys
        return Keys(offsets[stay], hashes[np.repeat(stay, 2)], flags[stay])


def parts_in(log: BatchReader, secret: UInt64Array) -> Iterator[Part | SmallParts]:
    """All batches of a log, each valid until the next is asked for.

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
    """The batches of some bytes, plain messages and small ones some at a time.

    Checksums are compared. `all_kinds` is as `read_small_batches` has it.

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
        listed = None
        if header.magic != MAGIC and not header.codec_number:
            within = view[: min(len(view), position + max(_RUN_BYTES, header.size))]
            listed = list_messages(within, header, position, least_offset=least_offset)
        if listed is not None:
            for run in _of_one_time(listed):
                yield Part(run.header, view[run.positions[0] : run.end], run.next_offset, run)
            position, least_offset = listed.end, listed.next_offset
            continue
        end = position + header.size
        if end > len(view):
            raise CorruptBatch(f"The batch at offset {header.base_offset} is not whole")
        verify_crc(view, position, header)
        if header.magic == MAGIC and header.records_count < 0:
            raise CorruptBatch(
                f"The batch at offset {header.base_offset} has {header.records_count} records"
            )
        yield Part(header, view[position:end], header.next_offset)
        position, least_offset = end, header.next_offset


def _is_small(view: memoryview, position: int, *, all_kinds: bool) -> bool:
    """Whether `read_small_batches` may have something to read."""
    if len(view) - position < HEADER_SIZE:
        return False
    length, magic, attributes = _PEEKED.unpack_from(view, position)
    others = CODEC_BITS if all_kinds else NOT_PLAIN
    return magic == MAGIC and not attributes & others and length + LOG_OVERHEAD <= SMALL_BYTES


def _of_one_time(listed: PlainMessages) -> Iterator[PlainMessages]:
    """Messages that have one append time, some at a time: all records of a batch do."""
    times, count = listed.times, len(listed.times)
    first = 0
    if listed.header.timestamp_type is LOG_APPEND_TIME:
        for at in range(1, count):
            if times[at] != times[first]:
                yield _between(listed, first, at)
                first = at
    yield listed if first == 0 else _between(listed, first, count)


def _between(listed: PlainMessages, first: int, end: int) -> PlainMessages:
    return PlainMessages(
        listed.header_of(first),
        listed.positions[first:end],
        listed.offsets[first:end],
        listed.times[first:end],
        listed.end_of(end - 1),
    )
