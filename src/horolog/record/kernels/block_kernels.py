"""The text of the kernel that sums up the batches of a log to the entries of its block map."""

from horolog.record.kernels import layout
from horolog.record.kernels.machine import Int64s, Room, crc32c, kernel, put_i32, put_i64

_UINT32_MAX = (1 << 32) - 1
_CHECKED = layout.ENTRY_SIZE - 4
_COUNTS = layout.BLOCK_COUNTS - layout.COUNTS  # from where they are in the state of a walk


def _add(rows, row, total):
    """Take one more batch, or several, which follow those before."""
    if total[layout.BLOCK_BATCHES] == 0:
        for place in range(layout.BLOCK_SIZE):
            total[place] = rows[row + place]
        return
    total[layout.BLOCK_BYTES] += rows[row + layout.BLOCK_BYTES]
    total[layout.BLOCK_BATCHES] += rows[row + layout.BLOCK_BATCHES]
    for place in (layout.BLOCK_LAST_POSITION, layout.BLOCK_NEXT_OFFSET, layout.BLOCK_IDENTITY):
        total[place] = rows[row + place]
    total[layout.BLOCK_CONTROL] += rows[row + layout.BLOCK_CONTROL]
    least, largest = layout.BLOCK_APPEND_MIN, layout.BLOCK_APPEND_MAX
    total[least] = min(total[least], rows[row + least])
    total[largest] = max(total[largest], rows[row + largest])
    total[layout.BLOCK_FLAGS] |= rows[row + layout.BLOCK_FLAGS]
    _add_counts(rows, row + _COUNTS, total)


def _add_counts(rows, row, total):
    if rows[row + layout.TIMED] > 0:
        largest, smallest = rows[row + layout.MAX], rows[row + layout.MIN]
        first = rows[row + layout.FIRST_TIME]
        if total[_COUNTS + layout.TIMED] == 0:
            total[_COUNTS + layout.MAX] = largest
            total[_COUNTS + layout.MIN] = smallest
            total[_COUNTS + layout.FIRST_TIME] = first
        else:
            total[_COUNTS + layout.MAX] = max(total[_COUNTS + layout.MAX], largest)
            total[_COUNTS + layout.MIN] = min(total[_COUNTS + layout.MIN], smallest)
            if first < total[_COUNTS + layout.LAST_TIME]:
                total[_COUNTS + layout.SETBACKS] += 1
        total[_COUNTS + layout.LAST_TIME] = rows[row + layout.LAST_TIME]
    total[_COUNTS + layout.COUNT] += rows[row + layout.COUNT]
    total[_COUNTS + layout.TIMED] += rows[row + layout.TIMED]
    for counter in range(layout.SETBACKS, layout.LATENCIES + layout.LATENCY_COUNT):
        total[_COUNTS + counter] += rows[row + counter]


def _put_entry(total, out, at):
    records, timed = total[_COUNTS + layout.COUNT], total[_COUNTS + layout.TIMED]
    control = total[layout.BLOCK_CONTROL]
    base_offset = total[layout.BLOCK_BASE_OFFSET]
    flags = total[layout.BLOCK_FLAGS]
    put_i32(out, at, total[layout.BLOCK_POSITION])
    put_i32(out, at + 4, total[layout.BLOCK_BYTES])
    put_i32(out, at + 8, total[layout.BLOCK_LAST_POSITION])
    put_i32(out, at + 12, total[layout.BLOCK_BATCHES])
    put_i64(out, at + 16, base_offset)
    put_i32(out, at + 24, total[layout.BLOCK_NEXT_OFFSET] - base_offset)
    put_i32(out, at + 28, min(records - control, _UINT32_MAX))
    put_i32(out, at + 32, min(control, _UINT32_MAX))
    if timed != 0:
        flags |= layout.HAS_CREATE_TIMES
        put_i64(out, at + 36, total[_COUNTS + layout.MIN])
        put_i64(out, at + 44, total[_COUNTS + layout.MAX])
        put_i64(out, at + 68, total[_COUNTS + layout.FIRST_TIME])
        put_i64(out, at + 76, total[_COUNTS + layout.LAST_TIME])
    if total[layout.BLOCK_APPEND_MIN] <= total[layout.BLOCK_APPEND_MAX]:
        flags |= layout.HAS_APPEND_TIMES
        put_i64(out, at + 52, total[layout.BLOCK_APPEND_MIN])
        put_i64(out, at + 60, total[layout.BLOCK_APPEND_MAX])
    put_i32(out, at + 84, min(records - timed, _UINT32_MAX))
    put_i32(out, at + 88, min(total[_COUNTS + layout.SETBACKS], _UINT32_MAX))
    put_i32(out, at + 92, flags)
    for place in range(layout.LATENCY_COUNT):
        count = total[_COUNTS + layout.LATENCIES + place]
        put_i32(out, at + 96 + 4 * place, min(count, _UINT32_MAX))
    put_i32(out, at + 144, total[layout.BLOCK_IDENTITY])
    put_i32(out, at + _CHECKED, crc32c(out, at, at + _CHECKED))


@kernel
def fold_batches(
    rows: Int64s, total: Int64s, entries: Room, block_bytes: int, closing: bool
) -> int:
    """Write the entries of the blocks that batches complete; how many they are.

    Args:
        rows: the batches, of `layout.BLOCK_SIZE` numbers each.
        total: the block that has room left, as numbers; becomes the last one.
        entries: has room for one of each row, and for one more.
        block_bytes: a block ends before a batch that would make it larger.
        closing: the last one is complete as well.
    """
    count = 0
    for row in range(0, len(rows) - layout.BLOCK_SIZE + 1, layout.BLOCK_SIZE):
        is_full = total[layout.BLOCK_BYTES] + rows[row + layout.BLOCK_BYTES] > block_bytes
        if is_full and total[layout.BLOCK_BATCHES] != 0:
            _put_entry(total, entries, count * layout.ENTRY_SIZE)
            count += 1
            total[layout.BLOCK_BATCHES] = 0
        _add(rows, row, total)
    if closing and total[layout.BLOCK_BATCHES] != 0:
        _put_entry(total, entries, count * layout.ENTRY_SIZE)
        count += 1
        for place in range(layout.BLOCK_SIZE):
            total[place] = 0
    return count
