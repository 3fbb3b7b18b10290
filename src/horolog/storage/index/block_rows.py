"""What `BlockWriter` keeps of the batches that it has met, and how entries are made of it.

A batch is a row of bytes and the sum of a block an array, so that a kernel makes the entries: it
needs a fraction of the time that Python does, most of which is spent on code that requests have
driven out of the processor's caches. Until it is loaded the functions of index/blocks.py do.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from horolog.record.kernels import layout
from horolog.record.kernels.loading import BLOCK_KERNELS
from horolog.record.scan import NO_TALLY, Tally
from horolog.storage.index.blocks import (
    NOTHING,
    UNREADABLE,
    Met,
    Sum,
    add_up,
    block_of,
)

_ROW: Final = Struct(f"=7q{8 * layout.TALLY_SIZE}s{layout.BATCH_HEADER_ROOM}s")


def row_of(
    position: int,
    size: int,
    header: bytes | bytearray,
    base_offset: int,
    last_offset: int,
    flags: int,
    append_ms: int,
    tally: "Tally | None",
) -> bytes:
    """A batch, as `Met` describes it, as a row."""
    if tally is None:
        tally, flags = NO_TALLY, flags | UNREADABLE
    counted, header_size = tally.tobytes(), len(header)
    return _ROW.pack(
        position, size, header_size, base_offset, last_offset, flags, append_ms, counted, header
    )


def met_of_row(row: bytes) -> Met:
    """The batch of a row."""
    *numbers, counted, header = _ROW.unpack(row)
    position, size, header_size, base_offset, last_offset, flags, append_ms = numbers
    tally = None if flags & UNREADABLE else array("q", counted)
    flags &= ~UNREADABLE
    head = header[:header_size]
    return position, size, head, base_offset, last_offset, flags, append_ms, tally


def sum_with(begin: tuple[int, int] | None, known: Sum) -> "array[int]":
    """The sum of a block that begins at a position and an offset; None if there is none."""
    position, base_offset = (0, 0) if begin is None else begin
    numbers = (
        *(begin is not None, position, base_offset),
        *(known.end, known.last_position, known.batches, known.next_offset),
        *(known.control_records, known.append_min_ms, known.append_max_ms, known.flags),
        *(known.last_header_crc, known.headers_crc),
    )
    return array("q", (*numbers, *known.tally))


def known_of(total: "array[int]") -> tuple[tuple[int, int] | None, Sum]:
    """The reverse of `sum_with`."""
    begun, position, base_offset, *numbers = total[: layout.SUM_TALLY]
    end, last_position, batches, next_offset, control_records, *rest = numbers
    append_min_ms, append_max_ms, flags, last_header_crc, headers_crc = rest
    known = Sum(
        end,
        last_position,
        batches,
        next_offset,
        control_records,
        append_min_ms,
        append_max_ms,
        flags,
        total[layout.SUM_TALLY :],
        last_header_crc,
        headers_crc,
    )
    return ((position, base_offset), known) if begun else (None, NOTHING)


def folded(
    total: "array[int]", rows: Sequence[bytes], block_bytes: int, *, closing: bool = False
) -> tuple[bytes, "array[int]"]:
    """The entries of the blocks that batches complete, and the sum of the one that has room left.

    Args:
        total: of the block that they go on with.
        rows: the batches, which follow those before.
        block_bytes: a block ends before a batch that would make it larger.
        closing: no more follow: the last block is complete as well.
    """
    kernels = BLOCK_KERNELS.module
    if kernels is None or not rows:
        return _folded_in_python(total, rows, block_bytes, closing=closing)
    after = total[:]
    joined = bytearray().join(rows)
    return kernels.fold_batches(joined, after, block_bytes, closing=closing), after


def _folded_in_python(
    total: "array[int]", rows: Sequence[bytes], block_bytes: int, *, closing: bool
) -> tuple[bytes, "array[int]"]:
    begin, known = known_of(total)
    used = known.end - begin[0] if begin is not None else 0
    entries = bytearray()
    part: list[Met] = []
    for met in map(met_of_row, rows):
        if begin is not None and used + met[1] > block_bytes:
            entries += block_of(*begin, add_up(known, part) if part else known).pack()
            begin, known, used, part = None, NOTHING, 0, []
        if begin is None:
            begin = met[0], met[3]
        part.append(met)
        used += met[1]
    known = add_up(known, part) if part else known
    if closing and begin is not None:
        entries += block_of(*begin, known).pack()
        begin, known = None, NOTHING
    return bytes(entries), sum_with(begin, known)
