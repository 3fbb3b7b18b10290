"""The plain-Python twins of the kernels that compact a log.

`read_keys` hashes the key of each record, `note` keeps the latest offset of each in a map,
`find` and `judge` ask it, and `retain` writes the records that stay. `step` is the twin and the
kernel: what a batch does to the transaction of its producer.
"""

from typing import Any

from horolog.record.kernels import layout
from horolog.record.kernels.record_bytes import write_varlong
from horolog.record.kernels.scan_twins import OddError, read_varint, to_int64
from horolog.record.timestamps import NO_TIMESTAMP

Ints = Any  # integers by position: array, memoryview or numpy array

_MASK64 = (1 << 64) - 1
_VARINT_BYTES = 5
_NO_HEADERS = b"\0"


def hash_of(data: bytes, first: int, second: int) -> tuple[int, int]:
    """SipHash-2-4 of 128 bits, under a key of twice 64 bits."""
    return _hash_of_end(_fresh_hash(first, second), data, len(data))


def _fresh_hash(first: int, second: int) -> list[int]:
    return [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D ^ 0xEE,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]


def _absorb(state: list[int], data: bytes) -> None:
    """Add whole words to a hash."""
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at : at + 8], "little")
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word


def _hash_of_end(state: list[int], data: bytes, size: int) -> tuple[int, int]:
    """The hash of `size` bytes, the last of which are `data`."""
    whole = len(data) & ~7
    _absorb(state, data[:whole])
    word = (size & 0xFF) << 56 | int.from_bytes(data[whole:], "little")
    state[3] ^= word
    _rounds(state, 2)
    state[0] ^= word
    state[2] ^= 0xEE
    _rounds(state, 4)
    low = state[0] ^ state[1] ^ state[2] ^ state[3]
    state[1] ^= 0xDD
    _rounds(state, 4)
    return low, state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(state: list[int], count: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = v0 + v1 & _MASK64
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = v2 + v3 & _MASK64
        v3 = _rotated(v3, 16) ^ v2
        v0 = v0 + v3 & _MASK64
        v3 = _rotated(v3, 21) ^ v0
        v2 = v2 + v1 & _MASK64
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    state[:] = v0, v1, v2, v3


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK64


def read_keys(
    data: memoryview, state: Ints, secret: Ints, offsets: Ints, hashes: Ints, flags: Ints
) -> int:
    """Offset, hash and flags of each record in a piece of a batch's records.

    Of a record that continues in the next piece they are noted once its key and the size of its
    value are there, without `IS_BARE`; what follows is passed. What is behind KEYS_POSITION must
    be at the start of the next piece: the head of a record, or less than a word of its key.

    DONE, or MALFORMED where a record is, or offsets do not grow within the batch. KEYS_RECORDS and
    KEYS_REST are 0 once all are there.
    """
    position = row = 0
    while True:
        if state[layout.KEYS_REST]:
            if state[layout.KEYS_KEY_LEFT] >= 0:
                try:
                    position = _continue_key(data, position, state, row, offsets, hashes, flags)
                except OddError:
                    return layout.MALFORMED
                if state[layout.KEYS_KEY_LEFT] >= 0:
                    break
                row += 1
                state[layout.KEYS_RECORDS] -= 1
            passed = min(len(data) - position, state[layout.KEYS_REST])
            state[layout.KEYS_REST] -= passed
            position += passed
        if position == len(data) or not state[layout.KEYS_RECORDS]:
            break
        try:
            size, body = _varint_at(data, position, len(data) + _VARINT_BYTES, _VARINT_BYTES)
            if size < 1:
                return layout.MALFORMED
            if size <= len(data) - body:
                _note_key(
                    bytes(data[body : body + size]), state, secret, row, offsets, hashes, flags
                )
                position = body + size
                row += 1
                state[layout.KEYS_RECORDS] -= 1
            else:
                position = _begin_cut_record(data, body, body + size, state, secret)
        except IndexError:
            break
        except OddError:
            return layout.MALFORMED
    state[layout.KEYS_ROWS], state[layout.KEYS_POSITION] = row, position
    return layout.DONE


def _note_key(
    record: bytes, state: Ints, secret: Ints, row: int, offsets: Ints, hashes: Ints, flags: Ints
) -> None:
    """Note a whole record; OddError where it is malformed."""
    try:
        _, cursor = read_varint(record, 1, 10)
        delta, cursor = read_varint(record, cursor, _VARINT_BYTES)
        key_start, key_end, cursor = _field(record, cursor)
        value_start, value_end, cursor = _field(record, cursor)
    except IndexError:
        raise OddError from None
    _check_delta(delta, state)
    state[layout.KEYS_LEAST] = delta + 1
    offsets[row] = to_int64(state[layout.KEYS_BASE_OFFSET] + delta)
    flag = layout.IS_TOMBSTONE if value_end < value_start else 0
    if record[cursor:] == _NO_HEADERS:
        flag |= layout.IS_BARE
    hashes[2 * row] = hashes[2 * row + 1] = 0
    if key_end >= key_start:
        flag |= layout.HAS_KEY
        low, high = hash_of(record[key_start:key_end], int(secret[0]), int(secret[1]))
        hashes[2 * row], hashes[2 * row + 1] = low, high
    flags[row] = flag


def _check_delta(delta: int, state: Ints) -> None:
    if not state[layout.KEYS_LEAST] <= delta <= state[layout.KEYS_LAST_DELTA]:
        raise OddError


def _begin_cut_record(data: memoryview, body: int, end: int, state: Ints, secret: Ints) -> int:
    """Note in the state a record that ends behind the data; where its key begins."""
    _, cursor = _varint_at(data, body + 1, end, 10)
    delta, cursor = _varint_at(data, cursor, end, _VARINT_BYTES)
    _check_delta(delta, state)
    size, start = _varint_at(data, cursor, end, _VARINT_BYTES)
    if size > end - start:
        raise OddError
    state[layout.KEYS_REST] = end - start
    state[layout.KEYS_KEY_LEFT], state[layout.KEYS_KEY_SIZE] = max(size, 0), size
    state[layout.KEYS_DELTA] = delta
    _store_hash(state, _fresh_hash(int(secret[0]), int(secret[1])))
    return start


def _continue_key(
    data: memoryview,
    position: int,
    state: Ints,
    row: int,
    offsets: Ints,
    hashes: Ints,
    flags: Ints,
) -> int:
    """Hash what is there of the key of a cut record, and note the record once that is all."""
    words = [state[at] & _MASK64 for at in range(layout.KEYS_HASH, layout.KEYS_HASH + 4)]
    whole = min(len(data) - position, state[layout.KEYS_KEY_LEFT]) & ~7
    _absorb(words, bytes(data[position : position + whole]))
    _store_hash(state, words)
    position += whole
    state[layout.KEYS_REST] -= whole
    state[layout.KEYS_KEY_LEFT] -= whole
    end, key_end = position + state[layout.KEYS_REST], position + state[layout.KEYS_KEY_LEFT]
    if len(data) < key_end:
        return position
    try:
        value_size, start = _varint_at(data, key_end, end, _VARINT_BYTES)
    except IndexError:
        return position
    if value_size > end - start:
        raise OddError
    offsets[row] = to_int64(state[layout.KEYS_BASE_OFFSET] + state[layout.KEYS_DELTA])
    hashes[2 * row] = hashes[2 * row + 1] = 0
    flag = layout.IS_TOMBSTONE if value_size < 0 else 0
    if state[layout.KEYS_KEY_SIZE] >= 0:
        flag |= layout.HAS_KEY
        last = bytes(data[position:key_end])
        low, high = _hash_of_end(words, last, state[layout.KEYS_KEY_SIZE])
        hashes[2 * row], hashes[2 * row + 1] = low, high
    flags[row] = flag
    state[layout.KEYS_LEAST] = state[layout.KEYS_DELTA] + 1
    state[layout.KEYS_KEY_LEFT], state[layout.KEYS_REST] = -1, end - start
    return start


def _store_hash(state: Ints, words: list[int]) -> None:
    for number, word in enumerate(words):
        state[layout.KEYS_HASH + number] = to_int64(word)


def _varint_at(data: memoryview, position: int, end: int, longest: int) -> tuple[int, int]:
    """A number, and where it ends; IndexError where the data ends before it does.

    OddError where it is malformed, or would go beyond `end`.
    """
    try:
        value, size = read_varint(bytes(data[position : min(position + longest, end)]), 0, longest)
    except IndexError:
        if end <= len(data):
            raise OddError from None
        raise
    return value, position + size


def _field(record: bytes, position: int) -> tuple[int, int, int]:
    """Start and end of a key or value, which is before the start for null; and what follows."""
    size, start = read_varint(record, position, _VARINT_BYTES)
    if size < 0:
        return start, start - 1, start
    if start + size > len(record):
        raise OddError
    return start, start + size, start + size


def note(table: Ints, state: Ints, offsets: Ints, hashes: Ints, flags: Ints) -> int:
    """Keep the latest offset of each key; how many records were noted before there was no room."""
    for number in range(len(offsets)):
        offset = int(offsets[number])
        if not flags[number] & layout.HAS_KEY or offset < state[layout.NOTE_FROM]:
            continue
        low, high = int(hashes[2 * number]), int(hashes[2 * number + 1])
        slot = _slot_of(table, low, high)
        if slot < 0:
            return number
        if not table[slot + 2]:
            if not state[layout.NOTE_ROOM]:
                return number
            state[layout.NOTE_ROOM] -= 1
            table[slot], table[slot + 1] = low, high
        if offset + 1 > int(table[slot + 2]):
            table[slot + 2] = offset + 1
    return len(offsets)


def _slot_of(table: Ints, low: int, high: int) -> int:
    """The place of the slot that has a hash, or else of the free one for it; -1 if there is none.

    The search begins at the slot that the upper 32 bits of the first half name.
    """
    slots = len(table) // layout.SLOT_SIZE
    index = (low >> 32) * slots >> 32
    for _ in range(slots):
        at = layout.SLOT_SIZE * index
        if not table[at + 2] or (int(table[at]) == low and int(table[at + 1]) == high):
            return at
        index = index + 1 if index + 1 < slots else 0
    return -1


def find(table: Ints, hashes: Ints, latest: Ints) -> None:
    """The latest offset that was noted for each hash; -1 if there is none."""
    for number in range(len(latest)):
        slot = _slot_of(table, int(hashes[2 * number]), int(hashes[2 * number + 1]))
        latest[number] = -1 if slot < 0 else int(table[slot + 2]) - 1


def judge(table: Ints, state: Ints, offsets: Ints, hashes: Ints, flags: Ints, keep: Ints) -> None:
    """Which records stay: those of the latest offset of their key, and those not noted yet."""
    keeps_tombstones, keeps_keyless = state[layout.JUDGE_TOMBSTONES], state[layout.JUDGE_KEYLESS]
    kept = tombstones = keyless = 0
    for number in range(len(offsets)):
        offset, flag = int(offsets[number]), int(flags[number])
        keyless += not flag & layout.HAS_KEY
        stays = True
        if offset < state[layout.JUDGE_END]:
            if flag & layout.HAS_KEY:
                slot = _slot_of(table, int(hashes[2 * number]), int(hashes[2 * number + 1]))
                is_latest = slot < 0 or offset + 1 >= int(table[slot + 2])
                stays = is_latest and bool(keeps_tombstones or not flag & layout.IS_TOMBSTONE)
            else:
                stays = bool(keeps_keyless)
        keep[number] = stays
        kept += stays
        tombstones += bool(stays and flag & layout.IS_TOMBSTONE)
    state[layout.JUDGE_KEPT], state[layout.JUDGE_TOMBSTONES] = kept, tombstones
    state[layout.JUDGE_KEYLESS] = keyless


def retain(data: memoryview, state: Ints, keep: Ints, out: memoryview) -> int:
    """Write the records of a piece that stay, with shifted deltas; the bytes of a record but those.

    `keep` is of the records from the first on that begins in the piece. What is behind
    RETAIN_POSITION must be at the start of the next piece: the head of a record.

    DONE, FULL where `out` has no room, or MALFORMED.
    """
    time_shift, offset_shift = state[layout.RETAIN_TIME_SHIFT], state[layout.RETAIN_OFFSET_SHIFT]
    number = filled = 0
    state[layout.RETAIN_POSITION] = state[layout.RETAIN_ROWS] = 0
    position = min(len(data), state[layout.RETAIN_REST])
    state[layout.RETAIN_REST] -= position
    if position and state[layout.RETAIN_STAYS]:
        if position > len(out):
            return layout.FULL
        out[:position] = data[:position]
        filled = position
    while position < len(data) and number < len(keep):
        try:
            size, body = _varint_at(data, position, len(data) + _VARINT_BYTES, _VARINT_BYTES)
            if size < 1:
                return layout.MALFORMED
            end = body + size
            time, cursor = _varint_at(data, body + 1, end, 10)
            delta, cursor = _varint_at(data, cursor, end, _VARINT_BYTES)
        except IndexError:
            break
        except OddError:
            return layout.MALFORMED
        there = min(end, len(data))
        if keep[number]:
            timestamp = to_int64(state[layout.RETAIN_BASE] + time)
            if timestamp != NO_TIMESTAMP:
                if not state[layout.RETAIN_TIMED] or timestamp > state[layout.RETAIN_MAX]:
                    state[layout.RETAIN_MAX] = timestamp
                state[layout.RETAIN_TIMED] += 1
            written = bytearray(data[position:there])
            if time_shift or offset_shift:
                head = bytearray(data[body : body + 1])
                write_varlong(head, time + time_shift)
                write_varlong(head, delta - offset_shift)
                written.clear()
                write_varlong(written, len(head) + end - cursor)
                written += head
                written += data[cursor:there]
            if len(written) > len(out) - filled:
                return layout.FULL
            out[filled : filled + len(written)] = written
            filled += len(written)
        state[layout.RETAIN_STAYS], state[layout.RETAIN_REST] = int(keep[number]), end - there
        position = there
        number += 1
    state[layout.RETAIN_FILLED], state[layout.RETAIN_POSITION] = filled, position
    state[layout.RETAIN_ROWS] = number
    return layout.DONE


def step(known: int, kind: int, number: int) -> tuple[int, int]:
    """What is known of a producer's transaction after a batch, and what becomes of that.

    Args:
        known: what was known before it, as `layout` has it; 0 at first.
        kind: of the batch.
        number: of the aborted transaction, where one begins.

    Returns:
        What is known; and 1 where the batch may go, or twice the number of the aborted transaction
        plus 2 where it is the marker of one that had a batch, else 0.
    """
    committed = known & layout.IS_COMMITTED
    if kind == layout.BEGINS_ABORTED:
        return (number + 1) << layout.OPEN_SHIFT | committed, 0
    opened = known >> layout.OPEN_SHIFT
    if kind == layout.OF_RECORDS:
        return (known | layout.IS_SEEN, 1) if opened else (known | layout.IS_COMMITTED, 0)
    if kind == layout.OF_COMMIT:
        return known - committed, 0 if committed else 1
    if kind == layout.OF_ABORT:
        return committed, opened << 1 if known & layout.IS_SEEN else 1
    return known, 1 if kind == layout.OF_EMPTIED_MARKER else 0
