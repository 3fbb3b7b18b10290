"""The text of the kernels between records and columns.

`plan_batches` reads the headers of batches, `gather` appends the records of stretches of data to
growing columns, `scatter` writes rows of columns as records. They stop where the room ends and
continue from their state, an array of 64-bit integers. `gather` only reports that a record is
malformed; the walk of `scan_kernels` finds out what is wrong.
"""

from typing import Any, Final, NamedTuple

from horolog.record.batch import CODEC_BITS, HEADER_SIZE, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, MAGIC
from horolog.record.kernels.layout import CUT_OFF, DONE, FULL, MALFORMED
from horolog.record.kernels.machine import (
    Bytes,
    FixedInt64s,
    Int32s,
    Int64s,
    Room,
    byte_at,
    copy_bytes,
    i32,
    i64,
    int64,
    is_ascii,
    kernel,
)
from horolog.record.kernels.record_kernels import (
    TRUNCATED,
    put_varint,
    read_bytes,
    read_fields,
    read_varint,
    varint_size,
)
from horolog.record.timestamps import NO_TIMESTAMP

# --- between records and columns --------------------------------------------------------

# A plan has six numbers for each stretch of records in the data, all of one batch.
(
    STRETCH_START,
    STRETCH_END,
    STRETCH_RECORDS_LEFT,  # counted down
    STRETCH_BASE_OFFSET,
    STRETCH_BASE,  # the base timestamp; with APPEND_TIME the timestamp of every record
    STRETCH_APPEND_TIME,
    STRETCH_SIZE,
) = range(7)

# --- planning batches: a stretch and facts of each ----------------------------------------

# The state.
(
    PLAN_POSITION,  # of the next batch
    PLAN_LEFT,  # bytes of records to plan, before the last batch
    PLAN_LEAST_OFFSET,  # of the next batch
    PLAN_FIRST_OFFSET,  # no batch that reaches beyond these
    PLAN_LAST_OFFSET,
    PLAN_AS_CREATED,  # whether batches with an append time are to have their create times
    PLAN_COUNT,  # out: how many were planned
    PLAN_CODEC,  # out: the codec of all of them, if there are any
    PLAN_STATE_SIZE,
) = range(9)

# The facts.
(
    FACT_CRC,
    FACT_PRODUCER_ID,
    FACT_PRODUCER_EPOCH,
    FACT_BASE_SEQUENCE,
    FACTS_SIZE,
) = range(5)

# gather's state: the rows to read, both ends included ...
(
    FIRST_MS,
    LAST_MS,
    FIRST_OFFSET,
    LAST_OFFSET,
    COLUMNS,  # bits: those of key, value and headers that are filled
    # ... how full the columns are ...
    ROWS,
    KEY_BYTES,
    VALUE_BYTES,
    HEADERS,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    BYTES_LEFT,  # of the room that all columns share
    SEEN,  # bits
    # ... and how far it has come.
    GATHER_STRETCH,  # the stretch it is in; past the last one when it is through
    GATHER_POSITION,  # where the next record of that stretch begins
    NEED,  # size of the record there, when it is not there as a whole or has no room
    GATHER_STATE_SIZE,
) = range(17)

WITH_KEY: Final = 1
WITH_VALUE: Final = 2
WITH_HEADERS: Final = 4

NULL_KEY: Final = 1
NULL_VALUE: Final = 2
NULL_HEADER_VALUE: Final = 4
NOT_ASCII: Final = 8  # in a header's key

# scatter's state.
(
    ROW,  # the next row to write
    FIRST_ROW,  # of this batch; offset deltas count from it, where none are given
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,  # of the rows that have a timestamp, -1 until there is one
    SCATTER_TIMED,
    FILLED,  # bytes written to out
    RECORD_BYTES,  # of the record that had no room
    END_ROW,  # where to stop
    SCATTER_STATE_SIZE,
) = range(9)

ROW_BYTES: Final = 32  # what a row costs besides its keys and values, or more
HEADER_BYTES: Final = 9

# --- the kernels ---------------------------------------------------------------------------

_MOST_CODEC = 4
_LAST_SAFE_OFFSET = (1 << 63) - (1 << 32)

# Ends, data and valid of key and of value, the ends of headers, and the same of their keys and
# values.
_FilledArrays = tuple[
    Int32s, Room, Room, Int32s, Room, Room, Int32s, Int32s, Room, Room, Int32s, Room, Room
]  # fmt: skip
_GivenArrays = tuple[
    FixedInt64s, Bytes, Bytes, FixedInt64s, Bytes, Bytes, FixedInt64s,
    FixedInt64s, Bytes, Bytes, FixedInt64s, Bytes, Bytes,
]  # fmt: skip


