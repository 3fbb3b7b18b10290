"""`horolog produce --from`: files of tables as records. Imports pyarrow."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from horolog.cli.screen import Advance, progress, say, sent
from horolog.cli.table_files import opened
from horolog.cli.too_old import TooOldHint
from horolog.client import Client
from horolog.client.producer import Producer, Written
from horolog.errors import Misconfigured
from horolog.record.compression import Codec
from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.record.timestamps import NO_TIMESTAMP

PARTS = ("value", "key", "timestamp", "timestamp_ms", "partition", "headers")


def produce_tables(
    client: Client,
    topic: str,
    files: Sequence[Path],
    names: Mapping[str, str],
    partition: int | None,
    codec: Codec,
    acks: int,
    zone: tzinfo | None = None,
) -> None:
    """Send the rows of files one after another, and print what was sent.

    Times without a zone get the given one. An error names its file.

    Raises:
        Misconfigured: a file is no table, or lacks columns for records.
        RequestRefused: the broker refuses a batch.
    """
    for part in names:
        if part not in PARTS:
            raise Misconfigured(f"--column {part}=...: a record has {', '.join(PARTS)}")
    if names and "value" not in names:
        raise Misconfigured("give --column value=NAME too: the others are left out")
    COLUMN_KERNELS.load_in_background()
    total, oldest = Written(), _Oldest()
    try:
        with Producer(client, codec=codec, acks=acks) as producer:
            for path in files:
                _send(producer, topic, path, names, partition, total, zone, oldest)
        TooOldHint(client, topic).look(oldest.ms)
    finally:
        say(sent(topic, total.records, total.offsets))


def _send(
    producer: Producer,
    topic: str,
    path: Path,
    names: Mapping[str, str],
    partition: int | None,
    total: Written,
    zone: tzinfo | None,
    oldest: "_Oldest",
) -> None:
    with (
        opened(path, names) as (reader, count),
        progress(f"sending {path}", count, "rows") as advance,
    ):
        rows = oldest.of(reader if zone is None else _in_zone(reader, zone))
        counted = _counted(rows, partition, advance)
        try:
            producer.send(topic, counted, into=total)
        except (ValueError, pa.ArrowException) as error:
            hint = "" if names else "; --column value=NAME says which columns to take"
            raise Misconfigured(f"{path}: {error}{hint}") from None


class _Oldest:
    """Smallest timestamp of the rows that pass through; `ms` is None without one."""

    def __init__(self) -> None:
        self.ms: int | None = None

    def of(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Return a reader of the same rows that notes their smallest timestamp."""

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                self._look(batch)
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def _look(self, batch: pa.RecordBatch) -> None:
        for name in ("timestamp", "timestamp_ms"):
            at = batch.schema.get_field_index(name)
            kind = batch.schema.field(at).type if at >= 0 else None
            if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
                continue
            smallest = pc.min(batch.column(at))
            if pa.types.is_timestamp(kind):
                smallest = smallest.cast(pa.timestamp("ms", kind.tz), safe=False)
            ms = smallest.cast(pa.int64()).as_py()
            if ms is not None and ms != NO_TIMESTAMP:
                self.ms = ms if self.ms is None else min(self.ms, ms)


def _in_zone(reader: pa.RecordBatchReader, zone: tzinfo) -> pa.RecordBatchReader:
    """Return a reader of the same rows, where times without a zone get this one."""
    schema, at = reader.schema, reader.schema.get_field_index("timestamp")
    kind = schema.field(at).type if at >= 0 else None
    if kind is None or not pa.types.is_timestamp(kind) or kind.tz is not None:
        return reader
    schema = schema.set(at, pa.field("timestamp", pa.timestamp(kind.unit, zone)))
    batches = (
        batch.set_column(
            at, schema.field(at), pc.assume_timezone(batch.column(at), schema.field(at).type.tz)
        )
        for batch in reader
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _counted(
    reader: pa.RecordBatchReader, partition: int | None, advance: Advance
) -> pa.RecordBatchReader:
    """Return a reader of the same rows that reports progress, and may set the partition."""
    schema = reader.schema
    if partition is not None:
        if "partition" in schema.names:
            raise Misconfigured("--partition, and the table has a column partition: give one")
        schema = schema.append(pa.field("partition", pa.int32()))

    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            done += batch.num_rows
            advance(done)
            columns = list(batch.columns)
            if partition is not None:
                columns.append(pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
