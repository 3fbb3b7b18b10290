"""The numba kernels between messages of v0 and v1 and records of v2.

A kernel must equal its plain twin (`message_twins`). It sees hostile bytes: sizes are compared
with what is left before anything is read or written.
"""

from collections.abc import Callable

import numba
import numpy as np

from horolog.record.kernels import layout
from horolog.record.kernels.cache import compile_kernel, helper
from horolog.record.kernels.crc_rows import crc_tables
from horolog.record.kernels.record_kernels import (
    byte_at,
    i32,
    i64,
    put_i32,
    put_i64,
    put_varint,
    varint_size,
)
from horolog.record.kernels.scan_kernels import (
    BYTES_IN,
    BYTES_OUT,
    INT64S,
    TRUNCATED,
    pass_headers,
    read_bytes,
    read_varint,
)
from horolog.record.timestamps import NO_TIMESTAMP

_ENTRY_BYTES = 18
_MAX_DELTA = (1 << 31) - 1
_MIN_DELTA = -(1 << 31)
_TABLES = crc_tables(0xEDB88320)


@helper
def crc32(data, start, end):
    """CRC-32 of a stretch."""
    crc = np.int64(0xFFFFFFFF)
    position = start
    while position + 8 <= end:
        low = crc ^ (
            byte_at(data, position)
            | (byte_at(data, position + 1) << 8)
            | (byte_at(data, position + 2) << 16)
            | (byte_at(data, position + 3) << 24)
        )
        crc = (
            np.int64(_TABLES[np.uint64(1792 + (low & 0xFF))])
            ^ np.int64(_TABLES[np.uint64(1536 + ((low >> 8) & 0xFF))])
            ^ np.int64(_TABLES[np.uint64(1280 + ((low >> 16) & 0xFF))])
            ^ np.int64(_TABLES[np.uint64(1024 + ((low >> 24) & 0xFF))])
            ^ np.int64(_TABLES[np.uint64(768 + byte_at(data, position + 4))])
            ^ np.int64(_TABLES[np.uint64(512 + byte_at(data, position + 5))])
            ^ np.int64(_TABLES[np.uint64(256 + byte_at(data, position + 6))])
            ^ np.int64(_TABLES[np.uint64(byte_at(data, position + 7))])
        )
        position += 8
    while position < end:
        crc = (crc >> 8) ^ np.int64(_TABLES[np.uint64((crc ^ byte_at(data, position)) & 0xFF)])
        position += 1
    return crc ^ np.int64(0xFFFFFFFF)


@helper
def _copy(data, start, size, out, at):
    for index in range(size):
        out[np.uint64(at + index)] = data[np.uint64(start + index)]


@helper
def _field(data, position, end):
    """Size (negative for null) and end of a key or value; -1 where it extends past the message."""
    if end - position < 4:
        return np.int64(-1), np.int64(-1)
    size = i32(data, position)
    if size > end - position - 4:
        return size, np.int64(-1)
    return size, position + 4 + max(size, np.int64(0))


@helper
def _put_field(data, end, size, out, position):
    """A key or value that ends there in the data, as records have it."""
    position = put_varint(out, position, max(size, np.int64(-1)))
    if size > 0:
        _copy(data, end - size, size, out, position)
        position += size
    return position


