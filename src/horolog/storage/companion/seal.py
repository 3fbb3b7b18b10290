"""Seal of a finished segment: sizes and checksums that reveal damaged indexes.

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

If the size or the last batch differs from the seal, another program has changed the segment. Then
the seal is ignored (proof.py). The largest timestamp may be before 1970 (KIP-228), which
`.timeindex` cannot contain.
"""

import struct
from typing import NamedTuple

import crc32c

from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.companion.file import Companion, checked, with_crc
from horolog.storage.companion.proof import LastBatch
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

_FORMAT = struct.Struct(">4sIqqqqIIIIIIqI")
_MAGIC = b"hsl3"
_HAS_LARGEST = 1
_LEAVES_OUT = 2
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = (1 << 32) - 1  # of a file that can be as its seal says


class FileSum(NamedTuple):
    """Size and CRC-32C of a file; both are 0 for a file that is missing."""

    size: int
    crc: int

    @classmethod
    def of(cls, files: Files, path: str) -> "FileSum":
        """Compute size and checksum of a file."""
        return cls(files.size(path), _file_crc(files, path))

    def is_of(self, files: Files, path: str) -> bool:
        """Return True if the file has this size and checksum.

        A file of another size is not read.
        """
        return files.size(path) == self.size and _file_crc(files, path) == self.crc


class Seal(NamedTuple):
    """Facts of a finished segment."""

    next_offset: int
    largest: TimeEntry | None
    offset_index: FileSum
    time_index: FileSum
    aborted: FileSum
    last: LastBatch
    """The last batch of the log, which ends where the log does."""
    leaves_out: bool = False
    """True if offsets behind the last batch may be in no segment. Compaction wrote the segment, or
    the log follows another one that deleted them."""


def packed_seal(seal: Seal) -> bytes:
    """Return the bytes of a seal."""
    timestamp, offset = seal.largest or (0, 0)
    sums = (seal.offset_index, seal.time_index, seal.aborted)
    content = _FORMAT.pack(
        _MAGIC,
        (seal.largest is not None) * _HAS_LARGEST | seal.leaves_out * _LEAVES_OUT,
        seal.last.end,
        seal.next_offset,
        timestamp,
        offset,
        *(number for size, crc in sums for number in (min(size, _MOST_BYTES), crc)),
        seal.last.position,
        seal.last.identity,
    )
    return with_crc(content)


def read_seal(companion: Companion) -> Seal | None:
    """Read the seal of a segment; None if it is missing or damaged."""
    return parsed_seal(companion.seal())


def parsed_seal(data: bytes) -> Seal | None:
    """Parse the bytes of a seal; None if they are damaged."""
    content = checked(data)
    if content is None or len(content) != _FORMAT.size:
        return None
    magic, flags, log_size, next_offset, timestamp, offset, *rest = _FORMAT.unpack(content)
    *indexes, position, identity = rest
    offsets, times, aborted = (FileSum(*indexes[at : at + 2]) for at in (0, 2, 4))
    if magic != _MAGIC:
        return None
    largest = TimeEntry(timestamp, offset) if flags & _HAS_LARGEST else None
    last = LastBatch(position, log_size, identity)
    return Seal(next_offset, largest, offsets, times, aborted, last, bool(flags & _LEAVES_OUT))


def seal_of_log(companion: Companion, log_size: int) -> Seal | None:
    """Read the seal of a segment; None if its log has another size or another last batch.

    Raises:
        FileMissing: there is a seal, and the log is gone.
    """
    seal = read_seal(companion)
    if seal is None or seal.last.end != log_size:
        return None
    return seal if seal.last.is_in(companion.log) else None


def _file_crc(files: Files, path: str) -> int:
    """Return the CRC-32C of a whole file; 0 if it is missing."""
    try:
        file = files.get(path)
    except FileMissing:
        return 0
    crc, position = 0, 0
    while chunk := files.read_at(file, _CHUNK_BYTES, position):
        crc = crc32c.crc32c(chunk, crc)
        position += len(chunk)
    return crc
