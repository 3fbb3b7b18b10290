"""`format("horolog")`: the data source, and the reader of one batch query.

    load()      a LogSource is made in a process of the driver and takes the bounds of
                the read; Spark keeps it, pickled, with the DataFrame
    an action   in another such process: `reader()`, `pushFilters()`, `partitions()`
    a task      `read()` of one partition, by a reader that was pickled before
                `partitions()` was called: what a task needs travels in its partition

Batch reads only, so far.
"""

import sys
import uuid
from collections.abc import Iterator, MutableMapping, Sequence
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from horolog.errors import HorologError, Misconfigured
from horolog.spark import columns, planning, pushes
from horolog.spark.bounds import Bounds
from horolog.spark.filters import Wanted, absorb
from horolog.spark.options import ReadOptions
from horolog.spark.reading import read_task
from horolog.storage.names import TopicPartition

FORMAT = "horolog"

_ASKS_FOR_A_READ = ("subscribe", "subscribepattern", "assign", "path", "paths")


class LogSource(DataSource):
    """What Spark makes of `format("horolog")`, once for each `load()`."""

    cores: int | None = None
    """How many tasks run at a time, where `register` could tell."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.load_id = uuid.uuid4().hex
        self.bounds: dict[TopicPartition, Bounds] | None = None
        if any(name in options for name in _ASKS_FOR_A_READ):
            # Here and not in schema(), which is not called if the user gives one.
            try:
                read = ReadOptions.parse(options)
                if read.fits_batch:
                    self.bounds = planning.bounds_now(read)
            except HorologError as error:
                # Spark prints the traceback before the sentence that says what is wrong.
                raise error.with_traceback(None) from None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a read that gives no schema."""
        return columns.ddl(_columns(ReadOptions.parse(self.options)))

    def reader(self, schema: StructType) -> "LogReader":
        """The reader of a batch query with these columns."""
        read = ReadOptions.parse(self.options)
        read.batch_starting()
        fields = [(field.name, field.dataType.simpleString()) for field in schema]
        names = columns.check_schema(fields)
        if read.columns is not None and names != _columns(read):
            raise Misconfigured("A read has either a schema or option 'columns', not both")
        nullable = [field.nullable for field in schema]
        if _filters_may_come():
            reader = FilteringLogReader(read, self.bounds or {}, names, nullable, self.cores)
            reader.load_id = self.load_id
            return reader
        return LogReader(read, self.bounds or {}, names, nullable, self.cores)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 - Spark's name
        """Refused."""
        raise Misconfigured(
            'format("horolog") reads batches only, so far: use spark.read, not spark.readStream'
        )

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refused."""
        raise Misconfigured('format("horolog") cannot be written to, so far')

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> NoReturn:
        """Refused."""
        raise Misconfigured('format("horolog") cannot be written to, so far')


class LogReader(DataSourceReader):
    """Reads within bounds that were taken before; everything is wanted."""

    def __init__(
        self,
        options: ReadOptions,
        bounds: dict[TopicPartition, Bounds],
        names: Sequence[str],
        nullable: Sequence[bool],
        cores: int | None,
    ) -> None:
        self.options = options
        self.bounds = bounds
        self.names = tuple(names)
        self.nullable = tuple(nullable)
        self.cores = cores
        self.wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        """What each task is to read."""
        tasks = planning.tasks(self.options, self.bounds, self.wanted, self.cores)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if partition.value is None:  # Spark's stand-in where there is nothing to read
            return iter(())
        return read_task(partition.value, self.wanted, self.options, self.names, self.nullable)


class FilteringLogReader(LogReader):
    """Reads what the query's filters leave."""

    load_id = ""
    push: pushes.Push | None = None

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that narrow the read; the others stay with Spark."""
        wanted, left = absorb(filters)
        if pushes.SPARK_KEEPS_SCANS_APART:
            self.wanted = wanted
            return left
        unmarked = [condition for condition in filters if not pushes.is_mark(condition)]
        if len(unmarked) < len(filters):
            self.wanted, self.push = pushes.push(self.load_id, wanted)
        return unmarked

    def partitions(self) -> list[InputPartition]:
        """What each task is to read."""
        try:
            return super().partitions()
        except HorologError as error:
            if self.push is not None:
                self.push.withdrawn()
            raise error.with_traceback(None) from None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if self.push is not None:
            self.push.begun()
        return super().read(partition)


def _columns(read: ReadOptions) -> tuple[str, ...]:
    if read.columns is not None:
        return columns.named_columns(read.columns)
    return columns.default_columns(
        include_headers=read.include_headers, include_timestamp_ms=read.include_timestamp_ms
    )


def _filters_may_come() -> bool:
    """Whether Spark may push filters to the reader that this process makes.

    Spark refuses a reader with `pushFilters` while push-down is off, as it is by default,
    instead of not calling it. Filters come in a process that runs a module of its own;
    in the one that plans without them, a reader that takes none does as well.
    """
    modules = "data_source_pushdown_filters", "plan_data_source_read"
    with_filters, without = (f"pyspark.sql.worker.{name}" in sys.modules for name in modules)
    return with_filters or not without
