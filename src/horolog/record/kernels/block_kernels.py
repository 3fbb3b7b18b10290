"""The text of the kernel that sums up the batches of a log to the entries of its block map."""

from horolog.record.kernels.layout import (
    BLOCK_APPEND_MAX,
    BLOCK_APPEND_MIN,
    BLOCK_BASE_OFFSET,
    BLOCK_BATCHES,
    BLOCK_BYTES,
    BLOCK_CONTROL,
    BLOCK_COUNTS,
    BLOCK_FLAGS,
    BLOCK_IDENTITY,
    BLOCK_LAST_POSITION,
    BLOCK_NEXT_OFFSET,
    BLOCK_POSITION,
    BLOCK_SIZE,
    COUNT,
    COUNTS,
    ENTRY_SIZE,
    FIRST_TIME,
    HAS_APPEND_TIMES,
    HAS_CREATE_TIMES,
    LAST_TIME,
    LATENCIES,
    LATENCY_COUNT,
    MAX,
    MIN,
    SETBACKS,
    TIMED,
)
from horolog.record.kernels.machine import Int64s, Room, crc32c, kernel, put_i32, put_i64

_UINT32_MAX = (1 << 32) - 1
_CHECKED = ENTRY_SIZE - 4
_COUNTS = BLOCK_COUNTS - COUNTS  # from where they are in the state of a walk


def _add(rows, row, total):
    """Add one batch, or several, that follow the batches of a block."""
    if total[BLOCK_BATCHES] == 0:
        for place in range(BLOCK_SIZE):
            total[place] = rows[row + place]
        return
    total[BLOCK_BYTES] += rows[row + BLOCK_BYTES]
    total[BLOCK_BATCHES] += rows[row + BLOCK_BATCHES]
    for place in (BLOCK_LAST_POSITION, BLOCK_NEXT_OFFSET, BLOCK_IDENTITY):
        total[place] = rows[row + place]
    total[BLOCK_CONTROL] += rows[row + BLOCK_CONTROL]
    least, largest = BLOCK_APPEND_MIN, BLOCK_APPEND_MAX
    total[least] = min(total[least], rows[row + least])
    total[largest] = max(total[largest], rows[row + largest])
    total[BLOCK_FLAGS] |= rows[row + BLOCK_FLAGS]
    _add_counts(rows, row + _COUNTS, total)


def _add_counts(rows, row, total):
    if rows[row + TIMED] > 0:
        largest, smallest = rows[row + MAX], rows[row + MIN]
        first = rows[row + FIRST_TIME]
        if total[_COUNTS + TIMED] == 0:
            total[_COUNTS + MAX] = largest
            total[_COUNTS + MIN] = smallest
            total[_COUNTS + FIRST_TIME] = first
        else:
            total[_COUNTS + MAX] = max(total[_COUNTS + MAX], largest)
            total[_COUNTS + MIN] = min(total[_COUNTS + MIN], smallest)
            if first < total[_COUNTS + LAST_TIME]:
                total[_COUNTS + SETBACKS] += 1
        total[_COUNTS + LAST_TIME] = rows[row + LAST_TIME]
    total[_COUNTS + COUNT] += rows[row + COUNT]
    total[_COUNTS + TIMED] += rows[row + TIMED]
    for counter in range(SETBACKS, LATENCIES + LATENCY_COUNT):
        total[_COUNTS + counter] += rows[row + counter]


def _put_entry(total, out, at):
    records, timed = total[_COUNTS + COUNT], total[_COUNTS + TIMED]
    control = total[BLOCK_CONTROL]
    base_offset = total[BLOCK_BASE_OFFSET]
    flags = total[BLOCK_FLAGS]
    put_i32(out, at, total[BLOCK_POSITION])
    put_i32(out, at + 4, total[BLOCK_BYTES])
    put_i32(out, at + 8, total[BLOCK_LAST_POSITION])
    put_i32(out, at + 12, total[BLOCK_BATCHES])
    put_i64(out, at + 16, base_offset)
    put_i32(out, at + 24, total[BLOCK_NEXT_OFFSET] - base_offset)
    put_i32(out, at + 28, min(records - control, _UINT32_MAX))
    put_i32(out, at + 32, min(control, _UINT32_MAX))
    if timed != 0:
        flags |= HAS_CREATE_TIMES
        put_i64(out, at + 36, total[_COUNTS + MIN])
        put_i64(out, at + 44, total[_COUNTS + MAX])
        put_i64(out, at + 68, total[_COUNTS + FIRST_TIME])
        put_i64(out, at + 76, total[_COUNTS + LAST_TIME])
    if total[BLOCK_APPEND_MIN] <= total[BLOCK_APPEND_MAX]:
        flags |= HAS_APPEND_TIMES
        put_i64(out, at + 52, total[BLOCK_APPEND_MIN])
        put_i64(out, at + 60, total[BLOCK_APPEND_MAX])
    put_i32(out, at + 84, min(records - timed, _UINT32_MAX))
    put_i32(out, at + 88, min(total[_COUNTS + SETBACKS], _UINT32_MAX))
    put_i32(out, at + 92, flags)
    for place in range(LATENCY_COUNT):
        count = total[_COUNTS + LATENCIES + place]
        put_i32(out, at + 96 + 4 * place, min(count, _UINT32_MAX))
    put_i32(out, at + 144, total[BLOCK_IDENTITY])
    put_i32(out, at + _CHECKED, crc32c(out, at, at + _CHECKED))


@kernel
def fold_batches(
    rows: Int64s, total: Int64s, entries: Room, block_bytes: int, closing: bool
) -> int:
    """Write the entries of the blocks that batches complete; return their number.

    Args:
        rows: the batches, of `BLOCK_SIZE` numbers each.
        total: numbers of the block that has room left; becomes the last block.
        entries: room for an entry of each row, and for one more.
        block_bytes: a block ends before a batch that would make it larger.
        closing: whether the last block is complete as well.
    """
    count = 0
    for row in range(0, len(rows) - BLOCK_SIZE + 1, BLOCK_SIZE):
        is_full = total[BLOCK_BYTES] + rows[row + BLOCK_BYTES] > block_bytes
        if is_full and total[BLOCK_BATCHES] != 0:
            _put_entry(total, entries, count * ENTRY_SIZE)
            count += 1
            total[BLOCK_BATCHES] = 0
        _add(rows, row, total)
    if closing and total[BLOCK_BATCHES] != 0:
        _put_entry(total, entries, count * ENTRY_SIZE)
        count += 1
        for place in range(BLOCK_SIZE):
            total[place] = 0
    return count
