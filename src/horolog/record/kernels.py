"""The numba kernels of the walk, and the readers that all kernels share.

A kernel must equal its plain twin. It sees hostile bytes: every read is checked
against the end of what it reads from first, sizes are compared with what is left
and never added up before, and 64-bit sums wrap as Java's do. Nothing is thrown:
a kernel answers with a number.

Importing this module compiles the kernels, or loads them from a cache, which takes
from half a second to several: `horolog.record.scan.load_kernels` does it, in the
background of a broker.
"""

from array import array
from collections.abc import Callable
from typing import Final

import numba
import numpy as np

from horolog.record import twins
from horolog.record.compression import Buffer
from horolog.record.kernel_cache import compile_kernel, helper

BYTES_IN: Final = numba.types.Array(numba.uint8, 1, "C", readonly=True)
INT64S: Final = numba.int64[::1]

# numba freezes these into the code.
POSITIVE = (1 << 63) - 1
_MASK32 = (1 << 32) - 1
TRUNCATED = -1
TOO_LONG = -2


@helper
def read_varint(data, position, end, longest):  # type: ignore[no-untyped-def]
    """A zigzag number and the position after it; TRUNCATED or TOO_LONG as that position."""
    if position < end:
        byte = _byte(data, position)
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), np.int64(position + 1)
        if position + 1 < end:
            second = _byte(data, position + 1)
            if second < 0x80:
                raw = (byte & 0x7F) | (second << 7)
                return (raw >> 1) ^ -(raw & 1), np.int64(position + 2)
    return _long_varint(data, position, end, longest)


@helper
def _byte(data, position):  # type: ignore[no-untyped-def]
    # An unsigned index: signed ones may count from the end, which costs a test.
    return np.int64(data[np.uint64(position)])


@helper
def _long_varint(data, position, end, longest):  # type: ignore[no-untyped-def]
    raw = np.int64(0)
    for index in range(longest):
        if position >= end:
            return np.int64(0), np.int64(TRUNCATED)
        byte = _byte(data, position)
        position += 1
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if longest == 5:
                raw &= _MASK32
            return ((raw >> 1) & POSITIVE) ^ -(raw & 1), np.int64(position)
    return np.int64(0), np.int64(TOO_LONG)


@helper
def read_bytes(data, position, end):  # type: ignore[no-untyped-def]
    """Size (negative for null), start and end of length-prefixed bytes; -1 as the end if amiss."""
    size, start = read_varint(data, position, end, 5)
    if start < 0 or size > end - start:
        return size, start, np.int64(-1)
    return size, start, start + max(size, np.int64(0))


@helper
def pass_headers(data, position, end, count):  # type: ignore[no-untyped-def]
    """Where `count` headers end; -1 if they are malformed or go beyond `end`."""
    for _ in range(count):
        size, _start, position = read_bytes(data, position, end)
        if position < 0 or size < 0:
            return np.int64(-1)
        _size, _start, position = read_bytes(data, position, end)
        if position < 0:
            return np.int64(-1)
    return position


@helper
def _finish_record(state, timestamp, delta, times, first):  # type: ignore[no-untyped-def]
    count = state[twins.COUNT]
    if count - first < len(times):
        times[count - first] = timestamp
    if delta != count:
        state[twins.SPARSE] = 1
    if delta < state[twins.NEXT_DELTA]:
        state[twins.DISORDER] = 1
    state[twins.NEXT_DELTA] = delta + 1
    state[twins.COUNT] = count + 1
    state[twins.RECORDS_LEFT] -= 1
    if timestamp != -1:
        if not state[twins.TIMED]:
            state[twins.MAX] = timestamp
            state[twins.MIN] = timestamp
            state[twins.MAX_DELTA] = delta
            state[twins.TIMED] = 1
        elif timestamp > state[twins.MAX]:
            state[twins.MAX] = timestamp
            state[twins.MAX_DELTA] = delta
        elif timestamp < state[twins.MIN]:
            state[twins.MIN] = timestamp
    search = state[twins.SEARCH]
    if search == twins.NO_SEARCH or delta < state[twins.MIN_DELTA]:
        return False
    target = state[twins.TARGET]
    if timestamp == target or (search == twins.AT_OR_AFTER and timestamp > target):
        state[twins.TIMESTAMP] = timestamp
        state[twins.DELTA] = delta
        return True
    return False


