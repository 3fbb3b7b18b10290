"""The plain-Python twins of the kernels between records and columns.

`gather` appends the records of stretches of data to growing columns, `scatter` writes rows
of columns as records. Both stop where the room ends and go on from their state, an
array of 64-bit integers. Neither names what is wrong with a record: `gather` only
says that something is, and the walk of `horolog.record.twins` finds out what.
"""

from typing import Any, Final, NamedTuple

from horolog.record.builder import record_bytes
from horolog.record.twins import OddError, read_varint, to_int64

# A plan has six numbers for each stretch of records in the data, all of one batch.
START: Final = 0
END: Final = 1
RECORDS_LEFT: Final = 2  # counted down
BASE_OFFSET: Final = 3
BASE: Final = 4  # the base timestamp; with APPEND_TIME the timestamp of every record
APPEND_TIME: Final = 5
STRETCH_SIZE: Final = 6

# gather's state: what is wanted, both ends included ...
FIRST_MS: Final = 0
LAST_MS: Final = 1
FIRST_OFFSET: Final = 2
LAST_OFFSET: Final = 3
WANTED: Final = 4  # bits
# ... how full the columns are ...
ROWS: Final = 5
KEY_BYTES: Final = 6
VALUE_BYTES: Final = 7
HEADERS: Final = 8
HEADER_KEY_BYTES: Final = 9
HEADER_VALUE_BYTES: Final = 10
BYTES_LEFT: Final = 11  # of the room that all columns share
SEEN: Final = 12  # bits
# ... and how far it has come.
STRETCH: Final = 13  # the stretch it is in; past the last one when it is through
POSITION: Final = 14  # where the next record of that stretch begins
NEED: Final = 15  # size of the record there, when it is not there as a whole or has no room
GATHER_STATE_SIZE: Final = 16

WANT_KEY: Final = 1
WANT_VALUE: Final = 2
WANT_HEADERS: Final = 4

NULL_KEY: Final = 1
NULL_VALUE: Final = 2
NULL_HEADER_VALUE: Final = 4
NOT_ASCII: Final = 8  # in a header's key

DONE: Final = 0
CUT_OFF: Final = 1
FULL: Final = 2
MALFORMED: Final = 3

# scatter's state.
ROW: Final = 0  # the next row to write
FIRST_ROW: Final = 1  # of this batch; offset deltas count from it
BASE_TIMESTAMP: Final = 2
MAX_TIMESTAMP: Final = 3  # of the rows that have a timestamp, -1 until there is one
TIMED: Final = 4
FILLED: Final = 5  # bytes written to out
RECORD_BYTES: Final = 6  # of the record that had no room
SCATTER_STATE_SIZE: Final = 7

ROW_BYTES: Final = 32  # what a row costs besides its keys and values, or more
HEADER_BYTES: Final = 9

Ints = Any  # integers by position: array, memoryview or numpy array
_Headers = list[tuple[bytes, bytes | None]]


class _Record(NamedTuple):
    time: int
    delta: int
    key: bytes | None
    value: bytes | None
    headers: _Headers


class Outputs(NamedTuple):
    """Columns as Arrow has them: `ends[i + 1]` says where row i ends in its data.

    `ends[0]` is zero; `valid` has a byte a row. There must be room for BYTES_LEFT bytes
    in every data, and for BYTES_LEFT by ROW_BYTES and HEADER_BYTES rows and headers.
    """

    offsets: Ints
    times: Ints
    types: Ints
    key_ends: Ints
    key_data: Any
    key_valid: Ints
    value_ends: Ints
    value_data: Any
    value_valid: Ints
    header_ends: Ints
    header_key_ends: Ints
    header_key_data: Any
    header_value_ends: Ints
    header_value_data: Any
    header_value_valid: Ints


def gather(data: memoryview, plan: Ints, state: Ints, *outputs: Any) -> int:
    """Append the wanted records of all stretches; DONE, CUT_OFF, FULL or MALFORMED.

    CUT_OFF is a record that goes on past its stretch. CUT_OFF and FULL leave STRETCH and
    POSITION at the record to go on with, and in NEED what it takes, if that is known.
    """
    out = Outputs(*outputs)
    state[NEED] = 0
    while state[STRETCH] < len(plan) // STRETCH_SIZE:
        at = state[STRETCH] * STRETCH_SIZE
        end = plan[at + END]
        position = state[POSITION] = max(state[POSITION], plan[at + START])
        if not plan[at + RECORDS_LEFT]:
            if position != end:
                return MALFORMED
            state[STRETCH] += 1
            continue
        try:
            size, length = read_varint(bytes(data[position : min(position + 5, end)]), 0, 5)
        except IndexError:
            return CUT_OFF
        except OddError:
            return MALFORMED
        body = position + length
        if size < 0:
            return MALFORMED
        if size > end - body:
            state[NEED] = length + size
            return CUT_OFF
        base = plan[at + BASE]
        record = _read_record(bytes(data[body : body + size]), base, plan[at + APPEND_TIME])
        if record is None:
            return MALFORMED
        offset = to_int64(plan[at + BASE_OFFSET] + record.delta)
        if _is_wanted(state, record.time, offset):
            if not _has_room(state, record):
                return FULL
            row = state[ROWS]
            out.offsets[row], out.times[row] = offset, record.time
            out.types[row] = plan[at + APPEND_TIME]
            _append_record(state, out, record)
            state[ROWS] = row + 1
        plan[at + RECORDS_LEFT] -= 1
        state[POSITION] = body + size
    return DONE


