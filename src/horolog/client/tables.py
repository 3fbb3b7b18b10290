"""Reading a topic as Arrow: what `horolog.client.fetch` gives, decoded by the kernels.

This module imports pyarrow; the rest of the client does not.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from horolog.client.client import Client
from horolog.client.connection import NoAnswer
from horolog.client.fetch_ahead import FetchAhead
from horolog.client.fetching import PartitionFetch
from horolog.client.offset_lookups import EARLIEST, LATEST
from horolog.errors import CorruptBatch
from horolog.record.batch_runs import next_offset_of
from horolog.record.columns import DEFAULT_COLUMNS, batch_schema, decode
from horolog.record.timestamps import NO_TIMESTAMP

__all__ = ["scan"]

_FETCH_BYTES: Final = 8 << 20
_TYPES: Final = {"topic": pa.string(), "timestamp": pa.timestamp("ms", tz="UTC")}


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

    Columns: `partition` (int32), then those asked for: of `horolog.record.columns`, `topic`, and
    `timestamp` (milliseconds in UTC; null for a record without a time). Exact to the record: times
    from `from_ms` to before `to_ms`, late records included; offsets from `starting_offsets` to
    before `ending_offsets`, where those name a partition. Gaps that compaction or transactions
    leave are skipped.

    Reading happens as the reader is read, over connections of its own, which end with it. The next
    fetch is sent before what the last one gave is decoded.

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
    decoded = _decoded(columns)
    types = {**_TYPES, **{field.name: field.type for field in batch_schema(decoded)}}
    schema = pa.schema([("partition", pa.int32()), *((name, types[name]) for name in columns)])

    def batches() -> Iterator[pa.RecordBatch]:
        with Client.of(client.config) as own, FetchAhead(own, reuses_memory=True) as fetcher:
            for number in numbers:
                start, end = starts[topic, number], ends[topic, number]
                assert start is not None
                assert end is not None
                offset = (starting_offsets or {}).get(number, start.offset)
                until = min(end.offset, (ending_offsets or {}).get(number, end.offset))
                first = PartitionFetch(
                    topic,
                    number,
                    offset,
                    max_bytes=_FETCH_BYTES,
                    max_wait_ms=max_wait_ms,
                    read_committed=read_committed,
                )
                for batch in _tables(fetcher, first, until, from_ms, to_ms, decoded):
                    of_all = pa.repeat(pa.scalar(number, pa.int32()), len(batch))
                    asked = [_column(batch, name, topic) for name in columns]
                    yield pa.RecordBatch.from_arrays([of_all, *asked], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _decoded(columns: Sequence[str]) -> list[str]:
    """What has to be decoded for these columns; at least one."""
    found = ["timestamp_ms" if name == "timestamp" else name for name in columns if name != "topic"]
    return list(dict.fromkeys(found)) or (["offset"] if columns else [])


def _column(batch: pa.RecordBatch, name: str, topic: str) -> pa.Array:
    if name == "topic":
        return pa.repeat(pa.scalar(topic), len(batch))
    if name == "timestamp":
        times = batch.column("timestamp_ms")
        return pc.if_else(pc.equal(times, NO_TIMESTAMP), None, times).cast(_TYPES["timestamp"])
    return batch.column(name)


def _tables(
    fetcher: FetchAhead,
    request: PartitionFetch,
    until: int,
    from_ms: int | None,
    to_ms: int | None,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The records of one partition from those of a fetch on, each table of at least a row."""
    offset, quiet_since_s = request.offset, time.monotonic()
    while offset < until:
        fetched = fetcher.fetch(replace(request, offset=offset))
        damage = None
        try:
            following = next_offset_of(fetched.records, offset, fetched.high_watermark)
        except CorruptBatch as error:
            # `decode` gives what comes before the damage, and mostly says what it is.
            following, damage = offset, error
        if offset < following < until:
            fetcher.send(replace(request, offset=following))
        yield from decode(
            fetched.records,
            start_offset=offset,
            end_offset=until,
            from_ms=from_ms,
            to_ms=to_ms,
            columns=columns,
            aborted=fetched.aborted if request.read_committed else None,
        )
        if damage is not None:
            raise damage
        if following > offset:
            offset, quiet_since_s = following, time.monotonic()
        elif time.monotonic() - quiet_since_s > fetcher.timeout_ms / 1000:
            raise NoAnswer(
                f"{request.topic}-{request.partition} gives no batch at offset {offset}, though it "
                f"goes on to {until}"
            )
