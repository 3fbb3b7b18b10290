"""The seal of a finished segment: sizes and checksums by which damaged indexes are recognised.

Kafka's index files have no checksum, and most segments have no `.txnindex`. When a segment is
rolled or closed, when its indexes were rebuilt, or when a scan of its headers has confirmed them, a
seal is written into its companion (file.py). 80 bytes, big-endian:

     0  4   "hsl3"
     4  4   flags: bit 0, the segment has a largest timestamp; bit 1, offsets behind it are left out
     8  8   size of `.log`
    16  8   offset after the last batch
    24  8   largest timestamp
    32  8   last offset of the batch that first reached it
    40  4   size of `.index`
    44  4   CRC-32C of `.index`
    48  4   size of `.timeindex`
    52  4   CRC-32C of `.timeindex`
    56  4   size of `.txnindex`, 0 if there is none
    60  4   CRC-32C of `.txnindex`
    64  8   position of the last batch
    72  4   its identity
    76  4   CRC-32C of all before

A segment whose size or last batch is another than in its seal has been changed by
another program, and its seal is ignored (proof.py). The largest timestamp may be
before 1970 (KIP-228), which `.timeindex` cannot say.
"""

import struct
from typing import NamedTuple

import crc32c

from horolog.storage import names
from horolog.storage.batches.log_file import LogFile, TimeEntry
from horolog.storage.companion.file import Companion
from horolog.storage.companion.proof import LastBatch
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

_FORMAT = struct.Struct(">4sIqqqqIIIIIIqI")
_CRC = struct.Struct(">I")
_MAGIC = b"hsl3"
_HAS_LARGEST = 1
_LEAVES_OUT = 2
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = (1 << 32) - 1  # of a file that can be as its seal says


class Seal(NamedTuple):
    """Facts of a finished segment."""

    next_offset: int
    largest: TimeEntry | None
    offset_index_size: int
    offset_index_crc: int
    time_index_size: int
    time_index_crc: int
    aborted_size: int
    aborted_crc: int
    last: LastBatch
    """The last batch of the log, which ends where the log does."""
    leaves_out: bool = False
    """Whether offsets behind its last batch may be in no segment: compaction wrote it, or the log
    follows another that deleted them."""


def packed_seal(seal: Seal) -> bytes:
    """A seal as it is in the companion."""
    timestamp, offset = seal.largest or (0, 0)
    content = _FORMAT.pack(
        _MAGIC,
        (seal.largest is not None) * _HAS_LARGEST | seal.leaves_out * _LEAVES_OUT,
        seal.last.end,
        seal.next_offset,
        timestamp,
        offset,
        *(min(seal.offset_index_size, _MOST_BYTES), seal.offset_index_crc),
        *(min(seal.time_index_size, _MOST_BYTES), seal.time_index_crc),
        *(min(seal.aborted_size, _MOST_BYTES), seal.aborted_crc),
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
    """
    files, offsets, times = log.files, stem + names.OFFSET_INDEX, stem + names.TIME_INDEX
    aborted = stem + names.TXN_INDEX
    return Seal(
        next_offset=next_offset,
        largest=largest,
        offset_index_size=files.size(offsets),
        offset_index_crc=file_crc(files, offsets),
        time_index_size=files.size(times),
        time_index_crc=file_crc(files, times),
        aborted_size=files.size(aborted),
        aborted_crc=file_crc(files, aborted),
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
    return Seal._make((next_offset, largest, *indexes, last, bool(flags & _LEAVES_OUT)))


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


def matches_aborted(files: Files, path: str, seal: Seal, *, exists: bool) -> bool:
    """Whether the index of aborted transactions is as the seal says.

    Args:
        files: the way to the disk.
        exists: whether there is such a file: where neither has one the disk is not asked.
    """
    if not exists:
        return not seal.aborted_size
    return files.size(path) == seal.aborted_size and file_crc(files, path) == seal.aborted_crc


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
