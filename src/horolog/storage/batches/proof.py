"""By which rule a file beside a log is believed: the seal, the block map, and append times.

A log is only appended to and cut at its end, by us or by an Apache Kafka, which knows of no such
file. So what was written of the log's first bytes is true while the last batch in them is still the
one that it was; and where one entry of a file is not true, none behind it is.

Which batch it is, its first bytes say: the checksum in them is of all that follows but the epoch.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from horolog.buffers import Buffer
from horolog.record.batch import MAGIC, BatchHeader
from horolog.storage.batches.log_file import LogFile

IDENTITY_SIZE: Final = 21  # bytes: offset, size, epoch, format, and the checksum
_IDENTITY: Final = Struct(">qiibI")  # a v2 header up to its checksum


def identity_of(batch: Buffer) -> int:
    """Identifies a batch, or a message of v0 or v1, by its first `IDENTITY_SIZE` bytes."""
    return crc32c.crc32c(batch[:IDENTITY_SIZE])


def identity_of_header(header: BatchHeader) -> int | None:
    """The same from a header that was read; None of messages of v0 and v1, whose bytes differ."""
    if header.magic != MAGIC:
        return None
    return crc32c.crc32c(_IDENTITY.pack(*header[:5]))


class LastBatch(NamedTuple):
    """The last batch of a log's first bytes, which proves what is said of these."""

    position: int
    end: int
    """The position after it, which is the number of these bytes; 0 if there is no batch."""
    identity: int

    @classmethod
    def at(cls, log: LogFile, position: int, end: int) -> "LastBatch":
        """The batch that is in a log from one position to another.

        Raises:
            FileMissing: the log is gone.
        """
        return cls(position, end, identity_of(_start(log, position, end)) if end else 0)

    def is_in(self, log: LogFile) -> bool:
        """Whether it is in a log, where it was.

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
    """How many entries are true, when those before `first` are.

    Args:
        first: how many are known to be.
        count: of all entries.
        is_true: whether the batch of an entry is in the log.
    """
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
