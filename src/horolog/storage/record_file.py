"""A file of record batches (format v2), read as far as it can be.

Every batch whose checksum is right counts, wherever it begins. What an append that was interrupted
leaves, the beginning of a batch or zeros, is no damage.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, printable
from horolog.record.batch import MAGIC
from horolog.storage.batches.reader import EVERYTHING, MAX_HELD_BYTES, BatchReader
from horolog.storage.batches.whole import is_torn_tail, whole_batches
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

_MOST_OFFSET: Final = 1 << 62  # that a batch can begin at: no file has room for more offsets
_MOST_LOST: Final = 100
_BASE_OFFSET = Struct(">q")


class Lost(NamedTuple):
    """Bytes of a file of batches without a whole batch, whose records are lost."""

    path: str
    start: int
    end: int
    reason: str
    next_offset: int | None = None
    """Base offset of the batch behind; None where no batch follows."""

    def __str__(self) -> str:
        return printable(f"{self.path}, bytes {self.start} to {self.end}: {self.reason}")


class RecordFile:
    """A file of batches. One thread at a time."""

    def __init__(self, files: Files, path: str, least_offset: int = 0) -> None:
        """Describe the file at a path; its offsets are not below `least_offset`."""
        self.path = path
        self.lost: tuple[Lost, ...] = ()
        """Parts that `read` could not read, without an append that was interrupted."""
        self.torn_bytes = 0
        """After `read`: what an append that was interrupted has left."""
        self.next_offset = least_offset
        """After `read`: the offset behind the last batch."""
        self._files = files
        self._least_offset = least_offset

    def read(self) -> Iterator[Buffer]:
        """Yield the batches in order, each valid until the next one.

        Where a batch has a base offset that cannot be (there is no checksum of it), it is given
        the one that follows the batch before it.

        Raises:
            StorageFailed: the file cannot be read, or is no regular file.
        """
        try:
            file = self._files.get(self.path)
        except FileMissing:
            return
        self.torn_bytes, size = 0, self._files.length(file)
        log = BatchReader(self._files, file, size, EVERYTHING)
        log.in_any_order = True  # a base offset has no checksum, and may be negative
        lost: list[Lost] = []
        end, next_offset = 0, self._least_offset
        try:
            for position, header in whole_batches(log):
                if header.magic != MAGIC or header.size > MAX_HELD_BYTES:
                    continue
                base_offset = header.base_offset
                if position > end:
                    _add(lost, Lost(self.path, end, position, "no whole batch", base_offset))
                batch: Buffer = log.batch(position, header)
                if not next_offset <= base_offset <= _MOST_OFFSET:
                    reason = f"{base_offset} is no base offset here"
                    _add(lost, Lost(self.path, position, position + 8, reason, next_offset))
                    base_offset = next_offset
                    batch = _BASE_OFFSET.pack(base_offset) + bytes(batch[_BASE_OFFSET.size :])
                end = position + header.size
                next_offset = base_offset + header.last_offset_delta + 1
                yield batch
        except CorruptBatch as error:
            lost.append(Lost(self.path, end, size, f"not searched to its end: {error}"))
            end = size
        if end < size and not is_torn_tail(self._files, file, end, size):
            _add(lost, Lost(self.path, end, size, "no whole batch"))
        elif end < size:
            self.torn_bytes = size - end
        self.next_offset, self.lost = next_offset, tuple(lost)


def _add(lost: list[Lost], more: Lost) -> None:
    """Add one; of very many the last is about all the rest."""
    if len(lost) < _MOST_LOST:
        lost.append(more)
    else:
        lost[-1] = lost[-1]._replace(
            end=more.end, reason="much here is no whole batch", next_offset=more.next_offset
        )
