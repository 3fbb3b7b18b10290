"""The text of the kernels that compact a log.

`read_keys` hashes the key of each record, `note` keeps the latest offset of each in a map, `judge`
looks it up, and `retain` writes the records that stay. `read_small` and `write_small` do the same
for many small batches. `step` is what a batch does to the transaction of its producer.
`pass_whole` passes batches as the walk of `BatchReader` does.
"""

from typing import Final

from horolog.record.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from horolog.record.kernels.layout import DONE, FULL, MALFORMED
from horolog.record.kernels.machine import (
    Bytes,
    Int64s,
    Room,
    UInt64s,
    byte_at,
    copy_bytes,
    crc32c,
    i32,
    i64,
    int64,
    kernel,
    put_i32,
    put_i64,
    uint64,
    word_at,
)
from horolog.record.kernels.record_kernels import (
    TOO_LONG,
    TRUNCATED,
    put_varint,
    read_bytes,
    read_varint,
    varint_size,
)
from horolog.record.timestamps import NO_TIMESTAMP

# --- cleaning: the keys of records, the latest offset of each, and the records that stay ----

# State of reading keys, of records that come in pieces ...
(
    KEYS_RECORDS,  # how many records must still come
    KEYS_BASE_OFFSET,
    KEYS_LAST_DELTA,  # no offset delta is larger
    KEYS_LEAST,  # nor is the next one smaller than this
    KEYS_POSITION,  # out: bytes of the piece that are done with
    KEYS_ROWS,  # out: how many records were noted
    # ... and the record that continues in the next piece.
    KEYS_REST,  # bytes of it that must still come
    KEYS_KEY_LEFT,  # bytes of its key that are not hashed yet; -1 once the record is noted
    KEYS_KEY_SIZE,  # -1 for null
    KEYS_DELTA,  # of its offset
    KEYS_HASH,  # four numbers
) = range(11)
KEYS_STATE_SIZE: Final = 14

# State of reading the keys of small batches: of at most this size, or the checksum takes longer
# than what is saved.
SMALL_BYTES: Final = 2048
(
    SMALL_POSITION,  # where the first begins; out: where the next one does
    SMALL_RECORDS,  # out: of all of them
    SMALL_OTHERS,  # attributes of batches that are not read; CODEC_BITS is among them
    SMALL_STATE_SIZE,
) = range(4)
# What there is of each of them, in rows.
(
    SMALL_START,  # its position
    SMALL_FIRST,  # the number of its first record
    SMALL_NEXT,  # the offset behind it
    SMALL_ATTRIBUTES,
    SMALL_BASE_TIME,
    SMALL_PRODUCER,
    SMALL_KIND,
    SMALL_ROW,
) = range(8)

# What a batch is to the transactions of its producer.
(
    OF_NONE,
    OF_RECORDS,
    OF_COMMIT,  # the marker of one
    OF_ABORT,
    OF_EMPTIED_MARKER,
    BEGINS_ABORTED,  # no batch: an aborted transaction begins here
) = range(6)
# What is known of the transaction of a producer: bits, and above them 1 more than the number of the
# aborted one that is open.
IS_SEEN: Final = 1  # a batch of the aborted one has come
IS_COMMITTED: Final = 2  # a batch of another one was
OPEN_SHIFT: Final = 2

HAS_KEY: Final = 1
IS_TOMBSTONE: Final = 2  # it has no value
IS_BARE: Final = 4  # it has no headers, and ends where it says

# State of writing what stays of them.
(
    WRITE_FROM,  # the number of the first
    WRITE_END,  # before this one
    WRITE_HORIZON,  # the delete horizon that batches with tombstones get
    WRITE_FILLED,  # out: bytes written
    WRITE_STATE_SIZE,
) = range(5)
# What there is of each batch that was written, in rows.
(
    WRITTEN_START,  # its position
    WRITTEN_BASE,  # its base offset
    WRITTEN_NEXT,  # the offset behind it
    WRITTEN_MAX_TIME,  # its largest timestamp
    WRITTEN_ROW,
) = range(5)

