"""Writers that Spark calls for `write.format("horolog")` and `writeStream`.

    driver   `writer()` or `streamWriter()` checks the options and the columns
    a task   `write()` appends its rows (`write_task`) and says how many
    driver   `commit()` or `abort()`; neither changes rows that were appended at least once.
             Where rows are written exactly once, in transactions, it commits or aborts those

A streaming query makes a new writer for each micro-batch, and once more for `commit()`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from horolog.spark.errors import in_one_sentence
from horolog.spark.workers import SentToWorkers
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rows import SinkColumns
from horolog.spark.write.task import TaskCommitMessage, abort_batch, commit_batch, write_rows

_logger = logging.getLogger(__name__)

_Messages = Sequence[WriterCommitMessage | None]
_EndOfBatch = Callable[[_Messages, WriteOptions], None]


class _RowWriter(SentToWorkers):
    """Base of both writers: steps in tasks, and afterwards in the driver."""

    def __init__(self, columns: SinkColumns, options: WriteOptions) -> None:
        self.columns = columns
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Append the rows of one task."""
        with in_one_sentence():
            return write_rows(iterator, self.columns, self.options)

    def _end(self, end: _EndOfBatch, messages: _Messages, where: str = "") -> None:
        with in_one_sentence():
            end(messages, self.options)
        _report(messages, where)


class LogBatchWriter(_RowWriter, DataSourceArrowWriter):
    """Writer of the rows of a DataFrame."""

    def commit(self, messages: _Messages) -> None:
        """Commit the tasks' transactions, if rows are written exactly once."""
        self._end(commit_batch, messages)

    def abort(self, messages: _Messages) -> None:
        """Abort the tasks' transactions; rows written at least once stay."""
        self._end(abort_batch, messages)


class LogStreamWriter(_RowWriter, DataSourceStreamArrowWriter):
    """Writer of the rows of each micro-batch."""

    def commit(self, messages: _Messages, batchId: int) -> None:
        """Commit the transactions of a micro-batch; Spark may call this twice."""
        end = partial(commit_batch, batch_id=batchId)
        self._end(end, messages, f" in micro-batch {batchId}")

    def abort(self, messages: _Messages, batchId: int) -> None:
        """Abort the transactions of a micro-batch; rows written at least once stay."""
        self._end(abort_batch, messages, f" in micro-batch {batchId}")


def _report(messages: _Messages, where: str) -> None:
    """Log in the driver the treatment of records with refused times."""
    done = [message for message in messages if isinstance(message, TaskCommitMessage)]
    _logger.info("%d records written%s", sum(message.records for message in done), where)
    if nulled := sum(message.nulled for message in done):
        _logger.warning(
            "%d records%s were written at the writer's clock: brokers refuse their times",
            nulled,
            where,
        )
    if letters := sum(message.dead_letters for message in done):
        _logger.warning(
            "%d records%s went to the dead-letter topic: brokers refuse their times",
            letters,
            where,
        )
