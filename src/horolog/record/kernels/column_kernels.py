"""The text of the kernels between records and columns.

`plan_batches` reads the headers of batches, `gather` appends the records of stretches of data to
growing columns, `scatter` writes rows of columns as records. They stop where the room ends and
continue from their state, an array of 64-bit integers. `gather` only reports that a record is
malformed; the walk of `scan_kernels` finds out what is wrong.
"""

from typing import Any, NamedTuple

from horolog.record.kernels import layout
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

_HEADER_SIZE = 61
_OVERHEAD = 12
_MAGIC = 2
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

    `valid` has a byte a row, 0 for null; without elements nothing is null.
    """

    ends: Any
    data: Any
    valid: Any


class Columns(NamedTuple):
    """The columns of records that are no numbers; headers of row i as in a column of Arrow."""

    key: Column
    value: Column
    header_ends: Any
    header_key: Column
    header_value: Column

    def arrays(self) -> tuple[Any, ...]:
        """In a plain tuple, which a kernel is called with faster than with a named one."""
        return (*self.key, *self.value, self.header_ends, *self.header_key, *self.header_value)


def columns_of(arrays: tuple[Any, ...]) -> Columns:
    """The inverse of `Columns.arrays`."""
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

    That is any but a batch of v2 with records, whole, within the offsets to read and after the
    batch before, of its codec, and neither control nor transactional nor with a delete horizon.
    """
    position, left = state[layout.PLAN_POSITION], state[layout.PLAN_LEFT]
    first, last = state[layout.PLAN_FIRST_OFFSET], state[layout.PLAN_LAST_OFFSET]
    least = state[layout.PLAN_LEAST_OFFSET]
    room = min(len(facts) // layout.FACTS_SIZE, len(plan) // layout.STRETCH_SIZE)
    end_of_data = len(data)
    count = 0
    while count < room and left > 0 and end_of_data - position >= _HEADER_SIZE:
        length = i32(data, position + 8)
        attributes = byte_at(data, position + 22)
        if (
            byte_at(data, position + 16) != _MAGIC
            or length < _HEADER_SIZE - _OVERHEAD
            or length > end_of_data - position - _OVERHEAD
            or byte_at(data, position + 21) != 0
            or attributes & ~(layout.IS_STAMPED | layout.COMPRESSED) != 0
            or attributes & layout.COMPRESSED > _MOST_CODEC
            or (count > 0 and attributes & layout.COMPRESSED != state[layout.PLAN_CODEC])
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
        state[layout.PLAN_CODEC] = attributes & layout.COMPRESSED
        start, end = position + _HEADER_SIZE, position + _OVERHEAD + length
        row = count * layout.STRETCH_SIZE
        plan[row + layout.STRETCH_START] = start
        plan[row + layout.STRETCH_END] = end
        plan[row + layout.STRETCH_RECORDS_LEFT] = records
        plan[row + layout.STRETCH_BASE_OFFSET] = base_offset
        is_stamped = attributes & layout.IS_STAMPED != 0 and state[layout.PLAN_AS_CREATED] == 0
        time = i64(data, position + 35) if is_stamped else i64(data, position + 27)
        plan[row + layout.STRETCH_BASE] = time
        plan[row + layout.STRETCH_APPEND_TIME] = is_stamped
        row = count * layout.FACTS_SIZE
        facts[row + layout.FACT_CRC] = i32(data, position + 17) & 0xFFFFFFFF
        facts[row + layout.FACT_PRODUCER_ID] = i64(data, position + 43)
        epoch = (byte_at(data, position + 51) << 8) | byte_at(data, position + 52)
        epoch -= (epoch >> 15) << 16
        facts[row + layout.FACT_PRODUCER_EPOCH] = epoch
        facts[row + layout.FACT_BASE_SEQUENCE] = i32(data, position + 53)
        least = base_offset + delta + 1
        position = end
        left -= end - start
        count += 1
    state[layout.PLAN_POSITION], state[layout.PLAN_LEFT] = position, left
    state[layout.PLAN_LEAST_OFFSET], state[layout.PLAN_COUNT] = least, count


def _headers_cost(data, position, end, count):
    """The cost of sound headers as columns."""
    cost = count * layout.HEADER_BYTES
    for _ in range(count):
        size, _start, position = read_bytes(data, position, end)
        cost += size
        size, _start, position = read_bytes(data, position, end)
        cost += max(size, 0)
    return cost


def _append(data, start, size, at, column, row):
    """Where the column's data ends with this cell."""
    if size > 0:
        copy_bytes(data, start, size, column.data, at)
        at += size
    column.ends[row + 1] = at
    return at


def _append_headers(data, position, end, count, state, keys, values):
    """Append headers already found sound."""
    first = state[layout.HEADERS]
    keys_end = state[layout.HEADER_KEY_BYTES]
    values_end = state[layout.HEADER_VALUE_BYTES]
    for index in range(first, first + count):
        size, start, position = read_bytes(data, position, end)
        if not is_ascii(data, start, position):
            state[layout.SEEN] |= layout.NOT_ASCII
        keys_end = _append(data, start, size, keys_end, keys, index)
        size, start, position = read_bytes(data, position, end)
        values_end = _append(data, start, size, values_end, values, index)
        values.valid[index] = size >= 0
        if size < 0:
            state[layout.SEEN] |= layout.NULL_HEADER_VALUE
    state[layout.HEADERS] = first + count
    state[layout.HEADER_KEY_BYTES] = keys_end
    state[layout.HEADER_VALUE_BYTES] = values_end


def _gather_stretch(data, plan, at, state, offsets, times, types, columns):
    # In locals, not in the state: this is the loop that every record passes through.
    position, end = state[layout.GATHER_POSITION], plan[at + layout.STRETCH_END]
    left, base_offset = (
        plan[at + layout.STRETCH_RECORDS_LEFT],
        plan[at + layout.STRETCH_BASE_OFFSET],
    )
    base, append_time = plan[at + layout.STRETCH_BASE], plan[at + layout.STRETCH_APPEND_TIME]
    first_ms, last_ms = state[layout.FIRST_MS], state[layout.LAST_MS]
    first_offset, last_offset = state[layout.FIRST_OFFSET], state[layout.LAST_OFFSET]
    with_key = state[layout.COLUMNS] & layout.WITH_KEY != 0
    with_value = state[layout.COLUMNS] & layout.WITH_VALUE != 0
    with_headers = state[layout.COLUMNS] & layout.WITH_HEADERS != 0
    row, room, seen = state[layout.ROWS], state[layout.BYTES_LEFT], state[layout.SEEN]
    keys_end, values_end = state[layout.KEY_BYTES], state[layout.VALUE_BYTES]
    need = 0
    status = layout.DONE
    while left > 0:
        size, body = read_varint(data, position, end, 5)
        if body == TRUNCATED:
            status = layout.CUT_OFF
            break
        if body < 0 or size < 0:
            status = layout.MALFORMED
            break
        if size > end - body:
            need = body - position + size
            status = layout.CUT_OFF
            break
        body_end = body + size
        fields = read_fields(data, body, body_end)
        time, delta, key_size, key_start, value_size, value_start, headers, headers_start = fields
        if headers_start < 0:
            status = layout.MALFORMED
            break
        timestamp = base if append_time else int64(base + time)
        offset = int64(base_offset + delta)
        if first_ms <= timestamp <= last_ms and first_offset <= offset <= last_offset:
            cost = layout.ROW_BYTES
            if with_key:
                cost += max(key_size, 0)
            if with_value:
                cost += max(value_size, 0)
            if with_headers and headers > 0:
                cost += _headers_cost(data, headers_start, body_end, headers)
            if cost > room:
                need = cost
                status = layout.FULL
                break
            room -= cost
            offsets[row] = offset
            times[row] = timestamp
            types[row] = append_time
            if with_key:
                keys_end = _append(data, key_start, key_size, keys_end, columns.key, row)
                columns.key.valid[row] = key_size >= 0
                if key_size < 0:
                    seen |= layout.NULL_KEY
            if with_value:
                values_end = _append(data, value_start, value_size, values_end, columns.value, row)
                columns.value.valid[row] = value_size >= 0
                if value_size < 0:
                    seen |= layout.NULL_VALUE
            if with_headers:
                if headers > 0:
                    keys, values = columns.header_key, columns.header_value
                    _append_headers(data, headers_start, body_end, headers, state, keys, values)
                columns.header_ends[row + 1] = state[layout.HEADERS]
            row += 1
        left -= 1
        position = body_end
    state[layout.GATHER_POSITION], state[layout.NEED] = position, need
    plan[at + layout.STRETCH_RECORDS_LEFT] = left
    state[layout.ROWS], state[layout.BYTES_LEFT] = row, room
    state[layout.SEEN] |= seen
    state[layout.KEY_BYTES], state[layout.VALUE_BYTES] = keys_end, values_end
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
    """Append the selected records of all stretches; DONE, CUT_OFF, FULL or MALFORMED.

    CUT_OFF is a record that extends past its stretch. CUT_OFF and FULL leave GATHER_STRETCH and
    GATHER_POSITION at the record to continue with, and in NEED what it takes, if that is known.
    There must be room for BYTES_LEFT bytes in every data, and for BYTES_LEFT by ROW_BYTES and
    HEADER_BYTES rows and headers; the first of the ends is zero.
    """
    columns = columns_of(arrays)
    state[layout.NEED] = 0
    stretches = len(plan) // layout.STRETCH_SIZE
    while state[layout.GATHER_STRETCH] < stretches:
        at = state[layout.GATHER_STRETCH] * layout.STRETCH_SIZE
        state[layout.GATHER_POSITION] = max(
            state[layout.GATHER_POSITION], plan[at + layout.STRETCH_START]
        )
        status = _gather_stretch(data, plan, at, state, offsets, times, types, columns)
        if status != layout.DONE:
            return status
        if state[layout.GATHER_POSITION] != plan[at + layout.STRETCH_END]:
            return layout.MALFORMED
        state[layout.GATHER_STRETCH] += 1
    return layout.DONE


def _cell(column, row):
    """Where a cell is, and its size as a record has it: -1 for null."""
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
    """Write rows from ROW to before END_ROW as records to `out`; DONE after the last, else FULL.

    Both are places in `order`, which has the numbers of rows, or, where it has no elements,
    numbers themselves. Offset deltas are those given for the rows, or, where `deltas` has no
    elements, places counted from FIRST_ROW. Where `ends` has elements, that of each place becomes
    where its record ends in `out`.

    The caller has checked that the ends of columns ascend and are within their data.
    """
    base = state[layout.BASE_TIMESTAMP]
    key, value, header_ends, header_keys, header_values = columns_of(arrays)
    for place in range(state[layout.ROW], state[layout.END_ROW]):
        row = order[place] if len(order) else place
        timestamp = times[row]
        time_delta = int64(timestamp - base)
        delta = deltas[row] if len(deltas) else place - state[layout.FIRST_ROW]
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
        position = state[layout.FILLED]
        if varint_size(body) + body > len(out) - position:
            state[layout.RECORD_BYTES] = varint_size(body) + body
            return layout.FULL
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
        state[layout.FILLED] = position
        state[layout.ROW] = place + 1
        if len(ends):
            ends[place] = position
        if timestamp != NO_TIMESTAMP and (
            state[layout.SCATTER_TIMED] == 0 or timestamp > state[layout.MAX_TIMESTAMP]
        ):
            state[layout.MAX_TIMESTAMP] = timestamp
            state[layout.SCATTER_TIMED] = 1
    return layout.DONE
