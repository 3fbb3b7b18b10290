"""The columns of a record batch of Arrow as the kernel takes them that writes records."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog.record.timestamps import NO_TIMESTAMP

__all__ = ["RowColumns", "require_columns"]


class RowColumns:
    """Columns that are looked at once, however many batches their rows go to.

    Attributes:
        times: Milliseconds; -1 where there is none.
        others: Of keys, values and headers, in the order in which `scatter` takes them.

    Raises:
        ValueError: a column is missing or has a type that is no bytes, or a header is null.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        require_columns(rows.schema)
        self.times = _times_of(rows.column("timestamp_ms"))
        self.others = (
            *_bytes_column(rows, "key"),
            *_bytes_column(rows, "value"),
            *_header_columns(rows),
        )

    def __len__(self) -> int:
        return len(self.times)


def require_columns(schema: pa.Schema) -> None:
    """Check that the columns are there that records cannot do without.

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


def _bytes_column(rows: pa.RecordBatch, name: str) -> tuple[Any, Any, Any]:
    if name not in rows.schema.names:
        return _parts(pa.nulls(rows.num_rows, pa.large_binary()))
    return _parts(_cast(rows.column(name), pa.large_binary()))


def _parts(column: pa.Array) -> tuple[Any, Any, Any]:
    """Ends, data and validity (empty where nothing is null) of a large binary column."""
    _, ends, data = column.buffers()
    stop = column.offset + len(column) + 1
    ends_array = np.zeros(1, np.int64)
    if ends is not None and len(column):
        ends_array = np.frombuffer(ends, np.int64, stop)[column.offset :]
    data_array = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    valid = np.empty(0, np.uint8)
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False).view(np.uint8)
    return ends_array, data_array, valid


def _no_headers(count: int) -> tuple[Any, ...]:
    nothing = _parts(pa.nulls(0, pa.large_binary()))
    return np.zeros(count + 1, np.int64), *nothing[:2], *nothing


def _header_columns(rows: pa.RecordBatch) -> tuple[Any, ...]:
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
    key_parts = _parts(_cast(keys, pa.large_binary()))
    return ends, *key_parts[:2], *_parts(_cast(values, pa.large_binary()))
