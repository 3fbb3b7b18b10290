"""One task of a write: opens a producer, appends the task's rows and reports their number.

    rows -> sink_rows (runs of one topic) -> client.Producer -> what it says in the commit message

At least once: a task that fails, or is killed, leaves what it has appended, and Spark runs
it again. Within an attempt an idempotent producer appends nothing twice. With option
`exactlyOnce` each attempt is a transaction (`transactions`), which `commit_batch`, in the driver,
commits.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from horolog.client import Client
from horolog.client.producer import Producer, Written
from horolog.client.rows_digest import RowsDigest
from horolog.errors import ErrorCode, RequestRefused
from horolog.spark.errors import RowsRefused
from horolog.spark.workers import prepare_for_tasks
from horolog.spark.write import transactions
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rejected_times import policy_of
from horolog.spark.write.rows import SinkColumns
from horolog.spark.write.transactions import TransactionAttempt

HELD_OF_BYTES: Final = 64 << 20
"""Bytes of rows after which held dead letters are sent."""

# Undocumented, but set in every task that the thread of a streaming query starts (Spark 3.0 to
# 4.3). Tasks that other threads or Spark Connect start for its `foreachBatch` lack them.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """Identity of an attempt at a task; only tasks of a stream's thread know batch and query.

    `number` counts the attempts of a task from 0; a speculative copy is one more. A batch of
    a query that is run again, in this or another run of the query, has the same id.
    """

    partition: int = 0
    number: int = 0
    query_id: str | None = None
    batch_id: int | None = None

    @classmethod
    def current(cls) -> "TaskAttempt":
        """Return the attempt that runs in this process."""
        context = TaskContext.get()
        if context is None:
            return cls()
        batch_id = context.getLocalProperty(_BATCH_ID)
        return cls(
            partition=context.partitionId(),
            number=context.attemptNumber(),
            query_id=context.getLocalProperty(_QUERY_ID),
            batch_id=None if batch_id is None else int(batch_id),
        )


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """Report of a task on what it has appended.

    Attributes:
        records: To the topics of the rows, those with another time included.
        offsets: The first and the last offset of each topic's partitions, where brokers said.
        nulled: How many records were written at the writer's clock, their time being refused.
        dead_letters: How many went to the dead-letter topic instead.
    """

    records: int = 0
    offsets: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    nulled: int = 0
    dead_letters: int = 0

    attempt: TransactionAttempt | None = None
    """Attempt for the driver to commit, if rows are written exactly once."""

    def add(self, topic: str, written: Written) -> None:
        """Count the records of one `send`."""
        self.records += written.records
        known = self.offsets.setdefault(topic, {})
        for partition, (first, last) in written.offsets.items():
            known[partition] = (known.get(partition, (first, last))[0], last)


def write_rows(
    batches: Iterator[pa.RecordBatch], columns: SinkColumns, options: WriteOptions
) -> TaskCommitMessage:
    """Append all rows of a task.

    Raises:
        RowsRefused: a row cannot be a record, or a broker refuses its time.
        RequestRefused: a broker refuses a batch for another reason.
        NoAnswer: a leader does not answer.
    """
    prepare_for_tasks()
    batches = _as_spark_sends(batches)
    if options.exactly_once:
        with options.producing.client() as client:
            return _write_in_transaction(client, batches, columns, options, TaskAttempt.current())
    appended = TaskCommitMessage()
    with (
        options.producing.client() as client,
        policy_of(options) as rejected,
        options.producing.producer(client, rejected) as producer,
    ):
        for topic, runs in itertools.groupby(columns.runs(batches), itemgetter(0)):
            _send(producer, topic, (rows for _, rows in runs), appended)
        appended.nulled, appended.dead_letters = rejected.nulled, rejected.dead_letters
    return appended


def _as_spark_sends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows; explain the error of LZ4 frames that Arrow cannot unpack.

    Raises:
        RowsRefused: with `spark.sql.execution.arrow.compression.codec=lz4` up to Spark 4.3: the
            empty buffers that it packs (of nulls, of empty texts) are no frames of LZ4.
    """
    try:
        yield from batches
    except OSError as error:
        if "lz4" not in str(error).lower():
            raise
        raise RowsRefused(
            f"Spark's rows cannot be read ({error}): its LZ4 of empty columns is none. Set "
            "spark.sql.execution.arrow.compression.codec to zstd or none"
        ) from None


def _write_in_transaction(
    client: Client,
    batches: Iterator[pa.RecordBatch],
    columns: SinkColumns,
    options: WriteOptions,
    attempt: TaskAttempt,
) -> TaskCommitMessage:
    appended = TaskCommitMessage()
    # Only letters need a producer that has nothing under way now and then.
    piece_bytes = HELD_OF_BYTES if options.dead_letter_topic else sys.maxsize
    with (
        policy_of(options, in_transaction=True) as rejected,
        transactions.TaskTransaction(
            client,
            options,
            rejected,
            query=_query_of(options, attempt),
            batch=_batch_of(options, attempt),
            task=attempt.partition,
        ) as transaction,
    ):
        topics: set[str] = set()
        for topic, run in itertools.groupby(columns.runs(batches), itemgetter(0)):
            _refuse_rows_among_letters(topic, options.dead_letter_topic)
            topics.add(topic)
            rows = _digested(topic, (batch for _, batch in run), transaction.digest)
            if transaction.is_committed:
                for _ in rows:
                    pass
                continue
            for piece in _pieces(rows, piece_bytes):
                _send(transaction.producer, topic, piece, appended)
                with _refusing(options.dead_letter_topic):
                    rejected.send_held(transaction.producer)
        with _refusing(None):
            appended.attempt = transaction.finish(sorted(topics))
        appended.nulled, appended.dead_letters = rejected.nulled, rejected.dead_letters
    return appended


