"""Checksums of records and of batches that do not depend on how they are cut into tables.

A digest is a CRC-32C for each stream of values, in offset order: offsets, times, lengths of keys
(-1 for null), bytes of keys, and so on. Equal records give equal digests, whatever holds them: a
log, its archive, a log that was restored from it.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

NO_APPEND_TIME: Final = -(1 << 63)
"""Stands for an append time that is unknown."""

_NUMBERS = ("offset", "timestamp_ms", "timestamp_type", "create_ms", "append_ms")
_STREAMS = 13


class RecordDigest:
    """Of rows with the columns of `reading.SCHEMA`, added in offset order."""

    def __init__(self) -> None:
        self._crcs = [0] * _STREAMS
        self.records = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take the next rows."""
        self.records += rows.num_rows
        crcs = self._crcs
        for place, name in enumerate(_NUMBERS):
            column = rows.column(name)
            if column.null_count:
                column = column.fill_null(NO_APPEND_TIME)
            crcs[place] = crc32c(_bytes_of(column.to_numpy()), crcs[place])
        self._add_bytes(5, rows.column("key"))
        self._add_bytes(7, rows.column("value"))
        headers = rows.column("headers")
        lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
        crcs[9] = crc32c(_bytes_of(lengths), crcs[9])
        if lengths.any():
            flat = headers.flatten()
            self._add_bytes(10, pc.struct_field(flat, "key").cast(pa.binary()))
            values = pc.struct_field(flat, "value")
            self._add_bytes(11, values)

    def _add_bytes(self, place: int, column: pa.Array) -> None:
        crcs = self._crcs
        lengths = pc.binary_length(column)
        if lengths.null_count:
            lengths = lengths.fill_null(-1)
        crcs[place] = crc32c(_bytes_of(lengths.to_numpy()), crcs[place])
        _, ends, data = column.buffers()
        if data is None or not len(column):
            return
        first, last = _ends(ends, column.offset, len(column))
        crcs[place + 1] = crc32c(memoryview(data)[first:last], crcs[place + 1])

    def text(self) -> str:
        """The digest; of no records at all, that of none."""
        return "".join(f"{crc:08x}" for crc in self._crcs)


class BatchDigest:
    """Of the facts of batches, as `facts.BatchFacts` keeps them, in offset order."""

    def __init__(self) -> None:
        self._numbers = self._payloads = 0
        self.batches = 0

    def add(self, numbers: npt.NDArray[np.int64], payloads: list[bytes]) -> None:
        """Take the next batches: a row of numbers of each, and the records of control batches."""
        self.batches += len(numbers)
        self._numbers = crc32c(_bytes_of(numbers), self._numbers)
        for payload in payloads:
            self._payloads = crc32c(payload, self._payloads)

    def text(self) -> str:
        """The digest."""
        return f"{self._numbers:08x}{self._payloads:08x}"


def _bytes_of(values: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")


def _ends(ends: pa.Buffer, offset: int, count: int) -> tuple[int, int]:
    numbers = np.frombuffer(ends, np.int32, offset + count + 1)
    return int(numbers[offset]), int(numbers[offset + count])