class Column(NamedTuple):
    """A column of bytes as Arrow has it: row i is between `ends[i]` and `ends[i + 1]` of its data.

    `valid` has a byte a row, 0 for null; without elements no row is null.
    """

    ends: Any
    data: Any
    valid: Any


class Columns(NamedTuple):
    """Columns of keys, values and headers; headers are indexed by row as in a column of Arrow."""

    key: Column
    value: Column
    header_ends: Any
    header_key: Column
    header_value: Column

    def arrays(self) -> tuple[Any, ...]:
        """Return the arrays in a plain tuple, with which a kernel is called faster."""
        return (*self.key, *self.value, self.header_ends, *self.header_key, *self.header_value)


def columns_of(arrays: tuple[Any, ...]) -> Columns:
    """Return the columns of a tuple that `Columns.arrays` has made."""
    return Columns(
        Column(arrays[0], arrays[1], arrays[2]),
        Column(arrays[3], arrays[4], arrays[5]),
        arrays[6],
        Column(arrays[7], arrays[8], arrays[9]),
        Column(arrays[10], arrays[11], arrays[12]),
    )


@kernel
def plan_batches(data: Bytes, state: Int64s, plan: Int64s, facts: Int64s) -> None:
    """Write a stretch and facts of each batch, up to one that needs a decision.

    A batch needs no decision if it is a whole batch of v2 with records, of the codec of the
    previous one, in ascending order and within the offsets to read. It is neither control nor
    transactional, and has no delete horizon.
    """
    position, left = state[PLAN_POSITION], state[PLAN_LEFT]
    first, last = state[PLAN_FIRST_OFFSET], state[PLAN_LAST_OFFSET]
    least = state[PLAN_LEAST_OFFSET]
    room = min(len(facts) // FACTS_SIZE, len(plan) // STRETCH_SIZE)
    end_of_data = len(data)
    count = 0
    while count < room and left > 0 and end_of_data - position >= HEADER_SIZE:
        length = i32(data, position + 8)
        attributes = byte_at(data, position + 22)
        if (
            byte_at(data, position + 16) != MAGIC
            or length < HEADER_SIZE - LOG_OVERHEAD
            or length > end_of_data - position - LOG_OVERHEAD
            or byte_at(data, position + 21) != 0
            or attributes & ~(LOG_APPEND_TIME_BIT | CODEC_BITS) != 0
            or attributes & CODEC_BITS > _MOST_CODEC
            or (count > 0 and attributes & CODEC_BITS != state[PLAN_CODEC])
        ):
            break
        base_offset, delta = i64(data, position), i32(data, position + 23)
        records = i32(data, position + 57)
        if (
            delta < 0
            or records <= 0
            or base_offset < max(first, least)
            or base_offset > _LAST_SAFE_OFFSET
            or base_offset + delta > last
        ):
            break
        state[PLAN_CODEC] = attributes & CODEC_BITS
        start, end = position + HEADER_SIZE, position + LOG_OVERHEAD + length
        row = count * STRETCH_SIZE
        plan[row + STRETCH_START] = start
        plan[row + STRETCH_END] = end
        plan[row + STRETCH_RECORDS_LEFT] = records
        plan[row + STRETCH_BASE_OFFSET] = base_offset
        is_stamped = attributes & LOG_APPEND_TIME_BIT != 0 and state[PLAN_AS_CREATED] == 0
        time = i64(data, position + 35) if is_stamped else i64(data, position + 27)
        plan[row + STRETCH_BASE] = time
        plan[row + STRETCH_APPEND_TIME] = is_stamped
        row = count * FACTS_SIZE
        facts[row + FACT_CRC] = i32(data, position + 17) & 0xFFFFFFFF
        facts[row + FACT_PRODUCER_ID] = i64(data, position + 43)
        epoch = (byte_at(data, position + 51) << 8) | byte_at(data, position + 52)
        epoch -= (epoch >> 15) << 16
        facts[row + FACT_PRODUCER_EPOCH] = epoch
        facts[row + FACT_BASE_SEQUENCE] = i32(data, position + 53)
        least = base_offset + delta + 1
        position = end
        left -= end - start
        count += 1
    state[PLAN_POSITION], state[PLAN_LEFT] = position, left
    state[PLAN_LEAST_OFFSET], state[PLAN_COUNT] = least, count


def _headers_cost(data, position, end, count):
    """Return the bytes that sound headers take in columns."""
    cost = count * HEADER_BYTES
    for _ in range(count):
        size, _start, position = read_bytes(data, position, end)
        cost += size
        size, _start, position = read_bytes(data, position, end)
        cost += max(size, 0)
    return cost


def _append(data, start, size, at, column, row):
    """Append a cell to a column; return where the column's data ends."""
    if size > 0:
        copy_bytes(data, start, size, column.data, at)
        at += size
    column.ends[row + 1] = at
    return at


def _append_headers(data, position, end, count, state, keys, values):
    """Append headers that were checked before."""
    first = state[HEADERS]
    keys_end = state[HEADER_KEY_BYTES]
    values_end = state[HEADER_VALUE_BYTES]
    for index in range(first, first + count):
        size, start, position = read_bytes(data, position, end)
        if not is_ascii(data, start, position):
            state[SEEN] |= NOT_ASCII
        keys_end = _append(data, start, size, keys_end, keys, index)
        size, start, position = read_bytes(data, position, end)
        values_end = _append(data, start, size, values_end, values, index)
        values.valid[index] = size >= 0
        if size < 0:
            state[SEEN] |= NULL_HEADER_VALUE
    state[HEADERS] = first + count
    state[HEADER_KEY_BYTES] = keys_end
    state[HEADER_VALUE_BYTES] = values_end


def _gather_stretch(data, plan, at, state, offsets, times, types, columns):
    # In locals, not in the state: this is the loop that every record passes through.
    position, end = state[GATHER_POSITION], plan[at + STRETCH_END]
    left, base_offset = (
        plan[at + STRETCH_RECORDS_LEFT],
        plan[at + STRETCH_BASE_OFFSET],
    )
    base, append_time = plan[at + STRETCH_BASE], plan[at + STRETCH_APPEND_TIME]
    first_ms, last_ms = state[FIRST_MS], state[LAST_MS]
    first_offset, last_offset = state[FIRST_OFFSET], state[LAST_OFFSET]
    with_key = state[COLUMNS] & WITH_KEY != 0
    with_value = state[COLUMNS] & WITH_VALUE != 0
    with_headers = state[COLUMNS] & WITH_HEADERS != 0
    row, room, seen = state[ROWS], state[BYTES_LEFT], state[SEEN]
    keys_end, values_end = state[KEY_BYTES], state[VALUE_BYTES]
    need = 0
    status = DONE
    while left > 0:
        size, body = read_varint(data, position, end, 5)
        if body == TRUNCATED:
            status = CUT_OFF
            break
        if body < 0 or size < 0:
            status = MALFORMED
            break
        if size > end - body:
            need = body - position + size
            status = CUT_OFF
            break
        body_end = body + size
        fields = read_fields(data, body, body_end)
        time, delta, key_size, key_start, value_size, value_start, headers, headers_start = fields
        if headers_start < 0:
            status = MALFORMED
            break
        timestamp = base if append_time else int64(base + time)
        offset = int64(base_offset + delta)
        if first_ms <= timestamp <= last_ms and first_offset <= offset <= last_offset:
            cost = ROW_BYTES
            if with_key:
                cost += max(key_size, 0)
            if with_value:
                cost += max(value_size, 0)
            if with_headers and headers > 0:
                cost += _headers_cost(data, headers_start, body_end, headers)
            if cost > room:
                need = cost
                status = FULL
                break
            room -= cost
            offsets[row] = offset
            times[row] = timestamp
            types[row] = append_time
            if with_key:
                keys_end = _append(data, key_start, key_size, keys_end, columns.key, row)
                columns.key.valid[row] = key_size >= 0
                if key_size < 0:
                    seen |= NULL_KEY
            if with_value:
                values_end = _append(data, value_start, value_size, values_end, columns.value, row)
                columns.value.valid[row] = value_size >= 0
                if value_size < 0:
                    seen |= NULL_VALUE
            if with_headers:
                if headers > 0:
                    keys, values = columns.header_key, columns.header_value
                    _append_headers(data, headers_start, body_end, headers, state, keys, values)
                columns.header_ends[row + 1] = state[HEADERS]
            row += 1
        left -= 1
        position = body_end
    state[GATHER_POSITION], state[NEED] = position, need
    plan[at + STRETCH_RECORDS_LEFT] = left
    state[ROWS], state[BYTES_LEFT] = row, room
    state[SEEN] |= seen
    state[KEY_BYTES], state[VALUE_BYTES] = keys_end, values_end
    return status


@kernel
def gather(
    data: Bytes,
    plan: Int64s,
    state: Int64s,
    offsets: Int64s,
    times: Int64s,
    types: Int32s,
    arrays: _FilledArrays,
) -> int:
    """Append the selected records of all stretches; return DONE, CUT_OFF, FULL or MALFORMED.

    CUT_OFF means that a record extends past its stretch. CUT_OFF and FULL leave GATHER_STRETCH and
    GATHER_POSITION at the record to continue with, and in NEED the bytes that it takes, if known.
    Every data array must have room for BYTES_LEFT bytes, and the arrays of rows and headers for
    BYTES_LEFT divided by ROW_BYTES and HEADER_BYTES. The first of the ends is zero.
    """
    columns = columns_of(arrays)
    state[NEED] = 0
    stretches = len(plan) // STRETCH_SIZE
    while state[GATHER_STRETCH] < stretches:
        at = state[GATHER_STRETCH] * STRETCH_SIZE
        state[GATHER_POSITION] = max(state[GATHER_POSITION], plan[at + STRETCH_START])
        status = _gather_stretch(data, plan, at, state, offsets, times, types, columns)
        if status != DONE:
            return status
        if state[GATHER_POSITION] != plan[at + STRETCH_END]:
            return MALFORMED
        state[GATHER_STRETCH] += 1
    return DONE


def _cell(column, row):
    """Return where a cell begins, and its size, -1 for null."""
    start = column.ends[row]
    if len(column.valid) > 0 and column.valid[row] == 0:
        return start, -1
    return start, column.ends[row + 1] - start


def _put_cell(out, position, data, start, size):
    position = put_varint(out, position, size)
    if size > 0:
        copy_bytes(data, start, size, out, position)
        position += size
    return position


def _cell_size(size):
    return varint_size(size) + max(size, 0)


@kernel
def scatter(
    out: Room,
    state: Int64s,
    ends: Int64s,
    order: FixedInt64s,
    deltas: FixedInt64s,
    times: FixedInt64s,
    arrays: _GivenArrays,
) -> int:
    """Write rows as records to `out`; return DONE after the last, otherwise FULL.

    Places from ROW to before END_ROW are written. A place is an index in `order`, which contains
    the numbers of rows; if `order` is empty, places are the numbers of rows. The offset delta of a
    row is in `deltas`; if that is empty, it is the place counted from FIRST_ROW. If `ends` is not
    empty, the end of each place's record in `out` is written to it.

    The caller has checked that the ends of columns ascend and are within their data.
    """
    base = state[BASE_TIMESTAMP]
    key, value, header_ends, header_keys, header_values = columns_of(arrays)
    for place in range(state[ROW], state[END_ROW]):
        row = order[place] if len(order) else place
        timestamp = times[row]
        time_delta = int64(timestamp - base)
        delta = deltas[row] if len(deltas) else place - state[FIRST_ROW]
        key_start, key_size = _cell(key, row)
        value_start, value_size = _cell(value, row)
        first, last = header_ends[row], header_ends[row + 1]
        body = 1 + varint_size(time_delta) + varint_size(delta)
        body += _cell_size(key_size) + _cell_size(value_size) + varint_size(last - first)
        for index in range(first, last):
            _start, size = _cell(header_keys, index)
            body += _cell_size(size)
            _start, size = _cell(header_values, index)
            body += _cell_size(size)
        position = state[FILLED]
        if varint_size(body) + body > len(out) - position:
            state[RECORD_BYTES] = varint_size(body) + body
            return FULL
        position = put_varint(out, position, body)
        out[position] = 0
        position = put_varint(out, position + 1, time_delta)
        position = put_varint(out, position, delta)
        position = _put_cell(out, position, key.data, key_start, key_size)
        position = _put_cell(out, position, value.data, value_start, value_size)
        position = put_varint(out, position, last - first)
        for index in range(first, last):
            start, size = _cell(header_keys, index)
            position = _put_cell(out, position, header_keys.data, start, size)
            start, size = _cell(header_values, index)
            position = _put_cell(out, position, header_values.data, start, size)
        state[FILLED] = position
        state[ROW] = place + 1
        if len(ends):
            ends[place] = position
        if timestamp != NO_TIMESTAMP and (
            state[SCATTER_TIMED] == 0 or timestamp > state[MAX_TIMESTAMP]
        ):
            state[MAX_TIMESTAMP] = timestamp
            state[SCATTER_TIMED] = 1
    return DONE
