"""The numba kernels that compact a log.

A kernel must equal its plain twin (`cleaning_twins`); `read_small` and `write_small` the reading
and the writing of the same batches one by one; and `pass_whole` the walk of `BatchReader`. It sees
hostile bytes: sizes are compared with what is left before anything is read or written.
"""

from array import array
from collections.abc import Callable

import numba
import numpy as np

from horolog.buffers import Buffer
from horolog.record.kernels import layout
from horolog.record.kernels.cache import compile_kernel, helper
from horolog.record.kernels.cleaning_twins import step
from horolog.record.kernels.record_kernels import (
    byte_at,
    copy_bytes,
    crc32c_of_many,
    i32,
    i64,
    put_i32,
    put_i64,
    put_varint,
    varint_size,
)
from horolog.record.kernels.scan_kernels import BYTES_IN, BYTES_OUT, INT64S, read_bytes, read_varint
from horolog.record.timestamps import NO_TIMESTAMP

_UINT64S = numba.uint64[::1]

# Unsigned, or numba makes floating-point numbers of what is combined with them.
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
_MARKER_KEY_SIZE = 4
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
    """The keys of the records of a batch, from a row on; whether it has exactly `count`."""
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


@helper
def _marker_kind(data, start, end, flags, first, last):
    """The kind of a control batch with sound records; -1 where one may not be as it says."""
    position = start
    for number in range(first, last):
        if flags[number] & np.uint8(layout.IS_BARE) == 0:
            return np.int64(-1)
        body, position = _record_at(data, position, end)
        _time, cursor = read_varint(data, body + 1, position, 10)
        _delta, cursor = read_varint(data, cursor, position, 5)
        key_size, key_start, _cursor = read_bytes(data, cursor, position)
        if key_size >= _MARKER_KEY_SIZE:
            kind = i32(data, key_start) & 0xFFFF
            if kind <= 1:
                return np.int64(layout.OF_COMMIT if kind else layout.OF_ABORT)
    return np.int64(layout.OF_NONE if last > first else layout.OF_EMPTIED_MARKER)


def _read_small(data, state, secret, rows, offsets, hashes, flags):
    """The keys of small batches that follow each other; how many they are.

    It ends before what is another kind of batch, damaged or not whole, as before what has no room.
    """
    position, room = state[layout.SMALL_POSITION], np.int64(len(offsets))
    records, batches = np.int64(0), np.int64(0)
    others = state[layout.SMALL_OTHERS]
    least = np.int64(1) if others & layout.IS_CONTROL else np.int64(0)  # plain ones have records
    while (batches + 1) * layout.SMALL_ROW <= len(rows):
        left = np.int64(len(data)) - position
        if left < _HEADER_SIZE:
            break
        base, size = i64(data, position), np.int64(i32(data, position + 8)) + _LOG_OVERHEAD
        if size < _HEADER_SIZE or size > layout.SMALL_BYTES or size > left:
            break
        attributes = (byte_at(data, position + 21) << 8) | byte_at(data, position + 22)
        if byte_at(data, position + 16) != _MAGIC or attributes & others != 0:
            break
        last, count = np.int64(i32(data, position + 23)), np.int64(i32(data, position + 57))
        if base < 0 or base > _FAR_OFFSET or last < 0 or count < least or count > room - records:
            break
        crc = np.int64(i32(data, position + 17)) & 0xFFFFFFFF
        if crc32c_of_many(data, position + _CRC_START, size - _CRC_START) != crc:
            break
        start, end = position + _HEADER_SIZE, position + size
        if not _keys_of(
            data, start, end, base, last, count, secret, records, offsets, hashes, flags
        ):
            break
        producer, kind = i64(data, position + 43), np.int64(layout.OF_NONE)
        if attributes & layout.IS_CONTROL:
            kind = _marker_kind(data, start, end, flags, records, records + count)
            if kind < 0:
                break
        elif attributes & layout.IS_TRANSACTIONAL and producer >= 0:
            kind = np.int64(layout.OF_RECORDS)
        row = batches * layout.SMALL_ROW
        rows[row + layout.SMALL_START] = position
        rows[row + layout.SMALL_FIRST] = records
        rows[row + layout.SMALL_NEXT] = base + last + 1
        rows[row + layout.SMALL_ATTRIBUTES] = attributes
        rows[row + layout.SMALL_BASE_TIME] = i64(data, position + 27)
        rows[row + layout.SMALL_PRODUCER] = producer
        rows[row + layout.SMALL_KIND] = kind
        records += count
        batches += 1
        position = end
    state[layout.SMALL_POSITION] = position
    state[layout.SMALL_RECORDS] = records
    return batches


