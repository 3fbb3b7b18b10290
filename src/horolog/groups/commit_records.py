"""The records of commits of the same partitions, copied from a template."""

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from horolog.groups.replay import records_of
from horolog.groups.rows import GroupChange, OffsetRow
from horolog.record.stamped import stamped_records

_NUMBERS: Final = re.compile(b"\xff+")
_TIME: Final = Struct(">q")
_FEW: Final = 8  # offsets of a run that are copied sooner one by one


class _Run(NamedTuple):
    """Offsets at even distances in the records, and in the request."""

    to: int
    """Position of the first one in the records."""
    step: int
    place: int
    """Position of the first one in the request."""
    stride: int
    offsets: int
    """Number of offsets."""


class CommitRecords:
    """The records of commits of the same partitions, which differ in offsets and time alone."""

    __slots__ = ("_each", "_runs", "_template", "_to_time", "_width", "count")

    def __init__(self, rows: Sequence[OffsetRow], places: Iterable[int], width: int) -> None:
        """Make the records of a commit, whose own offsets do not matter.

        Args:
            rows: the offsets, without metadata or expiry times.
            places: positions of the offsets in the requests of the commits.
            width: bytes of an offset there: 8, or 12 with the leader epoch that follows it.
        """
        self.count = len(rows)
        self._width = width
        # Offsets with leader epochs, and times, are what differs between the two.
        zeros, self._template = (
            stamped_records(records_of(GroupChange(offsets=_with_numbers(rows, number)), 0))
            for number in (0, -1)
        )
        differing = int.from_bytes(zeros, "big") ^ int.from_bytes(self._template, "big")
        numbers = _NUMBERS.finditer(differing.to_bytes(len(zeros), "big"))
        starts = [number.start() for number in numbers]
        self._to_time = starts[1] - starts[0]
        self._runs: list[_Run] = []
        for to, place in zip(starts[::2], places, strict=True):
            self._add(to, place)
        # Of short runs each offset: in the request, in the records, and its time there.
        self._each: list[tuple[slice, slice, slice]] = []
        for to, step, place, stride, count in self._runs:
            for _ in range(count if count <= _FEW else 0):
                time = slice(to + self._to_time, to + self._to_time + _TIME.size)
                self._each.append((slice(place, place + width), slice(to, to + width), time))
                to, place = to + step, place + stride
        self._runs = [run for run in self._runs if run.offsets > _FEW]

    def _add(self, to: int, place: int) -> None:
        if self._runs:
            run = self._runs[-1]
            step, stride = to - run.to, place - run.place
            if run.offsets == 1:
                self._runs[-1] = _Run(run.to, step, run.place, stride, 2)
                return
            if (step, stride) == (run.offsets * run.step, run.offsets * run.stride):
                self._runs[-1] = run._replace(offsets=run.offsets + 1)
                return
        self._runs.append(_Run(to, 1, place, 1, 1))

    def __len__(self) -> int:
        """Return the size of the records in bytes."""
        return len(self._template)

    def of(self, frame: bytes, commit_ms: int) -> bytearray:
        """Return the records of a commit.

        Args:
            frame: the request, which has the offsets in their places.
            commit_ms: when the offsets are committed, in milliseconds.
        """
        records, time = bytearray(self._template), _TIME.pack(commit_ms)
        for given, offset, of_time in self._each:
            records[offset] = frame[given]
            records[of_time] = time
        width = self._width
        for to, step, place, stride, count in self._runs:
            size, spaced = count * step, count * stride  # byte by byte, of all of them
            for byte in range(width):
                column = frame[place + byte : place + byte + spaced : stride]
                records[to + byte : to + byte + size : step] = column
            for at, value in enumerate(time, to + self._to_time):
                records[at : at + size : step] = bytes((value,)) * count
        return records


def _with_numbers(rows: Sequence[OffsetRow], number: int) -> list[OffsetRow]:
    return [row._replace(committed=number, leader_epoch=number, commit_ms=number) for row in rows]
