"""Searches a damaged log for batches that are still whole, wherever they begin.

A log is searched for batches whose checksum is right. What the search costs is bounded, so that
bytes made to look like batches cannot hold a start up.
"""

from collections.abc import Iterator
from contextlib import suppress

from horolog.errors import CorruptBatch
from horolog.record.batch import MAGIC, BatchHeader
from horolog.storage.batches.reader import BatchReader, TornTail
from horolog.storage.files import Files, OpenFile

_LEAST_CHARGE = 1 << 10  # of what is tried, however small it claims to be
BUDGET_BYTES = 1 << 28  # of checksums that turned out wrong, besides the size of what is searched


def is_torn_tail(files: Files, file: OpenFile, start: int, end: int) -> bool:
    """Return True if `[start, end)` of a log contains only zeros or the beginning of a batch.

    Not so where it holds a whole batch, be it damaged or in the wrong place, nor where it does
    not begin as a batch does: that may be a whole one with a damaged header.
    """
    log = BatchReader(files, file, end)
    if log.is_zeros(start):
        return True
    try:
        log.header(start)
    except TornTail:
        with suppress(CorruptBatch):  # too much looks like batches: it may hold one
            return next(whole_batches(log, start), None) is None
    except CorruptBatch:
        pass
    return False


def whole_batches(log: BatchReader, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every batch from `start` on with a valid checksum.

    Bytes that are no batch are skipped: a damaged batch by its length if another follows there,
    otherwise byte by byte.

    Raises:
        CorruptBatch: too much looks like a batch and is none.
    """
    search = _Search(log, start)
    position = start
    while position >= 0:
        header = search.at(position)
        if header is None:
            position = search.behind(position)
        else:
            yield position, header
            position += header.size


class _Search:
    """Looks for whole batches in a log from some position on."""

    def __init__(self, log: BatchReader, start: int) -> None:
        self._log = log
        self._old_formats = True  # behind a batch of v2 no message of v0 or v1 is looked for
        self._budget = BUDGET_BYTES + log.size - start

    def at(self, position: int) -> BatchHeader | None:
        """Return the header of the whole batch at a position; None if no batch is whole there."""
        try:
            header = self._log.header(position)
            if header.base_offset < 0 and not self._log.in_any_order:
                return None
        except CorruptBatch:
            return None
        try:
            self._log.check(position, header)
        except CorruptBatch as error:
            self._budget -= max(header.size, _LEAST_CHARGE)
            if self._budget < 0:
                raise CorruptBatch("too much only looks like batches") from error
            return None
        self._old_formats = header.magic != MAGIC
        return header

    def behind(self, position: int) -> int:
        """Return the start of the next whole batch after a position without one; -1 at the end."""
        following = position
        with suppress(CorruptBatch):  # its header does not say where it ends
            following += self._log.header(position).size
        if following > position and self.at(following) is not None:
            return following
        next_like = self._log.find_batch_like
        while (position := next_like(position + 1, old_formats=self._old_formats)) >= 0:
            if self.at(position) is not None:
                return position
        return -1
