"""Read the rows of an archived partition in offset order, from the files of many hours."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from horolog.errors import CorruptFile
from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives.manifest import (
    ArchivedFile,
    overlapping,
)
from horolog.jobs.archives.parts import SCHEMA, STORED
from horolog.jobs.archives.store import ArchiveStore
from horolog.record.batch_producers import producer_column
from horolog.record.stretches import Int64Array
from horolog.storage.names import MAX_OFFSET

BATCH_ROWS: Final = 32_768
BATCH_BYTES: Final = 4 << 20


def read_rows(
    store: ArchiveStore,
    file: ArchivedFile,
    start: int,
    end: int,
    *,
    column: str = "offset",
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file whose offset is in `[start, end)`, in a few megabytes each.

    Args:
        file: as the manifest names it.
        column: that has it; its values ascend.
        columns: those to be read; all by default.

    Raises:
        CorruptFile: it is damaged.
        FileMissing, StorageFailed: it is gone, or cannot be read.
    """
    schema = of_batches.SCHEMA if column in of_batches.SCHEMA.names else SCHEMA
    names = schema.names if columns is None else list(dict.fromkeys((*columns, column)))
    never_null = [name for name in names if not schema.field(name).nullable]
    with store.open(file.path) as source:
        try:
            with pq.ParquetFile(
                source, page_checksum_verification=True, pre_buffer=not store.is_local
            ) as parquet:
                stored = parquet.schema_arrow
                lacking = of_batches.OPTIONAL.intersection(names).difference(stored.names)
                names = [name for name in names if name not in lacking]
                _require_columns(stored, schema, names)
                for group in _groups(parquet, column, start, end):
                    facts = parquet.metadata.row_group(group)
                    row_bytes = max(1, facts.total_byte_size // max(1, facts.num_rows))
                    rows = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
                    for batch in parquet.iter_batches(rows, row_groups=[group], columns=names):
                        for name in never_null:
                            if batch.column(name).null_count:
                                raise pa.ArrowInvalid(f"the column {name} has nulls")
                        offsets = batch.column(column).to_numpy()
                        first, last = np.searchsorted(offsets, (start, end))
                        if first < last:
                            for name in lacking:
                                none = pa.nulls(len(batch), schema.field(name).type)
                                batch = batch.append_column(schema.field(name), none)
                            yield batch.slice(first, last - first)
        except (pa.ArrowInvalid, OSError) as error:
            raise store.damaged(file.path, error) from None


def _require_columns(stored: pa.Schema, schema: pa.Schema, names: Iterable[str]) -> None:
    """Refuse a file without the columns that an archive has, or with other types."""
    for name in names:
        place = stored.get_field_index(name)
        if place < 0:
            raise pa.ArrowInvalid(f"there is no column {name}")
        kind, expected = stored.field(place).type, schema.field(name).type
        if pa.types.is_list(expected):  # Parquet has its own names of what is within
            is_right = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
            is_right = is_right and {"key", "value"} <= {field.name for field in kind.value_type}
        else:
            is_right = kind == expected
        if not is_right:
            raise pa.ArrowInvalid(f"the column {name} is of type {kind} and not {expected}")


def _groups(parquet: pq.ParquetFile, column: str, start: int, end: int) -> Iterator[int]:
    """Yield the row groups that may have a value of a column in a range."""
    leaves = parquet.metadata.schema
    place = [leaves.column(number).path for number in range(len(leaves))].index(column)
    for group in range(parquet.metadata.num_row_groups):
        known = parquet.metadata.row_group(group).column(place).statistics
        if known is None or not known.has_min_max or (known.max >= start and known.min < end):
            yield group


class OrderedRows:
    """Rows of many files in offset order, with the columns of `parts.STORED`."""

    def __init__(
        self, store: ArchiveStore, files: Sequence[ArchivedFile], start: int, end: int
    ) -> None:
        self._store = store
        self._start, self._end = start, end
        self._waiting = sorted(
            overlapping(files, start, end), key=lambda file: file.first_offset, reverse=True
        )
        self._open: list[_RowCursor] = []

    def reach(self, offset: int) -> int:
        """Return the largest offset up to which `before` needs no further table of a file.

        There is one table of each open file in memory, whatever its records weigh.
        """
        for cursor in self._open:
            offset = min(offset, cursor.reach)
        while self._waiting and self._waiting[-1].first_offset < offset:
            offset = min(offset, self._next_opened().reach)
        return offset

    def _next_opened(self) -> "_RowCursor":
        file = self._waiting.pop()
        rows = read_rows(self._store, file, self._start, self._end, columns=[*STORED.values()])
        cursor = _RowCursor(rows)
        self._open.append(cursor)
        return cursor

    def before(self, offset: int) -> pa.RecordBatch:
        """Return the rows before an offset that were not returned yet, in order."""
        while self._waiting and self._waiting[-1].first_offset < offset:
            self._next_opened()
        by_file = [tables for cursor in self._open if (tables := cursor.before(offset))]
        self._open = [cursor for cursor in self._open if not cursor.is_done]
        tables = [table for tables in by_file for table in tables] or [_NO_ROWS]
        rows = tables[0] if len(tables) == 1 else pa.concat_batches(tables)
        return rows if len(by_file) < 2 else rows.take(pc.sort_indices(rows.column("offset")))


class _RowCursor:
    """Position in the rows of one file."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = rows
        self._at: pa.RecordBatch | None = next(rows, None)

    @property
    def is_done(self) -> bool:
        return self._at is None

    @property
    def reach(self) -> int:
        """Offset behind the table in memory; past all offsets at the end of the file."""
        return MAX_OFFSET if self._at is None else self._at.column("offset")[-1].as_py() + 1

    def before(self, offset: int) -> list[pa.RecordBatch]:
        tables = []
        while self._at is not None:
            offsets = self._at.column("offset").to_numpy()
            count = int(np.searchsorted(offsets, offset))
            if count:
                tables.append(self._at.slice(0, count))
            if count < self._at.num_rows:
                self._at = self._at.slice(count)
                break
            self._at = next(self._rows, None)
        return tables


_NO_ROWS: Final = pa.RecordBatch.from_pylist([], SCHEMA)


def read_facts(
    store: ArchiveStore,
    files: Sequence[ArchivedFile],
    start: int,
    end: int,
    *,
    with_left_out: bool = False,
) -> Iterator[of_batches.Facts]:
    """Yield the facts of the batches whose last offset is in `[start, end)`, in offset order.

    Args:
        with_left_out: also of those that the archive leaves out.

    Raises:
        CorruptFile: a file is damaged, or says of batches what cannot be.
    """
    last_offset = -1
    for file in sorted(overlapping(files, start, end), key=lambda file: file.first_offset):
        for table in read_rows(store, file, start, end, column="last_offset"):
            facts = of_batches.of_table(table)
            if not of_batches.are_possible(facts):
                raise CorruptFile(f"{store.name}/{file.path} describes batches that cannot be")
            before = np.concatenate(([last_offset], facts["last_offset"][:-1]))
            if (facts["base_offset"] <= before).any():
                raise CorruptFile(f"{store.name}/{file.path}: batches are out of order")
            last_offset = int(facts["last_offset"][-1])
            is_left_out = facts["records"] == of_batches.LEFT_OUT
            if is_left_out.any() and not with_left_out:
                facts = facts.taken(~is_left_out)
            if len(facts):
                yield facts


class ArchivedProducers:
    """Columns of producers for the rows of one file, asked for in offset order.

    Headers are read as rows come, and those before the rows are dropped.
    """

    def __init__(
        self, store: ArchiveStore, batches: Sequence[ArchivedFile], file: ArchivedFile
    ) -> None:
        """Read nothing yet.

        Args:
            batches: the files of headers that may have batches of the file.
            file: of records of one partition.
        """
        self._name = f"{store.name}/{file.path}"
        self._rest = read_facts(store, batches, file.first_offset, MAX_OFFSET)
        self._last = np.empty(0, np.int64)
        self._facts = np.empty((0, len(_OF_PRODUCERS)), np.int64)

    def column(self, name: str, offsets: Int64Array) -> pa.Array:
        """Return a column of `PRODUCER_TYPES` for rows at or after those of the last call.

        Raises:
            CorruptFile: a row belongs to no batch, or a file is damaged.
        """
        first, last = int(offsets[0]), int(offsets[-1])
        while not len(self._last) or self._last[-1] < last:
            following = next(self._rest, None)
            if following is None:
                break
            facts = np.stack([following[field] for field in _OF_PRODUCERS], axis=1)
            self._last = np.append(self._last, following["last_offset"])
            self._facts = np.concatenate((self._facts, facts))
        gone = int(np.searchsorted(self._last, first))
        self._last, self._facts = self._last[gone:], self._facts[gone:]
        places = np.searchsorted(self._last, offsets)
        if places[-1] == len(self._last) or (self._facts[places, 0] > offsets).any():
            raise CorruptFile(f"{self._name}: there are records of no batch in the archive")
        return producer_column(name, self._facts, places, offsets)


_OF_PRODUCERS: Final = ("base_offset", "producer_id", "producer_epoch", "base_sequence")
