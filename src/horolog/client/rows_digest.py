"""Digest of rows that shows if two attempts sent the same rows in the same order.

Of each column there are the size and the CRC-32C of its values, and of their lengths. Hashes that
resist an adversary take as long as all the rest of a write.

This module imports pyarrow.
"""

import hashlib
from typing import Any, Final

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from horolog.client.arrow_rows import as_binary, milliseconds

LAYOUT: Final = 1
"""Version of the digest's algorithm; digests of different versions cannot be compared."""

_DIGEST_BYTES: Final = 16
_SUM_BYTES: Final = 12
_NULL: Final = -1


class RowsDigest:
    """Digest of all rows added. The order of rows of different topics does not matter."""

    def __init__(self) -> None:
        self.rows = 0
        self._topics: dict[str, _Columns] = {}

    def add(self, topic: str, rows: pa.RecordBatch) -> None:
        """Add rows with the columns that `Producer.send` takes, in its types.

        A null time counts as null, whatever the clock says when it is written.

        Raises:
            ValueError: a column is of a type that cannot be written.
        """
        self.rows += rows.num_rows
        self._topics.setdefault(topic, _Columns()).add(rows)

    def hexdigest(self) -> str:
        """Return the digest of the rows added so far: 32 hexadecimal digits."""
        whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for topic in sorted(self._topics):
            name = topic.encode()
            sums = self._topics[topic].sums()
            whole.update(len(name).to_bytes(4, "big") + name + len(sums).to_bytes(4, "big") + sums)
        return whole.hexdigest()


class _Columns:
    """Sums over the rows of one topic: for each column, of its lengths and of its bytes."""

    def __init__(self) -> None:
        self._rows = 0
        self._sums: dict[str, tuple[int, int]] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        names = rows.schema.names
        for name in ("key", "value"):
            if name in names:
                self._add_bytes(name, rows.column(name))
        if "headers" in names:
            self._add_headers(rows.column("headers"))
        if "partition" in names:
            self._add_numbers("partition", rows.column("partition"))
        for name in ("timestamp", "timestamp_ms"):
            if name in names:
                column = rows.column(name)
                is_timestamp = pa.types.is_timestamp(column.type)
                self._add_numbers("time", milliseconds(column) if is_timestamp else column)

    def sums(self) -> bytes:
        parts = [self._rows.to_bytes(8, "big")]
        for name, (size, crc) in sorted(self._sums.items()):
            parts += [name.encode(), b"\0", (size << 32 | crc).to_bytes(_SUM_BYTES, "big")]
        return b"".join(parts)

    def _add_bytes(self, name: str, column: pa.Array) -> None:
        column = as_binary(column)
        lengths = pc.fill_null(pc.binary_length(column), _NULL)
        self._update(f"{name} lengths", lengths.to_numpy().astype("<i8", copy=False))
        if column.null_count:
            column = column.drop_null()  # a null may have bytes, which are not its value
        _, ends, data = column.buffers()
        if data is not None and len(column):
            stops = np.frombuffer(ends, np.int64, column.offset + len(column) + 1)
            self._update(name, np.frombuffer(data, np.uint8)[stops[column.offset] : stops[-1]])

    def _add_headers(self, column: pa.Array) -> None:
        lengths = pc.fill_null(pc.list_value_length(column), _NULL)
        self._update("headers", lengths.to_numpy().astype("<i8", copy=False))
        flat = column.flatten()
        if len(flat):
            self._add_bytes("headers key", pc.struct_field(flat, "key"))
            self._add_bytes("headers value", pc.struct_field(flat, "value"))

    def _add_numbers(self, name: str, column: pa.Array) -> None:
        is_null = pc.is_null(column).to_numpy(zero_copy_only=False)
        self._update(f"{name} nulls", is_null.view(np.uint8))
        numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        self._update(name, numbers.astype("<i8", copy=False))

    def _update(self, name: str, values: Any) -> None:
        data = np.ascontiguousarray(values).data.cast("B")
        size, crc = self._sums.get(name, (0, 0))
        self._sums[name] = (size + len(data), crc32c.crc32c(data, crc))
