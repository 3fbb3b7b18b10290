"""The numba kernels that walk over plain messages of v0 and v1.

A kernel must equal its plain twin (`plain_twins`). It sees hostile bytes: sizes are compared
with what is left before anything is read or written.
"""

from collections.abc import Callable

import numba
import numpy as np

from horolog.record.kernels import layout
from horolog.record.kernels.cache import compile_kernel
from horolog.record.kernels.message_kernels import crc32
from horolog.record.kernels.record_kernels import byte_at, i32, i64, put_i32, put_i64
from horolog.record.kernels.scan_kernels import BYTES_IN, BYTES_OUT, INT64S
from horolog.record.timestamps import NO_TIMESTAMP


def _list_messages(data, state, rows):
    magic = state[layout.LIST_MAGIC]
    append_time = state[layout.LIST_APPEND_TIME] != 0
    with_crcs = state[layout.LIST_WITH_CRCS] != 0
    position, last = state[layout.LIST_POSITION], state[layout.LIST_LAST_OFFSET]
    smallest = np.int64(22) if magic else np.int64(14)
    room = np.int64(len(rows)) // layout.LIST_ROW
    end_of_data = np.int64(len(data))
    count = np.int64(0)
    status = np.int64(layout.DONE)
    while position < end_of_data:
        left = end_of_data - position
        if left < layout.MESSAGE_OVERHEAD + smallest:
            status = np.int64(layout.CUT_OFF)
            break
        offset = i64(data, position)
        size = i32(data, position + 8)
        attributes = byte_at(data, position + 17)
        is_append_time = magic != 0 and attributes & layout.IS_STAMPED != 0
        if (
            byte_at(data, position + 16) != magic
            or size < smallest
            or attributes & layout.COMPRESSED != 0
            or offset <= last
            or is_append_time != append_time
        ):
            status = np.int64(layout.RUN_ENDS)
            break
        if size > left - layout.MESSAGE_OVERHEAD:
            status = np.int64(layout.CUT_OFF)
            break
        end = position + layout.MESSAGE_OVERHEAD + size
        if with_crcs:
            crc = i32(data, position + 12) & 0xFFFFFFFF
            if crc32(data, position + layout.MESSAGE_CRC_START, end) != crc:
                status = np.int64(layout.RUN_ENDS)
                break
        if count == room:
            status = np.int64(layout.FULL)
            break
        time = np.int64(NO_TIMESTAMP)
        if magic:
            time = i64(data, position + 18)
        row = np.uint64(count * layout.LIST_ROW)
        rows[row] = position
        rows[row + np.uint64(1)] = offset
        rows[row + np.uint64(2)] = time
        position, last = end, offset
        count += 1
    state[layout.LIST_POSITION] = position
    state[layout.LIST_LAST_OFFSET] = last
    state[layout.LIST_COUNT] = count
    return status


def _place_messages(data, state):
    magic, position = state[layout.LIST_MAGIC], state[layout.PLACE_POSITION]
    is_stamped = magic != 0 and state[layout.PLACE_STAMPED] != 0
    offset, time = state[layout.PLACE_OFFSET], state[layout.PLACE_TIME]
    smallest = np.int64(22) if magic else np.int64(14)
    end_of_data = np.int64(len(data))
    status = np.int64(layout.DONE)
    while position < end_of_data:
        left = end_of_data - position
        size = np.int64(-1)
        if left >= layout.MESSAGE_OVERHEAD + smallest:
            size = i32(data, position + 8)
        if size < smallest or size > left - layout.MESSAGE_OVERHEAD:
            status = np.int64(layout.CUT_OFF)
            break
        end = position + layout.MESSAGE_OVERHEAD + size
        put_i64(data, position, offset)
        if is_stamped:
            data[np.uint64(position + 17)] = byte_at(data, position + 17) | layout.IS_STAMPED
            put_i64(data, position + 18, time)
            put_i32(data, position + 12, crc32(data, position + layout.MESSAGE_CRC_START, end))
        offset += 1
        position = end
    state[layout.PLACE_POSITION] = position
    state[layout.PLACE_OFFSET] = offset
    return status


list_messages: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, INT64S), _list_messages
)
place_messages: Callable[..., int] = compile_kernel(numba.int64(BYTES_OUT, INT64S), _place_messages)
