"""Proof of a companion's data by the batches of its log: seal, append times and block map.

Horolog and Apache Kafka, which ignores the companion, only append to a log and cut its end. So an
entry about the first bytes of a log is true while the last batch of these bytes is unchanged. Valid
entries form a prefix: behind the first invalid entry nothing is valid.

The first bytes of a batch identify it: its checksum covers everything behind but the epoch.

- The seal and the entries of the block map contain position and identity of a batch (`LastBatch`).
- Append times contain offsets. A finished file covers the log as far as its head says, if the last
  covered batch is in the log. A file with a valid marker (marker.py) covers the whole log.
  Otherwise the log proves the entries whose batches it contains, up to the end of the last one.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, Protocol

import crc32c

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, CorruptIndex
from horolog.record.batch import MAGIC, UNKNOWN_COUNT, BatchHeader
from horolog.storage import names
from horolog.storage.batches.log_file import LogFile, SegmentEnd
from horolog.storage.companion.file import Covered
from horolog.storage.companion.time_entries import is_intact, is_of_batch
from horolog.storage.entries import Entries

IDENTITY_SIZE: Final = 21  # bytes: offset, size, epoch, format, and the checksum
_IDENTITY: Final = Struct(">qiibI")  # a v2 header up to its checksum


def identity_of(batch: Buffer) -> int:
    """Identify a batch, or a message of v0 or v1, by its first `IDENTITY_SIZE` bytes."""
    return crc32c.crc32c(batch[:IDENTITY_SIZE])


def identity_of_header(header: BatchHeader) -> int | None:
    """Compute the identity of a batch from its header; None for messages of v0 and v1."""
    if header.magic != MAGIC:
        return None
    return crc32c.crc32c(_IDENTITY.pack(*header[:5]))


class LastBatch(NamedTuple):
    """Last batch of the first bytes of a log, which proves data about these bytes."""

    position: int
    end: int
    """Position just past the batch; 0 without a batch."""
    identity: int

    @classmethod
    def at(cls, log: LogFile, position: int, end: int) -> "LastBatch":
        """Read the batch between two positions of a log.

        Raises:
            FileMissing: the log is gone.
        """
        return cls(position, end, identity_of(_start(log, position, end)) if end else 0)

    def is_in(self, log: LogFile) -> bool:
        """Return True if the log contains this batch at this position.

        Raises:
            FileMissing: the log is gone.
        """
        if not 0 <= self.position < self.end:
            return self.end == 0
        length = min(IDENTITY_SIZE, self.end - self.position)
        start = _start(log, self.position, self.end)
        return len(start) == length and identity_of(start) == self.identity


def _start(log: LogFile, position: int, end: int) -> bytes:
    return log.files.read_at(log.open(), min(IDENTITY_SIZE, end - position), position)


def proved(first: int, count: int, is_true: Callable[[int], bool]) -> int:
    """Return how many of `count` entries are valid; the first `first` are known to be."""
    # Mostly all are, or all but one that a kill has left without its batch.
    for one_less in (count, count - 1):
        if one_less > first and is_true(one_less - 1):
            return one_less
    low, high = first, count
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            low = middle + 1
        else:
            high = middle
    return low


# Append times.


class ProvingSegment(Protocol):
    """Segment whose batches prove append times."""

    @property
    def base_offset(self) -> int:
        """Base offset in the names of the segment's files."""

    @property
    def log(self) -> LogFile:
        """The segment's `.log` file."""

    @property
    def end(self) -> SegmentEnd:
        """End of the whole batches."""

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the batch with an offset, or of the next one."""


class Proof(NamedTuple):
    """Part of the append times that the log proves."""

    entries: int
    """Number of true entries. They come first."""
    end: int
    """Append times before this offset are known, unless an entry marks them as unknown."""


NOTHING: Final = Proof(0, 0)


class StoredBatch(NamedTuple):
    """Batch at its position in the log."""

    position: int
    header: BatchHeader
    identity: int


def prove_times(
    segment: ProvingSegment, entries: Entries, covered: Covered | None, *, is_marked: bool
) -> Proof:
    """Compare append times with the batches that they name.

    Args:
        segment: its batches prove the entries.
        covered: how far the head says that they cover the log; None if that is damaged.
        is_marked: the file has a valid marker.

    Raises:
        StorageFailed: the disk refused.
    """

    def is_true(number: int) -> bool:
        entry = entries[number]
        offset = segment.base_offset + (entry[1] >> 1)
        batch = batch_at(segment, offset)
        return (
            batch is not None
            and _begins_at(batch.header, offset)
            and is_of_batch(entry, batch.identity)
            and is_intact(entry)
        )

    def count_true(first: int) -> int:
        true = proved(first, count, is_true)
        # Twelve bits are few: two entries have to be right.
        return true if true < first + 2 or is_true(true - 2) else first

    count = len(entries)
    if is_marked:
        counted = count_true(0)
        # A kill leaves one entry without its batch at most; a damaged one may be of any.
        is_left = counted < count and not (counted == count - 1 and is_intact(entries[counted]))
        if not is_left and (counted or not segment.end.size):
            return Proof(counted, names.MAX_OFFSET)
    sure, end = proof_by_head(segment, covered, count)
    counted = count_true(sure)
    if counted > sure:
        last = batch_at(segment, segment.base_offset + (entries[counted - 1][1] >> 1))
        end = end if last is None else last.header.next_offset
    return Proof(counted, end)


def batch_at(segment: ProvingSegment, offset: int) -> StoredBatch | None:
    """Return the batch with an offset, or the next one; None if it cannot be read.

    Raises:
        StorageFailed: the disk refused.
    """
    try:
        place = segment.locate(offset) if segment.end.size else None
        if place is None:
            return None
        position, header = place
        identity = identity_of_header(header)
        if identity is None:
            identity = identity_of(_start(segment.log, position, position + header.size))
    except (CorruptBatch, CorruptIndex):
        return None
    return StoredBatch(position, header, identity)


def proof_by_head(segment: ProvingSegment, covered: Covered | None, stored: int) -> Proof:
    """Return what the last covered batch proves, if the log has it; nothing otherwise.

    Args:
        covered: the covered part of the log, by the head of the file.
        stored: number of entries in the file.
    """
    nothing = Proof(0, segment.base_offset)
    if covered is None or covered.entries > stored or covered.end <= segment.base_offset:
        return nothing
    batch = batch_at(segment, covered.end - 1)
    if batch is None:
        return nothing
    end = batch.position + batch.header.size
    is_in_log = (batch.header.next_offset, end, batch.identity) == covered[1:]
    return Proof(covered.entries, covered.end) if is_in_log else nothing


def _begins_at(batch: BatchHeader, offset: int) -> bool:
    """Return True if a batch begins at an offset.

    A compressed message of v0 or v1 may begin anywhere in its range.
    """
    if batch.records_count == UNKNOWN_COUNT:
        return batch.base_offset <= offset <= batch.last_offset
    return batch.base_offset == offset
