"""Append times of many batches as arrays (time_entries.py has the format of the entries)."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from horolog.record.kernels.crc_rows import crc32c_of_rows
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage.companion.time_entries import BATCH_BITS, CHECK_BITS, ENTRY, SEEN_BIT

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

KNOWN, SEEN, UNKNOWN = 0, 1, 2

_ENTRY: Final = np.dtype([("time", ">i8"), ("place", ">u4")])
_CHECK_AT: Final = 7  # the byte of the time that checks an entry


class TimeColumns(NamedTuple):
    """Append times as arrays. A row holds from its offset up to the offset of the next row."""

    offsets: Int64Array
    ms: Int64Array
    kinds: Bytes
    """`KNOWN`, `SEEN` by a follower, or `UNKNOWN`, where `ms` is without meaning."""

    def of(self, offsets: Int64Array) -> Self:
        """Return a row for each of these offsets, none of which is before the first row."""
        rows = np.searchsorted(self.offsets, offsets, "right") - 1
        return self._replace(offsets=offsets, ms=self.ms[rows], kinds=self.kinds[rows])


class ChangedTimes(NamedTuple):
    """Batches whose append times differ from those before. The times are all known, or all seen."""

    offsets: Int64Array
    """Offset of the first record of each batch."""
    ms: Int64Array
    identities: npt.NDArray[np.uint32]
    is_seen: bool

    def packed(self, base_offset: int, middle_ms: int) -> bytes:
        """Return the entries of these batches for a companion, as `packed_entry` packs one."""
        entries = np.empty(len(self.offsets), _ENTRY)
        kept = self.identities.astype(np.int64) & BATCH_BITS
        seen = SEEN_BIT if self.is_seen else 0
        entries["time"] = (self.ms - middle_ms << CHECK_BITS) | seen | kept
        entries["place"] = self.offsets - base_offset << 1
        rows = entries.view(np.uint8).reshape(-1, ENTRY.size)
        rows[:, _CHECK_AT] = _checks(rows)
        return entries.tobytes()


def columns_of(stretches: Sequence[AppendTimeStretch]) -> TimeColumns:
    """Convert stretches to arrays."""
    kinds = [UNKNOWN if ms is None else SEEN if seen else KNOWN for _, ms, seen in stretches]
    return TimeColumns(
        np.array([stretch.offset for stretch in stretches], np.int64),
        np.array([stretch.ms or 0 for stretch in stretches], np.int64),
        np.array(kinds, np.uint8),
    )


def unpacked(data: bytes, base_offset: int, middle_ms: int) -> TimeColumns | None:
    """Parse entries as arrays; None if there are none, or one is damaged or out of order.

    An incomplete last entry is left out.
    """
    data = data[: len(data) - len(data) % ENTRY.size]
    if not data:
        return None
    entries = np.frombuffer(data, _ENTRY)
    times, places = entries["time"].astype(np.int64), entries["place"].astype(np.int64)
    rows = np.frombuffer(data, np.uint8).reshape(-1, ENTRY.size)
    deltas = times >> CHECK_BITS
    unchecked = rows.copy()
    unchecked[:, _CHECK_AT] = 0
    are_intact = rows[:, _CHECK_AT] == _checks(unchecked)
    if (np.diff(deltas) < 0).any() or (np.diff(places) < 0).any() or not are_intact.all():
        return None
    kinds = np.where(times & SEEN_BIT, np.uint8(SEEN), np.uint8(KNOWN))
    kinds[places & 1 > 0] = UNKNOWN
    return TimeColumns(base_offset + (places >> 1), deltas + middle_ms, kinds)


def _checks(rows: Bytes) -> Bytes:
    crc = crc32c_of_rows(rows)
    return (crc ^ crc >> 8 ^ crc >> 16 ^ crc >> 24).astype(np.uint8)
