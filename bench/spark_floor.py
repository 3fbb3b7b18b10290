"""What Spark itself takes to pass rows to and from Python: a source and a sink that do no more.

    MadeRows      gives the rows of one batch again and again, shaped as horolog's are
    DroppedRows   takes rows, and counts them

No Python source or sink of the same rows can be faster: `spark_stream` and `spark_write` have a
row beside them. Spark's workers import this module: run both in the project's directory.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from horolog.sources import columns
from horolog.sources.reading import TABLE_BYTES
from horolog.sources.rows import RowShaper
from horolog.storage.names import TopicPartition

FLOOR = "nothing done"
_NAMES = columns.default_columns()


def register(spark: Any) -> None:
    """Let a session know both."""
    spark.dataSource.register(MadeRows)
    spark.dataSource.register(DroppedRows)


class MadeRows(DataSource):
    """A stream of this many `rows` in this many `tasks`, with values of `valueBytes`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "made"

    def schema(self) -> str:
        """The columns that horolog has by default."""
        return columns.ddl(_NAMES)

    def streamReader(self, schema: Any) -> "MadeStream":
        """A stream that is there as a whole from the start."""
        rows, tasks, value = (int(self.options[name]) for name in ("rows", "tasks", "valueBytes"))
        return MadeStream(rows, tasks, value)


@dataclass
class MadeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch of rows that cost nothing to make."""

    rows: int
    tasks: int
    value_bytes: int

    def initialOffset(self) -> dict[str, Any]:
        """The start."""
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """All rows."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing is to come."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end."""
        return {"rows": self.rows}

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end."""
        return {"rows": self.rows}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Equal parts of them."""
        cuts = [self.rows * cut // self.tasks for cut in range(self.tasks + 1)]
        return [InputPartition(b - a) for a, b in itertools.pairwise(cuts) if b > a]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        batch = self._batch()
        left = partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept."""

    def _batch(self) -> pa.RecordBatch:
        count = max(1, TABLE_BYTES // (self.value_bytes + 20))
        decoded = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([b"key-00000"] * count, pa.binary()),
                "value": pa.array([b"v" * self.value_bytes] * count, pa.binary()),
                "offset": pa.array(np.arange(count)),
                "timestamp_ms": pa.array(np.full(count, 1_700_000_000_000)),
                "timestamp_type": pa.array(np.zeros(count, np.int32)),
            }
        )
        shaper = RowShaper(_NAMES, [True] * len(_NAMES))
        shaper.begin(TopicPartition("made", 0))
        return shaper.shape(decoded)


class DroppedRows(DataSource):
    """A sink that keeps nothing."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "dropped"

    def writer(self, schema: Any, overwrite: bool) -> "DroppingWriter":
        """Of a batch."""
        return DroppingWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> "DroppingStreamWriter":
        """Of a stream."""
        return DroppingStreamWriter()


@dataclass
class Dropped(WriterCommitMessage):
    """How many rows a task was given."""

    rows: int


class DroppingWriter(DataSourceArrowWriter):
    """Takes the rows of a batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Dropped:
        """Count the rows of one task."""
        return Dropped(sum(batch.num_rows for batch in iterator))


class DroppingStreamWriter(DataSourceStreamArrowWriter):
    """Takes the rows of a stream."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Dropped:
        """Count the rows of one task."""
        return Dropped(sum(batch.num_rows for batch in iterator))
