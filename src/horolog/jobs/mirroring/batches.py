"""Conversion of batches of the source into batches for the target.

Each batch of the source makes one batch, or none; several may be sent as one (`record.joining`).
Only headers are rewritten. A batch is decoded and encoded again if a broker would refuse it from a
producer (`record.identity.needs_writing`), or if a range of time or a first offset selects only
some of its records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader, parse_header, verify_crc
from horolog.record.column_writer import encode_batches
from horolog.record.columns import batch_schema, decode
from horolog.record.identity import needs_writing
from horolog.record.timestamps import NO_TIMESTAMP, TimeRange, TimestampType
from horolog.record.transactions import WalkedBatch
from horolog.sources.batches import Batches
from horolog.sources.rows import in_times

_COLUMNS = ("key", "value", "headers", "timestamp_ms", "offset")
_ROOM_PER_RECORD = 96  # more than the lengths and deltas of a record take
_NONE, _SOME, _ALL = 0, 1, 2


class Made(NamedTuple):
    """Result of one batch of the source: the batch to send, or none."""

    source: BatchHeader
    header: BatchHeader
    """Header of `batch`, without the producer and sequence that it gets when it is sent."""
    batch: Buffer | None
    """The batch to send; None if no record of it is mirrored."""
    records: int
    runs: tuple[tuple[int, int], ...]
    """Runs of consecutive offsets: the first offset at the source, and its index in `batch`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Selection of records by their times; records without a time are in no limited range.

    With `target_stamps` the target replaces times by its append times.
    """

    times: TimeRange
    target_stamps: bool


def made_of(batches: Batches, rule: Rule) -> Iterator[Made]:
    """Yield the result of each batch of the source.

    Raises:
        CorruptBatch: bytes of the source are no batch, or a checksum is wrong.
        RequestRefused: a rewritten batch decompresses to too much.
    """
    for batch in batches.walk():
        header = batch.header
        try:
            verify_crc(batch.data, 0, header)
            is_left_out = not batch.is_visible
            made = _nothing_of(header) if is_left_out else _made(batch, rule, batches.start)
        except CorruptBatch as error:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} of the source is damaged: {error.reason}"
            ) from error
        yield made


def _nothing_of(header: BatchHeader) -> Made:
    return Made(header, header, None, 0, ())


def _made(walked: WalkedBatch, rule: Rule, start: int) -> Made:
    header, batch = walked.header, walked.data
    times = _ALL if rule.times.is_everything else _within(header, batch, rule.times)
    if times == _NONE:
        return _nothing_of(header)
    is_cut = times == _SOME or header.base_offset < start
    if not is_cut and not needs_writing(header, keeps_stamps=not rule.target_stamps):
        return Made(header, header, batch, header.records_count, ((header.base_offset, 0),))
    rows = rows_in(batch, rule.times, _COLUMNS, start)
    if not rows.num_rows:
        return _nothing_of(header)
    room = rows.nbytes + _ROOM_PER_RECORD * rows.num_rows + 1024
    (table,) = rows.to_batches()
    (data,) = encode_batches(table, codec=header.codec, batch_bytes=room)
    runs = _runs(table.column("offset"))
    return Made(header, parse_header(data), data, rows.num_rows, runs)


def _runs(offsets: pa.Array) -> tuple[tuple[int, int], ...]:
    numbers = offsets.to_numpy()
    begins = np.flatnonzero(np.diff(numbers) != 1) + 1
    return tuple((int(numbers[place]), int(place)) for place in (0, *begins))


def rows_in(
    batch: memoryview, times: TimeRange, columns: Sequence[str], start: int, end: int | None = None
) -> pa.Table:
    """Return the records of a batch in a range of times and offsets, as one table.

    Args:
        columns: columns of `decode`, including the times.
        end: the offset after the last record; None for all.
    """
    rows = pa.Table.from_batches(
        decode(
            batch,
            start_offset=start,
            end_offset=end,
            from_ms=times.from_ms,
            to_ms=times.to_ms,
            columns=columns,
            check_crcs=False,
        ),
        schema=batch_schema(columns),
    )
    if not times.is_everything:
        rows = rows.filter(pc.not_equal(rows["timestamp_ms"], NO_TIMESTAMP))
    return rows.combine_chunks()


def _within(header: BatchHeader, batch: memoryview, times: TimeRange) -> int:
    """Return if none, some or all of a batch's records have times in the range."""
    if header.max_timestamp < times.first_ms:
        return _NONE
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return _ALL if times.holds(header.max_timestamp) else _NONE
    inside = records = 0
    for rows in decode(batch, columns=("timestamp_ms",), check_crcs=False):
        inside += int(in_times(rows.column(0).to_numpy(), times).sum())
        records += rows.num_rows
    return _ALL if inside == records else _SOME if inside else _NONE
