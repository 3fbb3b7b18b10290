"""What a finished segment's indexes must look like, so that damage is found before it is used.

Kafka's index files have no checksum. When a segment is rolled or closed, when its
indexes were rebuilt, or when a scan of its headers has confirmed them, a seal is
written into its companion (index/companion.py). 80 bytes, big-endian:

     0  4   "hsl2"
     4  4   flags: bit 0, the segment has a largest timestamp
     8  8   size of `.log`
    16  8   offset after the last batch
    24  8   largest timestamp
    32  8   last offset of the batch that first reached it
    40  8   size of `.index`
    48  4   CRC-32C of `.index`
    52  8   size of `.timeindex`
    60  4   CRC-32C of `.timeindex`
    64  8   position of the last batch
    72  4   its identity
    76  4   CRC-32C of all before

A segment whose size or last batch is another than in its seal has been changed by
another program, and its seal is ignored (batches/proof.py). The largest timestamp may be
before 1970 (KIP-228), which `.timeindex` cannot say.
"""

import struct
from typing import NamedTuple

import crc32c

from horolog.storage import names
from horolog.storage.batches.log_file import LogFile
from horolog.storage.batches.proof import LastBatch
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.companion import Companion
from horolog.storage.index.time import TimeEntry

_FORMAT = struct.Struct(">4sIqqqqqIqIqI")
_CRC = struct.Struct(">I")
_MAGIC = b"hsl2"
_HAS_LARGEST = 1
_CHUNK_BYTES = 1 << 20


class Seal(NamedTuple):
    """Facts of a finished segment."""

    next_offset: int
    largest: TimeEntry | None
    offset_index_size: int
    offset_index_crc: int
    time_index_size: int
    time_index_crc: int
    last: LastBatch
    """The last batch of the log, which ends where the log does."""


def packed_seal(seal: Seal) -> bytes:
    """A seal as it is in the companion."""
    timestamp, offset = seal.largest or (0, 0)
    content = _FORMAT.pack(
        _MAGIC,
        _HAS_LARGEST if seal.largest is not None else 0,
        seal.last.end,
        seal.next_offset,
        timestamp,
        offset,
        seal.offset_index_size,
        seal.offset_index_crc,
        seal.time_index_size,
        seal.time_index_crc,
        seal.last.position,
        seal.last.identity,
    )
    return content + _CRC.pack(crc32c.crc32c(content))


def seal_of(
    log: LogFile, stem: str, last: LastBatch, next_offset: int, largest: TimeEntry | None
) -> Seal:
    """The seal of a segment whose files are as they shall stay.

    Args:
        log: the `.log` file.
        stem: path of the segment's files without their suffixes.
        last: its last batch.
        next_offset: the offset after that.
        largest: its largest timestamp.
    """
    files, offsets, times = log.files, stem + names.OFFSET_INDEX, stem + names.TIME_INDEX
    return Seal(
        next_offset=next_offset,
        largest=largest,
        offset_index_size=files.size(offsets),
        offset_index_crc=file_crc(files, offsets),
        time_index_size=files.size(times),
        time_index_crc=file_crc(files, times),
        last=last,
    )


def read_seal(companion: Companion) -> Seal | None:
    """A segment's seal; None if there is none, or a damaged one, which is then rewritten."""
    return parsed_seal(companion.seal())


def parsed_seal(data: bytes) -> Seal | None:
    """The reverse of `packed_seal`; None if that is damaged."""
    if len(data) != _FORMAT.size + _CRC.size:
        return None
    content, (crc,) = data[: _FORMAT.size], _CRC.unpack_from(data, _FORMAT.size)
    magic, flags, log_size, next_offset, timestamp, offset, *rest = _FORMAT.unpack(content)
    *indexes, position, identity = rest
    if magic != _MAGIC or crc32c.crc32c(content) != crc:
        return None
    largest = TimeEntry(timestamp, offset) if flags & _HAS_LARGEST else None
    last = LastBatch(position, log_size, identity)
    return Seal._make((next_offset, largest, *indexes, last))


def seal_of_log(companion: Companion, log_size: int) -> Seal | None:
    """A segment's seal, if it is of a log of this size with this last batch.

    Raises:
        FileMissing: there is a seal, and the log is gone.
    """
    seal = read_seal(companion)
    if seal is None or seal.last.end != log_size:
        return None
    return seal if seal.last.is_in(companion.log) else None


def matches_indexes(files: Files, stem: str, seal: Seal) -> bool:
    """Whether both indexes are as their seal says."""
    offsets, times = stem + names.OFFSET_INDEX, stem + names.TIME_INDEX
    return (
        files.size(offsets) == seal.offset_index_size
        and files.size(times) == seal.time_index_size
        and file_crc(files, offsets) == seal.offset_index_crc
        and file_crc(files, times) == seal.time_index_crc
    )


def file_crc(files: Files, path: str) -> int:
    """CRC-32C of a whole file, 0 of one that is not there."""
    try:
        file = files.get(path)
    except FileMissing:
        return 0
    crc, position = 0, 0
    while chunk := files.read_at(file, _CHUNK_BYTES, position):
        crc = crc32c.crc32c(chunk, crc)
        position += len(chunk)
    return crc