@helper
def _whole_records(data, position, state, times, first):  # type: ignore[no-untyped-def]
    # In locals, not in the state: this is the loop that everything passes through.
    end = len(data)
    base = state[twins.BASE]
    append_time = state[twins.APPEND_TIME] != 0
    search, target, min_delta = state[twins.SEARCH], state[twins.TARGET], state[twins.MIN_DELTA]
    count = state[twins.COUNT]
    last = count + state[twins.RECORDS_LEFT]
    timed, largest, smallest = state[twins.TIMED], state[twins.MAX], state[twins.MIN]
    max_delta, sparse, null_keys = (
        state[twins.MAX_DELTA],
        state[twins.SPARSE],
        state[twins.NULL_KEYS],
    )
    next_delta, disorder = state[twins.NEXT_DELTA], state[twins.DISORDER]
    status = twins.DONE
    while count < last:
        size, body = read_varint(data, position, end, 5)
        if body < 0 or size < 1 or size > end - body:
            break
        body_end = body + size
        timestamp, cursor = read_varint(data, body + 1, body_end, 10)
        if cursor < 0:
            break
        timestamp = base if append_time else base + timestamp
        delta, cursor = read_varint(data, cursor, body_end, 5)
        if cursor < 0:
            break
        key_size, _start, cursor = read_bytes(data, cursor, body_end)
        if cursor < 0:
            break
        _size, _start, cursor = read_bytes(data, cursor, body_end)
        if cursor < 0:
            break
        headers, cursor = read_varint(data, cursor, body_end, 5)
        if cursor < 0 or headers < 0:
            break
        if headers > 0:
            cursor = pass_headers(data, cursor, body_end, headers)
        if cursor != body_end:
            break
        position = body_end
        if len(times) > 0:
            times[count - first] = timestamp
        null_keys |= key_size < 0
        sparse |= delta != count
        disorder |= delta < next_delta
        next_delta = delta + 1
        count += 1
        if timestamp != -1:
            if not timed or timestamp > largest:
                largest = timestamp
                max_delta = delta
            if not timed or timestamp < smallest:
                smallest = timestamp
            timed = np.int64(1)
        if (
            search != twins.NO_SEARCH
            and delta >= min_delta
            and (timestamp == target or (search == twins.AT_OR_AFTER and timestamp > target))
        ):
            state[twins.TIMESTAMP] = timestamp
            state[twins.DELTA] = delta
            status = twins.FOUND
            break
    state[twins.COUNT] = count
    state[twins.RECORDS_LEFT] = last - count
    state[twins.TIMED], state[twins.MAX], state[twins.MIN] = timed, largest, smallest
    state[twins.MAX_DELTA], state[twins.SPARSE] = max_delta, sparse
    state[twins.NULL_KEYS] = null_keys
    state[twins.NEXT_DELTA], state[twins.DISORDER] = next_delta, disorder
    return position, status


