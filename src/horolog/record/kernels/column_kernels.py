"""The numba kernels between records and columns; as `scan_kernels`, which see."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from horolog.record.kernels import column_twins, layout
from horolog.record.kernels.batch_kernels import plan_batches
from horolog.record.kernels.cache import compile_kernel, helper
from horolog.record.kernels.record_kernels import copy_bytes, put_varint, varint_size
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

__all__ = ["gather", "plan_batches", "scatter"]

_INT64S_IN = numba.types.Array(numba.int64, 1, "C", readonly=True)
_INT32S = numba.int32[::1]
_Tuple: Any = numba.types.Tuple
_columns_of = helper(column_twins.columns_of)


@helper
def _is_ascii(data, start, end):
    seen = np.uint8(0)
    for index in range(start, end):
        seen |= data[index]
    return seen < 0x80


@helper
def _headers_cost(data, position, end, count):
    """What headers already found sound cost as columns."""
    cost = count * layout.HEADER_BYTES
    for _ in range(count):
        size, _start, position = read_bytes(data, position, end)
        cost += size
        size, _start, position = read_bytes(data, position, end)
        cost += max(size, np.int64(0))
    return cost


@helper
def _append(data, start, size, at, column, row):
    """Where the column's data ends with this cell."""
    if size > 0:
        copy_bytes(data, start, size, column.data, at)
        at += size
    column.ends[row + 1] = at
    return at


@helper
def _append_headers(data, position, end, count, state, keys, values):
    """Append headers already found sound."""
    first = state[layout.HEADERS]
    keys_end = state[layout.HEADER_KEY_BYTES]
    values_end = state[layout.HEADER_VALUE_BYTES]
    for index in range(first, first + count):
        size, start, position = read_bytes(data, position, end)
        if not _is_ascii(data, start, position):
            state[layout.SEEN] |= layout.NOT_ASCII
        keys_end = _append(data, start, size, keys_end, keys, index)
        size, start, position = read_bytes(data, position, end)
        values_end = _append(data, start, size, values_end, values, index)
        values.valid[index] = size >= 0
        if size < 0:
            state[layout.SEEN] |= layout.NULL_HEADER_VALUE
    state[layout.HEADERS] = first + count
    state[layout.HEADER_KEY_BYTES] = keys_end
    state[layout.HEADER_VALUE_BYTES] = values_end


@helper
def _gather_stretch(data, stretch, state, offsets, times, types, columns):
    # In locals, not in the state: this is the loop that every record passes through.
    position, end = state[layout.GATHER_POSITION], stretch[layout.STRETCH_END]
    left, base_offset = stretch[layout.STRETCH_RECORDS_LEFT], stretch[layout.STRETCH_BASE_OFFSET]
    base, append_time = stretch[layout.STRETCH_BASE], stretch[layout.STRETCH_APPEND_TIME]
    first_ms, last_ms = state[layout.FIRST_MS], state[layout.LAST_MS]
    first_offset, last_offset = state[layout.FIRST_OFFSET], state[layout.LAST_OFFSET]
    with_key = state[layout.COLUMNS] & layout.WITH_KEY != 0
    with_value = state[layout.COLUMNS] & layout.WITH_VALUE != 0
    with_headers = state[layout.COLUMNS] & layout.WITH_HEADERS != 0
    row, room, seen = state[layout.ROWS], state[layout.BYTES_LEFT], state[layout.SEEN]
    keys_end, values_end = state[layout.KEY_BYTES], state[layout.VALUE_BYTES]
    need = np.int64(0)
    status = layout.DONE
    while left > 0:
        size, body = read_varint(data, position, end, 5)
        if body == TRUNCATED:
            status = layout.CUT_OFF
            break
        if body < 0 or size < 0:
            status = layout.MALFORMED
            break
        if size > end - body:
            need = body - position + size
            status = layout.CUT_OFF
            break
        status = layout.MALFORMED  # unless all goes well
        body_end = body + size
        timestamp, cursor = read_varint(data, body + 1, body_end, 10)
        if cursor < 0:
            break
        timestamp = base if append_time else base + timestamp
        delta, cursor = read_varint(data, cursor, body_end, 5)
        if cursor < 0:
            break
        key_size, key_start, cursor = read_bytes(data, cursor, body_end)
        if cursor < 0:
            break
        value_size, value_start, cursor = read_bytes(data, cursor, body_end)
        if cursor < 0:
            break
        headers, headers_start = read_varint(data, cursor, body_end, 5)
        if headers_start < 0 or headers < 0:
            break
        if pass_headers(data, headers_start, body_end, headers) != body_end:
            break
        status = layout.DONE
        offset = base_offset + delta
        if first_ms <= timestamp <= last_ms and first_offset <= offset <= last_offset:
            cost = np.int64(layout.ROW_BYTES)
            if with_key:
                cost += max(key_size, np.int64(0))
            if with_value:
                cost += max(value_size, np.int64(0))
            if with_headers and headers > 0:
                cost += _headers_cost(data, headers_start, body_end, headers)
            if cost > room:
                need = cost
                status = layout.FULL
                break
            room -= cost
            offsets[row] = offset
            times[row] = timestamp
            types[row] = append_time
            if with_key:
                keys_end = _append(data, key_start, key_size, keys_end, columns.key, row)
                columns.key.valid[row] = key_size >= 0
                if key_size < 0:
                    seen |= layout.NULL_KEY
            if with_value:
                values_end = _append(data, value_start, value_size, values_end, columns.value, row)
                columns.value.valid[row] = value_size >= 0
                if value_size < 0:
                    seen |= layout.NULL_VALUE
            if with_headers:
                if headers > 0:
                    keys, values = columns.header_key, columns.header_value
                    _append_headers(data, headers_start, body_end, headers, state, keys, values)
                columns.header_ends[row + 1] = state[layout.HEADERS]
            row += 1
        left -= 1
        position = body_end
    state[layout.GATHER_POSITION], state[layout.NEED] = position, need
    stretch[layout.STRETCH_RECORDS_LEFT] = left
    state[layout.ROWS], state[layout.BYTES_LEFT] = row, room
    state[layout.SEEN] |= seen
    state[layout.KEY_BYTES], state[layout.VALUE_BYTES] = keys_end, values_end
    return status


