"""Reading a topic as Arrow tables, wherever its log is. Imports pyarrow."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from horolog.client import Client, ClientConfig
from horolog.clock import Duration, duration_ms
from horolog.record.columns import DEFAULT_COLUMNS, batch_schema
from horolog.record.timestamps import EVER_APPENDED, NO_TIMESTAMP, RecordClock, TimeRange
from horolog.sources.clocks import APPEND, CREATE, SEEN
from horolog.sources.complete import end_of_complete, wait_complete
from horolog.sources.cut_files import GivenAsOf, given_as_of
from horolog.sources.kafka_settings import PREFIX, security_of
from horolog.sources.limits import TopicSelection
from horolog.sources.location import Location
from horolog.sources.object_stores import StoreOptions
from horolog.sources.option_values import flag
from horolog.sources.options import ReadOptions
from horolog.sources.ordered import (
    DEFAULT_MEMORY,
    TimedStretch,
    WithoutTime,
    checked_memory,
    clock_of_order,
    in_order,
    untimed_refused,
)
from horolog.sources.ordered_tables import PARTITION, TableBuffer, untimed_rows
from horolog.sources.plan import Stretch
from horolog.sources.planning import check_read, numbered, opened_log, plan_offsets
from horolog.sources.reading import tables_of
from horolog.sources.row_filter import RowFilter
from horolog.sources.stretch_reader import StretchReader
from horolog.storage.names import TopicPartition

__all__ = ["TableShape", "options_of", "scan"]

_TABLE_BYTES: Final = 8 << 20
_TYPES: Final = {
    "topic": pa.string(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    APPEND: pa.int64(),
    SEEN: pa.int64(),
    CREATE: pa.int64(),
}


def scan(
    source: Client | str | os.PathLike[str],
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    as_of: GivenAsOf | None = None,
    complete: bool = False,
    timeout: Duration = "30s",
    clock: RecordClock = RecordClock.CREATE,
    starting_offsets: Mapping[int, int] | None = None,
    ending_offsets: Mapping[int, int] | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    read_committed: bool = False,
    max_wait_ms: int = 500,
    fail_on_data_loss: bool = True,
    order: str | None = None,
    without_time: str = WithoutTime.LAST,
    order_memory: int = DEFAULT_MEMORY,
    settings: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """Read the records of a topic up to its present log ends, partition after partition.

    Columns: `partition` (int32), then those asked for: of `horolog.record.columns`; `topic`;
    `timestamp` (milliseconds in UTC; null for a record without a time); `append_ms` (null where
    that is unknown), `seen_ms` (when a follower saw a record whose append time is unknown) and
    `create_ms` (int64). Exact to the record: times from `from_ms` to before
    `to_ms`, late records included, and none without a time where either is given; offsets from
    `starting_offsets` to before `ending_offsets`, where those name a partition. Only what may hold
    such a time is read. Gaps that compaction or transactions leave are skipped.

    Reading happens as the reader is read, over connections of its own, which end with it.

    Args:
        source: a client of the brokers, or their `host:port`; or a path: of a log directory, a
            partition or a segment, also in an object store (`s3://...`).
        partitions: their numbers; None for all.
        from_ms: the first time, in milliseconds since 1970; None without a limit.
        to_ms: the time after the last.
        as_of: an append time in milliseconds, a `Cut`, or the path of its file: only what was
            appended before it is read, exactly (docs/as-of.md). Committed records are those that
            were committed before it.
        complete: waits until no record before `to_ms` can be appended any more
            (docs/complete-until.md).
        timeout: how long that is waited for: milliseconds, or a text as 90s or 5m.
        clock: whose times these are: the records' own, or when they were appended.
        starting_offsets: the first offsets, by partition.
        ending_offsets: the offsets after the last.
        read_committed: leaves out aborted transactions, and what follows an open one.
        max_wait_ms: how long a broker may wait for records.
        fail_on_data_loss: False warns of lost or damaged records, and continues.
        order: "create_time" or "append_time": by these times instead, over all partitions and
            inside them, late records included; records of the same time by partition and offset.
        without_time: with `order`, records without such a time come "last", "first", or are
            refused ("refuse").
        order_memory: with `order`, how many bytes of records that overlap in time may be held.
        settings: `kafka.*` for brokers and `fs.*` for object stores, as in Spark.

    Raises:
        Misconfigured: the topic or the path is not there, or a setting is wrong; the log cannot be
            read exactly as of a time, or was compacted meanwhile; it never is complete, because
            its topic has no `message.timestamp.before.max.ms`.
        NotComplete: it is not complete within the timeout.
        Overlap: records that overlap in time are larger than `order_memory`.
        RequestRefused: a partition or an offset is not there, or the broker refuses.
        NoAnswer: a broker does not answer, or gives nothing although there is more.
        DataLost: records are gone before they are read.
        CorruptBatch: a batch breaks the format or its checksum; those before it are given.
    """
    times = TimeRange.between(from_ms, to_ms, clock)
    options = replace(
        options_of(source, settings or {}, max_wait_ms=max_wait_ms),
        subscription=TopicSelection((topic,)),
        appended=times if times.of_append else EVER_APPENDED,
        as_of=None if as_of is None else given_as_of(as_of),
        read_committed=read_committed,
        fail_on_data_loss=fail_on_data_loss,
        loss_option="fail_on_data_loss",
    )
    shape = TableShape(topic, columns)
    decoded = shape.decoded
    by = None if order is None else clock_of_order(order)
    of_order = APPEND if by is RecordClock.APPEND else "timestamp_ms"
    needed = decoded if by is None else tuple(dict.fromkeys((*decoded, of_order)))
    place = WithoutTime.of(without_time)
    memory = checked_memory(order_memory)
    numbers = None if partitions is None else list(partitions)
    timeout_ms = duration_ms(timeout)
    with opened_log(options) as log:
        if complete:
            until_ms = end_of_complete(times, is_as_of=as_of is not None)
            wait_complete(
                log,
                until_ms,
                partitions=lambda: numbered(log.partitions(), numbers, topic),
                committed=read_committed,
                timeout_ms=timeout_ms,
            )
        chosen = numbered(log.partitions(), numbers, topic)
        starts, ends = (
            {TopicPartition(topic, number): offset for number, offset in (given or {}).items()}
            for given in (starting_offsets, ending_offsets)
        )
        stretches = plan_offsets(log, chosen, RowFilter().within(times), starts, ends).stretches

    def read(reader: StretchReader, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        if not times.of_append:
            stretch = replace(stretch, times=times)
        with reader.losses(stretch):
            yield from tables_of(
                reader, stretch, RowFilter(), options, needed, max_bytes=_TABLE_BYTES
            )

    def batches() -> Iterator[pa.RecordBatch]:
        with StretchReader(options, runs_ahead=by is None) as reader:
            if by is None:
                for stretch in stretches:
                    number = pa.scalar(stretch.partition.partition, pa.int32())
                    for table in read(reader, stretch):
                        yield shape.of(table, pa.repeat(number, len(table)))
                check_read(options, stretches, chosen)
                return
            timed = reader.timed(stretches, by, memory)
            buffer = TableBuffer(of_order, _TABLE_BYTES)
            untimed = () if times.leaves_out_untimed(by) else timed
            passes = [
                in_order(timed, partial(read, reader), buffer, memory, runs_ahead=True),
                _untimed(untimed, partial(read, reader), of_order),
            ]
            for tables in passes if place is WithoutTime.LAST else reversed(passes):
                for table in tables:
                    if place is WithoutTime.REFUSE and tables is passes[1]:
                        raise untimed_refused(topic, _first_place(table))
                    yield shape.of(table, table.column(PARTITION))
        check_read(options, stretches, chosen)

    return pa.RecordBatchReader.from_batches(shape.schema, batches())


class TableShape:
    """The columns of a topic that a caller asks for, with `partition` before them."""

    def __init__(self, topic: str, columns: Sequence[str]) -> None:
        self._topic = topic
        self._columns = columns
        self.decoded = _decoded(columns)
        """Columns to decode for these columns."""
        ours = [name for name in self.decoded if name not in _TYPES]
        types = {**_TYPES, **{its.name: its.type for its in batch_schema(ours or ["offset"])}}
        self.schema = pa.schema([(PARTITION, pa.int32()), *((it, types[it]) for it in columns)])

    def of(self, table: pa.RecordBatch, partitions: pa.Array) -> pa.RecordBatch:
        """Return the columns of a decoded table."""
        asked = [_column(table, name, self._topic) for name in self._columns]
        return pa.RecordBatch.from_arrays([partitions, *asked], schema=self.schema)


def _untimed(
    timed: Iterable[TimedStretch],
    read: Callable[[Stretch], Iterator[pa.RecordBatch]],
    times: str,
) -> Iterator[pa.RecordBatch]:
    """The rows that have no time, in the order of the stretches."""
    for stretch, _, _, has_untimed in timed:
        for table in read(stretch) if has_untimed else ():
            rows = untimed_rows(table, times, stretch.partition.partition)
            if rows is not None:
                yield rows


def options_of(
    source: Client | str | os.PathLike[str],
    settings: Mapping[str, str],
    *,
    max_wait_ms: int = 500,
) -> ReadOptions:
    """Return the options of a read of a source, as `scan` takes it.

    Raises:
        Misconfigured: a setting is wrong.
    """
    given = {name.lower(): value for name, value in settings.items()}
    brokers = source.config if isinstance(source, Client) else None
    if not isinstance(source, Client):
        location = Location.parse(source)
        if location.bootstrap_servers is None:
            return ReadOptions(
                paths=location.paths,
                uncommitted=flag(given, "uncommitted", default=False),
                store=StoreOptions.parse(given),
            )
        of_client = {name: value for name, value in given.items() if name.startswith(PREFIX)}
        brokers = ClientConfig(
            bootstrap_servers=location.bootstrap_servers, security=security_of(of_client)
        )
    assert brokers is not None
    return ReadOptions.of_client(brokers, max_wait_ms=max_wait_ms)


def _first_place(table: pa.RecordBatch) -> str:
    partition = table.column(PARTITION)[0].as_py()
    if "offset" not in table.schema.names:
        return f"partition {partition}"
    return f"partition {partition}, offset {table.column('offset')[0].as_py()}"


def _decoded(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to decode for these columns; at least one."""
    found = ["timestamp_ms" if name == "timestamp" else name for name in columns if name != "topic"]
    return tuple(dict.fromkeys(found)) or ("offset",)


def _column(table: pa.RecordBatch, name: str, topic: str) -> pa.Array:
    if name == "topic":
        return pa.repeat(pa.scalar(topic), len(table))
    if name == "timestamp":
        times = table.column("timestamp_ms")
        return pc.if_else(pc.equal(times, NO_TIMESTAMP), None, times).cast(_TYPES["timestamp"])
    return table.column(name)
