"""Columns of an Arrow record batch, in the form of the kernel that writes records."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog.record.kernels.column_kernels import Column, Columns
from horolog.record.timestamps import NO_TIMESTAMP

__all__ = ["RowColumns", "require_columns"]


class RowColumns:
    """Columns of a record batch, converted once for all batches to which its rows go.

    Attributes:
        times: milliseconds; -1 for none.
        others: keys, values and headers, as `scatter` takes them.

    Raises:
        ValueError: a column is missing or its type is not binary, or a header is null.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        require_columns(rows.schema)
        self.times = _times_of(rows.column("timestamp_ms"))
        key, value = _bytes_column(rows, "key"), _bytes_column(rows, "value")
        self.others = Columns(key, value, *_header_columns(rows)).arrays()

    def __len__(self) -> int:
        return len(self.times)


def require_columns(schema: pa.Schema) -> None:
    """Check that a schema has the columns that records need.

    Raises:
        ValueError: names those that are missing.
    """
    missing = {"value", "timestamp_ms"} - set(schema.names)
    if missing:
        raise ValueError(f"To write records, a table needs {sorted(missing)}")


def _times_of(column: pa.Array) -> npt.NDArray[np.int64]:
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise ValueError(f"Column timestamp_ms of type {column.type} is no integer of milliseconds")
    times: npt.NDArray[np.int64] = pc.fill_null(_cast(column, pa.int64()), NO_TIMESTAMP).to_numpy()
    return times


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ValueError(f"A column of type {column.type} cannot be written: {error}") from None


def _bytes_column(rows: pa.RecordBatch, name: str) -> Column:
    if name not in rows.schema.names:
        return _parts(pa.nulls(rows.num_rows, pa.large_binary()))
    return _binary(rows.column(name))


def _binary(column: pa.Array) -> Column:
    return _parts(_cast(column, pa.large_binary()))


def _parts(column: pa.Array) -> Column:
    """Return the arrays of a large binary column."""
    _, ends, data = column.buffers()
    stop = column.offset + len(column) + 1
    ends_array, data_array, valid = _NO_ENDS, _NO_BYTES, _NO_BYTES
    if ends is not None and len(column):
        ends_array = _sealed(np.frombuffer(ends, np.int64, stop)[column.offset :])
    if data is not None:
        data_array = _sealed(np.frombuffer(data, np.uint8))
    if column.null_count:
        valid = _sealed(pc.is_valid(column).to_numpy(zero_copy_only=False).view(np.uint8))
    return Column(ends_array, data_array, valid)


def _sealed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array read-only: the kernel is compiled for read-only arrays."""
    array.setflags(write=False)
    return array


_NO_ENDS = _sealed(np.zeros(1, np.int64))
_NO_BYTES = _sealed(np.empty(0, np.uint8))


def _no_headers(count: int) -> tuple[Any, Column, Column]:
    nothing = _parts(pa.nulls(0, pa.large_binary()))
    return _sealed(np.zeros(count + 1, np.int64)), nothing, nothing


def _header_columns(rows: pa.RecordBatch) -> tuple[Any, Column, Column]:
    """Return the ends of each row's headers, their keys and their values."""
    if "headers" not in rows.schema.names:
        return _no_headers(rows.num_rows)
    column = rows.column("headers")
    names: set[str] = set()
    if pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
        names = {field.name for field in column.type.value_type}
    if not {"key", "value"} <= names:
        raise ValueError(f"Headers of type {column.type} are no list of structs of key and value")
    flat = column.flatten()  # of the rows in this slice, without those that are null
    if not len(flat):
        return _no_headers(rows.num_rows)
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    keys, values = (pc.struct_field(flat, name) for name in ("key", "value"))
    if flat.null_count or keys.null_count:
        raise ValueError("A header or its key is null")
    return _sealed(ends), _binary(keys), _binary(values)
