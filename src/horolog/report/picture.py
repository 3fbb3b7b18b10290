"""Picture of a topic's records by both clocks: append time across, create time up.

Cells are squares of a power of two milliseconds. Their number is limited: when there
would be more, all become twice as large. Memory does not grow with the log.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from horolog.record.time_stats import LATENCY_BOUNDS, LATENCY_COUNT

MOST_CELLS: Final = 20_000
_BOUNDS: Final = np.asarray(LATENCY_BOUNDS, np.int64)
_FAR_MS: Final = 1 << 61  # differences of such times do not overflow
_WIDEST: Final = 1_024  # cells across
MOST_ODD: Final = 20
"""Records of each kind that are named."""
_SHARE: Final = 0.005  # of the records, at each end, that may be out of the picture


class Odd(NamedTuple):
    """Record that stands out; times in milliseconds."""

    away_ms: int
    """From create to append; negative if it was created later."""
    partition: int
    offset: int
    create_ms: int
    append_ms: int


class Picture:
    """Counts of a log's records by both clocks, in a limited number of cells."""

    def __init__(self) -> None:
        self.records = self.out_of_order = 0
        self.latencies = [0] * LATENCY_COUNT
        """Records in each class of `LATENCY_BOUNDS`; the first class was created later."""
        self.untimed = 0
        """Records without a create time: they are in no cell."""
        self.unplaced = 0
        """Records whose append time is not known: as well."""
        self._shift = 0
        self._cells: Counter[tuple[int, int]] = Counter()
        self._across: tuple[int, int] | None = None
        self._last: dict[int, int] = {}  # create time of the last record of each partition
        self._late: list[tuple[int, Odd]] = []
        self._early: list[tuple[int, Odd]] = []

    def add(
        self, partition: int, append_ms: int | None, offsets: Sequence[int], times: Sequence[int]
    ) -> None:
        """Add the records of a batch, with their create times; -1 means no time."""
        self.records += len(times)
        if append_ms is None:
            self.unplaced += len(times)
            return
        created = np.asarray(times, np.int64)
        timed = created != -1
        count = int(timed.sum())
        self.untimed += len(times) - count
        if not count:
            return
        created_ms = created[timed]
        before = np.concatenate(([self._last.get(partition, created_ms[0])], created_ms[:-1]))
        self.out_of_order += int((created_ms < before).sum())
        self._last[partition] = int(created_ms[-1])
        classes = np.searchsorted(
            _BOUNDS, append_ms - np.clip(created_ms, -_FAR_MS, _FAR_MS), side="right"
        )
        for place, number in enumerate(np.bincount(classes, minlength=LATENCY_COUNT).tolist()):
            self.latencies[place] += number
        self._note_odd(partition, append_ms, np.asarray(offsets, np.int64)[timed], created_ms)
        first_ms, last_ms = self._across or (append_ms, append_ms)
        self._across = min(first_ms, append_ms), max(last_ms, append_ms)
        while (self._across[1] >> self._shift) - (self._across[0] >> self._shift) >= _WIDEST:
            self._coarsen()
        rows, counts = np.unique(created_ms >> self._shift, return_counts=True)
        column = append_ms >> self._shift
        for row, number in zip(rows.tolist(), counts.tolist(), strict=True):
            self._cells[column, row] += number
        while len(self._cells) > MOST_CELLS:
            self._coarsen()

    def _coarsen(self) -> None:
        self._shift += 1
        merged: Counter[tuple[int, int]] = Counter()
        for (column, row), number in self._cells.items():
            merged[column >> 1, row >> 1] += number
        self._cells = merged

    def _note_odd(self, partition: int, append_ms: int, offsets: Any, created: Any) -> None:
        """Keep the latest record of each batch, and the record that is most ahead."""
        for kept, sign, place in (
            (self._late, 1, int(created.argmin())),
            (self._early, -1, int(created.argmax())),
        ):
            away_ms = sign * (append_ms - int(created[place]))
            if away_ms > 0 and (len(kept) < MOST_ODD or away_ms > kept[0][0]):
                odd = Odd(
                    sign * away_ms, partition, int(offsets[place]), int(created[place]), append_ms
                )
                heapq.heappush(kept, (away_ms, odd))
                if len(kept) > MOST_ODD:
                    heapq.heappop(kept)

    def as_json(self) -> dict[str, Any]:
        """Return the cells within view, and the numbers of records above and below it.

        In view is what all but one record in a hundred need, and the times at which records came.
        """
        size = 1 << self._shift
        low, high = self._view()
        inside, above, below = [], Counter[int](), Counter[int]()
        for (column, row), number in sorted(self._cells.items()):
            if row < low:
                below[column] += number
            elif row > high:
                above[column] += number
            else:
                inside.append((column, row, number))
        first, last = self._across or (0, 0)
        return {
            "records": self.records,
            "untimed": self.untimed,
            "unplaced": self.unplaced,
            "future": self.latencies[0],
            "out_of_order": self.out_of_order,
            "cell_ms": size,
            "columns": [first >> self._shift, last >> self._shift],
            "rows": [low, high],
            "cells": inside,
            "above": list(above.items()),
            "below": list(below.items()),
            "late": [odd._asdict() for _, odd in sorted(self._late, reverse=True)],
            "early": [odd._asdict() for _, odd in sorted(self._early, reverse=True)],
        }

    def _view(self) -> tuple[int, int]:
        if self._across is None:
            return 0, 0
        counts: Counter[int] = Counter()
        for (_, row), number in self._cells.items():
            counts[row] += number
        rows, total = sorted(counts), sum(counts.values())
        margin, so_far = total * _SHARE, 0
        low = high = rows[0]
        for row in rows:
            so_far += counts[row]
            if so_far <= margin:
                low = row
            high = row
            if so_far >= total - margin:
                break
        first, last = (append_ms >> self._shift for append_ms in self._across)
        return min(low, first), max(high, last)
