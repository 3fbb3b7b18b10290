"""The plain-Python twins of the kernels between records and columns.

`gather` appends the records of stretches of data to growing columns, `scatter` writes rows
of columns as records. Both stop where the room ends and continue from their state, an
array of 64-bit integers. Neither names what is wrong with a record: `gather` only
says that something is, and the walk of `horolog.record.kernels.scan_twins` finds out what.
"""

from typing import Any, NamedTuple

from horolog.buffers import Buffer
from horolog.record.kernels import layout
from horolog.record.kernels.record_bytes import ReadRecord, read_record, record_bytes
from horolog.record.kernels.scan_twins import OddError, read_varint, to_int64
from horolog.record.timestamps import NO_TIMESTAMP

Ints = Any  # integers by position: array, memoryview or numpy array


class Column(NamedTuple):
    """A column of bytes as Arrow has it: row i is between `ends[i]` and `ends[i + 1]` of its data.

    `valid` has a byte a row, 0 for null; without elements nothing is null.
    """

    ends: Ints
    data: Any
    valid: Ints


class Columns(NamedTuple):
    """The columns of records that are no numbers; headers of row i as in a column of Arrow."""

    key: Column
    value: Column
    header_ends: Ints
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


def gather(
    data: Buffer,
    plan: Ints,
    state: Ints,
    offsets: Ints,
    times: Ints,
    types: Ints,
    arrays: tuple[Any, ...],
) -> int:
    """Append the selected records of all stretches; DONE, CUT_OFF, FULL or MALFORMED.

    CUT_OFF is a record that extends past its stretch. CUT_OFF and FULL leave GATHER_STRETCH and
    GATHER_POSITION at the record to continue with, and in NEED what it takes, if that is known.
    There must be room for BYTES_LEFT bytes in every data, and for BYTES_LEFT by ROW_BYTES and
    HEADER_BYTES rows and headers; the first of the ends is zero.
    """
    data, plan, state = memoryview(data), memoryview(plan), memoryview(state)
    offsets, times, types = memoryview(offsets), memoryview(times), memoryview(types)
    out = columns_of(tuple(memoryview(each) for each in arrays))
    state[layout.NEED] = 0
    while state[layout.GATHER_STRETCH] < len(plan) // layout.STRETCH_SIZE:
        at = state[layout.GATHER_STRETCH] * layout.STRETCH_SIZE
        end = plan[at + layout.STRETCH_END]
        position = state[layout.GATHER_POSITION] = max(
            state[layout.GATHER_POSITION], plan[at + layout.STRETCH_START]
        )
        if not plan[at + layout.STRETCH_RECORDS_LEFT]:
            if position != end:
                return layout.MALFORMED
            state[layout.GATHER_STRETCH] += 1
            continue
        try:
            size, length = read_varint(bytes(data[position : min(position + 5, end)]), 0, 5)
        except IndexError:
            return layout.CUT_OFF
        except OddError:
            return layout.MALFORMED
        body = position + length
        if size < 0:
            return layout.MALFORMED
        if size > end - body:
            state[layout.NEED] = length + size
            return layout.CUT_OFF
        base = plan[at + layout.STRETCH_BASE]
        record = read_record(bytes(data[body : body + size]))
        if record is None:
            return layout.MALFORMED
        is_stamped = plan[at + layout.STRETCH_APPEND_TIME]
        time = base if is_stamped else to_int64(base + record.timestamp_delta)
        offset = to_int64(plan[at + layout.STRETCH_BASE_OFFSET] + record.offset_delta)
        if _is_selected(state, time, offset):
            if not _has_room(state, record):
                return layout.FULL
            row = state[layout.ROWS]
            offsets[row], times[row] = offset, time
            types[row] = plan[at + layout.STRETCH_APPEND_TIME]
            _append_record(state, out, record)
            state[layout.ROWS] = row + 1
        plan[at + layout.STRETCH_RECORDS_LEFT] -= 1
        state[layout.GATHER_POSITION] = body + size
    return layout.DONE


def _has_room(state: Ints, record: ReadRecord) -> bool:
    """Take what the record costs from BYTES_LEFT, or say in NEED what it would."""
    cost = layout.ROW_BYTES
    if state[layout.COLUMNS] & layout.WITH_KEY:
        cost += len(record.key or b"")
    if state[layout.COLUMNS] & layout.WITH_VALUE:
        cost += len(record.value or b"")
    if state[layout.COLUMNS] & layout.WITH_HEADERS:
        cost += sum(
            layout.HEADER_BYTES + len(key) + len(value or b"") for key, value in record.headers
        )
    if cost > state[layout.BYTES_LEFT]:
        state[layout.NEED] = cost
        return False
    state[layout.BYTES_LEFT] -= cost
    return True


