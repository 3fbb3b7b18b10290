"""Record batches to Arrow tables: the log as columns. `column_writer` is the way back.

    key binary, value binary, offset int64, timestamp_ms int64, timestamp_type int32
    headers list<struct<key: string, value: binary>>          (only when asked for)
    producer_id int64, producer_epoch int32, sequence int32   (only when asked for)

All fields are nullable and the types plain (32-bit ends), as Spark wants them. A table never
exceeds `max_bytes`, unless a single record does. A large batch is divided among several tables and
never decompressed as a whole.

Only this module and its helpers import pyarrow: `decoder` and `row_buffers`, which fill tables, and
`column_writer` with `row_columns`.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import MAGIC, verify_crc
from horolog.record.batch_producers import PRODUCER_TYPES
from horolog.record.batch_runs import BatchRunReader, may_be_read_in_runs
from horolog.record.decoder import Decoder, DecodeStatistics, may_meet
from horolog.record.row_buffers import RowBuffers
from horolog.record.row_range import INT64_MAX, INT64_MIN, RowRange
from horolog.record.transactions import AbortedTransaction, BatchWalk

__all__ = [
    "DEFAULT_COLUMNS",
    "DecodeStatistics",
    "batch_schema",
    "decode",
]

DEFAULT_COLUMNS = ("key", "value", "offset", "timestamp_ms", "timestamp_type")
MAX_TABLE_BYTES = 8 << 20
MAX_BATCH_BYTES = 1 << 30

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.int32(),
    **PRODUCER_TYPES,
}


def batch_schema(columns: Sequence[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """Return the schema of the tables that `decode` yields for these columns, in this order."""
    if not columns:
        raise ValueError("A table needs at least one column to have rows")
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ValueError(f"No such columns: {unknown}; there are {list(_TYPES)}")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def decode(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    max_bytes: int = MAX_TABLE_BYTES,
    skip_control: bool = True,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    aborted: Iterable[AbortedTransaction] | None = None,
    check_crcs: bool = True,
    as_created: bool = False,
    statistics: DecodeStatistics | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of all whole batches in `buffer` as tables of at least a row, by offset.

    The selection is exact: offsets from `start_offset` to before `end_offset`, timestamps from
    `from_ms` to before `to_ms` (compared as plain numbers, -1 included). Only `columns` are copied.
    A batch whose header excludes it is not decompressed. Records of the transactions in `aborted`
    are left out.

    With `as_created` records have the times in their bytes, also in batches of v2 and compressed
    messages of v1 that are stamped with an append time. That is their create time, unless a broker
    packed them anew.

    Raises:
        CorruptBatch: a batch breaks the format, or its CRC (unless not `check_crcs`).
        RequestRefused: one batch decompresses to more than `max_batch_bytes`.
    """
    schema = batch_schema(columns)
    row_range = RowRange(
        first_ms=INT64_MIN if from_ms is None else max(INT64_MIN, from_ms),
        last_ms=INT64_MAX if to_ms is None else min(INT64_MAX, to_ms - 1),
        first_offset=INT64_MIN if start_offset is None else max(INT64_MIN, start_offset),
        last_offset=INT64_MAX if end_offset is None else min(INT64_MAX, end_offset - 1),
    )
    statistics = statistics if statistics is not None else DecodeStatistics()
    view = memoryview(buffer)
    rows = RowBuffers(schema, max_bytes, row_range)
    decoder = Decoder(view, rows, max_batch_bytes, statistics, as_created=as_created)
    reader = None
    if may_be_read_in_runs(row_range):
        reader = BatchRunReader(view, row_range, as_created=as_created)
    walk, position = BatchWalk(view, aborted), 0
    try:
        while True:
            if reader is not None:
                end = yield from decoder.add_runs(position, reader, check_crcs)
                if end > position:
                    position = end
                    walk.skip_to(position, statistics.next_offset or 0)
            batch = next(walk, None)
            if batch is None:
                break
            header = batch.header
            if header.magic != MAGIC:
                position += yield from decoder.add_messages(position, header, row_range, check_crcs)
                walk.skip_to(position, statistics.next_offset or 0)
                continue
            statistics.batches += 1
            statistics.next_offset = header.next_offset
            is_hidden = batch.is_aborted or not may_meet(header, row_range)
            if check_crcs and not is_hidden:
                verify_crc(view, position, header)
            is_empty = header.records_count == 0 or (skip_control and header.is_control)
            if is_hidden or is_empty:
                statistics.batches_skipped += 1
            else:
                yield from decoder.add(position, header)
            position += header.size
        yield from decoder.finish()
    except (CorruptBatch, RequestRefused):
        yield from decoder.finish()  # what came before is still good
        raise
