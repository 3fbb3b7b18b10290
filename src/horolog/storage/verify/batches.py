"""Reading a `.log` file batch by batch, with the bytes of each, and judging one batch by itself.

The file is read in pieces; a batch that is longer than a piece is read as a whole
only up to `MAX_HELD_BYTES`. Nothing that a header claims is believed before the file
has been seen to be long enough for it.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import crc32c

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, parse_header
from horolog.record.compression import Codec
from horolog.record.scan import scan_batch
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.files import Files, OpenFile

MAX_HELD_BYTES = 256 << 20
MAX_UNCOMPRESSED_BYTES = 1 << 30
_PIECE_BYTES = 4 << 20
_CRC_START = 21
_MESSAGE = Struct(">qiIb")  # before format v2: offset, size, CRC-32, magic
_LAST_OLD_MAGIC = 1


class PlacedBatch(NamedTuple):
    """A batch and where it lies; `data` is only good until the next one is asked for."""

    position: int
    header: BatchHeader
    data: memoryview | None
    """All its bytes; None where it is longer than what is held."""


class OldMessage(NamedTuple):
    """A whole message of format v0 or v1, its checksum verified."""

    magic: int
    offset: int


def read_batches(files: Files, file: OpenFile, start: int, end: int) -> Iterator[PlacedBatch]:
    """Every batch in `[start, end)`, header and bytes, its checksum not looked at.

    Raises:
        CorruptBatch: what follows the last one is no batch of format v2, or not a whole one.
    """
    position, piece, piece_start = start, memoryview(b""), start
    while position < end:
        place = position - piece_start
        if place + HEADER_SIZE > len(piece):
            piece_start, place = position, 0
            piece = memoryview(files.read_at(file, min(_PIECE_BYTES, end - position), position))
        try:
            header = parse_header(piece, place)
        except CorruptBatch as error:
            raise CorruptBatch(str(error).removesuffix(f" (at byte {place})")) from None
        size = header.batch_length + LOG_OVERHEAD
        if position + size > end:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} is {size} bytes long and only "
                f"{end - position} are there"
            )
        if place + size <= len(piece):
            yield PlacedBatch(position, header, piece[place : place + size])
        elif size <= MAX_HELD_BYTES:
            wanted = min(max(size, _PIECE_BYTES), end - position)
            piece_start, piece = position, memoryview(files.read_at(file, wanted, position))
            if len(piece) < size:
                raise CorruptBatch("the file became shorter while it was read")
            yield PlacedBatch(position, header, piece[:size])
        else:
            yield PlacedBatch(position, header, None)
        position += size


def old_message(files: Files, file: OpenFile, position: int, end: int) -> OldMessage | None:
    """The message of format v0 or v1 that lies at a position, if a whole one does."""
    start = files.read_at(file, _MESSAGE.size, position)
    if len(start) < _MESSAGE.size:
        return None
    offset, size, crc, magic = _MESSAGE.unpack(start)
    if not 0 <= magic <= _LAST_OLD_MAGIC or not _MESSAGE.size - LOG_OVERHEAD <= size:
        return None
    if size > end - position - LOG_OVERHEAD:
        return None
    computed, at, stop = 0, position + LOG_OVERHEAD + 4, position + LOG_OVERHEAD + size
    while at < stop:
        piece = files.read_at(file, min(_PIECE_BYTES, stop - at), at)
        if not piece:
            return None
        computed, at = zlib.crc32(piece, computed), at + len(piece)
    return OldMessage(magic, offset) if computed == crc else None


def crc_matches(files: Files, file: OpenFile, batch: PlacedBatch) -> bool:
    """Whether a batch is what its checksum was made of."""
    position, header, data = batch
    if data is not None:
        return crc32c.crc32c(data[_CRC_START:]) == header.crc
    computed, at, stop = 0, position + _CRC_START, position + header.size
    while at < stop:
        piece = files.read_at(file, min(_PIECE_BYTES, stop - at), at)
        if not piece:
            return False
        computed, at = crc32c.crc32c(piece, computed), at + len(piece)
    return bool(computed == header.crc)


def header_fault(header: BatchHeader) -> str | None:
    """What a header says that cannot be, whatever the records are."""
    count, last = header.records_count, header.last_offset_delta
    if last < 0:
        return f"its last offset delta is {last}"
    if not 0 <= count <= last + 1:
        return f"it claims {count} records within the {last + 1} offsets it covers"
    if header.base_offset < 0:
        return f"its base offset is {header.base_offset}"
    if header.leader_epoch < -1:
        return f"its leader epoch is {header.leader_epoch}"
    codec = header.codec_number
    if codec > Codec.ZSTD:
        return f"there is no compression codec {codec}"
    return None


def records_fault(batch: PlacedBatch) -> str | None:
    """What is wrong with the records of a batch whose header and checksum are good.

    The largest timestamp must be the records' own. Kafka writes -1 over records that are
    all from before 1970; compaction keeps it for a batch that it has emptied.
    """
    header = batch.header
    if batch.data is None:
        return f"its {header.size} bytes are too many for its records to be looked at"
    try:
        facts = scan_batch(batch.data, header, max_bytes=MAX_UNCOMPRESSED_BYTES)
    except (CorruptBatch, RequestRefused) as error:
        return str(error)
    if not facts.growing_offsets or facts.last_offset_delta > header.last_offset_delta:
        return "the offsets of its records do not grow within those it covers"
    largest = facts.max_timestamp
    told = header.max_timestamp
    if header.records_count == 0 or told == (NO_TIMESTAMP if largest is None else largest):
        return None
    if told == NO_TIMESTAMP and largest is not None and largest < 0:
        return None
    return f"its header says {told} for the largest timestamp and its records {largest}"


def zeros_from(files: Files, file: OpenFile, start: int, end: int) -> bool:
    """Whether nothing but zeros lies in `[start, end)`, of which there is something."""
    position = start
    while position < end:
        piece = files.read_at(file, min(_PIECE_BYTES, end - position), position)
        if not piece or piece.count(0) != len(piece):
            return False
        position += len(piece)
    return start < end