# State of passing whole batches of v2 by their lengths.
(
    PASS_POSITION,  # of the first; out: behind the last
    PASS_LAST,  # in and out: the position of the last before that
    PASS_NEXT,  # in and out: no batch begins before this offset
    PASS_END,  # none begins there or behind
    PASS_LIMIT,  # none ends behind this offset
    PASS_STATE_SIZE,
) = range(6)

# A map of keys has three unsigned numbers for each slot: both halves of a hash, and the offset
# plus 1; that is 0 where the slot is free.
SLOT_SIZE: Final = 3

# State of noting offsets in a map.
(
    NOTE_FROM,  # records before this offset are passed
    NOTE_ROOM,  # how many more keys there is room for
    NOTE_STATE_SIZE,
) = range(3)

# State of judging which records stay.
(
    JUDGE_END,  # records from there on are not in the map, and stay
    JUDGE_TOMBSTONES,  # whether tombstones stay; out: how many did
    JUDGE_KEYLESS,  # whether records without a key stay; out: how many there were
    JUDGE_KEPT,  # out
    JUDGE_STATE_SIZE,
) = range(5)

# State of writing the records that stay, of records that come in pieces.
(
    RETAIN_BASE,  # the base timestamp
    RETAIN_TIME_SHIFT,  # added to each timestamp delta
    RETAIN_OFFSET_SHIFT,  # subtracted from each offset delta
    RETAIN_FILLED,  # out: bytes written
    RETAIN_TIMED,  # in and out: how many records had a timestamp
    RETAIN_MAX,  # in and out: the largest of them
    RETAIN_POSITION,  # out: bytes of the piece that are done with
    RETAIN_ROWS,  # out: how many records were judged
    RETAIN_REST,  # bytes of the last record that must still come
    RETAIN_STAYS,  # whether that one stays
    RETAIN_STATE_SIZE,
) = range(11)
NOT_PLAIN: Final = CODEC_BITS | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
"""Attributes of batches that are not plain."""

# --- the kernels ---------------------------------------------------------------------------

# Of SipHash. numba takes the mask for a number without a sign.
_MASK64 = (1 << 64) - 1
_FIRST = 0x736F6D6570736575
_SECOND = 0x646F72616E646F6D ^ 0xEE
_THIRD = 0x6C7967656E657261
_FOURTH = 0x7465646279746573

_MARKER_KEY_SIZE = 4
_FAR_OFFSET = 1 << 62


def _round(v0, v1, v2, v3):
    # Without calls: most of the time of plain Python is here.
    v0 = (v0 + v1) & _MASK64
    v1 = ((v1 << 13) & _MASK64 | (v1 >> 51)) ^ v0
    v0 = (v0 << 32) & _MASK64 | (v0 >> 32)
    v2 = (v2 + v3) & _MASK64
    v3 = ((v3 << 16) & _MASK64 | (v3 >> 48)) ^ v2
    v0 = (v0 + v3) & _MASK64
    v3 = ((v3 << 21) & _MASK64 | (v3 >> 43)) ^ v0
    v2 = (v2 + v1) & _MASK64
    v1 = ((v1 << 17) & _MASK64 | (v1 >> 47)) ^ v2
    v2 = (v2 << 32) & _MASK64 | (v2 >> 32)
    return v0, v1, v2, v3


def _fresh_hash(secret):
    first, second = secret[0], secret[1]
    return (
        first ^ uint64(_FIRST),
        second ^ uint64(_SECOND),
        first ^ uint64(_THIRD),
        second ^ uint64(_FOURTH),
    )


def _absorb(data, position, end, v0, v1, v2, v3):
    """Add whole words to a hash."""
    while position < end:
        word = word_at(data, position)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    return v0, v1, v2, v3


def _hash(data, position, end, size, v0, v1, v2, v3):
    """Finish SipHash-2-4 of 128 bits of `size` bytes, the last of which are in the data."""
    whole = position + ((end - position) & ~7)
    v0, v1, v2, v3 = _absorb(data, position, whole, v0, v1, v2, v3)
    word = uint64(size & 0xFF) << 56
    for index in range(end - whole):
        word |= uint64(byte_at(data, whole + index)) << (8 * index)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


