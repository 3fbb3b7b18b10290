"""The text of the walk through the records of a batch, which may come in pieces of any size.

It contains no record: what has been read of the current one is in the state, an array of 64-bit
integers. At most the first bytes of one varint are handed back for the next call. `_whole_records`
is the fast way through records that are whole in the piece. At anything odd it steps back, and
`_fields` continues field by field and reports what is wrong.
"""

from horolog.record.kernels import layout
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
    """Note the record if it fails a check; whether that was the last there is room for."""
    check = state[layout.CHECK]
    lacks_key = check & layout.CHECK_KEYS != 0 and keyless
    if not lacks_key:
        if check & layout.CHECK_TIMES == 0 or timestamp == NO_TIMESTAMP:
            return False
        age = int64(state[layout.NOW] - timestamp)  # differences wrap at 64 bits, as Java's
        if age <= state[layout.BEFORE_MAX] and int64(-age) <= state[layout.AFTER_MAX]:
            return False
    at = state[layout.FAULTS] * layout.FAULT_SIZE
    if at + layout.FAULT_SIZE > len(faults):
        return False  # there is none at all
    faults[at] = count
    faults[at + 1] = timestamp
    faults[at + 2] = lacks_key
    state[layout.FAULTS] += 1
    return at + 2 * layout.FAULT_SIZE > len(faults)


def _finish_record(state, timestamp, delta, times, first, faults):
    count = state[layout.COUNT]
    if count - first < len(times):
        times[count - first] = timestamp
    keyless = state[layout.KEYLESS] != 0
    state[layout.KEYLESS] = 0
    if keyless:
        state[layout.NULL_KEYS] = 1
    if delta != count:
        state[layout.SPARSE] = 1
    if delta < state[layout.NEXT_DELTA]:
        state[layout.DISORDER] = 1
    state[layout.NEXT_DELTA] = delta + 1
    state[layout.COUNT] = count + 1
    state[layout.RECORDS_LEFT] -= 1
    if state[layout.CHECK] != 0 and _note_fault(state, count, timestamp, keyless, faults):
        return layout.ENOUGH
    if delta < state[layout.MIN_DELTA]:
        return layout.DONE
    if timestamp != NO_TIMESTAMP:
        if not state[layout.TIMED]:
            state[layout.MAX] = timestamp
            state[layout.MIN] = timestamp
            state[layout.FIRST_TIME] = timestamp
        elif timestamp > state[layout.MAX]:
            state[layout.MAX] = timestamp
        elif timestamp < state[layout.MIN]:
            state[layout.MIN] = timestamp
        if state[layout.TIMED] and timestamp < state[layout.LAST_TIME]:
            state[layout.SETBACKS] += 1
        state[layout.LAST_TIME] = timestamp
        state[layout.TIMED] += 1
        if state[layout.MEASURE]:
            state[layout.LATENCIES + _latency_class(_age(state[layout.NOW], timestamp))] += 1
    if _is_found(state[layout.SEARCH], state[layout.TARGET], timestamp):
        state[layout.TIMESTAMP] = timestamp
        state[layout.DELTA] = delta
        return layout.FOUND
    return layout.DONE


def _age(now, timestamp):
    """How old a record is; -1 if it is of the future, however far."""
    if timestamp > now:
        return -1
    if now >= 0 and timestamp < now - _POSITIVE:
        return _POSITIVE  # or more: the compiler may take differences not to wrap
    return now - timestamp


def _latency_class(age):
    reached = 0
    for bound in layout.LATENCY_BOUNDS:
        if age >= bound:
            reached += 1
    return reached


def _is_found(search, target, timestamp):
    if search == layout.AT_OR_AFTER:
        return timestamp >= target and timestamp != NO_TIMESTAMP
    return search == layout.EQUAL and timestamp == target


