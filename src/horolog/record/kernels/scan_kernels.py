"""The text of the walk through the records of a batch, which may come in pieces of any size.

The walk holds no record: the fields read so far are in the state, an array of 64-bit integers. At
most the first bytes of one varint are returned for the next call. `_whole_records` is the fast way
through records that are whole in the piece. At anything unusual it steps back, and `_fields`
continues field by field and reports faults.
"""

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
    BEYOND_RECORD,
    CHECK,
    CHECK_KEYS,
    CHECK_TIMES,
    COUNT,
    DELTA,
    DISORDER,
    DONE,
    EARLIEST,
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
    LATENCY_COUNT,
    LEFT,
    LEFTOVER,
    LONG_VARINT,
    LONGEST,
    MAX,
    MEASURE,
    MIN,
    MIN_DELTA,
    NEXT_DELTA,
    NEXT_RECORD,
    NO_SEARCH,
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
from horolog.record.kernels.machine import Bytes, Int64s, int64, kernel
from horolog.record.kernels.record_kernels import (
    TOO_LONG,
    TRUNCATED,
    read_fields,
    read_varint,
)
from horolog.record.timestamps import NO_TIMESTAMP

_POSITIVE = (1 << 63) - 1


def _note_fault(state, count, timestamp, keyless, faults):
    """Note the record if it fails a check; return True if that took the last room."""
    check = state[CHECK]
    lacks_key = check & CHECK_KEYS != 0 and keyless
    if not lacks_key:
        if check & CHECK_TIMES == 0 or timestamp == NO_TIMESTAMP:
            return False
        ahead = int64(timestamp - state[NOW])  # wraps at 64 bits, as Java's
        if timestamp >= state[EARLIEST] and ahead <= state[AFTER_MAX]:
            return False
    at = state[FAULTS] * FAULT_SIZE
    if at + FAULT_SIZE > len(faults):
        return False  # there is none at all
    faults[at] = count
    faults[at + 1] = timestamp
    faults[at + 2] = lacks_key
    state[FAULTS] += 1
    return at + 2 * FAULT_SIZE > len(faults)


def _finish_record(state, timestamp, delta, times, first, faults):
    count = state[COUNT]
    if count - first < len(times):
        times[count - first] = timestamp
    keyless = state[KEYLESS] != 0
    state[KEYLESS] = 0
    if keyless:
        state[NULL_KEYS] = 1
    if delta != count:
        state[SPARSE] = 1
    if delta < state[NEXT_DELTA]:
        state[DISORDER] = 1
    state[NEXT_DELTA] = delta + 1
    state[COUNT] = count + 1
    state[RECORDS_LEFT] -= 1
    if state[CHECK] != 0 and _note_fault(state, count, timestamp, keyless, faults):
        return ENOUGH
    if delta < state[MIN_DELTA]:
        return DONE
    if timestamp != NO_TIMESTAMP:
        if not state[TIMED]:
            state[MAX] = timestamp
            state[MIN] = timestamp
            state[FIRST_TIME] = timestamp
        elif timestamp > state[MAX]:
            state[MAX] = timestamp
        elif timestamp < state[MIN]:
            state[MIN] = timestamp
        if state[TIMED] and timestamp < state[LAST_TIME]:
            state[SETBACKS] += 1
        state[LAST_TIME] = timestamp
        state[TIMED] += 1
        if state[MEASURE]:
            state[LATENCIES + _latency_class(_age(state[NOW], timestamp))] += 1
    if _is_found(state[SEARCH], state[TARGET], timestamp):
        state[TIMESTAMP] = timestamp
        state[DELTA] = delta
        return FOUND
    return DONE


def _age(now, timestamp):
    """Return the age of a record; -1 if it is of the future."""
    if timestamp > now:
        return -1
    if now >= 0 and timestamp < now - _POSITIVE:
        return _POSITIVE  # or more: the compiler may take differences not to wrap
    return now - timestamp


def _latency_class(age):
    reached = 0
    for bound in LATENCY_BOUNDS:
        if age >= bound:
            reached += 1
    return reached


def _is_found(search, target, timestamp):
    if search == AT_OR_AFTER:
        return timestamp >= target and timestamp != NO_TIMESTAMP
    return search == EQUAL and timestamp == target


