"""Map from offsets of the source to offsets of the target, for one partition.

    <topic>-<partition>.offsets: for each point i64 offset at the source, i64 offset at the target

A point is written where the two offsets stop to advance together. That is at the first record,
behind what is not mirrored (markers, aborted records, gaps of compaction), and behind records of
other producers at the target. Between points both advance by one a record. The file is synced
before the position that it belongs to is recorded (`Ledger`). The next run cuts off the points
beyond that position.
"""

from bisect import bisect_left
from collections.abc import Iterable
from struct import Struct
from typing import Final

import numpy as np

from horolog.errors import CorruptFile
from horolog.record.stretches import Int64Array
from horolog.storage.files import Files

Point = tuple[int, int]

_POINT: Final = Struct(">qq")


class OffsetMap:
    """Points of one partition's map, in a file."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._count = files.size(path) // _POINT.size

    def cut(self, offset: int) -> None:
        """Remove the points at or after an offset of the source."""
        count = self._first_from(offset)
        if self._files.exists(self._path):
            self._files.truncate(self._files.get(self._path), count * _POINT.size)
        self._count = count

    def add(self, points: Iterable[Point]) -> None:
        """Append points to the file, and sync it.

        Raises:
            StorageFailed: the points cannot be written.
        """
        data = b"".join(_POINT.pack(*point) for point in points)
        if not data:
            return
        is_new = not self._files.exists(self._path)
        file = self._files.create(self._path) if is_new else self._files.get(self._path)
        self._files.write_at(file, [data], self._count * _POINT.size)
        self._files.sync(file)
        if is_new:
            self._files.sync_path(self._path.rpartition("/")[0])
        self._count += len(data) // _POINT.size

    def first(self) -> Point | None:
        """Return the oldest point; None if the map is empty."""
        return self._point(0) if self._count else None

    def between(self, start: int, end: int) -> tuple[Point, ...]:
        """Return the points that map the source's offsets in the range [start, end)."""
        first = max(0, self._first_from(start + 1) - 1)
        return tuple(self._point(index) for index in range(first, self._first_from(end)))

    def translate(self, offset: int, target_end: int) -> int | None:
        """Return the target offset of the first record at or after an offset of the source.

        `target_end` is the offset after the last mirrored record. None if nothing was mirrored.
        """
        if not self._count:
            return None
        after = self._first_from(offset + 1)
        if not after:
            return self._point(0)[1]
        source, target = self._point(after - 1)
        limit = self._point(after)[1] if after < self._count else target_end
        return min(target + offset - source, limit)

    def _first_from(self, offset: int) -> int:
        """Return the index of the first point at or after an offset."""
        return bisect_left(range(self._count), offset, key=lambda index: self._point(index)[0])

    def _point(self, index: int) -> Point:
        file = self._files.get(self._path)
        data = self._files.read_at(file, _POINT.size, index * _POINT.size)
        if len(data) < _POINT.size:
            raise CorruptFile(f"{self._path} became shorter while it was read")
        source, target = _POINT.unpack(data)
        return source, target


def mapped(points: Int64Array, offsets: Int64Array) -> Int64Array:
    """Return the offsets at the target of offsets of the source, by the points before them.

    Args:
        points: a row for each, with its offset at the source and at the target.
    """
    at = np.maximum(np.searchsorted(points[:, 0], offsets, "right") - 1, 0)
    targets: Int64Array = points[at, 1] + offsets - points[at, 0]
    return targets