_step = helper(step)


def _meet(known, places, kinds, numbers, fates):
    """What becomes of batches of transactions, by what is known of their producers before.

    The producer of each has its place in `known`, which is changed.
    """
    for index in range(len(kinds)):
        place = np.uint64(places[index])
        known[place], fates[index] = _step(known[place], kinds[index], numbers[index])


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


@helper
def _retain_records(data, position, end_of_data, base, shifts, keep, first, end, out, filled):
    """Write the records that stay of a batch; status, end, and how many have times, and the last.

    `shifts` are those of times and of offsets, as in the state of `retain`.
    """
    time_shift, offset_shift = shifts
    is_shifted, room = time_shift != 0 or offset_shift != 0, np.int64(len(out))
    timed, largest = np.int64(0), np.int64(NO_TIMESTAMP)
    start = position  # of records that stay as they are and follow each other
    for number in range(first, end):
        body, end_of_record = _record_at(data, position, end_of_data)
        if end_of_record < 0:
            return layout.MALFORMED, filled, timed, largest
        time, cursor = read_varint(data, body + 1, end_of_record, 10)
        if cursor < 0:
            return layout.MALFORMED, filled, timed, largest
        delta, cursor = read_varint(data, cursor, end_of_record, 5)
        if cursor < 0:
            return layout.MALFORMED, filled, timed, largest
        if keep[number]:
            timestamp = base + time
            if timestamp != NO_TIMESTAMP:
                if timed == 0 or timestamp > largest:
                    largest = timestamp
                timed += 1
            if is_shifted:
                time += time_shift
                delta -= offset_shift
                rest = end_of_record - cursor
                size = 1 + varint_size(time) + varint_size(delta) + rest
                if varint_size(size) + size > room - filled:
                    return layout.FULL, filled, timed, largest
                filled = put_varint(out, filled, size)
                out[filled] = data[body]
                filled = put_varint(out, filled + 1, time)
                filled = put_varint(out, filled, delta)
                copy_bytes(data, cursor, rest, out, filled)
                filled += rest
        elif not is_shifted:
            if position - start > room - filled:
                return layout.FULL, filled, timed, largest
            copy_bytes(data, start, position - start, out, filled)
            filled += position - start
            start = end_of_record
        position = end_of_record
    if position != end_of_data:
        return layout.MALFORMED, filled, timed, largest
    if not is_shifted:
        if position - start > room - filled:
            return layout.FULL, filled, timed, largest
        copy_bytes(data, start, position - start, out, filled)
        filled += position - start
    return layout.DONE, filled, timed, largest


def _retain(data, state, keep, out):
    shifts = state[layout.RETAIN_TIME_SHIFT], state[layout.RETAIN_OFFSET_SHIFT]
    nothing, end, count = np.int64(0), np.int64(len(data)), np.int64(len(keep))
    base = state[layout.RETAIN_BASE]
    status, filled, timed, largest = _retain_records(
        data, nothing, end, base, shifts, keep, nothing, count, out, nothing
    )
    state[layout.RETAIN_FILLED] = filled
    state[layout.RETAIN_TIMED] = timed
    state[layout.RETAIN_MAX] = largest
    return status


@helper
def _write_one(data, start, end, keep, first, last, kept, gets_horizon, horizon, out, filled):
    """Write a small batch without some of its records, or with a delete horizon.

    Where it ends, or -1, and its largest timestamp.
    """
    base, time_shift, zero = i64(data, start + 27), np.int64(0), np.int64(0)
    if gets_horizon:
        time_shift = base - horizon
    status, after, _timed, largest = _retain_records(
        data,
        start + _HEADER_SIZE,
        end,
        base,
        (time_shift, zero),
        keep,
        first,
        last,
        out,
        filled + _HEADER_SIZE,
    )
    if status != layout.DONE:
        return np.int64(-1), largest
    copy_bytes(data, start, np.int64(_HEADER_SIZE), out, filled)
    put_i32(out, filled + 8, after - filled - _LOG_OVERHEAD)
    attributes = byte_at(data, start + 22)
    if gets_horizon:
        out[np.uint64(filled + 22)] = attributes | layout.HAS_HORIZON
        put_i64(out, filled + 27, horizon)
    if attributes & layout.IS_STAMPED:
        largest = i64(data, start + 35)
    put_i64(out, filled + 35, largest)
    put_i32(out, filled + 57, kept)
    put_i32(out, filled + 17, crc32c_of_many(out, filled + _CRC_START, after - filled - _CRC_START))
    return after, largest


