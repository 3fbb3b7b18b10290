"""The numba kernels that compact a log.

A kernel must equal its plain twin (`cleaning_twins`), and `read_small` the reading of the same
batches one by one. It sees hostile bytes: sizes are compared
with what is left before anything is read or written.
"""

from collections.abc import Callable

import numba
import numpy as np

from horolog.record.kernels import layout
from horolog.record.kernels.cache import compile_kernel, helper
from horolog.record.kernels.record_kernels import (
    byte_at,
    copy_bytes,
    crc32c,
    i32,
    i64,
    put_varint,
    varint_size,
)
from horolog.record.kernels.scan_kernels import BYTES_IN, INT64S, read_bytes, read_varint
from horolog.record.timestamps import NO_TIMESTAMP

_BYTES_OUT = numba.uint8[::1]
_UINT64S = numba.uint64[::1]

# Unsigned, or numba makes floating-point numbers of what they meet.
_FIRST = np.uint64(0x736F6D6570736575)
_SECOND = np.uint64(0x646F72616E646F6D ^ 0xEE)
_THIRD = np.uint64(0x6C7967656E657261)
_FOURTH = np.uint64(0x7465646279746573)
_END_LOW = np.uint64(0xEE)
_END_HIGH = np.uint64(0xDD)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)

# Of the header of a batch.
_HEADER_SIZE, _LOG_OVERHEAD, _CRC_START, _MAGIC = 61, 12, 21, 2
_FAR_OFFSET = np.int64(1) << np.int64(62)


@helper
def _rotated(value, bits):
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@helper
def _round(v0, v1, v2, v3):
    v0 += v1
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 += v3
    v3 = _rotated(v3, 16) ^ v2
    v0 += v3
    v3 = _rotated(v3, 21) ^ v0
    v2 += v1
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@helper
def _word(data, position):
    word = np.uint64(data[np.uint64(position)])
    for index in range(1, 8):
        word |= np.uint64(data[np.uint64(position + index)]) << np.uint64(8 * index)
    return word


@helper
def _hash(data, start, size, first, second):
    """SipHash-2-4 of 128 bits."""
    v0, v1, v2, v3 = first ^ _FIRST, second ^ _SECOND, first ^ _THIRD, second ^ _FOURTH
    position, whole = start, start + (size & ~np.int64(7))
    while position < whole:
        word = _word(data, position)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    word = np.uint64(size & 0xFF) << np.uint64(56)
    shift = np.uint64(0)
    while position < start + size:
        word |= np.uint64(data[np.uint64(position)]) << shift
        shift += np.uint64(8)
        position += 1
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _END_LOW
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _END_HIGH
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@helper
def _record_at(data, position, end):
    """Where a record begins behind its length, and where it ends; -1 if it is malformed."""
    size, body = read_varint(data, position, end, 5)
    if body < 0 or size < 1 or size > end - body:
        return np.int64(0), np.int64(-1)
    return body, body + size


@helper
def _keys_of(data, start, end_of_data, base, last, count, secret, at, offsets, hashes, flags):
    """The keys of the records of a batch, from a row on; whether it has so many and no more."""
    first, second = secret[0], secret[1]
    position, least = start, np.int64(0)
    for number in range(at, at + count):
        body, end = _record_at(data, position, end_of_data)
        if end < 0:
            return False
        _time, cursor = read_varint(data, body + 1, end, 10)
        if cursor < 0:
            return False
        delta, cursor = read_varint(data, cursor, end, 5)
        if cursor < 0 or delta < least or delta > last:
            return False
        key_size, key_start, cursor = read_bytes(data, cursor, end)
        if cursor < 0:
            return False
        value_size, _start, cursor = read_bytes(data, cursor, end)
        if cursor < 0:
            return False
        least = delta + 1
        offsets[number] = base + delta
        flag = np.uint8(layout.IS_TOMBSTONE) if value_size < 0 else np.uint8(0)
        low, high = _ZERO, _ZERO
        if cursor + 1 == end and byte_at(data, cursor) == 0:
            flag |= np.uint8(layout.IS_BARE)
        if key_size >= 0:
            flag |= np.uint8(layout.HAS_KEY)
            low, high = _hash(data, key_start, key_size, first, second)
        hashes[2 * number] = low
        hashes[2 * number + 1] = high
        flags[number] = flag
        position = end
    return position == end_of_data


