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
    state = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D ^ 0xEE,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    whole = len(data) & ~7
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append((len(data) & 0xFF) << 56 | int.from_bytes(data[whole:], "little"))
    for word in words:
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
    """Offset, hash and flags of each record of a batch.

    DONE, or MALFORMED where they are not as many as there must be, or their offsets do not grow
    within the batch.
    """
    first, second = int(secret[0]), int(secret[1])
    base, least, last = state[layout.KEYS_BASE_OFFSET], 0, state[layout.KEYS_LAST_DELTA]
    position = 0
    for number in range(state[layout.KEYS_RECORDS]):
        try:
            record, position = _record_at(data, position)
            _, cursor = read_varint(record, 1, 10)
            delta, cursor = read_varint(record, cursor, _VARINT_BYTES)
            key_start, key_end, cursor = _field(record, cursor)
            value_start, value_end, cursor = _field(record, cursor)
        except (IndexError, OddError):
            return layout.MALFORMED
        if not least <= delta <= last:
            return layout.MALFORMED
        least = delta + 1
        offsets[number] = to_int64(base + delta)
        flag = layout.IS_TOMBSTONE if value_end < value_start else 0
        if record[cursor:] == _NO_HEADERS:
            flag |= layout.IS_BARE
        hashes[2 * number] = hashes[2 * number + 1] = 0
        if key_end >= key_start:
            flag |= layout.HAS_KEY
            low, high = hash_of(record[key_start:key_end], first, second)
            hashes[2 * number], hashes[2 * number + 1] = low, high
        flags[number] = flag
    return layout.DONE if position == len(data) else layout.MALFORMED


def _record_at(data: memoryview, position: int) -> tuple[bytes, int]:
    """A record without its length, and where it ends."""
    size, length = read_varint(bytes(data[position : position + _VARINT_BYTES]), 0, _VARINT_BYTES)
    body, end = position + length, position + length + size
    if size < 1 or end > len(data):
        raise OddError
    return bytes(data[body:end]), end


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
    """Write the records that stay, with shifted deltas; the bytes of a record but those stay.

    DONE, FULL where `out` has no room, or MALFORMED.
    """
    time_shift, offset_shift = state[layout.RETAIN_TIME_SHIFT], state[layout.RETAIN_OFFSET_SHIFT]
    position = filled = timed = 0
    largest = NO_TIMESTAMP
    for number in range(len(keep)):
        start = position
        try:
            record, position = _record_at(data, position)
            time, cursor = read_varint(record, 1, 10)
            delta, cursor = read_varint(record, cursor, _VARINT_BYTES)
        except (IndexError, OddError):
            return layout.MALFORMED
        if not keep[number]:
            continue
        timestamp = to_int64(state[layout.RETAIN_BASE] + time)
        if timestamp != NO_TIMESTAMP:
            largest = timestamp if not timed else max(largest, timestamp)
            timed += 1
        written = bytearray(data[start:position])
        if time_shift or offset_shift:
            head = bytearray(record[:1])
            write_varlong(head, time + time_shift)
            write_varlong(head, delta - offset_shift)
            written.clear()
            write_varlong(written, len(head) + len(record) - cursor)
            written += head
            written += record[cursor:]
        if len(written) > len(out) - filled:
            return layout.FULL
        out[filled : filled + len(written)] = written
        filled += len(written)
    if position != len(data):
        return layout.MALFORMED
    state[layout.RETAIN_FILLED] = filled
    state[layout.RETAIN_TIMED], state[layout.RETAIN_MAX] = timed, largest
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
