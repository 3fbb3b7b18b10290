"""Compare a stretch of one partition with another log, record by record; runs in a task.

Batches whose records are the same bytes at the same places are equal without being decoded. Others
are decoded on both sides and compared column by column, as far as both have rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from horolog.client import NoAnswer
from horolog.errors import HorologError, RequestRefused
from horolog.jobs.counting import count
from horolog.jobs.mirroring.batches import rows_in
from horolog.jobs.mirroring.offset_map import mapped
from horolog.jobs.mirroring.reading import source_batches
from horolog.record.batch import HEADER_SIZE, MAGIC
from horolog.record.stretches import Int64Array
from horolog.record.timestamps import TimeRange, TimestampType
from horolog.record.transactions import WalkedBatch
from horolog.sources.ahead import ahead
from horolog.sources.options import ReadOptions
from horolog.sources.plan import Stretch
from horolog.storage.names import TopicPartition

FIELDS: Final = {
    "key": "key",
    "value": "value",
    "headers": "headers",
    "time": "timestamp_ms",
    "type": "timestamp_type",
}
"""Parts of records that can be compared, each with its column."""

COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
"""Options of the format with which both sides are read."""

_MOST_BYTES_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference in a stretch of a partition."""

    topic: str
    partition: int
    offset: int | None
    """Offset at the source; None if only the target has a record."""
    target_offset: int | None
    field: str
    """One of `FIELDS`, or `offset`, `record` (only one side has it) or `error`."""
    source: str
    target: str

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.field == "error":
            return f"{place}: {self.source}; it is {self.target}"
        if self.offset is not None:
            place += f", offset {self.offset}"
        if self.target_offset is not None and self.target_offset != self.offset:
            place += f" (target: {self.target_offset})"
        return (
            f"{place}: {self.field} is {self.source} at the source and {self.target} at the target"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Part of one of the two logs: offsets from `start` to before `end`."""

    stretches: tuple[Stretch, ...]
    start: int
    end: int
    options: ReadOptions
    times: TimeRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStretch:
    """A stretch of a partition at the source, and its place at the target.

    `points` map offsets (`mapped`). Without any point the offsets are the same, or ignored.
    """

    partition: TopicPartition
    source: Side
    target: Side
    columns: tuple[str, ...]
    points: Int64Array
    ignores_offsets: bool = False

    @property
    def offsets(self) -> int:
        """Number of offsets at the source."""
        return self.source.end - self.source.start

    def expected(self, offsets: Int64Array) -> Int64Array:
        """Return the target's offsets for records with these offsets at the source."""
        return mapped(self.points, offsets) if len(self.points) else offsets


@dataclass(slots=True)
class ComparedBatch:
    """Outcome of a stretch, or of a partition that is not read."""

    partition: TopicPartition
    records: int = 0
    same_bytes: int = 0
    """Number of equal records in batches that were not decoded."""
    difference: Difference | None = None

    def add(self, records: int) -> None:
        """Add records that are equal."""
        self.records += records
        count(records)


def uncompared(partition: TopicPartition, why: str, then: str = "not compared") -> ComparedBatch:
    """Return the outcome of a partition that cannot be compared."""
    difference = Difference(*partition, None, None, "error", why, then)
    return ComparedBatch(partition, difference=difference)


def walk(unit: ComparedStretch) -> ComparedBatch:
    """Compare a stretch up to its first difference; an error is a difference, too."""
    walked = ComparedBatch(unit.partition)
    try:
        _compare(unit, walked)
    except (HorologError, OSError) as error:
        why, then = str(error), "not compared"
        if isinstance(error, _TargetError):
            why, then = then, why
        walked.difference = uncompared(unit.partition, why, then).difference
    return walked


class _TargetError(HorologError):
    """Error while the target was read."""


class _WalkCursor:
    """Position in the records of one side, which come as batches or as rows."""

    def __init__(self, side: Side, unit: ComparedStretch, batches: Iterator[WalkedBatch]) -> None:
        self._side = side
        self._columns = tuple(dict.fromkeys((*unit.columns, "offset", "timestamp_ms")))
        self._batches = batches
        self._batch: WalkedBatch | None = None
        self._rows: pa.Table | None = None

    def batch(self) -> WalkedBatch | None:
        """Return the next batch if it is whole within the stretch; None where rows are needed."""
        if self._rows is None and self._batch is None:
            self._batch = next(self._batches, None)
        batch = self._batch
        if self._rows is not None or batch is None:
            return None
        header = batch.header
        is_whole = header.base_offset >= self._side.start and header.next_offset <= self._side.end
        is_dense = header.records_count == header.last_offset_delta + 1
        is_plain = header.magic == MAGIC and not header.has_delete_horizon
        return (
            batch if is_whole and is_dense and is_plain and self._side.times.is_everything else None
        )

    def pass_batch(self) -> None:
        """Continue after the batch."""
        self._batch = None

    def rows(self) -> pa.Table | None:
        """Return the next rows, at least one; None at the end."""
        while self._rows is None or not self._rows.num_rows:
            if self._batch is None:
                self._batch = next(self._batches, None)
            if self._batch is None:
                self._rows = None
                return None
            side = self._side
            self._rows = rows_in(self._batch.data, side.times, self._columns, side.start, side.end)
            self._batch = None
        return self._rows

    def pass_rows(self, count: int) -> None:
        """Continue after the next `count` rows."""
        assert self._rows is not None
        self._rows = self._rows.slice(count) if count < self._rows.num_rows else None


def _batches(side: Side) -> Iterator[WalkedBatch]:
    """Yield the batches of a side that contain records for consumers.

    Raises:
        CorruptBatch: one is damaged.
    """
    with ahead(source_batches(side.stretches, side.start, side.options)) as pieces:
        for piece in pieces:
            for batch in piece.walk():
                batch.verify()
                if batch.is_visible:
                    yield batch


def _of_target(batches: Iterator[WalkedBatch]) -> Iterator[WalkedBatch]:
    """Yield the batches of the target, and mark errors as the target's."""
    try:
        yield from batches
    except (HorologError, OSError) as error:
        if isinstance(error, NoAnswer | RequestRefused):
            raise
        raise _TargetError(str(error)) from error


def _compare(unit: ComparedStretch, walked: ComparedBatch) -> None:
    one = _WalkCursor(unit.source, unit, _batches(unit.source))
    two = _WalkCursor(unit.target, unit, _of_target(_batches(unit.target)))
    while True:
        first, second = one.batch(), two.batch()
        if first is not None and second is not None and _is_same(first, second, unit):
            walked.add(first.header.records_count)
            walked.same_bytes += first.header.records_count
            one.pass_batch()
            two.pass_batch()
            continue
        ours, theirs = one.rows(), two.rows()
        if ours is None or theirs is None:
            if ours is not None or theirs is not None:
                walked.difference = _one_sided(unit, ours, theirs)
            return
        rows = min(ours.num_rows, theirs.num_rows)
        walked.difference = _first_difference(unit, ours.slice(0, rows), theirs.slice(0, rows))
        if walked.difference is not None:
            return
        walked.add(rows)
        one.pass_rows(rows)
        two.pass_rows(rows)


def _is_same(first: WalkedBatch, second: WalkedBatch, unit: ComparedStretch) -> bool:
    """True if the bytes of two batches show that their records are equal."""
    ours, theirs = first.header, second.header
    if (
        ours.records_count != theirs.records_count
        or ours.codec_number != theirs.codec_number
        or ours.base_timestamp != theirs.base_timestamp
        or ours.timestamp_type != theirs.timestamp_type
    ):
        return False
    is_stamped = ours.timestamp_type is TimestampType.LOG_APPEND_TIME
    if is_stamped and ours.max_timestamp != theirs.max_timestamp:
        return False
    if not unit.ignores_offsets:
        ends = unit.expected(np.array([ours.base_offset, ours.last_offset]))
        if int(ends[0]) != theirs.base_offset or int(ends[1]) != theirs.last_offset:
            return False
    return first.data[HEADER_SIZE:] == second.data[HEADER_SIZE:]


def _first_difference(unit: ComparedStretch, ours: pa.Table, theirs: pa.Table) -> Difference | None:
    unequal: list[tuple[int, str]] = []
    offsets, there = (side["offset"].to_numpy() for side in (ours, theirs))
    if not unit.ignores_offsets:
        wrong = np.flatnonzero(unit.expected(offsets) != there)
        if len(wrong):
            unequal.append((int(wrong[0]), "offset"))
    for field, column in FIELDS.items():
        if column in unit.columns:
            row = _first_unequal(ours[column], theirs[column])
            if row is not None:
                unequal.append((row, field))
    if not unequal:
        return None
    row, field = min(unequal, key=lambda place: place[0])
    offset, target_offset = int(offsets[row]), int(there[row])
    if field == "offset":
        if target_offset > int(unit.expected(offsets[row : row + 1])[0]):
            missing = _record(ours, row)
            return Difference(*unit.partition, offset, target_offset, "record", missing, "missing")
        return _one_sided(unit, None, theirs.slice(row))
    column = FIELDS[field]
    values = (shown(side[column][row].as_py()) for side in (ours, theirs))
    return Difference(*unit.partition, offset, target_offset, field, *values)


def _first_unequal(one: pa.ChunkedArray, two: pa.ChunkedArray) -> int | None:
    """Return the first row in which two columns differ; None if they are equal."""
    if one.equals(two):
        return None
    low, high = 0, len(one) - 1  # the rows before `low` are equal, those up to `high` are not
    while low < high:
        middle = (low + high) // 2
        size = middle + 1 - low
        if one.slice(low, size).equals(two.slice(low, size)):
            low = middle + 1
        else:
            high = middle
    return low


def _one_sided(unit: ComparedStretch, ours: pa.Table | None, theirs: pa.Table | None) -> Difference:
    """Return the difference where only one side has a next record."""
    offset, target_offset = (
        None if side is None else int(side["offset"][0].as_py()) for side in (ours, theirs)
    )
    there, missing = ("missing" if side is None else _record(side, 0) for side in (ours, theirs))
    return Difference(*unit.partition, offset, target_offset, "record", there, missing)


def _record(rows: pa.Table, row: int) -> str:
    fields = [
        f"{field} {shown(rows[column][row].as_py())}"
        for field, column in FIELDS.items()
        if column in rows.column_names and column != "timestamp_type"
    ]
    return ", ".join(fields)


def shown(value: object) -> str:
    """Return a value as text, cut if it is long."""
    if isinstance(value, bytes | bytearray):
        cut = bytes(value[:_MOST_BYTES_SHOWN])
        more = f"... ({len(value)} bytes)" if len(value) > len(cut) else ""
        return f"{cut!r}{more}"
    text = "null" if value is None else str(value)
    return text if len(text) <= 4 * _MOST_BYTES_SHOWN else f"{text[: 4 * _MOST_BYTES_SHOWN]}..."
