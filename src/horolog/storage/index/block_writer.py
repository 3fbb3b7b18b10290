"""The block map of the segment that is appended to.

What an append costs here is a tuple: up to sixteen batches are summed up at once. The entry of a
block is written when the next one begins; of batches that are blocks alone, those of 2 MiB are
written together, so that for all but the first the code and data are in the processor's caches,
which large batches empty. Where the file must be opened for that and the append may not wait, or
the disk refuses, entries are written with later ones. Readers in this process have what is not in
the file yet from `published` and `open_blocks`; other processes read that end of the log, and so
does a start after a kill.
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
    Sum,
    add_set,
    add_up,
    block_of,
    pack_header,
    sum_of,
    unpack,
)

_logger = logging.getLogger(__name__)

_FOLDED_AT_ONCE = 16
_FOLDED_BYTES = 2 << 20
_MOST_UNWRITTEN = 128 * ENTRY_SIZE


class Published(NamedTuple):
    """Which entries there are, as one value: how many in the file, and those after them."""

    in_file: int
    unwritten: bytes


class _Open(NamedTuple):
    """What no entry says yet, as one value: another takes its place, only `pending` grows."""

    begin: tuple[int, int] | None
    """Position and base offset of the block that has room left; None before its first batch."""
    known: Sum
    """Of that block, without what is pending."""
    pending: list[Met]
    """Batches that follow: of that block, and of blocks behind it."""


class BlockWriter:
    """Takes every batch that is appended; for one thread at a time."""

    __slots__ = (
        "_base_offset",
        "_files",
        "_open",
        "_path",
        "_pending",
        "_used",
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
        self._pending: list[Met]
        self._used = 0  # bytes of the block that has room left, and of what is pending
        self._begin_with(None, NOTHING)

    def resume(self, last: bytes) -> None:
        """Take back the last entry of the file, of a block that has room left."""
        block = unpack(last, 0)
        if block.size < BLOCK_BYTES:
            self.published = self.published._replace(in_file=self.published.in_file - 1)
            self._begin_with((block.position, block.base_offset), sum_of(block))

    def add(self, met: Met) -> None:
        """Take the batch that was written after the one before; never fails."""
        pending, size = self._pending, met[1]
        pending.append(met)
        self._used += size
        most = BLOCK_BYTES if size < BLOCK_BYTES else _FOLDED_BYTES
        if len(pending) == _FOLDED_AT_ONCE or self._used > most:
            self._fold()

    def add_set(self, added: MetSet) -> None:
        """Take batches that were written together: their block may be larger than others."""
        self._fold()
        begin, known, _ = self._open
        if begin is not None and known.end - begin[0] + added.met[1] > BLOCK_BYTES:
            self._publish([block_of(*begin, known)])
            begin, known = None, NOTHING
        begin = (added.met[0], added.met[3]) if begin is None else begin
        self._begin_with(begin, add_set(known, added))

    def open_blocks(self) -> list[Block]:
        """The blocks that are not published, as of some moment of this call.

        Any thread may ask; what it finds in `published` afterwards is not to be taken twice.
        """
        open_now = self._open
        complete, begin, known = _summed(open_now, list(open_now.pending))
        return complete if begin is None else [*complete, block_of(*begin, known)]

    def _fold(self) -> None:
        if self._pending:
            complete, begin, known = _summed(self._open, self._pending)
            if complete:
                self._publish(complete)  # first: a reader who misses them here finds them there
            self._begin_with(begin, known)

    def _begin_with(self, begin: tuple[int, int] | None, known: Sum) -> None:
        self._pending = []
        self._used = known.end - begin[0] if begin is not None else 0
        self._open = _Open(begin, known, self._pending)

    def _publish(self, blocks: list[Block]) -> None:
        in_file, unwritten = self.published
        if len(unwritten) >= _MOST_UNWRITTEN:
            unwritten = b""  # the disk is full: readers read that stretch of the log
        unwritten += b"".join([block.pack() for block in blocks])
        self.published = Published(in_file, unwritten)
        if self._files.is_open(self._path):
            self.write()
        else:
            self.is_ready = False

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
        self._fold()
        begin, known, _ = self._open
        if begin is not None:
            self._publish([block_of(*begin, known)])
            self._begin_with(None, NOTHING)
        self.write()


def _summed(before: _Open, pending: list[Met]) -> tuple[list[Block], tuple[int, int] | None, Sum]:
    """The blocks that batches complete, and the one that has room left: its begin, and its sum."""
    begin, known, _ = before
    size = known.end - begin[0] if begin is not None else 0
    complete: list[Block] = []
    part: list[Met] = []
    for met in pending:
        if size + met[1] > BLOCK_BYTES and begin is not None:
            complete.append(block_of(*begin, add_up(known, part) if part else known))
            begin, known, size, part = None, NOTHING, 0, []
        if begin is None:
            begin = met[0], met[3]
        part.append(met)
        size += met[1]
    return complete, begin, add_up(known, part) if part else known