def _record_at(data, position, end):
    """Return where a record begins behind its length, and where it ends.

    The end is TRUNCATED if it is behind the data, and TOO_LONG if the record is malformed.
    """
    size, body = read_varint(data, position, end, 5)
    if body < 0:
        return 0, body
    if size < 1:
        return 0, TOO_LONG
    if size > end - body:
        return 0, TRUNCATED
    return body, body + size


def _cut_record_at(data, position, end_of_data):
    """Return the end of a record that is cut off, its deltas, and where the deltas end.

    The end of the deltas is TRUNCATED if more data is needed, and TOO_LONG if the record is
    malformed.
    """
    size, body = read_varint(data, position, end_of_data, 5)
    time, delta, cursor = 0, 0, body
    if body >= 0:
        within = min(body + size, end_of_data)
        time, cursor = read_varint(data, body + 1, within, 10)
        if cursor >= 0:
            delta, cursor = read_varint(data, cursor, within, 5)
        if cursor == TRUNCATED and body + size <= end_of_data:
            cursor = TOO_LONG
    return body + size, time, delta, cursor


def _keys_of(
    data, position, end_of_data, base, least, last, count, secret, at, offsets, hashes, flags
):
    """Write the keys of whole records from a row on; return number, end and the next least delta.

    The number is -1 if a record is malformed.
    """
    for number in range(at, at + count):
        body, end = _record_at(data, position, end_of_data)
        if end == TRUNCATED:
            return number - at, position, least
        if end < 0:
            return -1, position, least
        _time, cursor = read_varint(data, body + 1, end, 10)
        if cursor < 0:
            return -1, position, least
        delta, cursor = read_varint(data, cursor, end, 5)
        if cursor < 0 or delta < least or delta > last:
            return -1, position, least
        key_size, key_start, cursor = read_bytes(data, cursor, end)
        if cursor < 0:
            return -1, position, least
        key_end = cursor
        value_size, _start, cursor = read_bytes(data, cursor, end)
        if cursor < 0:
            return -1, position, least
        least = delta + 1
        offsets[number] = int64(base + delta)
        flag = IS_TOMBSTONE if value_size < 0 else 0
        low, high = uint64(0), uint64(0)
        if cursor + 1 == end and byte_at(data, cursor) == 0:
            flag |= IS_BARE
        if key_size >= 0:
            flag |= HAS_KEY
            v0, v1, v2, v3 = _fresh_hash(secret)
            low, high = _hash(data, key_start, key_end, key_size, v0, v1, v2, v3)
        hashes[2 * number] = low
        hashes[2 * number + 1] = high
        flags[number] = flag
        position = end
    return count, position, least


def _begin_cut_record(data, position, state, secret):
    """Note in the state a record that is cut off; return where its key begins.

    The result is TRUNCATED if more data is needed, and TOO_LONG if the record is malformed.
    """
    end_of_data = len(data)
    end, _time, delta, cursor = _cut_record_at(data, position, end_of_data)
    if cursor < 0:
        return cursor
    if delta < state[KEYS_LEAST] or delta > state[KEYS_LAST_DELTA]:
        return TOO_LONG
    size, start = read_varint(data, cursor, min(end, end_of_data), 5)
    if start < 0:
        return TOO_LONG if end <= end_of_data else start
    if size > end - start:
        return TOO_LONG
    state[KEYS_REST] = end - start
    state[KEYS_KEY_LEFT] = max(size, 0)
    state[KEYS_KEY_SIZE] = size
    state[KEYS_DELTA] = delta
    v0, v1, v2, v3 = _fresh_hash(secret)
    state[KEYS_HASH], state[KEYS_HASH + 1] = int64(v0), int64(v1)
    state[KEYS_HASH + 2], state[KEYS_HASH + 3] = int64(v2), int64(v3)
    return start


