"""The headers of batches, apart from their records: enough to build the same batches again.

A row for each batch, in offset order, of format v2 (batches of v0 and v1 are converted first):

    base_offset, last_offset, base_timestamp, max_timestamp    as in the header
    attributes          bits 0 to 6: codec, timestamp type, transactional, control, delete horizon
    producer_id, producer_epoch, base_sequence, leader_epoch   -1 where the batch has none
    records             that are kept of it; 0 of the empty batch that a compaction leaves
    payload             of a control batch, its records as they are, uncompressed; otherwise null
    append_ms           when the broker appended it, null if that is unknown; missing in files of
                        archives of version 2

Batches of aborted transactions, and their markers, have a row with -1 records and no payload: they
are no part of the archive, and say where it parts at a time.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.record.compression import Codec
from horolog.record.header_table import HeaderTable
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import NO_TIMESTAMP

NO_APPEND_TIME: Final = -(1 << 63)
"""Stands for an append time that is unknown."""
LEFT_OUT: Final = -1
"""Number of records of a batch that the archive leaves out."""

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
    [
        *(pa.field(name, pa.int64(), False) for name in NUMBERS),
        pa.field("payload", pa.binary()),
        pa.field("append_ms", pa.int64()),
    ]
)
OPTIONAL: Final = frozenset({"append_ms"})
"""Columns that older files lack."""
_FIELDS: Final = {
    name: "records_count" if name == "records" else name
    for name in NUMBERS
    if name != "last_offset"
}
"""Field of a header for each number; a header has a delta in place of the last offset."""
_PLACES: Final = {name: place for place, name in enumerate(NUMBERS)}
_KNOWN_BITS = 0x7F
_STAMP_BIT = 0x08
_LAST_CODEC = max(Codec)
_INT32: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of batches in offset order; the columns of numbers by name: `facts["records"]`."""

    numbers: Int64Array
    """A row for each batch, with a column for each of `NUMBERS`."""
    payloads: npt.NDArray[np.object_]
    """Records of control batches, and None for the others."""
    is_control: npt.NDArray[np.bool_]
    append_ms: Int64Array | None = None
    """Append time of each batch; `NO_APPEND_TIME`, or None for all, where it is unknown."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, name: str) -> Int64Array:
        return self.numbers[:, _PLACES[name]]

    def taken(self, rows: "slice | npt.NDArray[Any]") -> "Facts":
        """Return some of the batches."""
        append_ms = None if self.append_ms is None else self.append_ms[rows]
        return Facts(self.numbers[rows], self.payloads[rows], self.is_control[rows], append_ms)

    @property
    def is_stamped(self) -> npt.NDArray[np.bool_]:
        """Marks the batches with LogAppendTime."""
        marks: npt.NDArray[np.bool_] = self["attributes"] & _STAMP_BIT != 0
        return marks


def of_headers(
    headers: HeaderTable,
    payloads: npt.NDArray[np.object_],
    is_control: npt.NDArray[np.bool_],
    append_ms: Int64Array,
) -> Facts:
    """Facts of batches with these headers, and with the records of control batches."""
    numbers = np.empty((len(headers), len(NUMBERS)), np.int64)
    facts = Facts(numbers, payloads, is_control, append_ms)
    for name, field in _FIELDS.items():
        facts[name][:] = headers.columns[field]
    facts["last_offset"][:] = headers.last_offsets
    facts["attributes"][:] &= _KNOWN_BITS
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
    columns = [pa.array(np.ascontiguousarray(column)) for column in facts.numbers.T]
    payloads = pa.array(facts.payloads, pa.binary())
    append_ms = pa.nulls(len(facts), pa.int64())
    if facts.append_ms is not None:
        append_ms = pa.array(facts.append_ms, mask=facts.append_ms == NO_APPEND_TIME)
    return pa.RecordBatch.from_arrays([*columns, payloads, append_ms], schema=SCHEMA)


def of_table(table: pa.RecordBatch) -> Facts:
    """Facts from a table of `SCHEMA`."""
    numbers = np.stack([table.column(name).to_numpy() for name in NUMBERS], axis=1)
    payloads = table.column("payload")
    is_control = payloads.is_valid().to_numpy(zero_copy_only=False)
    append_ms = table.column("append_ms").fill_null(NO_APPEND_TIME).to_numpy()
    return Facts(numbers, payloads.to_numpy(zero_copy_only=False), is_control, append_ms)


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
        (facts["records"], LEFT_OUT, _INT32),
    )
    return all(bool(((values >= least) & (values <= most)).all()) for values, least, most in limits)


class KeptRecords:
    """Counts and largest create times of the records that are kept of batches."""

    def __init__(self, facts: Facts, *, may_lose: bool) -> None:
        """Count no record yet.

        Args:
            may_lose: False if all records of the batches are kept.
        """
        self.counts = np.zeros(len(facts), np.int64)
        self._facts, self._may_lose = facts, may_lose
        self._largest_ms = np.full(len(facts), NO_TIMESTAMP, np.int64)

    def add(self, places: npt.NDArray[Any], created_ms: Int64Array) -> None:
        """Count records by the places of their batches, in offset order."""
        self.counts += np.bincount(places, minlength=len(self.counts))
        if not self._may_lose:
            return
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
        facts = self._facts
        is_changed = (self.counts < facts["records"]) & ~facts.is_control
        if not is_changed.any():
            return facts, np.ones(len(facts), np.bool_)
        is_kept = (self.counts > 0) | (facts["records"] == 0) | facts.is_control
        facts = replace(facts, numbers=facts.numbers.copy())
        is_restamped = is_changed & ~facts.is_stamped
        facts["max_timestamp"][is_restamped] = self._largest_ms[is_restamped]
        facts["records"][is_changed] = self.counts[is_changed]
        return facts.taken(is_kept), is_kept
