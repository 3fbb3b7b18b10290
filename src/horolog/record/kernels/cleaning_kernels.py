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
from horolog.record.kernels.scan_kernels import (
    BYTES_IN,
    BYTES_OUT,
    INT64S,
    TOO_LONG,
    TRUNCATED,
    read_bytes,
    read_varint,
)
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
def _fresh_hash(first, second):
    return first ^ _FIRST, second ^ _SECOND, first ^ _THIRD, second ^ _FOURTH


@helper
def _absorb(data, position, end, v0, v1, v2, v3):
    """Add whole words to a hash."""
    while position < end:
        word = _word(data, position)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    return v0, v1, v2, v3


@helper
def _hash(data, position, end, size, v0, v1, v2, v3):
    """SipHash-2-4 of 128 bits of `size` bytes, the last of which are in the data."""
    whole = position + ((end - position) & ~np.int64(7))
    v0, v1, v2, v3 = _absorb(data, position, whole, v0, v1, v2, v3)
    word = np.uint64(size & 0xFF) << np.uint64(56)
    shift = np.uint64(0)
    while whole < end:
        word |= np.uint64(data[np.uint64(whole)]) << shift
        shift += np.uint64(8)
        whole += 1
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
    """Where a record begins behind its length, and where it ends.

    The end is TRUNCATED if that is behind the data, and TOO_LONG where it is malformed.
    """
    size, body = read_varint(data, position, end, 5)
    if body < 0:
        return np.int64(0), body
    if size < 1:
        return np.int64(0), np.int64(TOO_LONG)
    if size > end - body:
        return np.int64(0), np.int64(TRUNCATED)
    return body, body + size


@helper
def _cut_record_at(data, position, end_of_data):
    """A record that ends behind the data: where it does, its deltas, and where these end.

    The last is TRUNCATED where more must come first, and TOO_LONG where it is malformed.
    """
    size, body = read_varint(data, position, end_of_data, 5)
    time, delta, cursor = np.int64(0), np.int64(0), body
    if body >= 0:
        within = min(body + size, end_of_data)
        time, cursor = read_varint(data, body + 1, within, 10)
        if cursor >= 0:
            delta, cursor = read_varint(data, cursor, within, 5)
        if cursor == TRUNCATED and body + size <= end_of_data:
            cursor = np.int64(TOO_LONG)
    return body + size, time, delta, cursor


@helper
def _keys_of(
    data, position, end_of_data, base, least, last, count, secret, at, offsets, hashes, flags
):
    """The keys of whole records, from a row on: how many, where they end, the next delta at least.

    -1 as their number where one is malformed.
    """
    first, second = secret[0], secret[1]
    for number in range(at, at + count):
        body, end = _record_at(data, position, end_of_data)
        if end == TRUNCATED:
            return np.int64(number - at), position, least
        if end < 0:
            return np.int64(-1), position, least
        _time, cursor = read_varint(data, body + 1, end, 10)
        if cursor < 0:
            return np.int64(-1), position, least
        delta, cursor = read_varint(data, cursor, end, 5)
        if cursor < 0 or delta < least or delta > last:
            return np.int64(-1), position, least
        key_size, key_start, cursor = read_bytes(data, cursor, end)
        if cursor < 0:
            return np.int64(-1), position, least
        key_end = cursor
        value_size, _start, cursor = read_bytes(data, cursor, end)
        if cursor < 0:
            return np.int64(-1), position, least
        least = delta + 1
        offsets[number] = base + delta
        flag = np.uint8(layout.IS_TOMBSTONE) if value_size < 0 else np.uint8(0)
        low, high = _ZERO, _ZERO
        if cursor + 1 == end and byte_at(data, cursor) == 0:
            flag |= np.uint8(layout.IS_BARE)
        if key_size >= 0:
            flag |= np.uint8(layout.HAS_KEY)
            v0, v1, v2, v3 = _fresh_hash(first, second)
            low, high = _hash(data, key_start, key_end, key_size, v0, v1, v2, v3)
        hashes[2 * number] = low
        hashes[2 * number + 1] = high
        flags[number] = flag
        position = end
    return np.int64(count), position, least


@helper
def _begin_cut_record(data, position, state, secret):
    """Note in the state a record that ends behind the data; where its key begins.

    TRUNCATED where more must come first, TOO_LONG where it is malformed.
    """
    end_of_data = np.int64(len(data))
    end, _time, delta, cursor = _cut_record_at(data, position, end_of_data)
    if cursor < 0:
        return cursor
    if delta < state[layout.KEYS_LEAST] or delta > state[layout.KEYS_LAST_DELTA]:
        return np.int64(TOO_LONG)
    size, start = read_varint(data, cursor, min(end, end_of_data), 5)
    if start < 0:
        return np.int64(TOO_LONG) if end <= end_of_data else start
    if size > end - start:
        return np.int64(TOO_LONG)
    state[layout.KEYS_REST] = end - start
    state[layout.KEYS_KEY_LEFT] = max(size, np.int64(0))
    state[layout.KEYS_KEY_SIZE] = size
    state[layout.KEYS_DELTA] = delta
    v0, v1, v2, v3 = _fresh_hash(secret[0], secret[1])
    state[layout.KEYS_HASH], state[layout.KEYS_HASH + 1] = np.int64(v0), np.int64(v1)
    state[layout.KEYS_HASH + 2], state[layout.KEYS_HASH + 3] = np.int64(v2), np.int64(v3)
    return start


