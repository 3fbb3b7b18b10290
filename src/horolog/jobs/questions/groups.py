"""Sums of many records by key, in numpy arrays.

A table of records becomes a `GroupTable` with a row per key. `Pending` collects the rows of many
tables, adds up equal keys, and hands the sums on when there are too many keys for memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.record.stretches import Int64Array

Flags = npt.NDArray[np.bool_]

MOST_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class GroupTable:
    """Columns of keys and sums, with a row for each key."""

    keys: Mapping[str, Int64Array]
    sums: Mapping[str, Int64Array | Flags] = field(default_factory=dict)
    smallest: Mapping[str, Int64Array] = field(default_factory=dict)
    largest: Mapping[str, Int64Array] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows, with repeated keys."""
        return len(next(iter(self.keys.values())))

    @property
    def columns(self) -> dict[str, Int64Array | Flags]:
        """Columns of keys and sums by name."""
        return {**self.keys, **self.sums, **self.smallest, **self.largest}

    def added_up(self) -> "GroupTable":
        """Return the table with each key once."""
        if not self.rows:
            return self
        joined = self._joined()
        if joined.rows <= 1:
            return joined
        order = np.lexsort(tuple(joined.keys.values()))
        return joined._taken(order)._joined()

    def _joined(self) -> "GroupTable":
        """Return the table with equal neighbouring keys as one row."""
        changes = np.zeros(self.rows, np.bool_)
        changes[0] = True
        for key in self.keys.values():
            changes[1:] |= key[1:] != key[:-1]
        starts = np.flatnonzero(changes)
        return GroupTable(
            {name: key[starts] for name, key in self.keys.items()},
            {name: _sums(values, starts) for name, values in self.sums.items()},
            {name: np.minimum.reduceat(values, starts) for name, values in self.smallest.items()},
            {name: np.maximum.reduceat(values, starts) for name, values in self.largest.items()},
        )

    def _taken(self, places: npt.NDArray[np.intp]) -> "GroupTable":
        parts: Iterator[dict[str, Any]] = (
            {name: values[places] for name, values in part.items()}
            for part in (self.keys, self.sums, self.smallest, self.largest)
        )
        return GroupTable(*parts)


def _sums(values: Int64Array | Flags, starts: npt.NDArray[np.intp]) -> Int64Array:
    if values.dtype == np.bool_ and not values.any():  # as most are of a sound log
        return np.zeros(len(starts), np.int64)
    if len(starts) == 1:
        whole = np.count_nonzero(values) if values.dtype == np.bool_ else values.sum()
        return np.array([whole], np.int64)
    return np.add.reduceat(values, starts, dtype=np.int64)


def _one_after_the_other(groups: Sequence[GroupTable]) -> GroupTable:
    if len(groups) == 1:
        return groups[0]
    return GroupTable(
        *(
            {
                name: np.concatenate([getattr(group, part)[name] for group in groups])
                for name in getattr(groups[0], part)
            }
            for part in ("keys", "sums", "smallest", "largest")
        )
    )


class Pending:
    """Groups of several tables that wait to be added up."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._groups: list[GroupTable] = []
        self.rows = 0

    def add(self, groups: GroupTable) -> GroupTable | None:
        """Add the groups of a table; return sums if there are too many for memory."""
        if not groups.rows:
            return None
        added = groups.added_up()
        self._groups.append(added)
        self.rows += added.rows
        if self.rows <= self._most_rows:
            return None
        joined = _one_after_the_other(self._groups).added_up()
        self._groups, self.rows = [joined], joined.rows
        return self.take() if 2 * joined.rows > self._most_rows else None

    def take(self) -> GroupTable | None:
        """Return the sums of all groups, and remove them; None if there are none."""
        if not self._groups:
            return None
        whole = _one_after_the_other(self._groups).added_up()
        self._groups, self.rows = [], 0
        return whole