def _continue_key(data, position, state, row, offsets, hashes, flags):
    """Hash the next part of the key of a cut record, and note the record at the key's end.

    Return the position that was reached; TOO_LONG if the record is malformed.
    """
    size, left = len(data), state[KEYS_KEY_LEFT]
    at = KEYS_HASH
    v0, v1 = uint64(state[at]), uint64(state[at + 1])
    v2, v3 = uint64(state[at + 2]), uint64(state[at + 3])
    whole = min(size - position, left) & ~7
    v0, v1, v2, v3 = _absorb(data, position, position + whole, v0, v1, v2, v3)
    state[at], state[at + 1] = int64(v0), int64(v1)
    state[at + 2], state[at + 3] = int64(v2), int64(v3)
    position += whole
    left -= whole
    state[KEYS_REST] -= whole
    state[KEYS_KEY_LEFT] = left
    if size - position < left:
        return position
    end, key_end = position + state[KEYS_REST], position + left
    value_size, start = read_varint(data, key_end, min(end, size), 5)
    if start < 0:
        return TOO_LONG if start == TOO_LONG or end <= size else position
    if value_size > end - start:
        return TOO_LONG
    low, high = uint64(0), uint64(0)
    flag = IS_TOMBSTONE if value_size < 0 else 0
    if state[KEYS_KEY_SIZE] >= 0:
        flag |= HAS_KEY
        low, high = _hash(data, position, key_end, state[KEYS_KEY_SIZE], v0, v1, v2, v3)
    offsets[row] = int64(state[KEYS_BASE_OFFSET] + state[KEYS_DELTA])
    hashes[2 * row] = low
    hashes[2 * row + 1] = high
    flags[row] = flag
    state[KEYS_LEAST] = state[KEYS_DELTA] + 1
    state[KEYS_KEY_LEFT] = -1
    state[KEYS_REST] = end - start
    return start


@kernel
def read_keys(
    data: Bytes, state: Int64s, secret: UInt64s, offsets: Int64s, hashes: UInt64s, flags: Room
) -> int:
    """Write offset, hash and flags of each record in a piece of a batch's records.

    A record that continues in the next piece is noted once its key and the size of its value are
    complete, without `IS_BARE`. Bytes behind KEYS_POSITION must be at the start of the next piece:
    the head of a record, or less than a word of its key.

    Return DONE, or MALFORMED if a record is malformed or offsets do not grow within the batch.
    KEYS_RECORDS and KEYS_REST are 0 after the last record.
    """
    base, last = state[KEYS_BASE_OFFSET], state[KEYS_LAST_DELTA]
    size, left = len(data), state[KEYS_RECORDS]
    position, row, at = 0, 0, 0
    while True:
        if state[KEYS_REST] != 0:
            if state[KEYS_KEY_LEFT] >= 0:
                at = _continue_key(data, position, state, row, offsets, hashes, flags)
                if at < 0:
                    return MALFORMED
                position = at
                if state[KEYS_KEY_LEFT] >= 0:
                    break
                row, left = row + 1, left - 1
            passed = min(size - position, state[KEYS_REST])
            state[KEYS_REST] -= passed
            position += passed
        if position == size or left == 0:
            break
        found, position, least = _keys_of(
            data,
            position,
            size,
            base,
            state[KEYS_LEAST],
            last,
            left,
            secret,
            row,
            offsets,
            hashes,
            flags,
        )
        if found < 0:
            return MALFORMED
        state[KEYS_LEAST] = least
        row, left = row + found, left - found
        if position == size or left == 0:
            break
        at = _begin_cut_record(data, position, state, secret)
        if at == TOO_LONG:
            return MALFORMED
        if at < 0:
            break
        position = at
    state[KEYS_RECORDS], state[KEYS_ROWS] = left, row
    state[KEYS_POSITION] = position
    return DONE


