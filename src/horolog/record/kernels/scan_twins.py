"""The plain-Python twin of every kernel; it defines what the kernel must answer.

Twins serve until the kernels are loaded; from then on the kernels do, since even
for a single record calling one costs less than this. They run over `bytes`:
numpy's scalars would wrap around at 8 bits.

`walk` goes through the records of a batch that arrives in pieces of any size.
It holds no record: what has been read of the current one is in the state, an
array of 64-bit integers that twin and kernel share, and at most the first bytes
of one varint are handed back for the next call. `_whole_records` is the fast
way through records that are whole in the piece; at anything odd it steps
back, and `_fields` goes field by field and names what is wrong.
"""

from array import array
from bisect import bisect_right
from collections.abc import MutableSequence
from typing import Final

from horolog.buffers import Buffer
from horolog.record.kernels import layout
from horolog.record.timestamps import NO_TIMESTAMP

_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63

_SHORTEST_RECORD = 7  # a length and six fields of a byte each


class OddError(Exception):
    """A record is not as it should be; never leaves the twins."""


def times_for(piece: Buffer, state: MutableSequence[int]) -> "array[int]":
    """Room for the timestamps of all records that may end within a piece."""
    room = min(len(piece) // _SHORTEST_RECORD + 1, state[layout.RECORDS_LEFT])
    return array("q", bytes(8 * room))


def walk(
    piece: Buffer,
    state: MutableSequence[int],
    times: MutableSequence[int] | None = None,
    faults: MutableSequence[int] | None = None,
) -> int:
    """Go through one piece of records; DONE, FOUND, ENOUGH, or what is wrong at POSITION.

    Each record that ends in this piece leaves its timestamp in `times`, which must
    have the size that `times_for` gives. A record that fails CHECK is noted in `faults`,
    FAULT_SIZE integers each, until these are full.
    """
    data = bytes(piece)
    first = state[layout.COUNT]
    position, status = 0, layout.NEXT_RECORD
    while status == layout.NEXT_RECORD:
        if state[layout.PHASE] == layout.AT_RECORD:
            position, status = _whole_records(data, position, state, times, first, faults)
            if status != layout.DONE:
                break
        position, status = _fields(data, position, state, times, first, faults)
    state[layout.POSITION] = position
    return status


def _whole_records(
    data: bytes,
    position: int,
    state: MutableSequence[int],
    times: MutableSequence[int] | None,
    first: int,
    faults: MutableSequence[int] | None,
) -> tuple[int, int]:
    """Go through the sound records that are whole in `data`."""
    end = len(data)
    base, append_time = state[layout.BASE], state[layout.APPEND_TIME]
    start = position
    try:
        while state[layout.RECORDS_LEFT]:
            start = position
            size, position = read_varint(data, position, 5)
            body_end = position + size
            if size < 0 or body_end > end:
                break
            timestamp, position = read_varint(data, position + 1, 10)
            timestamp = base if append_time else to_int64(base + timestamp)
            delta, position = read_varint(data, position, 5)
            key_size, position = read_varint(data, position, 5)
            if key_size > 0:
                position += key_size
            size, position = read_varint(data, position, 5)
            if size > 0:
                position += size
            count, position = read_varint(data, position, 5)
            if count:
                position = _headers(data, position, count)
            if position != body_end:
                break
            state[layout.KEYLESS] = key_size < 0
            start = position
            status = _finish_record(state, timestamp, delta, times, first, faults)
            if status != layout.DONE:
                return position, status
    except (IndexError, OddError):
        pass
    return start, layout.DONE


def _headers(data: bytes, position: int, count: int) -> int:
    if count < 0:
        raise OddError
    for _ in range(count):
        length, position = read_varint(data, position, 5)
        if length < 0:
            raise OddError
        length, position = read_varint(data, position + length, 5)
        if length > 0:
            position += length
    return position


def read_varint(data: bytes, position: int, longest: int) -> tuple[int, int]:
    """A zigzag number of at most `longest` bytes, and where it ends.

    Raises:
        IndexError: `data` ends before the number does.
        OddError: the number is longer.
    """
    raw = data[position]
    if raw <= 0x7F:
        return raw >> 1 ^ -(raw & 1), position + 1
    raw &= 0x7F
    for index in range(1, longest):
        byte = data[position + index]
        raw |= (byte & 0x7F) << 7 * index
        if byte <= 0x7F:
            raw &= _MASK32 if longest == 5 else _MASK64  # Java drops the bits that do not fit
            return raw >> 1 ^ -(raw & 1), position + index + 1
    raise OddError


def to_int64(value: int) -> int:
    """`value` as Java's 64 bits hold it."""
    if -_SIGN <= value < _SIGN:
        return value
    return (value + _SIGN & _MASK64) - _SIGN


def _finish_record(
    state: MutableSequence[int],
    timestamp: int,
    delta: int,
    times: MutableSequence[int] | None,
    first: int,
    faults: MutableSequence[int] | None,
) -> int:
    """Count a record in: DONE, FOUND if it is the one looked for, or ENOUGH."""
    count = state[layout.COUNT]
    if times is not None:
        times[count - first] = timestamp
    keyless, state[layout.KEYLESS] = state[layout.KEYLESS], 0
    if keyless:
        state[layout.NULL_KEYS] = 1
    if delta != count:
        state[layout.SPARSE] = 1
    if delta < state[layout.NEXT_DELTA]:
        state[layout.DISORDER] = 1
    state[layout.NEXT_DELTA] = delta + 1
    state[layout.COUNT] = count + 1
    state[layout.RECORDS_LEFT] -= 1
    lacks_key = state[layout.CHECK] & layout.CHECK_KEYS and keyless
    if faults is not None and (lacks_key or _is_untimely(state, timestamp)):
        at = state[layout.FAULTS] * layout.FAULT_SIZE
        faults[at], faults[at + 1], faults[at + 2] = count, timestamp, bool(lacks_key)
        state[layout.FAULTS] += 1
        if at + 2 * layout.FAULT_SIZE > len(faults):
            return layout.ENOUGH
    if delta < state[layout.MIN_DELTA]:
        return layout.DONE
    if timestamp != NO_TIMESTAMP:
        if not state[layout.TIMED]:
            state[layout.MAX] = state[layout.MIN] = state[layout.FIRST_TIME] = timestamp
        elif timestamp > state[layout.MAX]:
            state[layout.MAX] = timestamp
        elif timestamp < state[layout.MIN]:
            state[layout.MIN] = timestamp
        state[layout.SETBACKS] += state[layout.TIMED] > 0 and timestamp < state[layout.LAST_TIME]
        state[layout.LAST_TIME] = timestamp
        state[layout.TIMED] += 1
        if state[layout.MEASURE]:
            state[
                layout.LATENCIES
                + bisect_right(layout.LATENCY_BOUNDS, state[layout.NOW] - timestamp)
            ] += 1
    search, target = state[layout.SEARCH], state[layout.TARGET]
    if (search == layout.EQUAL and timestamp == target) or (
        search == layout.AT_OR_AFTER and timestamp >= target and timestamp != NO_TIMESTAMP
    ):
        state[layout.TIMESTAMP], state[layout.DELTA] = timestamp, delta
        return layout.FOUND
    return layout.DONE


def _is_untimely(state: MutableSequence[int], timestamp: int) -> bool:
    """Differences wrap at 64 bits, as Java's."""
    if not state[layout.CHECK] & layout.CHECK_TIMES or timestamp == NO_TIMESTAMP:
        return False
    age = to_int64(state[layout.NOW] - timestamp)
    return age > state[layout.BEFORE_MAX] or to_int64(-age) > state[layout.AFTER_MAX]


def _fields(
    data: bytes,
    position: int,
    state: MutableSequence[int],
    times: MutableSequence[int] | None,
    first: int,
    faults: MutableSequence[int] | None,
) -> tuple[int, int]:
    """Go on field by field to the end of the record, of the piece, or to what is wrong."""
    end = len(data)
    while True:
        if state[layout.SKIP]:
            step = min(state[layout.SKIP], end - position)
            position += step
            state[layout.SKIP] -= step
            state[layout.LEFT] -= step
            if state[layout.SKIP]:
                return position, layout.DONE
        phase = state[layout.PHASE]
        if phase == layout.AT_HEADER_KEY and not state[layout.HEADERS_LEFT]:
            if state[layout.LEFT]:
                return position, layout.UNUSED_BYTES
            state[layout.PHASE] = layout.AT_RECORD
            status = _finish_record(
                state, state[layout.TIMESTAMP], state[layout.DELTA], times, first, faults
            )
            return position, layout.NEXT_RECORD if status == layout.DONE else status
        if phase != layout.AT_RECORD and not state[layout.LEFT]:
            return position, layout.BEYOND_RECORD
        if position == end:
            return position, layout.DONE
        if phase == layout.AT_RECORD and not state[layout.RECORDS_LEFT]:
            return position, layout.LEFTOVER
        if phase == layout.AT_ATTRIBUTES:
            position += 1
            state[layout.LEFT] -= 1
            state[layout.PHASE] = layout.AT_TIMESTAMP
            continue
        longest = 10 if phase == layout.AT_TIMESTAMP else 5
        within = longest if phase == layout.AT_RECORD else min(longest, state[layout.LEFT])
        piece = data[position : position + within]
        try:
            value, size = read_varint(piece, 0, longest)
        except IndexError:
            return position, layout.BEYOND_RECORD if len(piece) == within else layout.DONE
        except OddError:
            return position, layout.LONG_VARINT
        if phase != layout.AT_RECORD:
            state[layout.LEFT] -= size
        status = _take(state, phase, value)
        if status != layout.DONE:
            return position, status
        position += size


def _take(state: MutableSequence[int], phase: int, value: int) -> int:
    """Note the value of one field; DONE, or what is wrong with it."""
    if phase == layout.AT_RECORD:
        if value < 0:
            return layout.BAD_LENGTH
        state[layout.LEFT] = value
    elif phase == layout.AT_TIMESTAMP:
        base = state[layout.BASE]
        state[layout.TIMESTAMP] = base if state[layout.APPEND_TIME] else to_int64(base + value)
    elif phase == layout.AT_OFFSET:
        state[layout.DELTA] = value
    elif phase == layout.AT_HEADER_COUNT:
        if not 0 <= value <= state[layout.LEFT]:
            return layout.BAD_HEADER_COUNT
        state[layout.HEADERS_LEFT] = value
    else:  # the length of a key or value
        if value > state[layout.LEFT]:
            return layout.BEYOND_RECORD
        if value < 0 and phase == layout.AT_HEADER_KEY:
            return layout.NULL_HEADER_KEY
        if phase == layout.AT_KEY:
            state[layout.KEYLESS] = value < 0
        state[layout.SKIP] = max(0, value)
    if phase == layout.AT_HEADER_VALUE:
        state[layout.HEADERS_LEFT] -= 1
        state[layout.PHASE] = layout.AT_HEADER_KEY
    else:
        state[layout.PHASE] = phase + 1
    return layout.DONE