def _read_keys(data, state, secret, offsets, hashes, flags):
    base, last = state[layout.KEYS_BASE_OFFSET], state[layout.KEYS_LAST_DELTA]
    count, end = state[layout.KEYS_RECORDS], np.int64(len(data))
    is_whole = _keys_of(
        data, np.int64(0), end, base, last, count, secret, np.int64(0), offsets, hashes, flags
    )
    return layout.DONE if is_whole else layout.MALFORMED


def _read_small(data, state, secret, rows, offsets, hashes, flags):
    """The keys of small, plain batches that follow each other; how many they are.

    It ends before what is another kind of batch, damaged or not whole, as before what has no room.
    """
    position, room = state[layout.SMALL_POSITION], np.int64(len(offsets))
    records, batches, next_offset = np.int64(0), np.int64(0), np.int64(0)
    while (batches + 1) * layout.SMALL_ROW <= len(rows):
        left = np.int64(len(data)) - position
        if left < _HEADER_SIZE:
            break
        base, size = i64(data, position), np.int64(i32(data, position + 8)) + _LOG_OVERHEAD
        if size < _HEADER_SIZE or size > layout.SMALL_BYTES or size > left:
            break
        attributes = (byte_at(data, position + 21) << 8) | byte_at(data, position + 22)
        if byte_at(data, position + 16) != _MAGIC or attributes & layout.NOT_PLAIN != 0:
            break
        last, count = np.int64(i32(data, position + 23)), np.int64(i32(data, position + 57))
        if base < 0 or base > _FAR_OFFSET or last < 0 or count < 1 or count > room - records:
            break
        crc = np.int64(i32(data, position + 17)) & 0xFFFFFFFF
        if crc32c(data, position + _CRC_START, size - _CRC_START) != crc:
            break
        start, end = position + _HEADER_SIZE, position + size
        if not _keys_of(
            data, start, end, base, last, count, secret, records, offsets, hashes, flags
        ):
            break
        row = batches * layout.SMALL_ROW
        next_offset = base + last + 1
        rows[row + layout.SMALL_START] = position
        rows[row + layout.SMALL_FIRST] = records
        rows[row + layout.SMALL_NEXT] = next_offset
        records += count
        batches += 1
        position = end
    state[layout.SMALL_POSITION] = position
    state[layout.SMALL_RECORDS] = records
    state[layout.SMALL_NEXT_OFFSET] = next_offset
    return batches