def _marker_kind(data, start, end, flags, first, last):
    """Return the kind of a control batch with sound records; -1 if a record may be malformed."""
    position = start
    for number in range(first, last):
        if flags[number] & IS_BARE == 0:
            return -1
        body, position = _record_at(data, position, end)
        _time, cursor = read_varint(data, body + 1, position, 10)
        _delta, cursor = read_varint(data, cursor, position, 5)
        key_size, key_start, _cursor = read_bytes(data, cursor, position)
        if key_size >= _MARKER_KEY_SIZE:
            kind = i32(data, key_start) & 0xFFFF
            if kind <= 1:
                return OF_COMMIT if kind else OF_ABORT
    return OF_NONE if last > first else OF_EMPTIED_MARKER


@kernel
def read_small(
    data: Bytes,
    state: Int64s,
    secret: UInt64s,
    rows: Int64s,
    offsets: Int64s,
    hashes: UInt64s,
    flags: Room,
) -> int:
    """Write the keys of successive small batches; return how many batches were read.

    Reading ends before a batch of another kind, a damaged or cut one, and where room runs out.
    """
    position, room = state[SMALL_POSITION], len(offsets)
    records, batches = 0, 0
    others = state[SMALL_OTHERS]
    least = 1 if others & CONTROL_BIT else 0  # plain ones have records
    while (batches + 1) * SMALL_ROW <= len(rows):
        left = len(data) - position
        if left < HEADER_SIZE:
            break
        base, size = i64(data, position), i32(data, position + 8) + LOG_OVERHEAD
        if size < HEADER_SIZE or size > SMALL_BYTES or size > left:
            break
        attributes = (byte_at(data, position + 21) << 8) | byte_at(data, position + 22)
        if byte_at(data, position + 16) != MAGIC or attributes & others != 0:
            break
        last, count = i32(data, position + 23), i32(data, position + 57)
        if base < 0 or base > _FAR_OFFSET or last < 0 or count < least or count > room - records:
            break
        crc = i32(data, position + 17) & 0xFFFFFFFF
        if crc32c(data, position + CRC_START, position + size) != crc:
            break
        start, end = position + HEADER_SIZE, position + size
        found, behind, _least = _keys_of(
            data,
            start,
            end,
            base,
            0,
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
        producer, kind = i64(data, position + 43), OF_NONE
        if attributes & CONTROL_BIT:
            kind = _marker_kind(data, start, end, flags, records, records + count)
            if kind < 0:
                break
        elif attributes & TRANSACTIONAL_BIT and producer >= 0:
            kind = OF_RECORDS
        row = batches * SMALL_ROW
        rows[row + SMALL_START] = position
        rows[row + SMALL_FIRST] = records
        rows[row + SMALL_NEXT] = base + last + 1
        rows[row + SMALL_ATTRIBUTES] = attributes
        rows[row + SMALL_BASE_TIME] = i64(data, position + 27)
        rows[row + SMALL_PRODUCER] = producer
        rows[row + SMALL_KIND] = kind
        records += count
        batches += 1
        position = end
    state[SMALL_POSITION] = position
    state[SMALL_RECORDS] = records
    return batches


def step(known: int, kind: int, number: int) -> tuple[int, int]:
    """Return the state of a producer's transaction after a batch, and the fate of that batch.

    Args:
        known: state before the batch, as bits above; 0 at first.
        number: number of the aborted transaction that begins, if one does.

    Returns:
        The state, and the fate: 1 if the batch may go, 0 if it stays, or twice the number of the
        aborted transaction plus 2 for the marker of one that had a batch.
    """
    committed = known & IS_COMMITTED
    if kind == BEGINS_ABORTED:
        return (number + 1) << OPEN_SHIFT | committed, 0
    opened = known >> OPEN_SHIFT
    if kind == OF_RECORDS:
        return (known | IS_SEEN, 1) if opened else (known | IS_COMMITTED, 0)
    if kind == OF_COMMIT:
        return known - committed, 0 if committed else 1
    if kind == OF_ABORT:
        return committed, opened << 1 if known & IS_SEEN else 1
    return known, 1 if kind == OF_EMPTIED_MARKER else 0


@kernel
def meet(known: Int64s, places: Int64s, kinds: Int64s, numbers: Int64s, fates: Int64s) -> None:
    """Write the fates of batches of transactions, by the states of their producers in `known`."""
    for index in range(len(kinds)):
        place = places[index]
        known[place], fates[index] = step(known[place], kinds[index], numbers[index])


def _slot_of(table, slots, low, high):
    """Return the place of the slot of a hash, or of a free one for it; -1 for none."""
    index = int64(((low >> 32) * uint64(slots)) >> 32)
    for _ in range(slots):
        at = SLOT_SIZE * index
        if table[at + 2] == 0 or (table[at] == low and table[at + 1] == high):
            return at
        index = index + 1 if index + 1 < slots else 0
    return -1


@kernel
def note(table: UInt64s, state: Int64s, offsets: Int64s, hashes: UInt64s, flags: Room) -> int:
    """Keep the latest offset of each key; return how many records had room."""
    slots = len(table) // SLOT_SIZE
    from_offset, room = state[NOTE_FROM], state[NOTE_ROOM]
    count = len(offsets)
    noted = count
    for number in range(count):
        offset = offsets[number]
        if flags[number] & HAS_KEY == 0 or offset < from_offset:
            continue
        low, high = hashes[2 * number], hashes[2 * number + 1]
        slot = _slot_of(table, slots, low, high)
        if slot < 0:
            noted = number
            break
        known = table[slot + 2]
        if known == 0:
            if room == 0:
                noted = number
                break
            room -= 1
            table[slot] = low
            table[slot + 1] = high
        if uint64(offset + 1) > known:
            table[slot + 2] = uint64(offset + 1)
    state[NOTE_ROOM] = room
    return noted


@kernel
def judge(
    table: UInt64s, state: Int64s, offsets: Int64s, hashes: UInt64s, flags: Room, keep: Room
) -> None:
    """Mark the records that stay: the latest of their keys, and those that were not noted."""
    slots = len(table) // SLOT_SIZE
    end = state[JUDGE_END]
    keeps_tombstones = state[JUDGE_TOMBSTONES] != 0
    keeps_keyless = state[JUDGE_KEYLESS] != 0
    kept, tombstones, keyless = 0, 0, 0
    for number in range(len(offsets)):
        offset = offsets[number]
        has_key = flags[number] & HAS_KEY != 0
        is_tombstone = flags[number] & IS_TOMBSTONE != 0
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
                stays = slot < 0 or uint64(offset + 1) >= table[slot + 2]
        keep[number] = stays
        if stays:
            kept += 1
            if is_tombstone:
                tombstones += 1
    state[JUDGE_KEPT] = kept
    state[JUDGE_TOMBSTONES] = tombstones
    state[JUDGE_KEYLESS] = keyless


def _put_shifted(data, body, cursor, end, time, delta, out, filled):
    """Write a record with other deltas, as far as it is in the data; -1 without room in `out`."""
    size = 1 + varint_size(time) + varint_size(delta) + end - cursor
    there = min(len(data), end) - cursor
    head = varint_size(size) + size - (end - cursor)
    if head + there > len(out) - filled:
        return -1
    filled = put_varint(out, filled, size)
    out[filled] = byte_at(data, body)
    filled = put_varint(out, filled + 1, time)
    filled = put_varint(out, filled, delta)
    copy_bytes(data, cursor, there, out, filled)
    return filled + there


def _retain_records(data, position, end_of_data, base, shifts, keep, first, end, out, filled):
    """Write whole records that stay; return status, fill of `out`, times and the next place.

    The times are the number of records with a time, and the largest time. The place is the position
    and the number of the next record. `shifts` are those of times and of offsets in the state of
    `retain`.
    """
    time_shift, offset_shift = shifts
    is_shifted, room = time_shift != 0 or offset_shift != 0, len(out)
    timed, largest, number = 0, NO_TIMESTAMP, first
    start = position  # of records that stay as they are and follow each other
    while number < end:
        body, end_of_record = _record_at(data, position, end_of_data)
        if end_of_record == TRUNCATED:
            break
        if end_of_record < 0:
            return MALFORMED, filled, timed, largest, position, number
        time, cursor = read_varint(data, body + 1, end_of_record, 10)
        if cursor < 0:
            return MALFORMED, filled, timed, largest, position, number
        delta, cursor = read_varint(data, cursor, end_of_record, 5)
        if cursor < 0:
            return MALFORMED, filled, timed, largest, position, number
        if keep[number]:
            timestamp = int64(base + time)
            if timestamp != NO_TIMESTAMP:
                if timed == 0 or timestamp > largest:
                    largest = timestamp
                timed += 1
            if is_shifted:
                time, delta = int64(time + time_shift), delta - offset_shift
                after = _put_shifted(data, body, cursor, end_of_record, time, delta, out, filled)
                if after < 0:
                    return FULL, filled, timed, largest, position, number
                filled = after
        elif not is_shifted:
            if position - start > room - filled:
                return FULL, filled, timed, largest, position, number
            copy_bytes(data, start, position - start, out, filled)
            filled += position - start
            start = end_of_record
        position = end_of_record
        number += 1
    if not is_shifted:
        if position - start > room - filled:
            return FULL, filled, timed, largest, position, number
        copy_bytes(data, start, position - start, out, filled)
        filled += position - start
    return DONE, filled, timed, largest, position, number


@kernel
def retain(data: Bytes, state: Int64s, keep: Room, out: Room) -> int:
    """Write the records of a piece that stay, with shifted deltas and otherwise unchanged.

    `keep` begins with the first record that begins in the piece. Bytes behind RETAIN_POSITION, the
    head of a record, must be at the start of the next piece.

    Return DONE, FULL without room in `out`, or MALFORMED.
    """
    shifts = state[RETAIN_TIME_SHIFT], state[RETAIN_OFFSET_SHIFT]
    size, room = len(data), len(out)
    base, timed, largest = state[RETAIN_BASE], 0, NO_TIMESTAMP
    position, filled, number = 0, 0, 0
    state[RETAIN_POSITION], state[RETAIN_ROWS] = 0, 0
    if state[RETAIN_REST] != 0:
        position = min(size, state[RETAIN_REST])
        state[RETAIN_REST] -= position
        if state[RETAIN_STAYS] != 0:
            if position > room:
                return FULL
            copy_bytes(data, 0, position, out, 0)
            filled = position
    status, filled, timed, largest, position, number = _retain_records(
        data, position, size, base, shifts, keep, number, len(keep), out, filled
    )
    if status != DONE:
        return status
    if position < size and number < len(keep):
        end, time, delta, cursor = _cut_record_at(data, position, size)
        if cursor == TOO_LONG:
            return MALFORMED
        if cursor >= 0:
            if keep[number]:
                timestamp = int64(base + time)
                if timestamp != NO_TIMESTAMP:
                    if timed == 0 or timestamp > largest:
                        largest = timestamp
                    timed += 1
                if shifts[0] != 0 or shifts[1] != 0:
                    _size, body = read_varint(data, position, size, 5)
                    time, delta = int64(time + shifts[0]), delta - shifts[1]
                    filled = _put_shifted(data, body, cursor, end, time, delta, out, filled)
                    if filled < 0:
                        return FULL
                else:
                    if size - position > room - filled:
                        return FULL
                    copy_bytes(data, position, size - position, out, filled)
                    filled += size - position
            state[RETAIN_STAYS] = keep[number]
            state[RETAIN_REST] = end - size
            position, number = size, number + 1
    state[RETAIN_FILLED], state[RETAIN_POSITION] = filled, position
    state[RETAIN_ROWS] = number
    if timed != 0 and (state[RETAIN_TIMED] == 0 or largest > state[RETAIN_MAX]):
        state[RETAIN_MAX] = largest
    state[RETAIN_TIMED] += timed
    return DONE


def _write_one(data, start, end, keep, first, last, kept, gets_horizon, horizon, out, filled):
    """Write a small batch without some of its records, or with a delete horizon.

    Return where it ends, or -1, and its largest timestamp.
    """
    base, time_shift = i64(data, start + 27), 0
    if gets_horizon:
        time_shift = int64(base - horizon)
    status, after, _timed, largest, behind, number = _retain_records(
        data,
        start + HEADER_SIZE,
        end,
        base,
        (time_shift, 0),
        keep,
        first,
        last,
        out,
        filled + HEADER_SIZE,
    )
    if status != DONE or behind != end or number != last:
        return -1, largest
    copy_bytes(data, start, HEADER_SIZE, out, filled)
    put_i32(out, filled + 8, after - filled - LOG_OVERHEAD)
    attributes = byte_at(data, start + 22)
    if gets_horizon:
        out[filled + 22] = attributes | DELETE_HORIZON_BIT
        put_i64(out, filled + 27, horizon)
    if attributes & LOG_APPEND_TIME_BIT:
        largest = i64(data, start + 35)
    put_i64(out, filled + 35, largest)
    put_i32(out, filled + 57, kept)
    put_i32(out, filled + 17, crc32c(out, filled + CRC_START, after))
    return after, largest


@kernel
def write_small(
    data: Bytes,
    state: Int64s,
    starts: Int64s,
    firsts: Int64s,
    flags: Room,
    keep: Room,
    may_go: Room,
    out: Room,
    rows: Int64s,
) -> int:
    """Write small batches that were read before, with the records that stay; return their number.

    The number is -1 if a batch has changed meanwhile, or `out` has no room.
    """
    horizon, room = state[WRITE_HORIZON], len(out)
    filled, written = 0, 0
    for number in range(state[WRITE_FROM], state[WRITE_END]):
        start, end = starts[number], starts[number + 1]
        first, last = firsts[number], firsts[number + 1]
        attributes = byte_at(data, start + 22)
        is_marker = attributes & CONTROL_BIT != 0
        kept, gets_horizon = 0, is_marker and may_go[number] != 0
        for at in range(first, last):
            if keep[at]:
                kept += 1
                if not is_marker and flags[at] & IS_TOMBSTONE != 0:
                    gets_horizon = True
        if kept == 0:
            continue
        if attributes & DELETE_HORIZON_BIT:
            gets_horizon = False
        if end - start > room - filled:
            return -1
        if kept == last - first and not gets_horizon:
            largest = i64(data, start + 35)
            copy_bytes(data, start, end - start, out, filled)
            after = filled + end - start
        else:
            after, largest = _write_one(
                data, start, end, keep, first, last, kept, gets_horizon, horizon, out, filled
            )
            if after < 0:
                return -1
        base = i64(data, start)
        row = written * WRITTEN_ROW
        rows[row + WRITTEN_START] = filled
        rows[row + WRITTEN_BASE] = base
        rows[row + WRITTEN_NEXT] = base + i32(data, start + 23) + 1
        rows[row + WRITTEN_MAX_TIME] = largest
        written += 1
        filled = after
    state[WRITE_FILLED] = filled
    return written


@kernel
def pass_whole(data: Bytes, state: Int64s) -> None:
    """Pass whole batches of v2 with successive offsets, up to the first unusual one."""
    position, last = state[PASS_POSITION], state[PASS_LAST]
    least, end, limit = state[PASS_NEXT], state[PASS_END], state[PASS_LIMIT]
    while len(data) - position >= HEADER_SIZE:
        base, length = i64(data, position), i32(data, position + 8)
        if byte_at(data, position + 16) != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
            break
        if length + LOG_OVERHEAD > len(data) - position or base > _FAR_OFFSET:
            break
        delta, count = i32(data, position + 23), i32(data, position + 57)
        following = base + delta + 1
        if delta < 0 or count - 1 > delta:
            break
        if base < least or base >= end or following > limit:
            break
        last, least = position, following
        position += length + LOG_OVERHEAD
    state[PASS_POSITION], state[PASS_LAST] = position, last
    state[PASS_NEXT] = least