def _pieces(rows: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the rows in pieces of about `most_bytes`; read each to its end."""
    for first in rows:
        yield _piece(first, rows, most_bytes)


def _piece(
    first: pa.RecordBatch, rows: Iterator[pa.RecordBatch], most_bytes: int
) -> Iterator[pa.RecordBatch]:
    yield first
    size = first.nbytes
    while size < most_bytes and (batch := next(rows, None)) is not None:
        yield batch
        size += batch.nbytes


def _digested(
    topic: str, rows: Iterator[pa.RecordBatch], digest: RowsDigest
) -> Iterator[pa.RecordBatch]:
    for row in rows:
        with _refusing(topic):
            digest.add(topic, row)
        yield row


def _query_of(options: WriteOptions, attempt: TaskAttempt) -> str:
    """Return the name that the numbers of batches belong to.

    A batch numbered by its user is the same one in whichever thread it is written.
    """
    query_id = attempt.query_id if options.write_batch is None else None
    return "/".join(part for part in (query_id, options.write_name) if part)


def _batch_of(options: WriteOptions, attempt: TaskAttempt) -> int:
    """Return the number of the batch.

    Raises:
        RowsRefused: it is not known, or Spark has another one than the user.
    """
    given, known = options.write_batch, attempt.batch_id
    if given is None and (known is None or attempt.query_id is None):
        raise RowsRefused(
            "It is not known which batch is written with option 'exactlyOnce': set option "
            "'writeBatch', in foreachBatch to the number of the micro-batch, which its function is "
            "given (over Spark Connect and in threads only this function knows it), otherwise to 0"
        )
    if given is not None and known is not None and given != known:
        raise RowsRefused(
            f"Option 'writeBatch' is {given}, and the micro-batch has number {known}: its number "
            "has to be given, or none"
        )
    found = known if given is None else given
    assert found is not None
    return found


def commit_batch(
    messages: Sequence[WriterCommitMessage | None],
    options: WriteOptions,
    batch_id: int | None = None,
) -> None:
    """Commit the transactions of a batch, if it is written exactly once.

    `batch_id` is Spark's number of the micro-batch, where Spark says it.

    Raises:
        RowsRefused: tasks have written another batch; or as `transactions.commit`.
        RequestRefused, NoAnswer: as `transactions.commit`.
    """
    if attempts := _complete(messages):
        if batch_id is not None and any(attempt.batch != batch_id for attempt in attempts):
            raise RowsRefused(
                f"Tasks have written batch {attempts[0].batch}, and Spark commits {batch_id}"
            )
        with options.producing.client() as client:
            transactions.commit(client, attempts, options)


def abort_batch(messages: Sequence[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Abort the transactions of a failed batch, if it was written exactly once."""
    if attempts := _complete(messages):
        with options.producing.client() as client:
            transactions.abort(client, attempts)


def _complete(messages: Sequence[WriterCommitMessage | None]) -> list[TransactionAttempt]:
    attempts = (message.attempt for message in messages if isinstance(message, TaskCommitMessage))
    return [attempt for attempt in attempts if attempt is not None]


def _refuse_rows_among_letters(topic: str, letters: str | None) -> None:
    if topic == letters:
        raise RowsRefused(
            f"Rows are for topic {topic}, to which dead letters go: written exactly once, it "
            "takes no others"
        )


def _send(
    producer: Producer, topic: str, rows: Iterator[pa.RecordBatch], appended: TaskCommitMessage
) -> None:
    first = next(rows)
    reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], rows))
    written = Written()
    try:
        with _refusing(topic):
            producer.send(topic, reader, into=written)
    finally:
        appended.add(topic, written)


@contextmanager
def _refusing(topic: str | None) -> Iterator[None]:
    """Explain a row that a producer cannot write: an unknown partition, a header without a key.

    Times that are refused come here only from brokers that do not name the records: policies for
    refused times are asked by the producer.
    """
    try:
        yield
    except ValueError as error:
        where = "" if topic is None else f" for topic {topic}"
        raise RowsRefused(f"Rows{where} cannot be written: {error}") from None
    except RequestRefused as error:
        if error.code is not ErrorCode.invalid_timestamp:
            raise
        raise RowsRefused(
            f"{error}: the broker does not say which records it refuses, as Apache Kafka does from "
            "2.4 on (KIP-467), so that 'onInvalidTimestamp' has no effect; bound the times of the "
            "rows by what the topic takes (message.timestamp.difference.max.ms)"
        ) from None
