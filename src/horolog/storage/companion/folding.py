"""Sums of consecutive batches, as entries of a block map.

A row is the bytes of a batch's numbers, as kernels lay them out. A kernel makes the entries, in a
fraction of the time that Python needs. `blocks.unpack` parses an entry.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from horolog.record.kernels import layout
from horolog.record.kernels.loading import BLOCK_KERNELS
from horolog.record.time_stats import (
    LACKS_APPEND_TIMES,
    NO_APPEND_TIME,
    NO_COUNTS,
    UNREADABLE,
)

_ROW: Final = Struct(f"={layout.BLOCK_COUNTS}q{8 * layout.COUNTS_SIZE}s")
_PLACE: Final = Struct("=qq")
_NO_COUNTS: Final = NO_COUNTS.tobytes()

NO_BLOCK: Final = array("q", bytes(8 * layout.BLOCK_SIZE))
"""Numbers of a block without a batch."""


pack_row = _ROW.pack
"""Packs position, size, last position, count, first and next offset, identity of the last batch,
markers, first and last append time, flags, and the bytes of `Counts`: of one batch whose append
time and records are known."""


def row_of(
    position: int,
    size: int,
    base_offset: int,
    last_offset: int,
    identity: int,
    markers: int,
    append_ms: int | None,
    flags: int,
    counts: bytes | None,
    batches: int = 1,
    last_position: int | None = None,
) -> bytes:
    """Pack the numbers of a batch, or of several that were appended at once.

    Args:
        identity: of the last batch (proof.py).
        markers: how many records are markers of transactions.
        append_ms: the append time in milliseconds; None if it is unknown.
        counts: the bytes of `Counts`; None if the records cannot be read.
        last_position: of the last batch, if there are several.
    """
    first_ms = last_ms = append_ms
    if first_ms is None or last_ms is None:
        (first_ms, last_ms), flags = NO_APPEND_TIME, flags | LACKS_APPEND_TIMES
    if counts is None:
        counts, flags = _NO_COUNTS, flags | UNREADABLE
    return _ROW.pack(
        position,
        size,
        position if last_position is None else last_position,
        batches,
        base_offset,
        last_offset + 1,
        identity,
        markers,
        first_ms,
        last_ms,
        flags,
        counts,
    )


def place_of(row: bytes) -> tuple[int, int]:
    """Return position and size of the batches of a row in the log."""
    position, size = _PLACE.unpack_from(row)
    return position, size


def folded(
    total: "array[int]", rows: Sequence[bytes], block_bytes: int, *, closing: bool = False
) -> tuple[bytes, "array[int]"]:
    """Return the entries of the blocks that these batches complete, and the unfinished block.

    Args:
        total: the block that they continue with, as numbers.
        rows: the batches, which follow those before.
        block_bytes: a block ends before a batch that would make it larger.
        closing: no more follow: the last block is complete as well.
    """
    after = total[:]
    numbers = array("q", b"".join(rows))
    entries = bytearray((len(rows) + 1) * layout.ENTRY_SIZE)
    count = BLOCK_KERNELS.run.fold_batches(numbers, after, entries, block_bytes, closing)
    return bytes(memoryview(entries)[: count * layout.ENTRY_SIZE]), after