@helper
def _take(state, phase, value):  # type: ignore[no-untyped-def]
    if phase == twins.AT_RECORD:
        if value < 0:
            return twins.BAD_LENGTH
        state[twins.LEFT] = value
    elif phase == twins.AT_TIMESTAMP:
        if state[twins.APPEND_TIME]:
            state[twins.TIMESTAMP] = state[twins.BASE]
        else:
            state[twins.TIMESTAMP] = state[twins.BASE] + value
    elif phase == twins.AT_OFFSET:
        state[twins.DELTA] = value
    elif phase == twins.AT_HEADER_COUNT:
        if value < 0 or value > state[twins.LEFT]:
            return twins.BAD_HEADER_COUNT
        state[twins.HEADERS_LEFT] = value
    else:
        if value > state[twins.LEFT]:
            return twins.BEYOND_RECORD
        if value < 0 and phase == twins.AT_HEADER_KEY:
            return twins.NULL_HEADER_KEY
        if value < 0 and phase == twins.AT_KEY:
            state[twins.NULL_KEYS] = 1
        state[twins.SKIP] = max(np.int64(0), value)
    if phase == twins.AT_HEADER_VALUE:
        state[twins.HEADERS_LEFT] -= 1
        state[twins.PHASE] = twins.AT_HEADER_KEY
    else:
        state[twins.PHASE] = phase + 1
    return twins.DONE


@helper
def _fields(data, position, state, times, first):  # type: ignore[no-untyped-def]
    end = len(data)
    while True:
        if state[twins.SKIP] > 0:
            step = min(state[twins.SKIP], end - position)
            position += step
            state[twins.SKIP] -= step
            state[twins.LEFT] -= step
            if state[twins.SKIP] > 0:
                return position, twins.DONE
        phase = state[twins.PHASE]
        if phase == twins.AT_HEADER_KEY and state[twins.HEADERS_LEFT] == 0:
            if state[twins.LEFT] > 0:
                return position, twins.UNUSED_BYTES
            state[twins.PHASE] = twins.AT_RECORD
            timestamp, delta = state[twins.TIMESTAMP], state[twins.DELTA]
            if _finish_record(state, timestamp, delta, times, first):
                return position, twins.FOUND
            return position, twins.NEXT_RECORD
        if phase != twins.AT_RECORD and state[twins.LEFT] == 0:
            return position, twins.BEYOND_RECORD
        if position >= end:
            return position, twins.DONE
        if phase == twins.AT_RECORD and state[twins.RECORDS_LEFT] == 0:
            return position, twins.LEFTOVER
        if phase == twins.AT_ATTRIBUTES:
            position += 1
            state[twins.LEFT] -= 1
            state[twins.PHASE] = twins.AT_TIMESTAMP
            continue
        longest = np.int64(10) if phase == twins.AT_TIMESTAMP else np.int64(5)
        within = longest if phase == twins.AT_RECORD else min(longest, state[twins.LEFT])
        limit = min(end, position + within)
        value, after = read_varint(data, position, limit, longest)
        if after == TOO_LONG:
            return position, twins.LONG_VARINT
        if after == TRUNCATED:
            if limit - position == within:
                return position, twins.BEYOND_RECORD
            return position, twins.DONE
        if phase != twins.AT_RECORD:
            state[twins.LEFT] -= after - position
        status = _take(state, phase, value)
        if status != twins.DONE:
            return position, status
        position = after


def _walk(data, state, times):  # type: ignore[no-untyped-def]
    first = state[twins.COUNT]
    position = np.int64(0)
    status = np.int64(twins.NEXT_RECORD)
    while status == twins.NEXT_RECORD:
        if state[twins.PHASE] == twins.AT_RECORD:
            position, status = _whole_records(data, position, state, times, first)
            if status == twins.FOUND:
                break
        position, status = _fields(data, position, state, times, first)
    state[twins.POSITION] = position
    return status


_compiled_walk: Callable[..., int] = compile_kernel(numba.int64(BYTES_IN, INT64S, INT64S), _walk)
_NO_TIMES = np.empty(0, np.int64)


def walk(data: Buffer, state: "array[int]", times: "array[int] | None" = None) -> int:
    """As `twins.walk`."""
    if not len(data):
        return twins.walk(data, state, times)  # numpy makes no array of nothing
    return _compiled_walk(
        np.frombuffer(memoryview(data).toreadonly(), np.uint8),
        np.frombuffer(state, np.int64),
        _NO_TIMES if times is None else np.frombuffer(times, np.int64),
    )
