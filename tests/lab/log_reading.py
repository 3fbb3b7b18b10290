"""Reads with format "horolog" as Spark's planner and tasks do them, without Spark or Java.

What travels between processes there is pickled here.
"""

import pickle
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.datasource import CaseInsensitiveDict, Filter, InputPartition

from horolog.sources import columns
from horolog.spark.read.batch import FilteringLogReader
from horolog.spark.source.log_source import LogSource

_HEADER = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
)
_TYPES = {
    "binary": types.BinaryType(),
    "string": types.StringType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    columns.TYPES[columns.HEADERS]: types.ArrayType(_HEADER),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schema_of(names: Iterable[str]) -> types.StructType:
    """The schema that Spark makes of these columns."""
    return types.StructType(
        [types.StructField(name, _TYPES[columns.TYPES[name]]) for name in names]
    )


def moment(timestamp_ms: float) -> datetime:
    """A literal as Spark pushes it."""
    return _EPOCH + timedelta(microseconds=round(timestamp_ms * 1000))


class Read:
    """One `load()`; any number of actions on it."""

    source_class = LogSource

    def __init__(self, *paths: str | Path, schema: types.StructType | None = None, **options: Any):
        given = CaseInsensitiveDict(
            {name.replace("__", "."): str(v) for name, v in options.items()}
        )
        if len(paths) == 1:
            given["path"] = str(paths[0])
        elif paths:
            given["paths"] = str([str(path) for path in paths]).replace("'", '"')
        source = self.source_class(given)
        source.scans_apart = True
        names = columns.default_columns("includeTimestampMs")
        self.schema = schema or schema_of(names)
        self._source = pickle.dumps(source)
        self.left: list[Filter] = []

    def plan(self, *filters: Filter) -> tuple[FilteringLogReader, list[InputPartition]]:
        """What an action plans, as a task is given it."""
        reader = pickle.loads(self._source).reader(self.schema)
        self.left = list(reader.pushFilters([*filters]))
        in_tasks = pickle.loads(pickle.dumps(reader))
        partitions = pickle.loads(pickle.dumps(reader.partitions()))
        return in_tasks, partitions or [InputPartition(None)]

    def tables(self, *filters: Filter) -> list[pa.RecordBatch]:
        reader, partitions = self.plan(*filters)
        return [table for partition in partitions for table in reader.read(partition)]

    def rows(self, *filters: Filter) -> list[dict[str, Any]]:
        """Rows before Spark applies the filters that were left to it."""
        return [row for table in self.tables(*filters) for row in table.to_pylist()]

    def offsets(self, *filters: Filter) -> list[int]:
        return [row["offset"] for row in self.rows(*filters)]


def bytes_read_by(action: Any) -> int:
    """How much this process read from files while it ran, by the kernel's own count."""

    def so_far() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["rchar"])

    own = -so_far() + so_far()
    before = so_far()
    action()
    return so_far() - before - own
