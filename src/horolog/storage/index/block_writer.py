"""The block map of the segment that is appended to.

What an append costs here is a tuple: every sixteen batches are summed up at once. The entry of a
block is written when the next one begins, unless the file must be opened for that and the append
may not wait, or the disk refuses: then with a later one. Readers in this process have entries
that are not in the file yet from `published`.
"""

import logging
from typing import NamedTuple

from horolog.errors import StorageFailed
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.index.blocks import (
    BLOCK_BYTES,
    ENTRY_SIZE,
    HEADER_SIZE,
    NOTHING,
    Block,
    Met,
    MetSet,
    add_set,
    add_up,
    block_of,
    pack_header,
    sum_of,
    unpack,
)

_logger = logging.getLogger(__name__)

_FOLDED_AT_ONCE = 16
_LOOKS = 8
_MOST_UNWRITTEN = 128 * ENTRY_SIZE


class Published(NamedTuple):
    """Which entries there are, as one value: how many in the file, and those after them."""

    in_file: int
    unwritten: bytes


class BlockWriter:
    """Takes every batch that is appended; for one thread at a time."""

    __slots__ = (
        "_base_offset",
        "_files",
        "_known",
        "_open",
        "_path",
        "_pending",
        "_size",
        "is_ready",
        "published",
    )

    def __init__(self, files: Files, path: str, base_offset: int, in_file: int = 0) -> None:
        """Goes on after so many entries of the file; a new one is made if there are none."""
        self.published = Published(in_file, b"")
        self.is_ready = True
        """Whether nothing waits to be written that an append which may wait should write."""
        self._base_offset = base_offset
        self._files = files
        self._path = path
        self._pending: list[Met] = []
        # Position and base offset of the block that has room left, and what came before `_pending`.
        self._open: tuple[int, int] | None = None
        self._known = NOTHING
        self._size = 0

    def resume(self, last: bytes) -> None:
        """Take back the last entry of the file, of a block that has room left."""
        block = unpack(last, 0)
        if block.size < BLOCK_BYTES:
            self._open, self._known = (block.position, block.base_offset), sum_of(block)
            self._size = block.size
            self.published = self.published._replace(in_file=self.published.in_file - 1)

    def add(self, met: Met) -> None:
        """Take the batch that was written after the one before; never fails."""
        size = met[1]
        if self._size + size > BLOCK_BYTES and self._size:
            self._close()
        self._size += size
        pending = self._pending
        pending.append(met)
        if len(pending) == _FOLDED_AT_ONCE:
            self._fold()

    def add_set(self, added: MetSet) -> None:
        """Take batches that were written together: their block may be larger than others."""
        position, size = added.met[:2]
        if self._size + size > BLOCK_BYTES and self._size:
            self._close()
        self._fold()
        known = add_set(self._known, added)
        self._known = known  # first: a reader that finds a block open takes this for what it holds
        if self._open is None:
            self._open = position, added.met[3]
        self._size += size

    def open_block(self) -> Block | None:
        """The block that has room left, as of some moment of this call; any thread may ask."""
        for _ in range(_LOOKS):
            begin, known, pending = self._open, self._known, list(self._pending)
            if known is not self._known or begin is not self._open:
                continue  # they were summed up meanwhile
            if not pending:
                return None if begin is None else block_of(*begin, known)
            if begin is None:
                begin = pending[0][0], pending[0][3]
            elif known.end != pending[0][0]:
                continue
            return block_of(*begin, add_up(known, pending))
        return None  # it changes fast: readers read it

    def _fold(self) -> None:
        pending = self._pending
        if pending:
            known = add_up(self._known, pending)
            if self._open is None:
                self._open = pending[0][0], pending[0][3]
            self._known = known
            self._pending = []

    def _close(self) -> None:
        self._fold()
        if self._open is not None:
            in_file, unwritten = self.published
            if len(unwritten) >= _MOST_UNWRITTEN:
                unwritten = b""  # the disk is full: readers read that stretch of the log
            entry = block_of(*self._open, self._known).pack()
            self.published = Published(in_file, unwritten + entry)
            if self._files.is_open(self._path):
                self.write()
            else:
                self.is_ready = False
        self._open, self._known, self._size = None, NOTHING, 0

    def write(self) -> None:
        """Write the entries of the blocks that are complete; try later where the disk refuses."""
        in_file, unwritten = self.published
        self.is_ready = True  # after a refusal until the next block is complete
        if not unwritten:
            return
        try:
            if in_file:
                try:
                    file = self._files.get(self._path)
                except FileMissing:  # removed: what it had is not known any more
                    in_file = 0
            if in_file:
                self._files.write_at(file, [unwritten], HEADER_SIZE + in_file * ENTRY_SIZE)
            else:
                file = self._files.create(self._path)
                self._files.write_at(file, [pack_header(self._base_offset), unwritten], 0)
        except StorageFailed as error:
            _logger.warning("The block map is not written: %s", error)
            return
        self.published = Published(in_file + len(unwritten) // ENTRY_SIZE, b"")

    def finish(self) -> None:
        """Write all, the block that has room left as well; the segment is finished."""
        self._close()
        self.write()