def _has_room(state: Ints, record: _Record) -> bool:
    """Take what the record costs from BYTES_LEFT, or say in NEED what it would."""
    cost = ROW_BYTES
    if state[WANTED] & WANT_KEY:
        cost += len(record.key or b"")
    if state[WANTED] & WANT_VALUE:
        cost += len(record.value or b"")
    if state[WANTED] & WANT_HEADERS:
        cost += sum(HEADER_BYTES + len(key) + len(value or b"") for key, value in record.headers)
    if cost > state[BYTES_LEFT]:
        state[NEED] = cost
        return False
    state[BYTES_LEFT] -= cost
    return True


def _append_record(state: Ints, out: Outputs, record: _Record) -> None:
    row = state[ROWS]
    if state[WANTED] & WANT_KEY:
        _append(state, KEY_BYTES, out.key_ends, out.key_data, row, record.key)
        out.key_valid[row] = record.key is not None
        state[SEEN] |= NULL_KEY if record.key is None else 0
    if state[WANTED] & WANT_VALUE:
        _append(state, VALUE_BYTES, out.value_ends, out.value_data, row, record.value)
        out.value_valid[row] = record.value is not None
        state[SEEN] |= NULL_VALUE if record.value is None else 0
    if state[WANTED] & WANT_HEADERS:
        for index, (key, value) in enumerate(record.headers, state[HEADERS]):
            keys, values = out.header_key_data, out.header_value_data
            _append(state, HEADER_KEY_BYTES, out.header_key_ends, keys, index, key)
            _append(state, HEADER_VALUE_BYTES, out.header_value_ends, values, index, value)
            out.header_value_valid[index] = value is not None
            state[SEEN] |= NULL_HEADER_VALUE if value is None else 0
            state[SEEN] |= 0 if key.isascii() else NOT_ASCII
        state[HEADERS] += len(record.headers)
        out.header_ends[row + 1] = state[HEADERS]


def _read_record(body: bytes, base: int, append_time: int) -> _Record | None:
    """A record without its length; None if it is malformed."""
    try:
        time, position = read_varint(body, 1, 10)
        delta, position = read_varint(body, position, 5)
        key, position = _read_bytes(body, position)
        value, position = _read_bytes(body, position)
        count, position = read_varint(body, position, 5)
        if not 0 <= count <= len(body) - position:
            return None
        headers: _Headers = []
        for _ in range(count):
            header_key, position = _read_bytes(body, position)
            if header_key is None:
                return None
            header_value, position = _read_bytes(body, position)
            headers.append((header_key, header_value))
    except (IndexError, OddError):
        return None
    if position != len(body):
        return None
    return _Record(base if append_time else to_int64(base + time), delta, key, value, headers)


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    size, start = read_varint(body, position, 5)
    if size < 0:
        return None, start
    if size > len(body) - start:
        raise OddError
    return body[start : start + size], start + size


def _is_wanted(state: Ints, time: int, offset: int) -> bool:
    if not state[FIRST_MS] <= time <= state[LAST_MS]:
        return False
    return bool(state[FIRST_OFFSET] <= offset <= state[LAST_OFFSET])


def _append(
    state: Ints, filled: int, ends: Ints, data: memoryview, row: int, value: bytes | None
) -> None:
    start = state[filled]
    end = start + len(value or b"")
    data[start:end] = value or b""
    ends[row + 1] = state[filled] = end


def scatter(
    out: memoryview,
    state: Ints,
    times: Ints,
    key_ends: Ints,
    key_data: memoryview,
    key_valid: Ints,
    value_ends: Ints,
    value_data: memoryview,
    value_valid: Ints,
    header_ends: Ints,
    header_key_ends: Ints,
    header_key_data: memoryview,
    header_value_ends: Ints,
    header_value_data: memoryview,
    header_value_valid: Ints,
) -> int:
    """Write rows from ROW on as records to `out`; DONE after the last row, else FULL.

    Row i of a column lies between `ends[i]` and `ends[i + 1]`; a `valid` without
    elements means that nothing is null. The caller vouches for ends that ascend
    and lie within their data.
    """
    for row in range(state[ROW], len(times)):
        headers = []
        for index in range(header_ends[row], header_ends[row + 1]):
            name = _cell(header_key_ends, header_key_data, (), index)
            value = _cell(header_value_ends, header_value_data, header_value_valid, index)
            headers.append((name or b"", value))
        time = int(times[row])
        record = record_bytes(
            time - state[BASE_TIMESTAMP],
            row - state[FIRST_ROW],
            _cell(key_ends, key_data, key_valid, row),
            _cell(value_ends, value_data, value_valid, row),
            headers,
        )
        end = state[FILLED] + len(record)
        if end > len(out):
            state[RECORD_BYTES] = len(record)
            return FULL
        out[state[FILLED] : end] = record
        state[FILLED] = end
        state[ROW] = row + 1
        if time != -1 and (not state[TIMED] or time > state[MAX_TIMESTAMP]):
            state[MAX_TIMESTAMP] = time
            state[TIMED] = 1
    return DONE


def _cell(ends: Ints, data: memoryview, valid: Ints, row: int) -> bytes | None:
    if len(valid) and not valid[row]:
        return None
    return bytes(data[ends[row] : ends[row + 1]])
