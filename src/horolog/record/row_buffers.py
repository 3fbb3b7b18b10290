"""Growing Arrow columns to which `gather` appends records.

The arrays are allocated once a table at the size of its budget, when its first record comes. Memory
that is never written to costs nothing, and no row has to ask for room in each column.
"""

from array import array
from typing import Any

import numpy as np
import pyarrow as pa

from horolog.buffers import Buffer
from horolog.record.batch_producers import PRODUCER_TYPES, BatchProducers
from horolog.record.kernels.column_kernels import (
    BYTES_LEFT,
    COLUMNS,
    GATHER_POSITION,
    GATHER_STATE_SIZE,
    GATHER_STRETCH,
    HEADER_BYTES,
    HEADER_VALUE_BYTES,
    HEADERS,
    NEED,
    NOT_ASCII,
    NULL_HEADER_VALUE,
    NULL_KEY,
    NULL_VALUE,
    ROW_BYTES,
    ROWS,
    SEEN,
    STRETCH_END,
    STRETCH_SIZE,
    STRETCH_START,
    WITH_HEADERS,
    WITH_KEY,
    WITH_VALUE,
    Column,
    Columns,
)
from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.record.row_range import RowRange

_FILLED = slice(ROWS, HEADER_VALUE_BYTES + 1)
_COLUMN_BITS = {"key": WITH_KEY, "value": WITH_VALUE, "headers": WITH_HEADERS}