def _whole_records(data, position, state, times, first, faults):
    # In locals, not in the state: this is the loop that everything passes through.
    end = len(data)
    base = state[layout.BASE]
    append_time = state[layout.APPEND_TIME] != 0
    search, target, min_delta = state[layout.SEARCH], state[layout.TARGET], state[layout.MIN_DELTA]
    check = state[layout.CHECK]
    count = state[layout.COUNT]
    last = count + state[layout.RECORDS_LEFT]
    timed, largest, smallest = state[layout.TIMED], state[layout.MAX], state[layout.MIN]
    sparse, null_keys = state[layout.SPARSE], state[layout.NULL_KEYS]
    next_delta, disorder = state[layout.NEXT_DELTA], state[layout.DISORDER]
    last_time, setbacks = state[layout.LAST_TIME], state[layout.SETBACKS]
    measure, now = state[layout.MEASURE] != 0, state[layout.NOW]
    # Records of one batch are mostly in one class of latency: it is looked for when it changes.
    latency, in_class = 0, 0
    youngest, oldest = 0, -1
    status = layout.DONE
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
        count += 1
        if check != 0 and _note_fault(state, count - 1, timestamp, key_size < 0, faults):
            status = layout.ENOUGH
            break
        if delta < min_delta:
            continue
        if timestamp != NO_TIMESTAMP:
            if not timed:
                state[layout.FIRST_TIME] = timestamp
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
                    state[layout.LATENCIES + latency] += in_class
                    in_class = 0
                    latency = _latency_class(age)
                    youngest, oldest = -1, _POSITIVE
                    if latency > 0:
                        youngest = layout.LATENCY_BOUNDS[latency - 1]
                    if latency < layout.LATENCY_COUNT - 1:
                        oldest = layout.LATENCY_BOUNDS[latency] - 1
                in_class += 1
        if search != layout.NO_SEARCH and _is_found(search, target, timestamp):
            state[layout.TIMESTAMP] = timestamp
            state[layout.DELTA] = delta
            status = layout.FOUND
            break
    state[layout.COUNT] = count
    state[layout.RECORDS_LEFT] = last - count
    state[layout.TIMED], state[layout.MAX], state[layout.MIN] = timed, largest, smallest
    state[layout.SPARSE], state[layout.NULL_KEYS] = sparse, null_keys
    state[layout.NEXT_DELTA], state[layout.DISORDER] = next_delta, disorder
    state[layout.LAST_TIME], state[layout.SETBACKS] = last_time, setbacks
    state[layout.LATENCIES + latency] += in_class
    return position, status


def _take(state, phase, value):
    if phase == layout.AT_RECORD:
        if value < 0:
            return layout.BAD_LENGTH
        state[layout.LEFT] = value
    elif phase == layout.AT_TIMESTAMP:
        if state[layout.APPEND_TIME]:
            state[layout.TIMESTAMP] = state[layout.BASE]
        else:
            state[layout.TIMESTAMP] = int64(state[layout.BASE] + value)
    elif phase == layout.AT_OFFSET:
        state[layout.DELTA] = value
    elif phase == layout.AT_HEADER_COUNT:
        if value < 0 or value > state[layout.LEFT]:
            return layout.BAD_HEADER_COUNT
        state[layout.HEADERS_LEFT] = value
    else:
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


def _fields(data, position, state, times, first, faults):
    end = len(data)
    while True:
        if state[layout.SKIP] > 0:
            step = min(state[layout.SKIP], end - position)
            position += step
            state[layout.SKIP] -= step
            state[layout.LEFT] -= step
            if state[layout.SKIP] > 0:
                return position, layout.DONE
        phase = state[layout.PHASE]
        if phase == layout.AT_HEADER_KEY and state[layout.HEADERS_LEFT] == 0:
            if state[layout.LEFT] > 0:
                return position, layout.UNUSED_BYTES
            state[layout.PHASE] = layout.AT_RECORD
            timestamp, delta = state[layout.TIMESTAMP], state[layout.DELTA]
            status = _finish_record(state, timestamp, delta, times, first, faults)
            return position, layout.NEXT_RECORD if status == layout.DONE else status
        if phase != layout.AT_RECORD and state[layout.LEFT] == 0:
            return position, layout.BEYOND_RECORD
        if position >= end:
            return position, layout.DONE
        if phase == layout.AT_RECORD and state[layout.RECORDS_LEFT] == 0:
            return position, layout.LEFTOVER
        if phase == layout.AT_ATTRIBUTES:
            position += 1
            state[layout.LEFT] -= 1
            state[layout.PHASE] = layout.AT_TIMESTAMP
            continue
        longest = 10 if phase == layout.AT_TIMESTAMP else 5
        within = longest if phase == layout.AT_RECORD else min(longest, state[layout.LEFT])
        limit = min(end, position + within)
        value, after = read_varint(data, position, limit, longest)
        if after == TOO_LONG:
            return position, layout.LONG_VARINT
        if after == TRUNCATED:
            if limit - position == within:
                return position, layout.BEYOND_RECORD
            return position, layout.DONE
        if phase != layout.AT_RECORD:
            state[layout.LEFT] -= after - position
        status = _take(state, phase, value)
        if status != layout.DONE:
            return position, status
        position = after


@kernel
def walk(data: Bytes, position: int, state: Int64s, times: Int64s, faults: Int64s) -> int:
    """Go through one piece of records; DONE, FOUND, ENOUGH, or what is wrong at POSITION.

    Each record that ends in this piece leaves its timestamp in `times`, which has room for all of
    them or for none. A record that fails CHECK is noted in `faults`, FAULT_SIZE integers each,
    until these are full.
    """
    first = state[layout.COUNT]
    status = layout.NEXT_RECORD
    while status == layout.NEXT_RECORD:
        if state[layout.PHASE] == layout.AT_RECORD:
            position, status = _whole_records(data, position, state, times, first, faults)
            if status != layout.DONE:
                break
        position, status = _fields(data, position, state, times, first, faults)
    state[layout.POSITION] = position
    return status
