"""The headers of batches, apart from their records: what it takes to build the same batches again.

A row for each batch, in offset order, of format v2 (batches of v0 and v1 are converted first):

    base_offset, last_offset, base_timestamp, max_timestamp    as in the header
    attributes          bits 0 to 6: codec, timestamp type, transactional, control, delete horizon
    producer_id, producer_epoch, base_sequence, leader_epoch   -1 where the batch has none
    records             that are kept of it; 0 of the empty batch that a compaction leaves
    payload             of a control batch, its records as they are, uncompressed; else null
"""

from typing import Final

import numpy as np
import pyarrow as pa

from horolog.record.compression import Codec
from horolog.record.header_table import HeaderTable
from horolog.record.stretches import Int64Array

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
_FIELDS: Final = {
    place: "records_count" if place == RECORDS else name
    for place, name in enumerate(NUMBERS)
    if place != LAST_OFFSET
}
"""The field of a header that each number is; it has a delta in place of the last offset."""
_KNOWN_BITS = 0x7F
_LAST_CODEC = max(Codec)
_LARGEST_INT32 = (1 << 31) - 1


def of_headers(headers: HeaderTable) -> Int64Array:
    """The rows of numbers of batches."""
    numbers = np.empty((len(headers), len(NUMBERS)), np.int64)
    for place, field in _FIELDS.items():
        numbers[:, place] = headers.columns[field]
    numbers[:, LAST_OFFSET] = headers.last_offsets
    numbers[:, ATTRIBUTES] &= _KNOWN_BITS
    return numbers


def headers_of(numbers: Int64Array) -> HeaderTable:
    """The headers that rows of numbers describe; they have no lengths and checksums yet."""
    headers = HeaderTable.empty(len(numbers))
    for place, field in _FIELDS.items():
        headers.columns[field] = numbers[:, place]
    delta = numbers[:, LAST_OFFSET] - numbers[:, BASE_OFFSET]
    headers.columns["last_offset_delta"] = delta
    return headers


def table_of(numbers: Int64Array, payloads: list[bytes | None]) -> pa.RecordBatch:
    """The facts as a table of `SCHEMA`."""
    columns = [pa.array(np.ascontiguousarray(column)) for column in numbers.T]
    return pa.RecordBatch.from_arrays([*columns, pa.array(payloads, pa.binary())], schema=SCHEMA)


def numbers_of(table: pa.RecordBatch) -> Int64Array:
    """The rows of numbers of a table of `SCHEMA`."""
    return np.stack([table.column(name).to_numpy() for name in NUMBERS], axis=1)


def are_possible(numbers: Int64Array) -> bool:
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
