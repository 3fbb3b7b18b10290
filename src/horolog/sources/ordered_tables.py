"""Records in the order of their times as Arrow tables. Imports pyarrow."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog.record.timestamps import NO_TIMESTAMP
from horolog.sources.clocks import APPEND
from horolog.sources.plan import Stretch

__all__ = ["PARTITION", "TableBuffer", "untimed_rows"]

PARTITION: Final = "partition"
"""The column that `TableBuffer` adds."""

_Times = npt.NDArray[np.int64]


class _TableRun(NamedTuple):
    """Rows of one stretch in the order of their times, then of their offsets."""

    partition: int
    start: int
    times: _Times
    table: pa.RecordBatch


class TableBuffer:
    """Rows that were read and not given out, as runs of tables.

    Args:
        times: the column of the times: `timestamp_ms` or `append_ms`.
        max_bytes: of a table that is given out, if its rows are of one size.
    """

    def __init__(self, times: str, max_bytes: int) -> None:
        self._times = times
        self._max_bytes = max_bytes
        self._runs: list[_TableRun] = []
        self.size = 0
        """Bytes of the rows that are held."""

    def add(self, stretch: Stretch, item: pa.RecordBatch) -> None:
        """Add the rows of a table that have a time."""
        table, known = item, _timed(item, self._times)
        if not known.all():
            table = table.filter(pa.array(known))
        if not table.num_rows:
            return
        times = table.column(self._times).to_numpy(zero_copy_only=False)
        if (times[1:] < times[:-1]).any():  # a difference may be too large
            order = _order(times)
            times, table = times[order], table.take(pa.array(order))
        self._runs.append(_TableRun(stretch.partition.partition, stretch.start, times, table))
        self.size += table.nbytes

    def release(self, before_ms: int | None) -> Iterator[pa.RecordBatch]:
        """Give out the rows that are earlier than a time in order; all of them if that is None."""
        for cut_ms in self._cuts(before_ms):
            yield from self._release(cut_ms)

    def _cuts(self, before_ms: int | None) -> list[int | None]:
        """Return times at which to cut a large release, so that little is copied at a time."""
        parts = self.size // (2 * self._max_bytes) + 1
        if parts < 3:
            return [before_ms]
        times = np.sort(np.concatenate([run.times for run in self._runs]))
        cuts = times[np.arange(1, parts) * (len(times) // parts)]
        if before_ms is not None:
            cuts = cuts[cuts < before_ms]
        return [*np.unique(cuts).tolist(), before_ms]

    def _release(self, before_ms: int | None) -> Iterator[pa.RecordBatch]:
        given: list[_TableRun] = []
        kept: list[_TableRun] = []
        for run in self._runs:
            end = len(run.times)
            if before_ms is not None:
                end = int(np.searchsorted(run.times, before_ms, side="left"))
            if end:
                given.append(run._replace(times=run.times[:end], table=run.table.slice(0, end)))
            if end < len(run.times):
                kept.append(_rest(run, end))
        self._runs = kept
        self.size = sum(run.table.nbytes for run in kept)
        if not given:
            return
        given.sort(key=lambda run: run[:2])  # rows of the same time stay in this order
        times = np.concatenate([run.times for run in given])
        order = _order(times)
        whole = pa.concat_batches([_with_partition(run.table, run.partition) for run in given])
        rows = max(1, len(order) * self._max_bytes // max(1, whole.nbytes))
        for first in range(0, len(order), rows):
            yield whole.take(pa.array(order[first : first + rows]))


def _order(times: _Times) -> _Times:
    """Return the places of times in their order; equal ones stay in theirs.

    A sort of numbers that hold both the time and the place is several times as fast as one of
    places, and fits 64 bits unless times are centuries apart.
    """
    first, last, bits = int(times.min()), int(times.max()), len(times).bit_length()
    if (last - first).bit_length() + bits > 63:
        return np.argsort(times, kind="stable")
    keys = (times - first << bits) | np.arange(len(times))
    keys.sort()
    places: _Times = keys & ((1 << bits) - 1)
    return places


def _rest(run: _TableRun, end: int) -> _TableRun:
    """Return the rest of a run; a copy if little is left, so that the other rows are freed."""
    times, table = run.times[end:], run.table.slice(end)
    if len(times) * 4 < len(run.times):
        times, table = times.copy(), table.take(pa.array(np.arange(len(times))))
    return run._replace(times=times, table=table)


def untimed_rows(table: pa.RecordBatch, times: str, partition: int) -> pa.RecordBatch | None:
    """Return the rows of a table that have no time, with their partition; None without any."""
    known = _timed(table, times)
    if known.all():
        return None
    return _with_partition(table.filter(pa.array(~known)), partition)


def _timed(table: pa.RecordBatch, times: str) -> npt.NDArray[np.bool_]:
    column = table.column(times)
    if times == APPEND:
        known: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
        return known
    timed: npt.NDArray[np.bool_] = pc.not_equal(column, NO_TIMESTAMP).to_numpy(zero_copy_only=False)
    return timed


def _with_partition(table: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    numbers = pa.repeat(pa.scalar(partition, pa.int32()), len(table))
    return pa.RecordBatch.from_arrays([*table.columns, numbers], [*table.schema.names, PARTITION])
