"""Parquet files that a task writes for a stretch of a partition, one or more for each hour.

Rows wait in memory until there are enough of an hour for a row group, and all of them together
take no more than `WAITING_BYTES`: then the hour that has most is written. Where records of very
many hours are mixed, as of years of rare events, small files of hours are joined (`hours.py`).

    key, value          binary, as they are
    topic, partition    of the record
    offset              int64
    timestamp           UTC, null without a time and for years before 1 and after 9999
    timestampMs         the same, exactly; -1 is no time
    timestampType       0 CreateTime, 1 LogAppendTime, -1 none (of format v0)
    headers             list of key and value
    appendTimeMs        when the broker appended it; null where that is unknown
    seenTimeMs          when a follower saw it, where appendTimeMs is unknown; else null
    createTimeMs        the producer's time, where it is not timestampMs; else null
"""

import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from horolog.errors import HorologError
from horolog.jobs.archives import facts as of_batches
from horolog.jobs.archives.hours import (
    COARSEST,
    END_MS,
    FIRST_MS,
    Hours,
    directory_of,
    name_of,
)
from horolog.jobs.archives.manifest import ArchivedFile
from horolog.jobs.archives.store import ArchiveStore
from horolog.record.columns import batch_schema
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.names import TopicPartition

ROW_GROUP_BYTES: Final = 16 << 20
WAITING_BYTES: Final = 48 << 20
SMALL_BYTES: Final = 1 << 20
"""Size in memory of a small hour; files are joined where more than `MOST_SMALL` hours are small."""
MOST_SMALL: Final = 32
MOST_OPEN = 64
_FEW_VALUES = ("topic", "partition", "timestampType")

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), False),
        pa.field("partition", pa.int32(), False),
        pa.field("offset", pa.int64(), False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestampMs", pa.int64(), False),
        pa.field("timestampType", pa.int32(), False),
        pa.field("headers", batch_schema(("headers",)).field("headers").type),
        pa.field("appendTimeMs", pa.int64()),
        pa.field("createTimeMs", pa.int64()),
        pa.field("seenTimeMs", pa.int64()),
    ]
)


class PartFile:
    """Writer of one Parquet file in row groups, which counts and checks its content.

    It is of records of an hour, or of facts of batches, which have none. In a `with` block it is
    removed if it is not finished.

    Raises:
        StorageFailed: it cannot be made.
    """

    def __init__(self, store: ArchiveStore, path: str, hour: str | None) -> None:
        self.hour = hour
        self._store, self._path = store, path
        self._schema = of_batches.SCHEMA if hour is None else SCHEMA
        self._rows = self._first_offset = self._last_offset = 0
        self._times_ms: list[int] = []
        """Smallest and largest times of its row groups."""
        self._sink = store.create(path)
        names = [name for name in _FEW_VALUES if name in self._schema.names]
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=names or False,
            column_encoding={
                field.name: "DELTA_BINARY_PACKED"
                for field in self._schema
                if field.name not in names
                and (pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type))
            },
            write_page_checksum=True,
            store_schema=False,
            version="2.6",
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.give_up()

    def write(self, tables: Sequence[pa.RecordBatch]) -> None:
        """Append rows in offset order, as one row group."""
        table = pa.Table.from_batches(tables)
        first, last = ("base_offset", "last_offset") if self.hour is None else ("offset", "offset")
        if not self._rows:
            self._first_offset = table.column(first)[0].as_py()
        self._last_offset = table.column(last)[-1].as_py()
        if self.hour is not None:
            span = pc.min_max(table.column("timestampMs"))
            self._times_ms += span["min"].as_py(), span["max"].as_py()
        self._rows += table.num_rows
        self._writer.write_table(table, row_group_size=1 << 40)

    def finish(self) -> ArchivedFile:
        """Close and sync the file, and return its line for the manifest."""
        self._writer.close()
        self._sink.close()
        self._store.settle(self._path)
        return ArchivedFile(
            path=self._path,
            hour=self.hour,
            rows=self._rows,
            first_offset=self._first_offset,
            last_offset=self._last_offset,
            first_ms=min(self._times_ms, default=None),
            last_ms=max(self._times_ms, default=None),
            size=self._sink.size,
            crc=self._sink.crc,
        )

    def give_up(self) -> None:
        """Close the unfinished file and remove it; errors are ignored."""
        for step in (self._writer.close, self._sink.close, lambda: self._store.remove(self._path)):
            with suppress(HorologError, OSError, ValueError):
                step()