def _append_record(state: Ints, out: Columns, record: ReadRecord) -> None:
    row = state[layout.ROWS]
    if state[layout.COLUMNS] & layout.WITH_KEY:
        _append(state, layout.KEY_BYTES, out.key, row, record.key)
        out.key.valid[row] = record.key is not None
        state[layout.SEEN] |= layout.NULL_KEY if record.key is None else 0
    if state[layout.COLUMNS] & layout.WITH_VALUE:
        _append(state, layout.VALUE_BYTES, out.value, row, record.value)
        out.value.valid[row] = record.value is not None
        state[layout.SEEN] |= layout.NULL_VALUE if record.value is None else 0
    if state[layout.COLUMNS] & layout.WITH_HEADERS:
        for index, (key, value) in enumerate(record.headers, state[layout.HEADERS]):
            _append(state, layout.HEADER_KEY_BYTES, out.header_key, index, key)
            _append(state, layout.HEADER_VALUE_BYTES, out.header_value, index, value)
            out.header_value.valid[index] = value is not None
            state[layout.SEEN] |= layout.NULL_HEADER_VALUE if value is None else 0
            state[layout.SEEN] |= 0 if key.isascii() else layout.NOT_ASCII
        state[layout.HEADERS] += len(record.headers)
        out.header_ends[row + 1] = state[layout.HEADERS]


def _is_selected(state: Ints, time: int, offset: int) -> bool:
    if not state[layout.FIRST_MS] <= time <= state[layout.LAST_MS]:
        return False
    return bool(state[layout.FIRST_OFFSET] <= offset <= state[layout.LAST_OFFSET])


def _append(state: Ints, filled: int, column: Column, row: int, value: bytes | None) -> None:
    start = state[filled]
    end = start + len(value or b"")
    column.data[start:end] = value or b""
    column.ends[row + 1] = state[filled] = end


def scatter(
    out: Ints,
    state: Ints,
    ends: Ints,
    order: Ints,
    deltas: Ints,
    times: Ints,
    arrays: tuple[Any, ...],
) -> int:
    """Write rows from ROW to before END_ROW as records to `out`; DONE after the last, else FULL.

    Both are places in `order`, which has the numbers of rows, or, where it has no elements,
    numbers themselves. Offset deltas are those given for the rows, or, where `deltas` has no
    elements, places counted from FIRST_ROW. Where `ends` has elements, that of each place becomes
    where its record ends in `out`.

    The caller has checked that the ends of columns ascend and are within their data.
    """
    out, state, ends = memoryview(out), memoryview(state), memoryview(ends)
    order, deltas, times = memoryview(order), memoryview(deltas), memoryview(times)
    key, value, header_ends, header_keys, header_values = columns_of(
        tuple(memoryview(each) for each in arrays)
    )
    for place in range(state[layout.ROW], state[layout.END_ROW]):
        row = order[place] if order else place
        time = times[row]
        record = record_bytes(
            time - state[layout.BASE_TIMESTAMP],
            deltas[row] if deltas else place - state[layout.FIRST_ROW],
            _cell(key, row),
            _cell(value, row),
            [
                (_cell(header_keys, index) or b"", _cell(header_values, index))
                for index in range(header_ends[row], header_ends[row + 1])
            ],
        )
        end = state[layout.FILLED] + len(record)
        if end > len(out):
            state[layout.RECORD_BYTES] = len(record)
            return layout.FULL
        out[state[layout.FILLED] : end] = record
        state[layout.FILLED] = end
        state[layout.ROW] = place + 1
        if ends:
            ends[place] = end
        if time != NO_TIMESTAMP and (
            not state[layout.SCATTER_TIMED] or time > state[layout.MAX_TIMESTAMP]
        ):
            state[layout.MAX_TIMESTAMP] = time
            state[layout.SCATTER_TIMED] = 1
    return layout.DONE


def _cell(column: Column, row: int) -> bytes | None:
    if len(column.valid) and not column.valid[row]:
        return None
    return bytes(column.data[column.ends[row] : column.ends[row + 1]])