@helper
def _continue_key(data, position, state, row, offsets, hashes, flags):
    """Hash what is there of the key of a cut record, and note the record once that is all.

    Where it came to; TRUNCATED where the value's size is not there yet, TOO_LONG where it is
    malformed.
    """
    size, left = np.int64(len(data)), state[layout.KEYS_KEY_LEFT]
    at = layout.KEYS_HASH
    v0, v1 = np.uint64(state[at]), np.uint64(state[at + 1])
    v2, v3 = np.uint64(state[at + 2]), np.uint64(state[at + 3])
    whole = min(size - position, left) & ~np.int64(7)
    v0, v1, v2, v3 = _absorb(data, position, position + whole, v0, v1, v2, v3)
    state[at], state[at + 1] = np.int64(v0), np.int64(v1)
    state[at + 2], state[at + 3] = np.int64(v2), np.int64(v3)
    position += whole
    left -= whole
    state[layout.KEYS_REST] -= whole
    state[layout.KEYS_KEY_LEFT] = left
    if size - position < left:
        return position
    end, key_end = position + state[layout.KEYS_REST], position + left
    value_size, start = read_varint(data, key_end, min(end, size), 5)
    if start < 0:
        return np.int64(TOO_LONG) if start == TOO_LONG or end <= size else position
    if value_size > end - start:
        return np.int64(TOO_LONG)
    low, high = _ZERO, _ZERO
    flag = np.uint8(layout.IS_TOMBSTONE) if value_size < 0 else np.uint8(0)
    if state[layout.KEYS_KEY_SIZE] >= 0:
        flag |= np.uint8(layout.HAS_KEY)
        low, high = _hash(data, position, key_end, state[layout.KEYS_KEY_SIZE], v0, v1, v2, v3)
    offsets[row] = state[layout.KEYS_BASE_OFFSET] + state[layout.KEYS_DELTA]
    hashes[2 * row] = low
    hashes[2 * row + 1] = high
    flags[row] = flag
    state[layout.KEYS_LEAST] = state[layout.KEYS_DELTA] + 1
    state[layout.KEYS_KEY_LEFT] = -1
    state[layout.KEYS_REST] = end - start
    return start


def _read_keys(data, state, secret, offsets, hashes, flags):
    base, last = state[layout.KEYS_BASE_OFFSET], state[layout.KEYS_LAST_DELTA]
    size, left = np.int64(len(data)), state[layout.KEYS_RECORDS]
    position, row, at = np.int64(0), np.int64(0), np.int64(0)
    while True:
        if state[layout.KEYS_REST] != 0:
            if state[layout.KEYS_KEY_LEFT] >= 0:
                at = _continue_key(data, position, state, row, offsets, hashes, flags)
                if at < 0:
                    return layout.MALFORMED
                position = at
                if state[layout.KEYS_KEY_LEFT] >= 0:
                    break
                row, left = row + 1, left - 1
            passed = min(size - position, state[layout.KEYS_REST])
            state[layout.KEYS_REST] -= passed
            position += passed
        if position == size or left == 0:
            break
        found, position, least = _keys_of(
            data,
            position,
            size,
            base,
            state[layout.KEYS_LEAST],
            last,
            left,
            secret,
            row,
            offsets,
            hashes,
            flags,
        )
        if found < 0:
            return layout.MALFORMED
        state[layout.KEYS_LEAST] = least
        row, left = row + found, left - found
        if position == size or left == 0:
            break
        at = _begin_cut_record(data, position, state, secret)
        if at == TOO_LONG:
            return layout.MALFORMED
        if at < 0:
            break
        position = at
    state[layout.KEYS_RECORDS], state[layout.KEYS_ROWS] = left, row
    state[layout.KEYS_POSITION] = position
    return layout.DONE


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
        found, behind, _least = _keys_of(
            data,
            start,
            end,
            base,
            np.int64(0),
            last,
            count,
            secret,
            records,
            offsets,
            hashes,
            flags,
        )
        if found != count or behind != end:
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
def _put_shifted(data, body, cursor, end, time, delta, out, filled):
    """Write a record with other deltas, as far as it is there; -1 where `out` has no room."""
    size = 1 + varint_size(time) + varint_size(delta) + end - cursor
    there = min(np.int64(len(data)), end) - cursor
    head = varint_size(size) + size - (end - cursor)
    if head + there > np.int64(len(out)) - filled:
        return np.int64(-1)
    filled = put_varint(out, filled, size)
    out[filled] = data[body]
    filled = put_varint(out, filled + 1, time)
    filled = put_varint(out, filled, delta)
    copy_bytes(data, cursor, there, out, filled)
    return filled + there