class RowBuffers:
    """Rows of the table that is being filled, with at most `max_bytes`."""

    def __init__(self, schema: pa.Schema, max_bytes: int, rows: RowRange) -> None:
        if not 0 < max_bytes < 1 << 31:
            raise ValueError(f"max_bytes is {max_bytes}; a table's columns end within 2 GiB")
        self._schema = schema
        self._max_bytes = max_bytes
        self._state = array("q", bytes(8 * GATHER_STATE_SIZE))
        self._state[COLUMNS] = sum(_COLUMN_BITS.get(name, 0) for name in schema.names)
        if not rows.is_empty:
            self._state[: len(rows)] = array("q", rows)
        self.producers = BatchProducers() if PRODUCER_TYPES.keys() & {*schema.names} else None
        """Producers of the batches whose records are gathered; None where no column needs them."""
        self.reserve(0)

    @property
    def count(self) -> int:
        """Number of rows so far."""
        return self._state[ROWS]

    @property
    def stretch(self) -> int:
        """Number of the stretch in which `gather` stopped."""
        return self._state[GATHER_STRETCH]

    @property
    def position(self) -> int:
        """Position in the data at which `gather` stopped."""
        return self._state[GATHER_POSITION]

    @property
    def need(self) -> int:
        """Size of the record at which `gather` stopped, or the room that it takes; 0 if unknown."""
        return self._state[NEED]

    def reserve(self, room: int) -> None:
        """Start a new table, with more than `max_bytes` if a row needs that room."""
        self._room = max(room, self._max_bytes)
        self._columns: Columns | None = None
        for index in range(_FILLED.start, _FILLED.stop):
            self._state[index] = 0
        self._state[BYTES_LEFT] = self._room
        self._state[SEEN] = 0

    def _allocated(self) -> Columns:
        """Return the arrays of the table, and allocate them at its first record."""
        if self._columns is not None:
            return self._columns
        room = self._room
        filled = self._state[COLUMNS]
        rows = room // ROW_BYTES
        headers = room // HEADER_BYTES
        self._offsets = empty_array(rows, np.int64)
        self._times = empty_array(rows, np.int64)
        self._types = empty_array(rows, np.int32)
        has_headers = filled & WITH_HEADERS
        self._columns = Columns(
            key=_column(filled & WITH_KEY, rows, room),
            value=_column(filled & WITH_VALUE, rows, room),
            header_ends=_ends(rows if has_headers else 0),
            header_key=_column(has_headers, headers, room),
            header_value=_column(has_headers, headers, room),
        )
        return self._columns

    def start(self, plan: "array[int]") -> None:
        """Start a plan of stretches, or of one piece of a stretch."""
        self._plan = plan
        self._state[GATHER_STRETCH] = self._state[GATHER_POSITION] = 0
        last = len(plan) - STRETCH_SIZE
        COLUMN_KERNELS.note_work(plan[last + STRETCH_END] - plan[STRETCH_START])

    def gather(self, data: Buffer) -> int:
        """Append the records of the plan, from where the last call stopped."""
        columns = self._allocated().arrays()
        numbers = (self._offsets, self._times, self._types)
        return int(COLUMN_KERNELS.run.gather(data, self._plan, self._state, *numbers, columns))

    def finish(self) -> pa.RecordBatch:
        """Return the rows so far as a table; the next rows start another."""
        filled = self._allocated()
        seen = self._state[SEEN]
        columns = []
        for field in self._schema:
            match field.name:
                case "key":
                    column = _arrow(filled.key, self.count, seen & NULL_KEY, field.type)
                case "value":
                    column = _arrow(filled.value, self.count, seen & NULL_VALUE, field.type)
                case "headers":
                    column = self._finish_headers(filled, field.type)
                case "offset":
                    column = arrow_of(_fitted(self._offsets, self.count), field.type)
                case "timestamp_ms":
                    column = arrow_of(_fitted(self._times, self.count), field.type)
                case name if name in PRODUCER_TYPES:
                    assert self.producers is not None
                    column = self.producers.column(name, self._offsets[: self.count])
                case _:
                    column = arrow_of(_fitted(self._types, self.count), field.type)
            columns.append(column)
        table = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.reserve(0)
        return table

    def _finish_headers(self, filled: Columns, type_: pa.DataType) -> pa.Array:
        seen = self._state[SEEN]
        count = self._state[HEADERS]
        keys = _arrow(filled.header_key, count, 0, pa.binary())
        value_type = type_.value_type.field("value").type
        values = _arrow(filled.header_value, count, seen & NULL_HEADER_VALUE, value_type)
        if seen & NOT_ASCII:
            keys = pa.array([key.as_py().decode("utf-8", "replace") for key in keys], pa.string())
        else:
            keys = keys.view(pa.string())
        headers = pa.StructArray.from_arrays([keys, values], fields=list(type_.value_type))
        ends = pa.py_buffer(_fitted(filled.header_ends, self.count + 1))
        return pa.Array.from_buffers(type_, self.count, [None, ends], children=[headers])


def _column(wants: int, rows: int, room: int) -> Column:
    """Allocate a column with room for these rows and bytes, or without room if not wanted."""
    if not wants:
        rows = room = 0
    return Column(_ends(rows), empty_array(room, np.uint8), empty_array(rows, np.uint8))


def _ends(rows: int) -> Any:
    ends = empty_array(rows + 1, np.int32)
    ends[0] = 0
    return ends


def _arrow(column: Column, rows: int, nulls: int, type_: pa.DataType) -> pa.Array:
    """Return the first rows of a column; some are null if `nulls` is not 0."""
    ends = _fitted(column.ends, rows + 1)
    data = _fitted(column.data, int(ends[-1]))
    validity = None
    if nulls:
        validity = pa.py_buffer(np.packbits(column.valid[:rows], bitorder="little"))
    return pa.Array.from_buffers(type_, rows, [validity, pa.py_buffer(ends), pa.py_buffer(data)])


def empty_array(count: int, kind: Any) -> Any:
    """Allocate an array from Arrow's pool: fresh pages cost more than rows."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind, count)


def arrow_of(values: Any, type_: pa.DataType) -> pa.Array:
    """Return values as an Arrow array without nulls; `pa.array` would import pandas."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _fitted(values: Any, count: int) -> Any:
    """Return the first values; a copy where they fill little of the array."""
    return values[:count] if 8 * count >= len(values) else values[:count].copy()
