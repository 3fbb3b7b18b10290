"""The numba kernel that sums up the batches of a log to the entries of its block map.

It must equal its plain twin (`storage/index/block_rows.py`). It sees rows that this process has
made; the entries have room for one of each row, and for one more.
"""

from array import array
from collections.abc import Callable

import numba
import numpy as np

from horolog.record.kernels import layout
from horolog.record.kernels.cache import compile_kernel, helper
from horolog.record.kernels.record_kernels import byte_at, put_i32, put_i64
from horolog.record.kernels.scan_kernels import BYTES_IN, INT64S, add_tally

_BYTES_OUT = numba.uint8[::1]
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_UINT32_MAX = (1 << 32) - 1
_POLYNOMIAL = 0x82F63B78
_CHECK_SIZE = 4


def _crc_table() -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
    """Of CRC-32C, a byte at a time: larger ones would be out of the caches each time."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE = _crc_table()


@helper
def _crc32c(data, start, size, before):
    crc = before ^ np.int64(_UINT32_MAX)
    for position in range(start, start + size):
        low = (crc ^ byte_at(data, position)) & 0xFF
        crc = (crc >> 8) ^ np.int64(_TABLE[np.uint64(low)])
    return crc ^ np.int64(_UINT32_MAX)


@helper
def _empty(total):
    for place in range(layout.SUM_SIZE):
        total[place] = 0
    total[layout.SUM_APPEND_MIN] = _INT64_MAX
    total[layout.SUM_APPEND_MAX] = _INT64_MIN


@helper
def _add(rows, row, data, total):
    """Add a batch; the CRC of the last header is left as it is."""
    position = rows[row + layout.BATCH_POSITION]
    flags = rows[row + layout.BATCH_FLAGS]
    if total[layout.SUM_BEGUN] == 0:
        total[layout.SUM_BEGUN] = 1
        total[layout.SUM_POSITION] = position
        total[layout.SUM_BASE_OFFSET] = rows[row + layout.BATCH_BASE_OFFSET]
    total[layout.SUM_END] = position + rows[row + layout.BATCH_SIZE]
    total[layout.SUM_LAST_POSITION] = position
    total[layout.SUM_BATCHES] += 1
    total[layout.SUM_NEXT_OFFSET] = rows[row + layout.BATCH_LAST_OFFSET] + 1
    if flags & layout.IS_CONTROL:
        total[layout.SUM_CONTROL_RECORDS] += rows[row + layout.BATCH_TALLY]
    if flags & layout.HAS_APPEND_TIMES:
        ms = rows[row + layout.BATCH_APPEND_TIME]
        total[layout.SUM_APPEND_MIN] = min(total[layout.SUM_APPEND_MIN], ms)
        total[layout.SUM_APPEND_MAX] = max(total[layout.SUM_APPEND_MAX], ms)
    total[layout.SUM_FLAGS] |= flags
    total[layout.SUM_HEADERS_CRC] = _crc32c(
        data,
        8 * (row + layout.BATCH_HEADER),
        rows[row + layout.BATCH_HEADER_SIZE],
        total[layout.SUM_HEADERS_CRC],
    )
    add_tally(rows, row + layout.BATCH_TALLY, total, layout.SUM_TALLY)


@helper
def _note_last(rows, row, data, total):
    size = rows[row + layout.BATCH_HEADER_SIZE]
    crc = _crc32c(data, 8 * (row + layout.BATCH_HEADER), size, np.int64(0))
    total[layout.SUM_LAST_HEADER_CRC] = crc


@helper
def _put_entry(total, out, at):
    tally = layout.SUM_TALLY - layout.TALLY
    records, timed = total[tally + layout.COUNT], total[tally + layout.TIMED]
    flags = total[layout.SUM_FLAGS] & ~np.int64(layout.IS_CONTROL)
    if timed != 0:
        flags |= layout.HAS_CREATE_TIMES
    base_offset = total[layout.SUM_BASE_OFFSET]
    put_i32(out, at, total[layout.SUM_POSITION])
    put_i32(out, at + 4, total[layout.SUM_END] - total[layout.SUM_POSITION])
    put_i32(out, at + 8, total[layout.SUM_LAST_POSITION])
    put_i32(out, at + 12, total[layout.SUM_BATCHES])
    put_i64(out, at + 16, base_offset)
    put_i32(out, at + 24, total[layout.SUM_NEXT_OFFSET] - base_offset)
    put_i32(out, at + 28, min(records - total[layout.SUM_CONTROL_RECORDS], _UINT32_MAX))
    put_i64(out, at + 32, total[tally + layout.MIN])
    put_i64(out, at + 40, total[tally + layout.MAX])
    has_append_times = flags & layout.HAS_APPEND_TIMES != 0
    put_i64(out, at + 48, total[layout.SUM_APPEND_MIN] if has_append_times else np.int64(0))
    put_i64(out, at + 56, total[layout.SUM_APPEND_MAX] if has_append_times else np.int64(0))
    put_i64(out, at + 64, total[tally + layout.FIRST_TIME])
    put_i64(out, at + 72, total[tally + layout.LAST_TIME])
    put_i32(out, at + 80, min(records - timed, _UINT32_MAX))
    put_i32(out, at + 84, min(total[tally + layout.SETBACKS], _UINT32_MAX))
    put_i32(out, at + 88, flags)
    for place in range(layout.LATENCY_COUNT):
        put_i32(out, at + 92 + 4 * place, min(total[tally + layout.LATENCIES + place], _UINT32_MAX))
    put_i32(out, at + 140, total[layout.SUM_LAST_HEADER_CRC])
    put_i32(out, at + 144, total[layout.SUM_HEADERS_CRC])
    checked = layout.ENTRY_SIZE - _CHECK_SIZE
    put_i32(out, at + checked, _crc32c(out, at, checked, np.int64(0)))


def _fold_batches(rows, data, total, entries, block_bytes, closing):
    count = np.int64(0)
    last = np.int64(-1)  # the row that was added last, to the block that is open
    for row in range(0, len(rows) - layout.BATCH_ROW_SIZE + 1, layout.BATCH_ROW_SIZE):
        used = total[layout.SUM_END] - total[layout.SUM_POSITION]
        is_full = used + rows[row + layout.BATCH_SIZE] > block_bytes
        if is_full and total[layout.SUM_BEGUN] != 0:
            if last >= 0:
                _note_last(rows, last, data, total)
            _put_entry(total, entries, count * layout.ENTRY_SIZE)
            count += 1
            _empty(total)
        _add(rows, row, data, total)
        last = np.int64(row)
    if last >= 0:
        _note_last(rows, last, data, total)
    if closing and total[layout.SUM_BEGUN] != 0:
        _put_entry(total, entries, count * layout.ENTRY_SIZE)
        count += 1
        _empty(total)
    return count


_compiled: Callable[..., int] = compile_kernel(
    numba.int64(INT64S, BYTES_IN, INT64S, _BYTES_OUT, numba.int64, numba.boolean), _fold_batches
)


def fold_batches(rows: bytearray, total: "array[int]", block_bytes: int, *, closing: bool) -> bytes:
    """The entries of the blocks that batches complete, added to a sum.

    Args:
        rows: of `layout.BATCH_ROW_SIZE` numbers each.
        total: of the block that has room left; becomes the sum of the last one.
        block_bytes: a block ends before a batch that would make it larger.
        closing: the last one is complete as well.
    """
    room = (len(rows) // (8 * layout.BATCH_ROW_SIZE) + 1) * layout.ENTRY_SIZE
    entries = bytearray(room)
    numbers = np.frombuffer(rows, np.int64)
    data = np.frombuffer(memoryview(rows).toreadonly(), np.uint8)
    sums, out = np.frombuffer(total, np.int64), np.frombuffer(entries, np.uint8)
    count = _compiled(numbers, data, sums, out, block_bytes, closing)
    return bytes(memoryview(entries)[: count * layout.ENTRY_SIZE])