def _whole_records(data, position, state, times, first, faults):
    # In locals, not in the state: this is the loop that everything passes through.
    end = len(data)
    base = state[BASE]
    append_time = state[APPEND_TIME] != 0
    search, target, min_delta = state[SEARCH], state[TARGET], state[MIN_DELTA]
    check = state[CHECK]
    count = state[COUNT]
    last = count + state[RECORDS_LEFT]
    timed, largest, smallest = state[TIMED], state[MAX], state[MIN]
    sparse, null_keys = state[SPARSE], state[NULL_KEYS]
    next_delta, disorder = state[NEXT_DELTA], state[DISORDER]
    longest = state[LONGEST]
    last_time, setbacks = state[LAST_TIME], state[SETBACKS]
    measure, now = state[MEASURE] != 0, state[NOW]
    # Records of one batch are mostly in one class of latency: it is looked for when it changes.
    latency, in_class = 0, 0
    youngest, oldest = 0, -1
    status = DONE
    while count < last:
        size, body = read_varint(data, position, end, 5)
        if body < 0 or size < 1 or size > end - body:
            break
        body_end = body + size
        time, delta, key_size, _, _, _, _, headers_start = read_fields(data, body, body_end)
        if headers_start < 0:
            break
        timestamp = base if append_time else int64(base + time)
        position = body_end
        if len(times) > 0:
            times[count - first] = timestamp
        null_keys |= key_size < 0
        sparse |= delta != count
        disorder |= delta < next_delta
        next_delta = delta + 1
        longest = max(longest, size)
        count += 1
        if check != 0 and _note_fault(state, count - 1, timestamp, key_size < 0, faults):
            status = ENOUGH
            break
        if delta < min_delta:
            continue
        if timestamp != NO_TIMESTAMP:
            if not timed:
                state[FIRST_TIME] = timestamp
                largest = timestamp
                smallest = timestamp
            elif timestamp > largest:
                largest = timestamp
            elif timestamp < smallest:
                smallest = timestamp
            setbacks += timed != 0 and timestamp < last_time
            last_time = timestamp
            timed += 1
            if measure:
                age = _age(now, timestamp)
                if age < youngest or age > oldest:
                    state[LATENCIES + latency] += in_class
                    in_class = 0
                    latency = _latency_class(age)
                    youngest, oldest = -1, _POSITIVE
                    if latency > 0:
                        youngest = LATENCY_BOUNDS[latency - 1]
                    if latency < LATENCY_COUNT - 1:
                        oldest = LATENCY_BOUNDS[latency] - 1
                in_class += 1
        if search != NO_SEARCH and _is_found(search, target, timestamp):
            state[TIMESTAMP] = timestamp
            state[DELTA] = delta
            status = FOUND
            break
    state[COUNT] = count
    state[RECORDS_LEFT] = last - count
    state[TIMED], state[MAX], state[MIN] = timed, largest, smallest
    state[SPARSE], state[NULL_KEYS] = sparse, null_keys
    state[NEXT_DELTA], state[DISORDER] = next_delta, disorder
    state[LONGEST] = longest
    state[LAST_TIME], state[SETBACKS] = last_time, setbacks
    state[LATENCIES + latency] += in_class
    return position, status


def _take(state, phase, value):
    if phase == AT_RECORD:
        if value < 0:
            return BAD_LENGTH
        state[LEFT] = value
        state[LONGEST] = max(state[LONGEST], value)
    elif phase == AT_TIMESTAMP:
        if state[APPEND_TIME]:
            state[TIMESTAMP] = state[BASE]
        else:
            state[TIMESTAMP] = int64(state[BASE] + value)
    elif phase == AT_OFFSET:
        state[DELTA] = value
    elif phase == AT_HEADER_COUNT:
        if value < 0 or value > state[LEFT]:
            return BAD_HEADER_COUNT
        state[HEADERS_LEFT] = value
    else:
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


def _fields(data, position, state, times, first, faults):
    end = len(data)
    while True:
        if state[SKIP] > 0:
            step = min(state[SKIP], end - position)
            position += step
            state[SKIP] -= step
            state[LEFT] -= step
            if state[SKIP] > 0:
                return position, DONE
        phase = state[PHASE]
        if phase == AT_HEADER_KEY and state[HEADERS_LEFT] == 0:
            if state[LEFT] > 0:
                return position, UNUSED_BYTES
            state[PHASE] = AT_RECORD
            timestamp, delta = state[TIMESTAMP], state[DELTA]
            status = _finish_record(state, timestamp, delta, times, first, faults)
            return position, NEXT_RECORD if status == DONE else status
        if phase != AT_RECORD and state[LEFT] == 0:
            return position, BEYOND_RECORD
        if position >= end:
            return position, DONE
        if phase == AT_RECORD and state[RECORDS_LEFT] == 0:
            return position, LEFTOVER
        if phase == AT_ATTRIBUTES:
            position += 1
            state[LEFT] -= 1
            state[PHASE] = AT_TIMESTAMP
            continue
        longest = 10 if phase == AT_TIMESTAMP else 5
        within = longest if phase == AT_RECORD else min(longest, state[LEFT])
        limit = min(end, position + within)
        value, after = read_varint(data, position, limit, longest)
        if after == TOO_LONG:
            return position, LONG_VARINT
        if after == TRUNCATED:
            if limit - position == within:
                return position, BEYOND_RECORD
            return position, DONE
        if phase != AT_RECORD:
            state[LEFT] -= after - position
        status = _take(state, phase, value)
        if status != DONE:
            return position, status
        position = after


@kernel
def walk(data: Bytes, position: int, state: Int64s, times: Int64s, faults: Int64s) -> int:
    """Walk through a piece of records; return DONE, FOUND, ENOUGH, or the fault at POSITION.

    Each record that ends in this piece leaves its timestamp in `times`, which has room for all of
    them or for none. A record that fails CHECK is noted in `faults` by FAULT_SIZE integers, while
    there is room.
    """
    first = state[COUNT]
    status = NEXT_RECORD
    while status == NEXT_RECORD:
        if state[PHASE] == AT_RECORD:
            position, status = _whole_records(data, position, state, times, first, faults)
            if status != DONE:
                break
        position, status = _fields(data, position, state, times, first, faults)
    state[POSITION] = position
    return status