def _to_records(data, state, out):
    magic = state[layout.CHANGE_MAGIC]
    mode = state[layout.CHANGE_MODE]
    with_crcs = mode & layout.WITH_CRCS != 0
    renumber = mode & layout.RENUMBER != 0
    append_time = state[layout.CHANGE_APPEND_TIME] != 0
    base_time = state[layout.CHANGE_BASE_TIME]
    first, last = state[layout.CHANGE_FIRST_OFFSET], state[layout.CHANGE_LAST_OFFSET]
    count = state[layout.CHANGE_COUNT]
    timed, largest = state[layout.CHANGE_TIMED], state[layout.CHANGE_MAX]
    smallest = np.int64(22) if magic else np.int64(14)
    end_of_data = np.int64(len(data))
    position, filled, need = np.int64(0), np.int64(0), np.int64(0)
    status = np.int64(layout.DONE)
    while position < end_of_data:
        left = end_of_data - position
        if left < _ENTRY_BYTES:
            status = np.int64(layout.CUT_OFF)
            break
        is_run = mode & layout.PLAIN != 0 and count > 0
        own_magic = byte_at(data, position + 16)
        size = i32(data, position + 8)
        if own_magic != magic:
            status = np.int64(layout.RUN_ENDS if is_run else layout.OTHER_MAGIC)
            break
        if size < smallest:
            status = np.int64(layout.RUN_ENDS if is_run else layout.SMALL_MESSAGE)
            break
        if size > left - layout.MESSAGE_OVERHEAD:
            need = layout.MESSAGE_OVERHEAD + size
            status = np.int64(layout.CUT_OFF)
            break
        attributes = byte_at(data, position + 17)
        if attributes & layout.COMPRESSED != 0:
            status = np.int64(layout.RUN_ENDS if is_run else layout.NESTED)
            break
        offset = i64(data, position)
        time = np.int64(NO_TIMESTAMP)
        if magic:
            time = i64(data, position + 18)
        if is_run and not renumber:
            is_append_time = magic != 0 and attributes & layout.IS_STAMPED != 0
            if (
                offset <= last
                or is_append_time != append_time
                or (is_append_time and time != base_time)
            ):
                status = np.int64(layout.RUN_ENDS)
                break
        end = position + layout.MESSAGE_OVERHEAD + size
        if with_crcs:
            crc = i32(data, position + 12) & 0xFFFFFFFF
            if crc32(data, position + layout.MESSAGE_CRC_START, end) != crc:
                status = np.int64(layout.RUN_ENDS if is_run else layout.WRONG_CRC)
                break
        key_at = position + (26 if magic else 18)
        key_size, key_end = _field(data, key_at, end)
        value_size, value_end = np.int64(-1), np.int64(-1)
        if key_end >= 0:
            value_size, value_end = _field(data, key_end, end)
        if value_end < 0:
            status = np.int64(layout.RUN_ENDS if is_run else layout.BEYOND_MESSAGE)
            break
        start_offset = first if count > 0 else offset
        delta = offset - start_offset
        # The difference wraps; where it does, both have other signs than the result.
        wraps = (offset ^ start_offset) < 0 and (offset ^ delta) < 0
        if renumber:
            delta, wraps = count, False
        if wraps or delta > _MAX_DELTA or delta < _MIN_DELTA:
            status = np.int64(layout.RUN_ENDS if is_run else layout.FAR_OFFSET)
            break
        if append_time:
            time = base_time
        elif count == 0:
            base_time = time
        if len(out) > 0:
            room = (
                layout.LONGEST_RECORD_HEAD
                + max(key_size, np.int64(0))
                + max(value_size, np.int64(0))
            )
            if room > len(out) - filled:
                need = room
                status = np.int64(layout.FULL)
                break
            key_size, value_size = max(key_size, np.int64(-1)), max(value_size, np.int64(-1))
            body = (
                2
                + varint_size(time - base_time)
                + varint_size(delta)
                + varint_size(key_size)
                + max(key_size, np.int64(0))
                + varint_size(value_size)
                + max(value_size, np.int64(0))
            )
            filled = put_varint(out, filled, body)
            out[np.uint64(filled)] = 0
            filled = put_varint(out, filled + 1, time - base_time)
            filled = put_varint(out, filled, delta)
            filled = _put_field(data, key_end, key_size, out, filled)
            filled = _put_field(data, value_end, value_size, out, filled)
            out[np.uint64(filled)] = 0
            filled += 1
        if time != NO_TIMESTAMP:
            if timed == 0 or time > largest:
                largest = time
            timed += 1
        first, last = start_offset, offset
        count += 1
        position = end
    state[layout.CHANGE_POSITION], state[layout.CHANGE_FILLED] = position, filled
    state[layout.CHANGE_NEED] = need
    state[layout.CHANGE_BASE_TIME] = base_time
    state[layout.CHANGE_FIRST_OFFSET], state[layout.CHANGE_LAST_OFFSET] = first, last
    state[layout.CHANGE_COUNT] = count
    state[layout.CHANGE_TIMED], state[layout.CHANGE_MAX] = timed, largest
    return status


