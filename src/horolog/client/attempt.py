"""One attempt at a task whose rows are written exactly once (docs/exactly-once.md).

Attempts at a task append the same record batches: which rows a batch holds depends on the rows
alone, not on how Arrow or `send` divides them. So rows are gathered into chunks that end after the
first row with which they have a certain size; the rest of a task is one chunk of its own.

This module imports pyarrow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from horolog.client.appends import ProducerId
from horolog.client.arrow_rows import check_columns, few_of, reader_of, row_bytes
from horolog.client.client import Client
from horolog.client.offset_lookups import TopicPartition
from horolog.client.producer import (
    BATCH_BYTES,
    MOST_IN_FLIGHT,
    REQUEST_BYTES,
    Producer,
    RejectedBatch,
    Repair,
    Written,
)
from horolog.client.queries import QueryBatch, TaskRows
from horolog.client.records import Produced
from horolog.client.size_limits import naming_size_limit
from horolog.errors import ErrorCode, RequestRefused
from horolog.record.compression import Codec

__all__ = ["AttemptProducer"]


LEAST_CHUNK_BYTES: Final = 64 << 10


class AttemptProducer(Producer):
    """Sends the rows of one task of one batch of a query; rows of earlier attempts count.

        with Client("127.0.0.1:9092") as client:
            with AttemptProducer(client, "nightly", batch=7, task=3) as producer:
                producer.send("clicks", table)
                rows = producer.finish()
            client.commit_batch("nightly", 7, tasks=4, written=[rows, ...])

    An attempt begins with the first row, whatever earlier ones have appended, and sends the same
    rows in the same order. After an error it is over.

    Args:
        client: As of `Producer`.
        query: What is written exactly once: the name of a query or of a job.
        batch: The number of the batch, higher than those before it.
        task: The number of the task, from 0 on.
        tasks: How many tasks the batch has, if that is known: a batch whose rows are divided in
            another way is then refused before a row is sent.
        run: What all attempts of one run of the batch share, and no other run has: see
            `Client.begin_batch`.
        batch_bytes: As of `Producer`; for a batch that was begun before, that of the first attempt
            counts.
        on_rejected: As of `Producer`; has to give the same repair in each attempt.
        takes_out: Whether `on_rejected` may take records out. Later batches are then sent when the
            earlier ones are settled: at the place that one has before that is known, another
            attempt may have left off, and the broker would append it there.

    Raises:
        RequestRefused: the broker does not write exactly once (Apache Kafka), or the query has
            gone on to a later batch.
    """

    def __init__(
        self,
        client: Client,
        query: str,
        *,
        batch: int,
        task: int,
        tasks: int | None = None,
        run: str | None = None,
        codec: Codec = Codec.NONE,
        compression_level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        request_bytes: int = REQUEST_BYTES,
        on_rejected: Callable[[RejectedBatch], Repair] | None = None,
        takes_out: bool = False,
    ) -> None:
        self.batch: QueryBatch = client.begin_batch(
            query, batch, tasks=tasks, batch_bytes=batch_bytes, run=run
        )
        """What all attempts at the batch share."""
        super().__init__(
            client,
            codec=codec,
            compression_level=compression_level,
            batch_bytes=self.batch.batch_bytes,
            now_ms=lambda: self.batch.started_ms,
            request_bytes=request_bytes,
            on_rejected=on_rejected,
            in_flight=1 if takes_out else MOST_IN_FLIGHT,
        )
        self.rows = TaskRows(task)
        """How many rows this attempt has sent to each partition."""
        self._producer_id = ProducerId(*self.batch.producer_of(task))
        self._id = self._producer_id
        self._first_turn = task + batch
        self._turns: dict[str, int] = {}
        self._gathered: dict[str, Gathered] = {}
        self._partitions: dict[str, list[int]] = {}
        self._tasks, self._run = tasks, run

    def send(
        self, topic: str, data: Any, *, metadata: bool = False, into: Written | None = None
    ) -> Written:
        """Append rows, or keep them until more come or `finish` is called; see `Producer.send`.

        Rows of one topic are appended in their order. Null times become the time at which the
        batch was first begun, on the broker's clock.

        Raises:
            RequestRefused: this attempt has other rows than one before it, or is too late. For
                this and others see `Producer.send`.
        """
        if metadata:
            raise ValueError("An attempt keeps rows back: metadata cannot be had")
        written = Written() if into is None else into
        reader = reader_of(data)
        check_columns(reader.schema)
        gathered = self._gathered.get(topic)
        if gathered is None:
            partitions = self._of_batch(topic)
            # Less for each that follows: a task of very many topics has to hold some of each.
            share = self._chunk_bytes(partitions) // (1 + len(self._gathered))
            gathered = self._gathered[topic] = Gathered(max(share, LEAST_CHUNK_BYTES))
        self._send_gathered(topic, gathered.chunks(reader), written)
        return written

    def send_apart(self, topic: str, data: Any) -> Written:
        """Append rows at once, in record batches of their own; not for topics of `send`.

        Each attempt has to divide its rows among these calls in the same way.

        Raises:
            RequestRefused, NoAnswer: as `send`.
        """
        written = Written()
        reader = reader_of(data)
        check_columns(reader.schema)
        self._of_batch(topic)
        self._send_gathered(topic, iter([few_of(list(reader))]), written)
        return written

    def finish(self, into: Written | None = None) -> TaskRows:
        """Append the rows that are left: the attempt is complete. For `Client.commit_batch`.

        Raises:
            RequestRefused, NoAnswer: as `send`.
        """
        written = Written() if into is None else into
        for topic, gathered in self._gathered.items():
            self._send_gathered(topic, gathered.rest(), written)
        if not self.batch.is_open:
            self._begin_again()  # has the broker note that this task has repeated its rows
        return self.rows

    def _begin_again(self, topics: Sequence[str] = ()) -> None:
        batch = self.batch
        self.batch = self._client.begin_batch(
            batch.query,
            batch.batch,
            tasks=self._tasks,
            topics=topics,
            batch_bytes=batch.batch_bytes,
            run=self._run,
        )

    def _of_batch(self, topic: str) -> list[int]:
        if topic not in self._partitions:
            self._partitions[topic] = self._pinned(topic)
        return self._partitions[topic]

    def _pinned(self, topic: str) -> list[int]:
        """The partitions that a topic has for this batch; it is created if need be."""
        partitions = self._client.partitions_of(topic, auto_create=True)
        # Asked even if it is known: it may have been deleted and created again since.
        self._begin_again([topic])
        batch, count = self.batch, self.batch.partitions[topic]
        if len(partitions) < count:  # they were added since the client asked
            self._client.brokers.forget(topic)
            partitions = self._client.partitions_of(topic)
        if len(partitions) < count:
            raise RequestRefused(
                ErrorCode.unknown_topic_or_partition,
                f"Topic {topic} has {len(partitions)} partitions, and batch {batch.batch} of query "
                f"{batch.query} writes to {count}",
            )
        return partitions[:count]

    def _send_gathered(
        self, topic: str, chunks: Iterator[Sequence[pa.RecordBatch]], written: Written
    ) -> None:
        if self._id is None:
            raise RequestRefused(
                ErrorCode.invalid_producer_epoch, "This attempt has failed: begin another one"
            )
        self._turn = self._turns.get(topic, self._first_turn)
        with naming_size_limit(self._client, topic):
            self._send_chunks(topic, chunks, self._partitions[topic], written)
        self._turns[topic] = self._turn

    def _note(
        self, sent: Any, produced: Mapping[TopicPartition, Produced], written: Written
    ) -> None:
        super()._note(sent, produced, written)
        for topic, partition in produced:
            rows = self.rows.rows.setdefault(topic, {})
            count = sent.batches[topic, partition].rows
            rows[partition] = rows.get(partition, 0) + count


class Gathered:
    """The rows for one topic that do not fill a chunk yet."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._pieces: list[pa.RecordBatch] = []
        self._bytes = 0

    def chunks(self, reader: pa.RecordBatchReader) -> Iterator[Sequence[pa.RecordBatch]]:
        """The chunks that are full, with the rows that come."""
        for rows in reader:
            if not rows.num_rows:
                continue
            ends = np.cumsum(row_bytes(rows))
            start, taken = 0, 0
            while True:
                missing = self._target - self._bytes
                stop = int(np.searchsorted(ends, taken + missing)) + 1
                if stop > rows.num_rows:
                    break
                yield few_of([*self._pieces, rows.slice(start, stop - start)])
                self._pieces, self._bytes = [], 0
                start, taken = stop, int(ends[stop - 1])
            if start < rows.num_rows:
                self._pieces.append(_apart(rows.slice(start)))
                self._bytes += int(ends[-1]) - taken

    def rest(self) -> Iterator[Sequence[pa.RecordBatch]]:
        """What is left, if anything is."""
        if self._pieces:
            yield few_of(self._pieces)
            self._pieces, self._bytes = [], 0


def _apart(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that are kept: without the memory of those that came with them."""
    if rows.get_total_buffer_size() <= 2 * rows.nbytes + LEAST_CHUNK_BYTES:
        return rows
    return rows.take(pa.array(np.arange(rows.num_rows)))
