"""The headers of batches, apart from their records: what it takes to build the same batches again.

A row for each batch, in offset order, of format v2 (batches of v0 and v1 are converted first):

    base_offset, last_offset, base_timestamp, max_timestamp    as in the header
    attributes          bits 0 to 6: codec, timestamp type, transactional, control, delete horizon
    producer_id, producer_epoch, base_sequence, leader_epoch   -1 where the batch has none
    records             that are kept of it; 0 of the empty batch that a compaction leaves
    payload             of a control batch, its records as they are, uncompressed; else null
"""

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.record.batch import BatchHeader
from horolog.record.compression import Codec

NUMBERS: Final = (
    "base_offset",
    "last_offset",
    "base_timestamp",
    "max_timestamp",
    "attributes",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "leader_epoch",
    "records",
)
SCHEMA: Final = pa.schema(
    [*(pa.field(name, pa.int64(), False) for name in NUMBERS), pa.field("payload", pa.binary())]
)
BASE_OFFSET, LAST_OFFSET, BASE_TIMESTAMP, MAX_TIMESTAMP, ATTRIBUTES = range(5)
PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, LEADER_EPOCH, RECORDS = range(5, 10)
_KNOWN_BITS = 0x7F
_LAST_CODEC = max(Codec)
_LARGEST_INT32 = (1 << 31) - 1

Numbers = npt.NDArray[np.int64]


class BatchFacts:
    """The facts of batches in offset order, as they come."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._payloads: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._numbers) // len(NUMBERS)

    def add(self, header: BatchHeader, payload: bytes | None = None) -> None:
        """Take a batch; of a control batch with its records, uncompressed."""
        if payload is not None:
            self._payloads[len(self)] = payload
        self._numbers.extend(
            (
                header.base_offset,
                header.last_offset,
                header.base_timestamp,
                header.max_timestamp,
                header.attributes & _KNOWN_BITS,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.leader_epoch,
                header.records_count,
            )
        )

    def numbers(self) -> Numbers:
        """A row of numbers for each batch; a copy."""
        return np.array(self._numbers, np.int64).reshape(-1, len(NUMBERS))

    def payloads(self, kept: npt.NDArray[np.bool_]) -> list[bytes | None]:
        """The payloads of the batches that are kept."""
        return [self._payloads.get(place) for place in np.flatnonzero(kept).tolist()]


def table_of(numbers: Numbers, payloads: list[bytes | None]) -> pa.RecordBatch:
    """The facts as a table of `SCHEMA`."""
    columns = [pa.array(np.ascontiguousarray(column)) for column in numbers.T]
    return pa.RecordBatch.from_arrays([*columns, pa.array(payloads, pa.binary())], schema=SCHEMA)


def numbers_of(table: pa.RecordBatch) -> Numbers:
    """The rows of numbers of a table of `SCHEMA`."""
    return np.stack([table.column(name).to_numpy() for name in NUMBERS], axis=1)


def are_possible(numbers: Numbers) -> bool:
    """Whether there can be batches of these facts: each number has room in a header."""
    base, last = numbers[:, BASE_OFFSET], numbers[:, LAST_OFFSET]
    if (base < 0).any() or (last < base).any() or (last - base > _LARGEST_INT32).any():
        return False
    attributes = numbers[:, ATTRIBUTES]
    if (attributes & ~_KNOWN_BITS).any() or (attributes & 7 > _LAST_CODEC).any():
        return False
    return all(
        bool(((numbers[:, column] >= least) & (numbers[:, column] <= most)).all())
        for column, least, most in (
            (PRODUCER_EPOCH, -(1 << 15), (1 << 15) - 1),
            (BASE_SEQUENCE, -_LARGEST_INT32 - 1, _LARGEST_INT32),
            (LEADER_EPOCH, -_LARGEST_INT32 - 1, _LARGEST_INT32),
            (RECORDS, 0, _LARGEST_INT32),
        )
    )
