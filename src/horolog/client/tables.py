"""Reading a topic as Arrow: what `horolog.client.fetch` gives, decoded by the kernels.

This module imports pyarrow; the rest of the client does not.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from horolog.client.client import Client
from horolog.client.connection import NoAnswer
from horolog.client.offset_lookups import EARLIEST, LATEST
from horolog.record.columns import DEFAULT_COLUMNS, DecodeStatistics, batch_schema, decode

__all__ = ["scan"]

_FETCH_BYTES: Final = 8 << 20


def scan(
    client: Client,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    starting_offsets: Mapping[int, int] | None = None,
    ending_offsets: Mapping[int, int] | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    read_committed: bool = False,
    max_wait_ms: int = 500,
) -> pa.RecordBatchReader:
    """The records of a topic up to its log ends of now, partition after partition.

    Columns: `partition` (int32), then those asked for (`horolog.record.columns`). Exact to the
    record: times from `from_ms` to before `to_ms`, late records included; offsets from
    `starting_offsets` to before `ending_offsets`, where those name a partition. Gaps that
    compaction or transactions leave are skipped.

    Reading happens as the reader is read; use the client for nothing else meanwhile.

    Raises:
        RequestRefused: the topic, a partition or an offset is not there, or not any more.
        NoAnswer: a leader does not answer, or gives nothing although there is more.
        CorruptBatch: a batch breaks the format or its checksum.
    """
    numbers = client.partitions_of(topic) if partitions is None else list(partitions)
    starts = client.list_offsets({(topic, number): EARLIEST for number in numbers})
    ends = client.list_offsets(
        {(topic, number): LATEST for number in numbers}, read_committed=read_committed
    )
    schema = pa.schema([pa.field("partition", pa.int32()), *batch_schema(columns)])

    def batches() -> Iterator[pa.RecordBatch]:
        for number in numbers:
            start, end = starts[topic, number], ends[topic, number]
            assert start is not None
            assert end is not None
            offset = (starting_offsets or {}).get(number, start.offset)
            until = min(end.offset, (ending_offsets or {}).get(number, end.offset))
            read = _Partition(client, topic, number, until, read_committed, max_wait_ms)
            for batch in read.tables(offset, from_ms, to_ms, columns):
                of_all = pa.repeat(pa.scalar(number, pa.int32()), len(batch))
                yield pa.RecordBatch.from_arrays([of_all, *batch.columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


class _Partition:
    """One partition, read to an offset."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partition: int,
        until: int,
        read_committed: bool,
        max_wait_ms: int,
    ) -> None:
        self._client, self._topic, self._partition = client, topic, partition
        self._until, self._read_committed, self._max_wait_ms = until, read_committed, max_wait_ms

    def tables(
        self, offset: int, from_ms: int | None, to_ms: int | None, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The records from `offset` on, each table of at least a row."""
        quiet_since_s = time.monotonic()
        while offset < self._until:
            fetched = self._client.fetch(
                self._topic,
                self._partition,
                offset,
                max_bytes=_FETCH_BYTES,
                max_wait_ms=self._max_wait_ms,
                read_committed=self._read_committed,
            )
            statistics = DecodeStatistics()
            yield from decode(
                fetched.records,
                start_offset=offset,
                end_offset=self._until,
                from_ms=from_ms,
                to_ms=to_ms,
                columns=columns,
                aborted=fetched.aborted if self._read_committed else None,
                statistics=statistics,
            )
            if statistics.next_offset is not None and statistics.next_offset > offset:
                offset = statistics.next_offset
                quiet_since_s = time.monotonic()
            elif time.monotonic() - quiet_since_s > self._client.config.timeout_ms / 1000:
                raise NoAnswer(
                    f"{self._topic}-{self._partition} gives no batch at offset {offset}, though "
                    f"it goes on to {self._until}"
                )
