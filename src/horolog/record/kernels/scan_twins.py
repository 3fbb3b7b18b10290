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
from horolog.record.kernels.layout import (
    AFTER_MAX,
    APPEND_TIME,
    AT_ATTRIBUTES,
    AT_HEADER_COUNT,
    AT_HEADER_KEY,
    AT_HEADER_VALUE,
    AT_KEY,
    AT_OFFSET,
    AT_OR_AFTER,
    AT_RECORD,
    AT_TIMESTAMP,
    BAD_HEADER_COUNT,
    BAD_LENGTH,
    BASE,
    BEFORE_MAX,
    BEYOND_RECORD,
    CHECK,
    CHECK_KEYS,
    CHECK_TIMES,
    COUNT,
    DELTA,
    DISORDER,
    DONE,
    ENOUGH,
    EQUAL,
    FAULT_SIZE,
    FAULTS,
    FIRST_TIME,
    FOUND,
    HEADERS_LEFT,
    KEYLESS,
    LAST_TIME,
    LATENCIES,
    LATENCY_BOUNDS,
    LEFT,
    LEFTOVER,
    LONG_VARINT,
    MAX,
    MEASURE,
    MIN,
    MIN_DELTA,
    NEXT_DELTA,
    NEXT_RECORD,
    NOW,
    NULL_HEADER_KEY,
    NULL_KEYS,
    PHASE,
    POSITION,
    RECORDS_LEFT,
    SEARCH,
    SETBACKS,
    SKIP,
    SPARSE,
    TARGET,
    TIMED,
    TIMESTAMP,
    UNUSED_BYTES,
)
from horolog.record.timestamps import NO_TIMESTAMP

_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63

_SHORTEST_RECORD = 7  # a length and six fields of a byte each


class OddError(Exception):
    """A record is not as it should be; never leaves the twins."""