def _write_small(data, state, starts, firsts, flags, keep, may_go, out, rows):
    """Write what stays of small batches, which were read before; how many they are.

    -1 where they are others by now, or `out` has no room.
    """
    horizon, room = state[layout.WRITE_HORIZON], np.int64(len(out))
    filled, written = np.int64(0), np.int64(0)
    for number in range(state[layout.WRITE_FROM], state[layout.WRITE_END]):
        start, end = starts[number], starts[number + 1]
        first, last = firsts[number], firsts[number + 1]
        attributes = byte_at(data, start + 22)
        is_marker = attributes & layout.IS_CONTROL != 0
        kept, gets_horizon = np.int64(0), is_marker and may_go[number] != 0
        for at in range(first, last):
            if keep[at]:
                kept += 1
                if not is_marker and flags[at] & np.uint8(layout.IS_TOMBSTONE) != 0:
                    gets_horizon = True
        if kept == 0:
            continue
        if attributes & layout.HAS_HORIZON:
            gets_horizon = False
        if end - start > room - filled:
            return np.int64(-1)
        if kept == last - first and not gets_horizon:
            largest = i64(data, start + 35)
            copy_bytes(data, start, end - start, out, filled)
            after = filled + end - start
        else:
            after, largest = _write_one(
                data, start, end, keep, first, last, kept, gets_horizon, horizon, out, filled
            )
            if after < 0:
                return np.int64(-1)
        base = i64(data, start)
        row = written * layout.WRITTEN_ROW
        rows[row + layout.WRITTEN_START] = filled
        rows[row + layout.WRITTEN_BASE] = base
        rows[row + layout.WRITTEN_NEXT] = base + i32(data, start + 23) + 1
        rows[row + layout.WRITTEN_MAX_TIME] = largest
        written += 1
        filled = after
    state[layout.WRITE_FILLED] = filled
    return written


def _pass_whole(data, state):
    position, last = state[layout.PASS_POSITION], state[layout.PASS_LAST]
    least, end, limit = state[layout.PASS_NEXT], state[layout.PASS_END], state[layout.PASS_LIMIT]
    while np.int64(len(data)) - position >= _HEADER_SIZE:
        base, length = i64(data, position), np.int64(i32(data, position + 8))
        if byte_at(data, position + 16) != _MAGIC or length < _HEADER_SIZE - _LOG_OVERHEAD:
            break
        if length + _LOG_OVERHEAD > np.int64(len(data)) - position or base > _FAR_OFFSET:
            break
        following = base + np.int64(i32(data, position + 23)) + 1
        if base < least or base >= end or following > limit:
            break
        last, least = position, following
        position += length + _LOG_OVERHEAD
    state[layout.PASS_POSITION], state[layout.PASS_LAST] = position, last
    state[layout.PASS_NEXT] = least


read_keys: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, _UINT64S, INT64S, _UINT64S, BYTES_OUT), _read_keys
)
read_small: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, _UINT64S, INT64S, INT64S, _UINT64S, BYTES_OUT), _read_small
)
note: Callable[..., int] = compile_kernel(
    numba.int64(_UINT64S, INT64S, INT64S, _UINT64S, BYTES_OUT), _note
)
find: Callable[..., None] = compile_kernel(numba.void(_UINT64S, _UINT64S, INT64S), _find)
judge: Callable[..., None] = compile_kernel(
    numba.void(_UINT64S, INT64S, INT64S, _UINT64S, BYTES_OUT, BYTES_OUT), _judge
)
retain: Callable[..., int] = compile_kernel(
    numba.int64(BYTES_IN, INT64S, BYTES_OUT, BYTES_OUT), _retain
)
write_small: Callable[..., int] = compile_kernel(
    numba.int64(
        *(BYTES_IN, INT64S, INT64S, INT64S, BYTES_OUT, BYTES_OUT, BYTES_OUT, BYTES_OUT, INT64S)
    ),
    _write_small,
)
meet: Callable[..., None] = compile_kernel(
    numba.void(INT64S, INT64S, INT64S, INT64S, INT64S), _meet
)
_compiled_pass: Callable[..., None] = compile_kernel(numba.void(BYTES_IN, INT64S), _pass_whole)


def pass_whole(data: Buffer, state: "array[int]") -> None:
    """Pass whole batches of v2 whose offsets follow each other, as far as nothing is odd."""
    view = memoryview(data).toreadonly()
    _compiled_pass(np.frombuffer(view, np.uint8), np.frombuffer(state, np.int64))
