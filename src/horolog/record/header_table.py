"""Headers of many batches of format v2 as a numpy table, to be read and written at once.

    table = HeaderTable.read(buffer, positions_of(buffer))
    table.last_offsets[table.columns["max_timestamp"] < 0]

A header in Python costs more than the records of a small batch do in `gather`.
"""

from collections.abc import Sequence
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt

from horolog.buffers import Buffer
from horolog.record.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    iter_headers,
)
from horolog.record.stretches import Int64Array

# The fields of `BatchHeader`, in the same order.
_LAYOUT: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)
_WITHIN: Final = np.arange(HEADER_SIZE)
_LARGEST: Final = (1 << 63) - 1


def positions_of(buffer: Buffer) -> list[int] | None:
    """Return the positions of whole batches in a buffer; None if one is of an older format.

    Ends before a batch that the buffer holds only in part.

    Raises:
        CorruptBatch: what follows is no batch.
    """
    positions = []
    for position, header in iter_headers(buffer):
        if header.magic != MAGIC:
            return None
        positions.append(position)
    return positions


class HeaderTable:
    """Headers of batches in the order of a log."""

    __slots__ = ("columns",)

    def __init__(self, columns: npt.NDArray[Any]) -> None:
        self.columns = columns
        """By the names of `BatchHeader`'s fields, big-endian."""

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, rows: "slice | npt.NDArray[Any]") -> "HeaderTable":
        """Return the headers of some rows."""
        return HeaderTable(self.columns[rows])

    @classmethod
    def read(cls, buffer: Buffer, positions: Sequence[int]) -> "HeaderTable":
        """Read the headers of v2 at these positions."""
        data = np.frombuffer(memoryview(buffer).toreadonly(), np.uint8)
        starts = np.array(positions, np.int64).reshape(-1, 1)
        return cls(np.ascontiguousarray(data[starts + _WITHIN]).view(_LAYOUT).reshape(-1))

    @classmethod
    def empty(cls, count: int) -> "HeaderTable":
        """Make `count` headers of v2, to be filled in."""
        columns = np.zeros(count, _LAYOUT)
        columns["magic"] = MAGIC
        return cls(columns)

    def numbers(self, name: str) -> Int64Array:
        """Return a field of all headers."""
        return self.columns[name].astype(np.int64)

    @property
    def sizes(self) -> Int64Array:
        """Bytes of each whole batch, header included."""
        return self.numbers("batch_length") + LOG_OVERHEAD

    @property
    def last_offsets(self) -> Int64Array:
        """Offset of the last record of each batch, limited to 64 bits."""
        base, delta = self.numbers("base_offset"), self.numbers("last_offset_delta")
        last = base + delta  # wraps
        last[(delta > 0) & (last < base)] = _LARGEST
        last[(delta < 0) & (last > base)] = -_LARGEST - 1
        return last

    def headers(self) -> list[BatchHeader]:
        """Return each header as a `BatchHeader`."""
        return [tuple.__new__(BatchHeader, fields) for fields in self.columns.tolist()]

    def packed(self, records: Sequence[Buffer]) -> list[Buffer]:
        """Return header and records of each batch, one after the other, with their checksums.

        Lengths and checksums in `columns` are replaced by those of these records.
        """
        columns = self.columns
        columns["batch_length"] = [HEADER_SIZE - LOG_OVERHEAD + len(record) for record in records]
        data = memoryview(columns.tobytes())
        columns["crc"] = [
            crc32c.crc32c(each, crc32c.crc32c(data[start + CRC_START : start + HEADER_SIZE]))
            for start, each in zip(range(0, len(data), HEADER_SIZE), records, strict=True)
        ]
        data = memoryview(columns.tobytes())
        parts: list[Buffer] = []
        for start, each in zip(range(0, len(data), HEADER_SIZE), records, strict=True):
            parts += (data[start : start + HEADER_SIZE], each)
        return parts