def times_for(piece: Buffer, state: MutableSequence[int]) -> "array[int]":
    """Room for the timestamps of all records that may end within a piece."""
    return array("q", bytes(8 * min(len(piece) // _SHORTEST_RECORD + 1, state[RECORDS_LEFT])))


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
    first = state[COUNT]
    position, status = 0, NEXT_RECORD
    while status == NEXT_RECORD:
        if state[PHASE] == AT_RECORD:
            position, status = _whole_records(data, position, state, times, first, faults)
            if status != DONE:
                break
        position, status = _fields(data, position, state, times, first, faults)
    state[POSITION] = position
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
    base, append_time = state[BASE], state[APPEND_TIME]
    start = position
    try:
        while state[RECORDS_LEFT]:
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
            state[KEYLESS] = key_size < 0
            start = position
            status = _finish_record(state, timestamp, delta, times, first, faults)
            if status != DONE:
                return position, status
    except (IndexError, OddError):
        pass
    return start, DONE


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
    count = state[COUNT]
    if times is not None:
        times[count - first] = timestamp
    keyless, state[KEYLESS] = state[KEYLESS], 0
    if keyless:
        state[NULL_KEYS] = 1
    if delta != count:
        state[SPARSE] = 1
    if delta < state[NEXT_DELTA]:
        state[DISORDER] = 1
    state[NEXT_DELTA] = delta + 1
    state[COUNT] = count + 1
    state[RECORDS_LEFT] -= 1
    lacks_key = state[CHECK] & CHECK_KEYS and keyless
    if faults is not None and (lacks_key or _is_untimely(state, timestamp)):
        at = state[FAULTS] * FAULT_SIZE
        faults[at], faults[at + 1], faults[at + 2] = count, timestamp, bool(lacks_key)
        state[FAULTS] += 1
        if at + 2 * FAULT_SIZE > len(faults):
            return ENOUGH
    if delta < state[MIN_DELTA]:
        return DONE
    if timestamp != NO_TIMESTAMP:
        if not state[TIMED]:
            state[MAX] = state[MIN] = state[FIRST_TIME] = timestamp
        elif timestamp > state[MAX]:
            state[MAX] = timestamp
        elif timestamp < state[MIN]:
            state[MIN] = timestamp
        state[SETBACKS] += state[TIMED] > 0 and timestamp < state[LAST_TIME]
        state[LAST_TIME] = timestamp
        state[TIMED] += 1
        if state[MEASURE]:
            state[LATENCIES + bisect_right(LATENCY_BOUNDS, state[NOW] - timestamp)] += 1
    search, target = state[SEARCH], state[TARGET]
    if (search == EQUAL and timestamp == target) or (
        search == AT_OR_AFTER and timestamp >= target and timestamp != NO_TIMESTAMP
    ):
        state[TIMESTAMP], state[DELTA] = timestamp, delta
        return FOUND
    return DONE


def _is_untimely(state: MutableSequence[int], timestamp: int) -> bool:
    """Differences wrap at 64 bits, as Java's."""
    if not state[CHECK] & CHECK_TIMES or timestamp == NO_TIMESTAMP:
        return False
    age = to_int64(state[NOW] - timestamp)
    return age > state[BEFORE_MAX] or to_int64(-age) > state[AFTER_MAX]


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
        if state[SKIP]:
            step = min(state[SKIP], end - position)
            position += step
            state[SKIP] -= step
            state[LEFT] -= step
            if state[SKIP]:
                return position, DONE
        phase = state[PHASE]
        if phase == AT_HEADER_KEY and not state[HEADERS_LEFT]:
            if state[LEFT]:
                return position, UNUSED_BYTES
            state[PHASE] = AT_RECORD
            status = _finish_record(state, state[TIMESTAMP], state[DELTA], times, first, faults)
            return position, NEXT_RECORD if status == DONE else status
        if phase != AT_RECORD and not state[LEFT]:
            return position, BEYOND_RECORD
        if position == end:
            return position, DONE
        if phase == AT_RECORD and not state[RECORDS_LEFT]:
            return position, LEFTOVER
        if phase == AT_ATTRIBUTES:
            position += 1
            state[LEFT] -= 1
            state[PHASE] = AT_TIMESTAMP
            continue
        longest = 10 if phase == AT_TIMESTAMP else 5
        within = longest if phase == AT_RECORD else min(longest, state[LEFT])
        piece = data[position : position + within]
        try:
            value, size = read_varint(piece, 0, longest)
        except IndexError:
            return position, BEYOND_RECORD if len(piece) == within else DONE
        except OddError:
            return position, LONG_VARINT
        if phase != AT_RECORD:
            state[LEFT] -= size
        status = _take(state, phase, value)
        if status != DONE:
            return position, status
        position += size


def _take(state: MutableSequence[int], phase: int, value: int) -> int:
    """Note the value of one field; DONE, or what is wrong with it."""
    if phase == AT_RECORD:
        if value < 0:
            return BAD_LENGTH
        state[LEFT] = value
    elif phase == AT_TIMESTAMP:
        state[TIMESTAMP] = state[BASE] if state[APPEND_TIME] else to_int64(state[BASE] + value)
    elif phase == AT_OFFSET:
        state[DELTA] = value
    elif phase == AT_HEADER_COUNT:
        if not 0 <= value <= state[LEFT]:
            return BAD_HEADER_COUNT
        state[HEADERS_LEFT] = value
    else:  # the length of a key or value
        if value > state[LEFT]:
            return BEYOND_RECORD
        if value < 0 and phase == AT_HEADER_KEY:
            return NULL_HEADER_KEY
        if phase == AT_KEY:
            state[KEYLESS] = value < 0
        state[SKIP] = max(0, value)
    if phase == AT_HEADER_VALUE:
        state[HEADERS_LEFT] -= 1
        state[PHASE] = AT_HEADER_KEY
    else:
        state[PHASE] = phase + 1
    return DONE
