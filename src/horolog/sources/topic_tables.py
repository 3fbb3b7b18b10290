"""A topic as a table that polars and DuckDB read: rows by time, partition and offset alone.

Imports pyarrow. `TopicTables` reads the ranges that a filter leaves; `TopicDataset` is a dataset of
pyarrow, whose scans read only what their columns and their filter need.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from horolog.errors import Misconfigured
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.sources.broker_log import BrokerLog
from horolog.sources.clocks import APPEND
from horolog.sources.cut_files import AsOf
from horolog.sources.expressions import APPEND_TIME, SCHEMA, fields_in, narrowed
from horolog.sources.file_log import FileLog
from horolog.sources.limits import TopicSelection
from horolog.sources.options import ReadOptions
from horolog.sources.planning import check_read, opened_log, plan_offsets
from horolog.sources.reading import tables_of
from horolog.sources.row_filter import RowFilter
from horolog.sources.stretch_reader import StretchReader

__all__ = ["TopicDataset", "TopicTables"]

_TABLE_BYTES: Final = 8 << 20
_DECODED: Final = {"timestamp": "timestamp_ms", APPEND_TIME: APPEND}
_MOST_US: Final = (1 << 63) - 1
_MOST_MS: Final = _MOST_US // 1000


class TopicTables:
    """Reads a topic of brokers, directories or an object store, as it is when it is read.

    Args:
        options: where the log is.
        on_rows: called with the number of rows of each table that was read.
        as_of: the time or the cut up to which the topic is read.
    """

    def __init__(
        self,
        options: ReadOptions,
        topic: str,
        on_rows: Callable[[int], None] = lambda rows: None,
        *,
        as_of: AsOf | None = None,
    ) -> None:
        self.options = replace(options, subscription=TopicSelection((topic,)), as_of=as_of)
        self.topic = topic
        self._on_rows = on_rows
        self._reading: set[StretchReader | BrokerLog] = set()

    def interrupt(self) -> None:
        """Make reads in other threads, which wait for brokers, fail now. Any thread may call it."""
        for reading in list(self._reading):
            reading.interrupt()

    @contextmanager
    def _noted(self, reading: StretchReader | BrokerLog | FileLog) -> Iterator[None]:
        if isinstance(reading, FileLog):
            yield
            return
        self._reading.add(reading)
        try:
            yield
        finally:
            self._reading.discard(reading)

    def read(
        self, names: Sequence[str], expression: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows for which an expression may be true, with these columns of `SCHEMA`.

        Rows for which it is false may be among them.

        Raises:
            Misconfigured: the topic or the path does not exist, or cannot be read as of the time.
            RequestRefused, NoAnswer: the broker refuses, or does not answer.
            DataLost: records are gone before they are read.
            CorruptBatch: a batch breaks the format or its checksum.
        """
        options, schema = self.options, pa.schema([SCHEMA.field(name) for name in names])
        with StretchReader(options) as reader, self._noted(reader):
            with opened_log(options) as log, self._noted(log):
                chosen = log.partitions()
                is_kept = options.brokers is None or reader.client.offsets.has_append_times()
                row_filter = RowFilter()
                if expression is not None:
                    numbers = {it.partition for it in chosen}
                    row_filter = narrowed(expression, numbers, by_append_time=is_kept)
                taken = [it for it in chosen if row_filter.takes(*it)]
                stretches = plan_offsets(log, taken, row_filter, {}, {}).stretches
            left_out = {"partition"} if is_kept else {"partition", APPEND_TIME}
            decoded = tuple(_DECODED.get(name, name) for name in names if name not in left_out)
            for stretch in stretches:
                with reader.losses(stretch):
                    for table in tables_of(
                        reader,
                        stretch,
                        row_filter,
                        options,
                        decoded or ("offset",),
                        max_bytes=_TABLE_BYTES,
                    ):
                        self._on_rows(len(table))
                        yield _shaped(table, schema, stretch.partition.partition)
            check_read(options, stretches, taken)


def _shaped(table: pa.RecordBatch, schema: pa.Schema, partition: int) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition, field.type), len(table)))
        elif _DECODED.get(field.name) == APPEND and APPEND not in table.schema.names:
            arrays.append(pa.nulls(len(table), field.type))
        elif field.name in _DECODED:
            times = table.column(_DECODED[field.name])
            arrays.append(_moments(times, field.type, has_none=field.name == "timestamp"))
        else:
            arrays.append(table.column(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _moments(times: pa.Array, kind: pa.DataType, *, has_none: bool) -> pa.Array:
    """Milliseconds as microseconds; those beyond 64 bits of these are infinite, as DuckDB's are."""
    unknown: npt.NDArray[np.bool_] = times.is_null().to_numpy(zero_copy_only=False)
    ms: npt.NDArray[np.int64] = times.fill_null(NO_TIMESTAMP).to_numpy(zero_copy_only=False)
    if has_none:
        unknown = unknown | (ms == NO_TIMESTAMP)
    us = np.clip(ms, -_MOST_MS, _MOST_MS) * 1000
    us[ms > _MOST_MS] = _MOST_US
    us[ms < -_MOST_MS] = -_MOST_US
    return pa.array(us, mask=unknown).cast(kind)


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A topic as a dataset of pyarrow, for what scans datasets with columns and a filter."""

    def __init__(self, tables: TopicTables) -> None:
        self._tables = tables

    @property
    def schema(self) -> pa.Schema:
        """The columns of a topic."""
        return SCHEMA

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name that is called with
        **how: Any,
    ) -> ds.Scanner:
        """A scan of the rows that satisfy a filter.

        Raises:
            Misconfigured: no such columns.
        """
        asked = list(SCHEMA.names if columns is None else columns)
        unknown = [name for name in asked if name not in SCHEMA.names]
        if unknown:
            raise Misconfigured(f"no such columns: {unknown}; there are {SCHEMA.names}")
        of_filter = frozenset[str]() if filter is None else fields_in(filter)
        names = [name for name in SCHEMA.names if name in of_filter or name in asked]
        names = names or ["offset"]
        return ds.Scanner.from_batches(
            self._tables.read(names, filter),
            schema=pa.schema([SCHEMA.field(name) for name in names]),
            columns=asked,
            filter=filter,
        )