@helper
def _retain_records(data, position, end_of_data, base, shifts, keep, first, end, out, filled):
    """Write the records that stay of whole ones; status, how full `out` is, the times; the place.

    The times are how many records have one, and the largest. The place is where the next record
    begins, and its number. `shifts` are those of times and of offsets, as in the state of `retain`.
    """
    time_shift, offset_shift = shifts
    is_shifted, room = time_shift != 0 or offset_shift != 0, np.int64(len(out))
    timed, largest, number = np.int64(0), np.int64(NO_TIMESTAMP), np.int64(first)
    start = position  # of records that stay as they are and follow each other
    while number < end:
        body, end_of_record = _record_at(data, position, end_of_data)
        if end_of_record == TRUNCATED:
            break
        if end_of_record < 0:
            return layout.MALFORMED, filled, timed, largest, position, number
        time, cursor = read_varint(data, body + 1, end_of_record, 10)
        if cursor < 0:
            return layout.MALFORMED, filled, timed, largest, position, number
        delta, cursor = read_varint(data, cursor, end_of_record, 5)
        if cursor < 0:
            return layout.MALFORMED, filled, timed, largest, position, number
        if keep[number]:
            timestamp = base + time
            if timestamp != NO_TIMESTAMP:
                if timed == 0 or timestamp > largest:
                    largest = timestamp
                timed += 1
            if is_shifted:
                time, delta = time + time_shift, delta - offset_shift
                after = _put_shifted(data, body, cursor, end_of_record, time, delta, out, filled)
                if after < 0:
                    return layout.FULL, filled, timed, largest, position, number
                filled = after
        elif not is_shifted:
            if position - start > room - filled:
                return layout.FULL, filled, timed, largest, position, number
            copy_bytes(data, start, position - start, out, filled)
            filled += position - start
            start = end_of_record
        position = end_of_record
        number += 1
    if not is_shifted:
        if position - start > room - filled:
            return layout.FULL, filled, timed, largest, position, number
        copy_bytes(data, start, position - start, out, filled)
        filled += position - start
    return layout.DONE, filled, timed, largest, position, number


def _retain(data, state, keep, out):
    shifts = state[layout.RETAIN_TIME_SHIFT], state[layout.RETAIN_OFFSET_SHIFT]
    size, room = np.int64(len(data)), np.int64(len(out))
    base, timed, largest = state[layout.RETAIN_BASE], np.int64(0), np.int64(NO_TIMESTAMP)
    position, filled, number = np.int64(0), np.int64(0), np.int64(0)
    state[layout.RETAIN_POSITION], state[layout.RETAIN_ROWS] = 0, 0
    if state[layout.RETAIN_REST] != 0:
        position = min(size, state[layout.RETAIN_REST])
        state[layout.RETAIN_REST] -= position
        if state[layout.RETAIN_STAYS] != 0:
            if position > room:
                return layout.FULL
            copy_bytes(data, np.int64(0), position, out, np.int64(0))
            filled = position
    status, filled, timed, largest, position, number = _retain_records(
        data, position, size, base, shifts, keep, number, np.int64(len(keep)), out, filled
    )
    if status != layout.DONE:
        return status
    if position < size and number < len(keep):
        end, time, delta, cursor = _cut_record_at(data, position, size)
        if cursor == TOO_LONG:
            return layout.MALFORMED
        if cursor >= 0:
            if keep[number]:
                timestamp = base + time
                if timestamp != NO_TIMESTAMP:
                    if timed == 0 or timestamp > largest:
                        largest = timestamp
                    timed += 1
                if shifts[0] != 0 or shifts[1] != 0:
                    _size, body = read_varint(data, position, size, 5)
                    time, delta = time + shifts[0], delta - shifts[1]
                    filled = _put_shifted(data, body, cursor, end, time, delta, out, filled)
                    if filled < 0:
                        return layout.FULL
                else:
                    if size - position > room - filled:
                        return layout.FULL
                    copy_bytes(data, position, size - position, out, filled)
                    filled += size - position
            state[layout.RETAIN_STAYS] = keep[number]
            state[layout.RETAIN_REST] = end - size
            position, number = size, number + 1
    state[layout.RETAIN_FILLED], state[layout.RETAIN_POSITION] = filled, position
    state[layout.RETAIN_ROWS] = number
    if timed != 0 and (state[layout.RETAIN_TIMED] == 0 or largest > state[layout.RETAIN_MAX]):
        state[layout.RETAIN_MAX] = largest
    state[layout.RETAIN_TIMED] += timed
    return layout.DONE


@helper
def _write_one(data, start, end, keep, first, last, kept, gets_horizon, horizon, out, filled):
    """Write a small batch without some of its records, or with a delete horizon.

    Where it ends, or -1, and its largest timestamp.
    """
    base, time_shift, zero = i64(data, start + 27), np.int64(0), np.int64(0)
    if gets_horizon:
        time_shift = base - horizon
    status, after, _timed, largest, behind, number = _retain_records(
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
    if status != layout.DONE or behind != end or number != last:
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
        delta, count = i32(data, position + 23), i32(data, position + 57)
        following = base + np.int64(delta) + 1
        if delta < 0 or count - 1 > delta:
            break
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
