"""The headers of batches, apart from their records: enough to build the same batches again.

A row for each batch, in offset order, of format v2 (batches of v0 and v1 are converted first):

    base_offset, last_offset, base_timestamp, max_timestamp    as in the header
    attributes          bits 0 to 6: codec, timestamp type, transactional, control, delete horizon
    producer_id, producer_epoch, base_sequence, leader_epoch   -1 where the batch has none
    records             that are kept of it; 0 of the empty batch that a compaction leaves
    payload             of a control batch, its records as they are, uncompressed; otherwise null
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.record.compression import Codec
from horolog.record.header_table import HeaderTable
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import NO_TIMESTAMP

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
Facts = npt.NDArray[np.void]
"""Facts of batches in offset order: an array of `DTYPE`."""
DTYPE: Final = np.dtype([*((name, np.int64) for name in NUMBERS), ("payload", object)])
_FIELDS: Final = {
    name: "records_count" if name == "records" else name
    for name in NUMBERS
    if name != "last_offset"
}
"""Field of a header for each number; a header has a delta in place of the last offset."""
_KNOWN_BITS = 0x7F
_STAMP_BIT = 0x08
_LAST_CODEC = max(Codec)
_INT32: Final = (1 << 31) - 1


def of_headers(headers: HeaderTable, payloads: npt.NDArray[np.object_]) -> Facts:
    """Facts of batches with these headers, and the records of those that are control batches."""
    facts = np.empty(len(headers), DTYPE)
    for name, field in _FIELDS.items():
        facts[name] = headers.columns[field]
    facts["last_offset"] = headers.last_offsets
    facts["attributes"] &= _KNOWN_BITS
    facts["payload"] = payloads
    return facts


def headers_of(facts: Facts) -> HeaderTable:
    """Headers of batches by their facts, still without lengths and checksums."""
    headers = HeaderTable.empty(len(facts))
    for name, field in _FIELDS.items():
        headers.columns[field] = facts[name]
    headers.columns["last_offset_delta"] = facts["last_offset"] - facts["base_offset"]
    return headers


def table_of(facts: Facts) -> pa.RecordBatch:
    """Facts as a table of `SCHEMA`."""
    return pa.RecordBatch.from_arrays(
        [pa.array(facts[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


def of_table(table: pa.RecordBatch) -> Facts:
    """Facts from a table of `SCHEMA`."""
    facts = np.empty(table.num_rows, DTYPE)
    for name in NUMBERS:
        facts[name] = table.column(name).to_numpy()
    facts["payload"] = table.column("payload").to_pylist()
    return facts


def are_possible(facts: Facts) -> bool:
    """True if each number has room in a batch header."""
    base, last, attributes = facts["base_offset"], facts["last_offset"], facts["attributes"]
    limits: tuple[tuple[Int64Array, int, int], ...] = (
        (base, 0, (1 << 63) - 1),
        (last, 0, (1 << 63) - 1),
        (last - base, 0, _INT32),
        (attributes, 0, _KNOWN_BITS),
        (attributes & 7, 0, _LAST_CODEC),
        (facts["producer_epoch"], -(1 << 15), (1 << 15) - 1),
        (facts["base_sequence"], -_INT32 - 1, _INT32),
        (facts["leader_epoch"], -_INT32 - 1, _INT32),
        (facts["records"], 0, _INT32),
    )
    return all(bool(((values >= least) & (values <= most)).all()) for values, least, most in limits)


def is_control(facts: Facts) -> npt.NDArray[np.bool_]:
    """Mark the control batches."""
    return np.array([payload is not None for payload in facts["payload"]], np.bool_)


def is_stamped(facts: Facts) -> npt.NDArray[np.bool_]:
    """Mark the batches with LogAppendTime."""
    marks: npt.NDArray[np.bool_] = facts["attributes"] & _STAMP_BIT != 0
    return marks


class KeptRecords:
    """Counts and largest create times of the records that are kept of batches."""

    def __init__(self, facts: Facts) -> None:
        self.counts = np.zeros(len(facts), np.int64)
        self._facts = facts
        self._largest_ms = np.full(len(facts), NO_TIMESTAMP, np.int64)

    def add(self, places: npt.NDArray[Any], created_ms: Int64Array) -> None:
        """Count records by the places of their batches, in offset order."""
        self.counts += np.bincount(places, minlength=len(self.counts))
        is_timed = created_ms != NO_TIMESTAMP
        places, times = places[is_timed], created_ms[is_timed]
        if not len(places):
            return
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        at, largest_ms = places[starts], np.maximum.reduceat(times, starts)
        known_ms = self._largest_ms[at]
        is_first = known_ms == NO_TIMESTAMP  # a time before 1970 is smaller than -1
        self._largest_ms[at] = np.where(is_first, largest_ms, np.maximum(known_ms, largest_ms))

    def facts(self) -> tuple[Facts, npt.NDArray[np.bool_]]:
        """Return the facts of the batches that are kept, and mark these among all.

        A batch that lost all of its records is left out.
        """
        facts, is_fixed = self._facts.copy(), is_control(self._facts)
        is_changed = (self.counts < facts["records"]) & ~is_fixed
        is_restamped = is_changed & ~is_stamped(facts)
        is_kept = (self.counts > 0) | (facts["records"] == 0) | is_fixed
        facts["max_timestamp"][is_restamped] = self._largest_ms[is_restamped]
        facts["records"][is_changed] = self.counts[is_changed]
        return facts[is_kept], is_kept