@dataclass(slots=True)
class _Waiting:
    tables: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class HourFiles:
    """Writers of the files of one partition, whose rows come in offset order."""

    def __init__(
        self,
        store: ArchiveStore,
        partition: TopicPartition,
        hours: Hours,
        *,
        target_bytes: int,
    ) -> None:
        self._store = store
        self._partition = partition
        self._hours = hours
        self._target_bytes = target_bytes
        self._token = uuid.uuid4().hex[:12]
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}
        self._bytes = 0
        self._open: OrderedDict[int, PartFile] = OrderedDict()
        self._done: list[ArchivedFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of `reading.SCHEMA` to the files of their hours.

        Raises:
            StorageFailed: the archive cannot be written.
        """
        times: npt.NDArray[np.int64] = rows.column("timestamp_ms").to_numpy()
        hours = self._hours.of(times)
        shaped = shaped_rows(rows, self._partition)
        first = int(hours[0])
        if (hours == first).all():
            self._wait(first, shaped)
            return
        order = np.argsort(hours, kind="stable")
        ordered = hours[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
            self._wait(int(ordered[start]), shaped.take(pa.array(order[start:end])))

    def add_facts(self, tables: list[pa.RecordBatch]) -> None:
        """Write the facts of all batches to a file of their own."""
        if not tables or not sum(table.num_rows for table in tables):
            return
        with PartFile(self._store, path_in(self._partition, None, self._name()), None) as file:
            file.write(tables)
            self._done.append(file.finish())

    def close(self) -> list[ArchivedFile]:
        """Write the remaining rows, sync all files, and return them."""
        self._write_small()
        for hour in list(self._open):
            self._close(hour)
        return self._done

    def abandon(self) -> None:
        """Remove all files, since no manifest will list them."""
        for opened in self._open.values():
            opened.give_up()
        for file in self._done:
            with suppress(HorologError):
                self._store.remove(file.path)

    def _wait(self, hour: int, rows: pa.RecordBatch) -> None:
        waiting = self._waiting.setdefault(hour, _Waiting())
        waiting.tables.append(rows)
        size = rows.get_total_buffer_size()
        waiting.bytes += size
        self._bytes += size
        if waiting.bytes >= ROW_GROUP_BYTES:
            self._write(hour)
        while self._bytes > WAITING_BYTES:
            largest = max(self._waiting, key=lambda hour: self._waiting[hour].bytes)
            if self._waiting[largest].bytes < SMALL_BYTES:
                self._write_small()
            else:
                self._write(largest)

    def _write_small(self) -> None:
        """Write all waiting rows; join the small files of very many hours."""
        small = [
            hour
            for hour, waiting in self._waiting.items()
            if hour not in self._open and waiting.bytes < SMALL_BYTES
        ]
        for hour in self._waiting.keys() - set(small):
            self._write(hour)
        joined: dict[str, list[int]] = {}
        for level in range(COARSEST + 1):
            joined = defaultdict(list)
            for hour in sorted(small):
                joined[name_of(hour, level)].append(hour)
            if len(joined) <= MOST_SMALL:
                break
        for name, hours in joined.items():
            if len(hours) == 1 and name == name_of(hours[0]):
                self._write(hours[0])
            else:
                self._write_joined(name, hours)

    def _write_joined(self, name: str, hours: Sequence[int]) -> None:
        tables = []
        for hour in hours:
            waiting = self._waiting.pop(hour)
            self._bytes -= waiting.bytes
            tables += waiting.tables
        table = pa.Table.from_batches(tables).combine_chunks().sort_by("offset").combine_chunks()
        with self._created(name) as opened:
            opened.write(table.to_batches())
            self._done.append(opened.finish())

    def _write(self, hour: int) -> None:
        waiting = self._waiting.pop(hour)
        self._bytes -= waiting.bytes
        opened = self._open.get(hour)
        if opened is None:
            while len(self._open) >= MOST_OPEN:
                self._close(next(iter(self._open)))
            opened = self._open[hour] = self._created(name_of(hour))
        self._open.move_to_end(hour)
        opened.write(waiting.tables)
        if opened.size >= self._target_bytes:
            self._close(hour)

    def _created(self, name: str) -> PartFile:
        return PartFile(self._store, path_in(self._partition, name, self._name()), name)

    def _close(self, hour: int) -> None:
        self._done.append(self._open.pop(hour).finish())

    def _name(self) -> str:
        self._number += 1
        return f"{self._token}-{self._number}"


def path_in(partition: TopicPartition, hour: str | None, name: str) -> str:
    """Return the path of a file of records of an hour, or of facts of batches."""
    where = "batches" if hour is None else "records"
    directory = "" if hour is None else f"/{directory_of(hour)}"
    return f"{where}/{partition.topic}{directory}/{partition.partition}-{name}.parquet"


def shaped_rows(rows: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
    """Return rows of `reading.SCHEMA` with the columns of the archive."""
    count = rows.num_rows
    times = rows.column("timestamp_ms").to_numpy()
    created = rows.column("create_ms").to_numpy()
    hidden = (times == NO_TIMESTAMP) | (times < FIRST_MS) | (times >= END_MS)
    shown = pa.array(times, pa.timestamp("ms", tz="UTC"), mask=hidden if hidden.any() else None)
    same = created == times
    creates = pa.nulls(count, pa.int64()) if same.all() else pa.array(created, mask=same)
    columns = {
        **{name: rows.column(read) for read, name in STORED.items()},
        "topic": pa.repeat(pa.scalar(partition.topic), count),
        "partition": pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        "timestamp": shown,
        "createTimeMs": creates,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


STORED: Final = {
    "key": "key",
    "value": "value",
    "headers": "headers",
    "offset": "offset",
    "timestamp_ms": "timestampMs",
    "timestamp_type": "timestampType",
    "create_ms": "createTimeMs",
    "append_ms": "appendTimeMs",
    "seen_ms": "seenTimeMs",
}
"""Columns of the archive by those of `reading.SCHEMA`; the others follow from these."""


def rows_of(shaped: pa.RecordBatch, names: Iterable[str] = tuple(STORED)) -> pa.RecordBatch:
    """Return columns of `reading.SCHEMA` from rows of the archive."""
    columns = {name: shaped.column(STORED[name]) for name in names}
    if "create_ms" in columns:
        columns["create_ms"] = pc.coalesce(columns["create_ms"], shaped.column("timestampMs"))
    return pa.RecordBatch.from_pydict(columns)
