"""Data source of `format("horolog")`, which Spark asks for readers and writers.

load()      a LogSource is made in a process of the driver and reads the options;
            Spark keeps it, pickled, with the DataFrame
a query     in another such process: `reader()`, `pushFilters()`, and `partitions()`,
            which looks at the log and takes the bounds of the read
a task      `read()` of one partition, by that reader
"""

import uuid
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from horolog.errors import HorologError, Misconfigured
from horolog.sources import columns, planning
from horolog.sources.options import ReadOptions
from horolog.spark.errors import in_one_sentence
from horolog.spark.read import pushes
from horolog.spark.read.batch import FilteringLogReader, LogReader, filters_may_come
from horolog.spark.read.stream import LogStreamReader, RefusedStream
from horolog.spark.workers import exclude_modules_from_collection

if TYPE_CHECKING:
    from horolog.spark.write.options import WriteOptions
    from horolog.spark.write.rows import SinkColumns
    from horolog.spark.write.sink import LogBatchWriter, LogStreamWriter

FORMAT = "horolog"

NO_TABLE = (
    "Spark hands a Python data source no options of a table of its catalog, so that a table USING "
    "horolog cannot be queried: use CREATE TEMPORARY VIEW name USING horolog OPTIONS (...)"
)
_SPARK_TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    columns.TYPES[columns.HEADERS]: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
_ASKS_FOR_A_READ = ("subscribe", "subscribepattern", "topicspattern", "assign", "path", "paths")


class LogSource(DataSource):
    """Source of `format("horolog")`. Spark makes one for each `load()`."""

    cores: int | None = None
    """Number of tasks that run at a time, if `register` could tell."""
    scans_apart = pushes.SPARK_KEEPS_SCANS_APART
    """True if no scan can take the plan of another one."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if options.get("provider", "").lower() == FORMAT:  # the properties of CREATE TABLE
            with in_one_sentence():
                raise Misconfigured(NO_TABLE)
        self.load_id = uuid.uuid4().hex
        self.read: ReadOptions | None = None
        if any(name in options for name in _ASKS_FOR_A_READ):
            # Here and not in schema(), which is not called if the user gives one. Relative
            # times are those of the load().
            try:
                with in_one_sentence():
                    self.read = ReadOptions.parse(options)
                    planning.check_paths(self.read)
            except HorologError:
                if "topic" not in options:
                    raise
                # Options of a write, perhaps: a read parses them again.

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read that gives no schema.

        Not as DDL, whose `timestamp` is of the type that `spark.sql.timestampType` says.
        """
        with in_one_sentence():
            return _struct(_columns(self._asked()))

    def reader(self, schema: StructType) -> "LogReader":
        """Return the reader of a batch query with these columns."""
        with in_one_sentence():
            self._refuse_table()
            read = self._asked()
            read.batch_starting()
            names, nullable = _shape(read, schema)
            for name, option in columns.OF_STREAMS.items():
                if name in names:
                    raise Misconfigured(
                        f"Column {name} ({option}) is for streams: a batch has no records that "
                        "came before, or come"
                    )
        if not filters_may_come():
            return LogReader(read, names, nullable, self.cores)
        reader = FilteringLogReader(read, names, nullable, self.cores)
        reader.shared_load = None if self.scans_apart else self.load_id
        return reader

    def _asked(self) -> ReadOptions:
        if self.read is None:
            self.read = ReadOptions.parse(self.options)
            planning.check_paths(self.read)
        return self.read

    def _refuse_table(self) -> None:
        """Refuse a source without any option: a table that was created with its columns."""
        if not self.options:
            raise Misconfigured(
                "Option 'kafka.bootstrap.servers' must be specified (or a path, of a read). If "
                f"this is a table: {NO_TABLE}"
            )

    def streamReader(self, schema: StructType) -> LogStreamReader | RefusedStream:
        """Return the reader of a streaming query with these columns."""
        try:
            self._refuse_table()
            read = self._asked()
            read.stream_starting()
            return LogStreamReader(read, *_shape(read, schema), self.cores)
        except HorologError as error:
            # Raised here, Spark up to 4.3 would show an UnboundLocalError of its own instead.
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> "LogBatchWriter":
        """Return the writer of a batch query with these columns."""
        from horolog.spark.write.sink import LogBatchWriter  # noqa: PLC0415 - 60 ms of a reader's start

        with in_one_sentence():
            if overwrite:
                raise Misconfigured(
                    "Mode 'overwrite' is not supported: a log is appended to; write with "
                    '.mode("append")'
                )
            columns, options = self._sink(schema)
            options.refuse_nameless_batch()
            return LogBatchWriter(columns, options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LogStreamWriter":
        """Return the writer of a streaming query with these columns.

        `overwrite` is output mode complete: all rows of the result are appended each
        time, as by Spark's Kafka sink.
        """
        from horolog.spark.write.sink import LogStreamWriter  # noqa: PLC0415 - as in `writer`

        exclude_modules_from_collection()  # called twice for each micro-batch
        with in_one_sentence():
            columns, options = self._sink(schema)
            options.refuse_batch_number()
            return LogStreamWriter(columns, options)

    def _sink(self, schema: StructType) -> "tuple[SinkColumns, WriteOptions]":
        from horolog.spark.write.options import WriteOptions  # noqa: PLC0415 - as in `writer`
        from horolog.spark.write.rows import SinkColumns  # noqa: PLC0415 - as in `writer`

        self._refuse_table()
        options = WriteOptions.parse(self.options)
        return SinkColumns.of(_fields(schema), options.topic), options


def _shape(read: ReadOptions, schema: StructType) -> tuple[tuple[str, ...], list[bool]]:
    """Return the columns that Spark wants, and which of them may be null."""
    names = columns.check_schema(_fields(schema))
    if read.columns is not None and names != _columns(read):
        raise Misconfigured("A read has either a schema or option 'columns', not both")
    return names, [field.nullable for field in schema]


def _struct(names: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, _SPARK_TYPES[columns.TYPES[name]]) for name in names])


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _columns(read: ReadOptions) -> tuple[str, ...]:
    if read.columns is not None:
        return columns.named_columns(read.columns)
    return columns.default_columns(*read.included)