@helper
def _put_cell(data, end, size, out, position):
    """A key or value that ends there in the data, as messages have it."""
    put_i32(out, position, size)
    position += 4
    if size > 0:
        _copy(data, end - size, size, out, position)
        position += size
    return position


def _to_messages(data, state, out):
    magic = state[layout.CHANGE_MAGIC]
    append_time = state[layout.CHANGE_APPEND_TIME] != 0
    base_time = state[layout.CHANGE_BASE_TIME]
    first, last = state[layout.CHANGE_FIRST_OFFSET], state[layout.CHANGE_LAST_OFFSET]
    count, headers_seen = state[layout.CHANGE_COUNT], state[layout.CHANGE_HEADERS]
    timed, largest = state[layout.CHANGE_TIMED], state[layout.CHANGE_MAX]
    skip_below = state[layout.CHANGE_SKIP_BELOW]
    keep_times = state[layout.CHANGE_MODE] == layout.KEEP_TIMES
    overhead = layout.MESSAGE_OVERHEAD + (np.int64(22) if magic else np.int64(14))
    attributes = np.int64(layout.IS_STAMPED if magic != 0 and append_time else 0)
    end_of_data = np.int64(len(data))
    position, filled, need = np.int64(0), np.int64(0), np.int64(0)
    status = np.int64(layout.DONE)
    while position < end_of_data:
        size, body = read_varint(data, position, end_of_data, 5)
        if body == TRUNCATED:
            status = np.int64(layout.CUT_OFF)
            break
        if body < 0 or size < 1:
            status = np.int64(layout.MALFORMED)
            break
        if size > end_of_data - body:
            need = body - position + size
            status = np.int64(layout.CUT_OFF)
            break
        status = np.int64(layout.MALFORMED)  # unless all goes well
        end = body + size
        time, cursor = read_varint(data, body + 1, end, 10)
        if cursor < 0:
            break
        delta, cursor = read_varint(data, cursor, end, 5)
        if cursor < 0:
            break
        key_size, _start, key_end = read_bytes(data, cursor, end)
        if key_end < 0:
            break
        value_size, _start, value_end = read_bytes(data, key_end, end)
        if value_end < 0:
            break
        headers, cursor = read_varint(data, value_end, end, 5)
        if cursor < 0 or headers < 0 or headers > end - cursor:
            break
        if pass_headers(data, cursor, end, headers) != end:
            break
        status = np.int64(layout.DONE)
        time = base_time if append_time and not keep_times else base_time + time
        key_size, value_size = max(key_size, np.int64(-1)), max(value_size, np.int64(-1))
        offset = first + delta
        if offset < skip_below:
            position = end
            continue
        total = overhead + max(key_size, np.int64(0)) + max(value_size, np.int64(0))
        if total > len(out) - filled:
            need = total
            status = np.int64(layout.FULL)
            break
        put_i64(out, filled, offset)
        put_i32(out, filled + 8, total - layout.MESSAGE_OVERHEAD)
        out[np.uint64(filled + 16)] = magic
        out[np.uint64(filled + 17)] = attributes
        at = filled + 18
        if magic:
            put_i64(out, at, time)
            at += 8
        at = _put_cell(data, key_end, key_size, out, at)
        at = _put_cell(data, value_end, value_size, out, at)
        put_i32(out, filled + 12, crc32(out, filled + layout.MESSAGE_CRC_START, at))
        if time != NO_TIMESTAMP:
            if timed == 0 or time > largest:
                largest = time
            timed += 1
        filled = at
        headers_seen += headers
        last = offset
        count += 1
        position = end
    state[layout.CHANGE_POSITION], state[layout.CHANGE_FILLED] = position, filled
    state[layout.CHANGE_NEED] = need
    state[layout.CHANGE_LAST_OFFSET], state[layout.CHANGE_COUNT] = last, count
    state[layout.CHANGE_HEADERS] = headers_seen
    state[layout.CHANGE_TIMED], state[layout.CHANGE_MAX] = timed, largest
    return status


to_records: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, BYTES_OUT), _to_records
)
to_messages: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, BYTES_OUT), _to_messages
)