@helper
def _slot_of(table, slots, low, high):
    """The place of the slot that has a hash, or of the free one for it; -1 if there is none."""
    index = np.int64(((low >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32))
    for _ in range(slots):
        at = layout.SLOT_SIZE * index
        if table[np.uint64(at + 2)] == _ZERO or (
            table[np.uint64(at)] == low and table[np.uint64(at + 1)] == high
        ):
            return at
        index = index + 1 if index + 1 < slots else np.int64(0)
    return np.int64(-1)


def _note(table, state, offsets, hashes, flags):
    slots = np.int64(len(table)) // layout.SLOT_SIZE
    from_offset, room = state[layout.NOTE_FROM], state[layout.NOTE_ROOM]
    count = np.int64(len(offsets))
    noted = count
    for number in range(count):
        offset = offsets[number]
        if flags[number] & np.uint8(layout.HAS_KEY) == 0 or offset < from_offset:
            continue
        low, high = hashes[2 * number], hashes[2 * number + 1]
        slot = _slot_of(table, slots, low, high)
        if slot < 0:
            noted = np.int64(number)
            break
        known = table[np.uint64(slot + 2)]
        if known == _ZERO:
            if room == 0:
                noted = np.int64(number)
                break
            room -= 1
            table[np.uint64(slot)] = low
            table[np.uint64(slot + 1)] = high
        if np.uint64(offset) + _ONE > known:
            table[np.uint64(slot + 2)] = np.uint64(offset) + _ONE
    state[layout.NOTE_ROOM] = room
    return noted


def _find(table, hashes, latest):
    slots = np.int64(len(table)) // layout.SLOT_SIZE
    for number in range(len(latest)):
        slot = _slot_of(table, slots, hashes[2 * number], hashes[2 * number + 1])
        latest[number] = -1 if slot < 0 else np.int64(table[np.uint64(slot + 2)]) - 1


def _judge(table, state, offsets, hashes, flags, keep):
    slots = np.int64(len(table)) // layout.SLOT_SIZE
    end = state[layout.JUDGE_END]
    keeps_tombstones = state[layout.JUDGE_TOMBSTONES] != 0
    keeps_keyless = state[layout.JUDGE_KEYLESS] != 0
    kept, tombstones, keyless = np.int64(0), np.int64(0), np.int64(0)
    for number in range(len(offsets)):
        offset = offsets[number]
        has_key = flags[number] & np.uint8(layout.HAS_KEY) != 0
        is_tombstone = flags[number] & np.uint8(layout.IS_TOMBSTONE) != 0
        if not has_key:
            keyless += 1
        stays = True
        if offset < end:
            if not has_key:
                stays = keeps_keyless
            elif is_tombstone and not keeps_tombstones:
                stays = False
            else:
                slot = _slot_of(table, slots, hashes[2 * number], hashes[2 * number + 1])
                stays = slot < 0 or np.uint64(offset) + _ONE >= table[np.uint64(slot + 2)]
        keep[number] = stays
        if stays:
            kept += 1
            if is_tombstone:
                tombstones += 1
    state[layout.JUDGE_KEPT] = kept
    state[layout.JUDGE_TOMBSTONES] = tombstones
    state[layout.JUDGE_KEYLESS] = keyless


def _retain(data, state, keep, out):
    time_shift, offset_shift = state[layout.RETAIN_TIME_SHIFT], state[layout.RETAIN_OFFSET_SHIFT]
    base, is_shifted = state[layout.RETAIN_BASE], time_shift != 0 or offset_shift != 0
    position, end_of_data, room = np.int64(0), np.int64(len(data)), np.int64(len(out))
    filled, timed, largest = np.int64(0), np.int64(0), np.int64(NO_TIMESTAMP)
    first = np.int64(0)  # of records that stay as they are and follow each other
    for number in range(len(keep)):
        body, end = _record_at(data, position, end_of_data)
        if end < 0:
            return layout.MALFORMED
        time, cursor = read_varint(data, body + 1, end, 10)
        if cursor < 0:
            return layout.MALFORMED
        delta, cursor = read_varint(data, cursor, end, 5)
        if cursor < 0:
            return layout.MALFORMED
        if keep[number]:
            timestamp = base + time
            if timestamp != NO_TIMESTAMP:
                if timed == 0 or timestamp > largest:
                    largest = timestamp
                timed += 1
            if is_shifted:
                time += time_shift
                delta -= offset_shift
                rest = end - cursor
                size = 1 + varint_size(time) + varint_size(delta) + rest
                if varint_size(size) + size > room - filled:
                    return layout.FULL
                filled = put_varint(out, filled, size)
                out[filled] = data[body]
                filled = put_varint(out, filled + 1, time)
                filled = put_varint(out, filled, delta)
                copy_bytes(data, cursor, rest, out, filled)
                filled += rest
        elif not is_shifted:
            if position - first > room - filled:
                return layout.FULL
            copy_bytes(data, first, position - first, out, filled)
            filled += position - first
            first = end
        position = end
    if position != end_of_data:
        return layout.MALFORMED
    if not is_shifted:
        if position - first > room - filled:
            return layout.FULL
        copy_bytes(data, first, position - first, out, filled)
        filled += position - first
    state[layout.RETAIN_FILLED] = filled
    state[layout.RETAIN_TIMED] = timed
    state[layout.RETAIN_MAX] = largest
    return layout.DONE


read_keys: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, _UINT64S, INT64S, _UINT64S, _BYTES_OUT), _read_keys
)
read_small: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, _UINT64S, INT64S, INT64S, _UINT64S, _BYTES_OUT), _read_small
)
note: Callable[..., int] = compile_kernel(
    numba.int64(_UINT64S, INT64S, INT64S, _UINT64S, _BYTES_OUT), _note
)
find: Callable[..., None] = compile_kernel(numba.void(_UINT64S, _UINT64S, INT64S), _find)
judge: Callable[..., None] = compile_kernel(
    numba.void(_UINT64S, INT64S, INT64S, _UINT64S, _BYTES_OUT, _BYTES_OUT), _judge
)
retain: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, _BYTES_OUT, _BYTES_OUT), _retain
)
