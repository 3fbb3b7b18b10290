"""Writer of the block map of the segment that is appended to.

An append adds a row of bytes (folding.py). Up to 40 batches, or 8 MiB, are summed up at once. The
entries of their blocks are written together, behind the marker (marker.py). They are written later
if the disk refuses, or if the file is closed and the append must not block.

Readers in this process get unwritten entries from `published` and `open_blocks`. Other processes
read that end of the log, and so does a start after a kill.
"""

import logging
from array import array
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.storage.companion.blocks import BLOCK_BYTES, ENTRY_SIZE
from horolog.storage.companion.counts import NONE, BlockTotals, counts_of
from horolog.storage.companion.folding import NO_BLOCK, folded
from horolog.storage.companion.marker import MARKER_SIZE
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files

_logger = logging.getLogger(__name__)

FOLDED_AT_ONCE = 40  # 12 kB in memory
FOLDED_BYTES = 8 << 20
MOST_UNWRITTEN = 128 * ENTRY_SIZE


class Published(NamedTuple):
    """Finished entries, as one value: the number in the file, and the bytes of later ones."""

    in_file: int
    unwritten: bytes


class _OpenBlock(NamedTuple):
    """Batches without an entry, as one value that is replaced. Only `pending` grows."""

    total: "array[int]"
    """Numbers of the unfinished block without pending batches. Never changed."""
    pending: list[bytes]
    """Later batches, of the unfinished block and of blocks behind it."""
    finished: BlockTotals
    """Totals of finished blocks, for `BlockWriter.counts`."""


class BlockWriter:
    """Adds appended batches to a block map. One thread at a time."""

    __slots__ = (
        "_counted",
        "_files",
        "_most_unwritten",
        "_open",
        "_path",
        "_pending",
        "_pending_bytes",
        "is_ready",
        "published",
    )

    def __init__(self, files: Files, path: str, in_file: int = 0, unwritten: bytes = b"") -> None:
        """Continue a block map.

        Args:
            path: of the file beside a segment that is appended to (marker.py).
            in_file: how many entries are in it.
        """
        self.published = Published(in_file, unwritten)
        self.is_ready = not unwritten
        """False if entries wait for an append that may block to write them."""
        self._files = files
        self._most_unwritten = len(unwritten) + MOST_UNWRITTEN
        self._path = path
        self._open: _OpenBlock
        self._pending: list[bytes]
        self._pending_bytes = 0  # of those batches in the log
        self._counted: tuple[_OpenBlock | None, int, BlockTotals] = None, 0, NONE  # as one value
        self._continue_with(NO_BLOCK, NONE)

    def add(self, row: bytes | None, size: int) -> None:
        """Add the row of the next batch of the log (`row_of`).

        Never fails.

        Args:
            row: the batch, or several that were written together: their block may be larger. None
                if nothing is known of its records.
            size: its bytes in the log.
        """
        if row is None:
            self.skip()
            return
        pending = self._pending
        pending.append(row)
        self._pending_bytes += size
        if len(pending) == FOLDED_AT_ONCE or self._pending_bytes > FOLDED_BYTES:
            self._fold()

    def skip(self) -> None:
        """End the block, because batches with unknown contents follow."""
        if self._pending or self._open.total != NO_BLOCK:
            self._fold(closing=True)

    def open_blocks(self) -> bytes:
        """Return the entries of the blocks that are not published yet.

        Any thread may call it. Entries that are in `published` afterwards must not be counted
        twice.
        """
        total, pending, _ = self._open
        return folded(total, list(pending), BLOCK_BYTES, closing=True)[0]

    def count_from(self, counts: BlockTotals) -> None:
        """Count the batches from here on, starting with these totals."""
        self.skip()
        self._open = self._open._replace(finished=counts)

    def counts(self) -> BlockTotals:
        """Return the totals since `count_from`. Any thread may call it."""
        open_now, batches, counts = self._counted
        if open_now is self._open and batches == len(open_now.pending):
            return counts
        open_now = self._open
        pending = list(open_now.pending)
        entries, _ = folded(open_now.total, pending, BLOCK_BYTES, closing=True)
        counts = open_now.finished.plus(counts_of(entries))
        self._counted = open_now, len(pending), counts
        return counts

    def _fold(self, *, closing: bool = False) -> None:
        if self._pending or closing:
            total, _, finished = self._open
            entries, total = folded(total, self._pending, BLOCK_BYTES, closing=closing)
            if entries:
                self._publish(entries)  # first: a reader who misses them here finds them there
                finished = finished.plus(counts_of(entries))
            self._continue_with(total, finished)

    def _continue_with(self, total: "array[int]", finished: BlockTotals) -> None:
        self._pending = []
        self._pending_bytes = 0
        self._open = _OpenBlock(total, self._pending, finished)

    def _publish(self, entries: bytes) -> None:
        in_file, unwritten = self.published
        if len(unwritten) >= self._most_unwritten:
            unwritten = b""  # the disk is full: readers read that stretch of the log
        self.published = Published(in_file, unwritten + entries)
        if self._files.is_open(self._path):
            self.write()
        else:
            self.is_ready = False

    def write(self) -> None:
        """Write the entries of finished blocks.

        After a refusal by the disk they are written later.
        """
        in_file, unwritten = self.published
        self.is_ready = True  # after a refusal until the next block is complete
        if not unwritten:
            return
        try:
            self._files.write_at(
                self._files.get(self._path), [unwritten], MARKER_SIZE + in_file * ENTRY_SIZE
            )
        except FileMissing:  # removed, or not there yet: what it had is not known any more
            self.published = Published(0, unwritten)
            return
        except StorageFailed as error:
            _logger.warning("The block map is not written: %s", error)
            return
        self.published = Published(in_file + len(unwritten) // ENTRY_SIZE, b"")

    def close(self) -> None:
        """Publish all blocks, the unfinished one too, because the segment is finished."""
        self._fold(closing=True)
