"""Create and append times as columns, in addition to the columns of `decode`.

append_ms   when the broker appended a record; null where that is unknown
seen_ms     when a follower saw a record whose append time is unknown; null for all others
create_ms   its producer's time as the bytes hold it, also under LogAppendTime: stamping a
batch leaves it, packing it anew loses it (KIP-32's rejected option 1)
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.buffers import Buffer
from horolog.record.columns import decode
from horolog.record.stretches import stretch_of
from horolog.record.timestamps import AppendTimeStretch, TimeRange, TimestampType

APPEND = "append_ms"
SEEN = "seen_ms"
CREATE = "create_ms"
_CLOCKS = (APPEND, SEEN, CREATE)
_NEEDED = ("offset", "timestamp_ms", "timestamp_type")


def decode_with_clocks(
    buffer: Buffer,
    append_times: Callable[[int, int], Sequence[AppendTimeStretch]] | None,
    *,
    columns: Sequence[str],
    **how: Any,
) -> Iterator[pa.RecordBatch]:
    """Decode batches, with the columns of this module where they are asked for.

    Args:
        append_times: gives them in order, for offsets from the first up to the second. Of
            batches that are stamped with LogAppendTime it need not know them; None if it knows
            no others.
        columns: of `decode`, and of this module.
    """
    clocks = [name for name in _CLOCKS if name in columns]
    if not clocks:
        yield from decode(buffer, columns=columns, **how)
        return
    needed = [name for name in columns if name not in _CLOCKS]
    needed += [name for name in _NEEDED if name not in needed]
    created: _CreateTimes | None = None
    for table in decode(buffer, columns=needed, **how):
        offsets: npt.NDArray[np.int64] = table.column("offset").to_numpy()
        arrays = dict(zip(table.schema.names, table.columns, strict=True))
        if (APPEND in clocks or SEEN in clocks) and len(offsets):
            stretches = append_times(int(offsets[0]), int(offsets[-1]) + 1) if append_times else ()
            arrays |= _append_columns(stretches, offsets, table, clocks)
        if CREATE in clocks:
            created = created or _CreateTimes(buffer, how)
            arrays[CREATE] = created.column(table, offsets)
        yield pa.RecordBatch.from_pydict(arrays)


def appended_in(table: pa.RecordBatch, times: TimeRange) -> pa.RecordBatch:
    """Return the rows with an append time in a range, none with an unknown one."""
    column = table.column(APPEND)
    values: npt.NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False)
    known = column.is_valid().to_numpy(zero_copy_only=False)
    taken = known & (values >= times.first_ms) & (values <= times.last_ms)
    return table if taken.all() else table.filter(pa.array(taken))


def _append_columns(
    stretches: Sequence[AppendTimeStretch],
    offsets: npt.NDArray[np.int64],
    table: pa.RecordBatch,
    asked: Sequence[str],
) -> dict[str, pa.Array]:
    """Return columns of append times, and of seen times where append times are unknown."""
    starts = np.fromiter((stretch.offset for stretch in stretches), np.int64, len(stretches))
    times = np.fromiter((stretch.ms or 0 for stretch in stretches), np.int64, len(stretches))
    unknown = np.fromiter(
        (stretch.known_ms is None for stretch in stretches), np.bool_, len(stretches)
    )
    seen = np.fromiter((stretch.is_seen for stretch in stretches), np.bool_, len(stretches))
    # One more for what is before the first, which a place of -1 finds.
    times, unknown, seen = np.append(times, 0), np.append(unknown, True), np.append(seen, False)
    place = stretch_of(starts, offsets)
    is_null, values, is_seen = unknown[place], times[place], seen[place]
    stamped = is_null & _is_stamped(table)
    if stamped.any():  # its batch says it
        values = np.where(stamped, table.column("timestamp_ms").to_numpy(), values)
        is_null, is_seen = is_null & ~stamped, is_seen & ~stamped
    missing = {APPEND: is_null, SEEN: ~is_seen}
    return {
        name: pa.array(values, mask=mask if mask.any() else None)
        for name, mask in missing.items()
        if name in asked
    }


def _is_stamped(table: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    kinds: npt.NDArray[np.int32] = table.column("timestamp_type").to_numpy()
    stamped: npt.NDArray[np.bool_] = kinds == int(TimestampType.LOG_APPEND_TIME)
    return stamped


class _CreateTimes:
    """Create times of a buffer, decoded a second time only where batches are stamped."""

    def __init__(self, buffer: Buffer, how: dict[str, Any]) -> None:
        self._buffer = buffer
        self._how = {
            name: value
            for name, value in how.items()
            if name not in ("from_ms", "to_ms", "aborted")
        }
        self._offsets: npt.NDArray[np.int64] | None = None
        self._times: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def column(self, table: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> pa.Array:
        """Return the create times of a table's rows."""
        times: npt.NDArray[np.int64] = table.column("timestamp_ms").to_numpy()
        stamped = _is_stamped(table)
        if not stamped.any():
            return pa.array(times)
        if self._offsets is None:
            columns = ("offset", "timestamp_ms")
            tables = list(decode(self._buffer, columns=columns, as_created=True, **self._how))
            self._offsets, self._times = (
                np.concatenate([table.column(name).to_numpy() for table in tables])
                for name in columns
            )
        return pa.array(
            np.where(stamped, self._times[np.searchsorted(self._offsets, offsets)], times)
        )