def _gather(data, plan, state, offsets, times, types, arrays):
    columns = _columns_of(arrays)
    state[layout.NEED] = 0
    stretches = len(plan) // layout.STRETCH_SIZE
    while state[layout.GATHER_STRETCH] < stretches:
        at = state[layout.GATHER_STRETCH] * layout.STRETCH_SIZE
        stretch = plan[at : at + layout.STRETCH_SIZE]
        state[layout.GATHER_POSITION] = max(
            state[layout.GATHER_POSITION], stretch[layout.STRETCH_START]
        )
        status = _gather_stretch(data, stretch, state, offsets, times, types, columns)
        if status != layout.DONE:
            return status
        if state[layout.GATHER_POSITION] != stretch[layout.STRETCH_END]:
            return layout.MALFORMED
        state[layout.GATHER_STRETCH] += 1
    return layout.DONE


@helper
def _cell(column, row):
    """Where a cell is, and its size as a record has it: -1 for null."""
    start = column.ends[row]
    if len(column.valid) > 0 and column.valid[row] == 0:
        return start, np.int64(-1)
    return start, column.ends[row + 1] - start


@helper
def _put_cell(out, position, data, start, size):
    position = put_varint(out, position, size)
    if size > 0:
        copy_bytes(data, start, size, out, position)
        position += size
    return position


@helper
def _cell_size(size):
    return varint_size(size) + max(size, np.int64(0))


def _scatter(out, state, ends, order, deltas, times, arrays):
    base = state[layout.BASE_TIMESTAMP]
    key, value, header_ends, header_keys, header_values = _columns_of(arrays)
    for place in range(state[layout.ROW], state[layout.END_ROW]):
        row = order[place] if len(order) else place
        timestamp = times[row]
        delta = deltas[row] if len(deltas) else place - state[layout.FIRST_ROW]
        key_start, key_size = _cell(key, row)
        value_start, value_size = _cell(value, row)
        first, last = header_ends[row], header_ends[row + 1]
        body = 1 + varint_size(timestamp - base) + varint_size(delta)
        body += _cell_size(key_size) + _cell_size(value_size) + varint_size(last - first)
        for index in range(first, last):
            _start, size = _cell(header_keys, index)
            body += _cell_size(size)
            _start, size = _cell(header_values, index)
            body += _cell_size(size)
        position = state[layout.FILLED]
        if varint_size(body) + body > len(out) - position:
            state[layout.RECORD_BYTES] = varint_size(body) + body
            return layout.FULL
        position = put_varint(out, position, body)
        out[position] = 0
        position = put_varint(out, position + 1, timestamp - base)
        position = put_varint(out, position, delta)
        position = _put_cell(out, position, key.data, key_start, key_size)
        position = _put_cell(out, position, value.data, value_start, value_size)
        position = put_varint(out, position, last - first)
        for index in range(first, last):
            start, size = _cell(header_keys, index)
            position = _put_cell(out, position, header_keys.data, start, size)
            start, size = _cell(header_values, index)
            position = _put_cell(out, position, header_values.data, start, size)
        state[layout.FILLED] = position
        state[layout.ROW] = place + 1
        if len(ends):
            ends[place] = position
        if timestamp != NO_TIMESTAMP and (
            state[layout.SCATTER_TIMED] == 0 or timestamp > state[layout.MAX_TIMESTAMP]
        ):
            state[layout.MAX_TIMESTAMP] = timestamp
            state[layout.SCATTER_TIMED] = 1
    return layout.DONE


def _arrays(ends: Any, data: Any) -> Any:
    column = (ends, data, data)
    return _Tuple((*column, *column, ends, *column, *column))


gather: Callable[..., int] = compile_kernel(
    numba.int64(
        *(BYTES_IN, INT64S, INT64S),  # data, plan, state
        *(INT64S, INT64S, _INT32S),  # offsets, times, types
        _arrays(_INT32S, BYTES_OUT),
    ),
    _gather,
)
scatter: Callable[..., int] = compile_kernel(
    numba.int64(
        *(BYTES_OUT, INT64S, INT64S),  # out, state, ends
        *(_INT64S_IN, _INT64S_IN, _INT64S_IN),  # order, offset deltas, times
        _arrays(_INT64S_IN, BYTES_IN),
    ),
    _scatter,
)
