"""Produces Arrow tables: rows to partitions, batches and requests, without an object per record.

    table -> chunks of some megabytes -> rows by partition -> batches (`record.column_writer`)
          -> one request a leader, sent by a thread while the next batches are written

This module imports pyarrow; the rest of the client does not.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from horolog.client.appends import Appending, ProducerId
from horolog.client.arrow_rows import check_columns, chunks_of, one_of, reader_of, written_columns
from horolog.client.client import Client
from horolog.client.closing import Closeable
from horolog.client.connection import NoAnswer
from horolog.client.records import Produced
from horolog.client.row_batches import (
    METADATA,
    Batch,
    Chunk,
    PartitionRows,
    choose_partitions,
    refused_partition,
)
from horolog.clock import SystemClock
from horolog.errors import RecordsRejected, RequestRefused
from horolog.offsets import TopicPartition
from horolog.record.batch import next_sequence, parse_header
from horolog.record.column_writer import PickedRows, encode_picked
from horolog.record.columns import decode
from horolog.record.compression import Codec
from horolog.record.identity import renamed
from horolog.record.row_columns import RowColumns

BATCH_BYTES: Final = 1_000_000
"""Uncompressed size of a batch: below what brokers take by default (`max.message.bytes`)."""

CHUNK_BYTES: Final = 8 << 20
MOST_CHUNK_BYTES: Final = 64 << 20
REQUEST_BYTES: Final = 16 << 20
MOST_IN_FLIGHT: Final = 4  # brokers remember the last five batches of a producer (KIP-98)
_ALL: Final = -1
_DECODED: Final = ("key", "value", "headers", "timestamp_ms")


@dataclass(slots=True)
class Written:
    """Records that one `send` has appended.

    Complete only if it returned.

    Attributes:
        records: How many.
        offsets: For each partition the first and the last offset, where the broker said.
        metadata: A row for each row sent, in its order, if that was asked for: `METADATA`. The
            offset and the type are null where the broker did not say (acks 0); the time is the
            broker's append time where the type is LogAppendTime, else the time that was sent
            (KIP-32).
    """

    records: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    metadata: pa.Table | None = None


class RejectedBatch(NamedTuple):
    """Batch that a broker refused because of some of its records (KIP-467).

    Attributes:
        topic: Where it was sent.
        partition: The number of the partition.
        refusal: Why; its errors number the rows of `rows`.
        rows: All records of the batch: `key`, `value`, `headers` and `timestamp_ms`.
        numbers: For each of them the number of its row in what was given to `send`.
    """

    topic: str
    partition: int
    refusal: RecordsRejected
    rows: pa.RecordBatch
    numbers: npt.NDArray[np.int64]


class Repair(NamedTuple):
    """Records to append in place of a rejected batch.

    Attributes:
        kept: For each of its records, whether it is appended.
        timestamp_ms: The times that all of them, kept or not, are given.
    """

    kept: npt.NDArray[np.bool_]
    timestamp_ms: pa.Array


class Producer(Closeable):
    """Sends Arrow data through a client, which it does not close; for one thread at a time.

        with Client("127.0.0.1:9092") as client, Producer(client) as producer:
            producer.send("clicks", table)

    Args:
        client: A thread of the producer uses it while `send` runs.
        acks: 0, 1 or -1 (all).
        idempotent: Retries never append twice (needs acks -1, Kafka's default).
        batch_bytes: Uncompressed size up to which batches are filled.
        now_ms: Clock for records without a time.
        compression_level: Level of the codec; None is its default.
        request_bytes: Size up to which requests of several batches are filled.
        first_turn: First partition, modulo their number, for rows without a key.
        on_rejected: Returns the records to append in place of a batch that is refused because of
            some of its records. It runs in a thread of the producer. An error that it raises ends
            the call. `metadata` cannot be combined with it.
    """

    def __init__(
        self,
        client: Client,
        *,
        codec: Codec = Codec.NONE,
        acks: int = _ALL,
        idempotent: bool | None = None,
        batch_bytes: int = BATCH_BYTES,
        now_ms: Callable[[], int] | None = None,
        compression_level: int | None = None,
        request_bytes: int = REQUEST_BYTES,
        first_turn: int = 0,
        on_rejected: Callable[[RejectedBatch], Repair] | None = None,
    ) -> None:
        if acks not in {0, 1, _ALL}:
            raise ValueError(f"acks={acks}: allowed are 0, 1 and -1 (all)")
        if idempotent and acks != _ALL:
            raise ValueError("an idempotent producer needs acks=-1 (all)")
        self._client = client
        self._codec = codec
        self._acks = acks
        self._is_idempotent = acks == _ALL if idempotent is None else idempotent
        self._batch_bytes = batch_bytes
        self._now_ms = now_ms or SystemClock().now_ms
        self._id: ProducerId | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()  # have a batch under the current id
        self._turn = first_turn
        self._level = compression_level
        self._request_bytes = request_bytes
        self._on_rejected = on_rejected
        # How many records `on_rejected` took out of what a partition was sent under this id:
        # later batches are written before that is known.
        self._taken_out: dict[TopicPartition, int] = {}
        self._transactional_id: str | None = None
        self._in_flight: deque[_Sent] = deque()  # touched by the sender while `send` runs
        self._sender = ThreadPoolExecutor(1, "horolog-producer")

    def close(self) -> None:
        """End the sending thread. No data waits between calls of `send`."""
        self._sender.shutdown()

    def send(
        self, topic: str, data: Any, *, metadata: bool = False, into: Written | None = None
    ) -> Written:
        """Append the rows of a table, in their order within each partition, and wait for it.

        `data` is a pyarrow table, record batch or reader, a dict of columns, or anything that
        exports an Arrow stream: a polars or pandas DataFrame, a DuckDB relation. Columns: `value`;
        `key`, `headers` (list of structs of key and value), `partition`, and `timestamp_ms` or
        `timestamp` (floored to milliseconds) where they are there. Strings are written as UTF-8.
        A null time becomes the clock's (KIP-32), and a null partition that of the key (murmur2, as
        in Kafka's producers). Rows without a key fill one partition after another. The results are
        added to `into`, also if the call fails.

        Raises:
            RecordsRejected: a broker refuses a batch; `errors` number the rows of `data`.
            RequestRefused: a broker refuses a batch for another reason.
            NoAnswer: a leader does not respond. With `sent` it may have appended batches.
            ValueError: a column is missing, unknown or of a type that cannot be written.
        """
        if metadata and self._on_rejected is not None:
            raise ValueError("metadata cannot be had where batches are repaired")
        written = Written() if into is None else into
        reader = reader_of(data)
        check_columns(reader.schema)
        partitions = self._client.topics.numbers(topic, auto_create=True)
        if self._is_idempotent and self._id is None:
            self._begin_sequences(self._client.init_producer_id())
        size = min(max(CHUNK_BYTES, 2 * len(partitions) * self._batch_bytes), MOST_CHUNK_BYTES)
        chunks = chunks_of(reader, size)
        with self._client.topics.naming_size_limit(topic):
            self._send_chunks(topic, chunks, partitions, written, metadata=metadata)
        return written

    def _begin_sequences(self, producer: ProducerId) -> None:
        """Continue with another producer id or epoch, and begin its sequences at 0."""
        self._id = producer
        self._sequences.clear()
        self._known.clear()
        self._taken_out.clear()

    def _send_chunks(
        self,
        topic: str,
        chunks: Iterator[Sequence[pa.RecordBatch]],
        partitions: Sequence[int],
        written: Written,
        *,
        metadata: bool = False,
    ) -> None:
        """Append chunks of rows under the current producer id, and wait for it."""
        sent: list[Chunk] = []
        waiting: Future[None] | None = None
        try:
            for chunk, sending in self._requests(topic, chunks, partitions, metadata):
                if waiting is not None:
                    waiting.result()
                waiting = self._sender.submit(self._send_request, chunk, sending, written)
                if metadata and (not sent or sent[-1] is not chunk):
                    sent.append(chunk)
            if waiting is not None:
                waiting.result()
            waiting = self._sender.submit(self._settle, written, 0)
            waiting.result()
        except BaseException:
            # A broker may have appended what is not answered. Another batch under the same
            # sequence would count as its repeat and be dropped: begin with another id, once the
            # sender is done with this one.
            try:
                if waiting is not None:
                    wait([waiting])
            finally:
                self._id = None
            raise
        finally:
            if self._in_flight:
                self._in_flight.clear()
                self._client.close()  # what is not answered yet goes with its connection
        if metadata:
            returned = [chunk.metadata() for chunk in sent]
            written.metadata = pa.Table.from_batches(returned, METADATA)

    def _requests(
        self,
        topic: str,
        chunks: Iterator[Sequence[pa.RecordBatch]],
        partitions: Sequence[int],
        metadata: bool,
    ) -> Iterator[tuple[Chunk, dict[TopicPartition, Batch]]]:
        """Yield the batches of one request after another."""
        row = 0
        for rows in chunks:
            pieces = [written_columns(piece, self._now_ms) for piece in rows]
            chunk = Chunk(topic, pieces, row, noted=metadata)
            row += chunk.num_rows
            chosen, self._turn = choose_partitions(chunk, partitions, self._turn, self._batch_bytes)
            for sending in self._rounds(topic, chunk.by_partition(chosen)):
                yield chunk, sending

    def _rounds(
        self, topic: str, rows: Mapping[int, PartitionRows]
    ) -> Iterator[dict[TopicPartition, Batch]]:
        """Yield one batch of each partition at a time, as brokers accept one in a request."""
        writing = {
            partition: self._batches((topic, partition), its) for partition, its in rows.items()
        }
        while writing:
            sending: dict[TopicPartition, Batch] = {}
            size = 0
            for partition in list(writing):
                batch = next(writing[partition], None)
                if batch is None:
                    del writing[partition]
                    continue
                sending[topic, partition] = batch
                size += len(batch.data)
                if size >= self._request_bytes:
                    yield sending
                    sending, size = {}, 0
            if sending:
                yield sending

    def _batches(self, partition: TopicPartition, its: PartitionRows) -> Iterator[Batch]:
        sequence = -1 if self._id is None else self._sequences.get(partition, 0)
        for batch in self._encoded(its.rows, sequence, its.start):
            if self._id is not None:
                sequence = next_sequence(sequence, batch.rows)
                self._sequences[partition] = sequence
            yield batch

    def _encoded(
        self,
        rows: Sequence[PickedRows],
        sequence: int,
        start: int,
        numbers: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[Batch]:
        for data, count in encode_picked(
            rows,
            codec=self._codec,
            batch_bytes=self._batch_bytes,
            level=self._level,
            producer=self._id or (-1, -1),
            base_sequence=sequence,
            is_transactional=self._transactional_id is not None,
        ):
            its = None if numbers is None else numbers[start : start + count]
            yield Batch(data, start, count, sequence, its)
            start += count
            if sequence >= 0:
                sequence = next_sequence(sequence, count)

    def _send_request(
        self, chunk: Chunk, sending: dict[TopicPartition, Batch], written: Written
    ) -> None:
        if not self._is_idempotent:
            self._append(_Sent(chunk, sending, None), written, {})
            return
        self._prepare(sending.keys(), written)
        self._renumber(sending)
        batches = {partition: batch.data for partition, batch in sending.items()}
        try:
            appending = self._client.appends.append_soon(
                batches, acks=self._acks, transactional_id=self._transactional_id
            )
        except (NoAnswer, RequestRefused):
            appending = None  # once the others are settled, this one is tried like them
        self._in_flight.append(_Sent(chunk, sending, appending))
        # A broker takes any sequence first from a producer that it does not know: a second batch
        # must not overtake a first one that is refused for now.
        is_first = not self._known.issuperset(sending)
        self._settle(written, 0 if appending is None or is_first else MOST_IN_FLIGHT - 1)
        self._known.update(sending)

    def _prepare(self, partitions: Collection[TopicPartition], written: Written) -> None:
        """Prepare partitions before batches are sent to them."""

    def _settle(self, written: Written, left: int) -> None:
        """Read responses in order until at most `left` requests are in flight.

        When one fails, it and all that follow are sent again, one at a time: under the same
        sequences, so that what had been appended is not appended twice.
        """
        while len(self._in_flight) > left:
            first = self._in_flight[0]
            produced: dict[TopicPartition, Produced] = {}
            try:
                if first.appending is None:
                    raise NoAnswer("it was not sent")
                self._client.appends.finish_append(first.appending, produced)
            except (NoAnswer, RequestRefused) as error:
                again = [(first, produced)]
                if isinstance(error, RecordsRejected):
                    if self._on_rejected is None:
                        self._note(first, produced, written)
                        raise first.chunk.with_rows(error, first.batches) from None
                    again += self._answered()
                elif isinstance(error, RequestRefused) and not error.code.retriable:
                    self._note(first, produced, written)
                    raise
                else:
                    again += [(sent, {}) for sent in list(self._in_flight)[1:]]
                    self._client.close()
                    self._client.brokers.forget()
                self._in_flight.clear()
                for sent, known in again:
                    self._append(sent, written, known)
                return
            self._in_flight.popleft()
            self._note(first, produced, written)

    def _append(
        self, sent: "_Sent", written: Written, produced: dict[TopicPartition, Produced]
    ) -> None:
        """Append the batches that are missing in `produced`, and wait for it."""
        self._renumber(sent.batches)
        later: list[_Sent] = []
        try:
            while sent.batches.keys() - produced.keys():
                try:
                    self._client.appends.append(
                        {partition: batch.data for partition, batch in sent.batches.items()},
                        produced,
                        acks=self._acks,
                        is_idempotent=self._is_idempotent,
                        transactional_id=self._transactional_id,
                    )
                except RecordsRejected as refusal:
                    if self._on_rejected is None:
                        raise sent.chunk.with_rows(refusal, sent.batches) from None
                    later += self._repair(sent, refusal)
        finally:
            self._note(sent, produced, written)
        for repaired in later:
            self._append(repaired, written, {})

    def _answered(self) -> "list[tuple[_Sent, dict[TopicPartition, Produced]]]":
        """Return the requests behind the first one in flight, and their results.

        Batches behind a refused one are refused as well, because of their sequences. They are sent
        again under other sequences, so that the earlier requests must have ended.
        """
        answered: list[tuple[_Sent, dict[TopicPartition, Produced]]] = []
        for sent in list(self._in_flight)[1:]:
            produced: dict[TopicPartition, Produced] = {}
            answered.append((sent, produced))
            try:
                if sent.appending is not None:
                    self._client.appends.finish_append(sent.appending, produced)
            except RequestRefused:
                pass  # tried again in its turn
            except NoAnswer:
                self._client.close()
                self._client.brokers.forget()
                break
        rest = list(self._in_flight)[1 + len(answered) :]
        return answered + [(sent, {}) for sent in rest]

    def _repair(self, sent: "_Sent", refusal: RecordsRejected) -> "list[_Sent]":
        """Replace a refused batch by the result of `on_rejected`; return what does not fit."""
        assert self._on_rejected is not None
        partition = refused_partition(refusal, sent.batches)
        if partition is None:
            raise refusal
        batch = sent.batches.pop(partition)
        rows = one_of(list(decode(batch.data, columns=_DECODED, check_crcs=False)))
        numbers = sent.chunk.numbers(batch)
        repair = self._on_rejected(RejectedBatch(*partition, refusal, rows, numbers))
        rows = rows.set_column(
            rows.schema.get_field_index("timestamp_ms"), "timestamp_ms", repair.timestamp_ms
        ).filter(pa.array(repair.kept))
        sequence = batch.sequence
        taken_out = batch.rows - rows.num_rows
        if sequence >= 0 and taken_out:
            self._taken_out[partition] = self._taken_out.get(partition, 0) + taken_out
            sequence = next_sequence(sequence, taken_out)  # as of a batch behind this one
        parts = list(
            self._encoded([PickedRows(RowColumns(rows))], sequence, 0, numbers[repair.kept])
        )
        later = [_Sent(sent.chunk, {partition: part}, None) for part in parts[1:]]
        if parts:
            sent.batches[partition] = parts[0]
            self._renumber(sent.batches)
        return later

    def _renumber(self, batches: "dict[TopicPartition, Batch]") -> None:
        """Close the gaps in the sequences of partitions from which records were removed."""
        for partition in batches.keys() & self._taken_out.keys():
            batch = batches[partition]
            sequence = next_sequence(batch.sequence, -self._taken_out[partition])
            header = parse_header(batch.data)
            if header.base_sequence != sequence:
                assert self._id is not None
                data = renamed(
                    header,
                    memoryview(batch.data),
                    self._id,
                    sequence,
                    is_transactional=self._transactional_id is not None,
                )
                batches[partition] = batch._replace(data=data)

    def _note(
        self, sent: "_Sent", produced: Mapping[TopicPartition, Produced], written: Written
    ) -> None:
        for partition, result in produced.items():
            batch = sent.batches[partition]
            sent.chunk.note(partition[1], batch, result)
            written.records += batch.rows
            base_offset = result.base_offset
            if base_offset is not None:
                first = written.offsets.get(partition[1], (base_offset, 0))[0]
                written.offsets[partition[1]] = (first, base_offset + batch.rows - 1)


class _Sent(NamedTuple):
    """Request in flight; `appending` is None if it could not be sent."""

    chunk: Chunk
    batches: dict[TopicPartition, Batch]
    appending: Appending | None
