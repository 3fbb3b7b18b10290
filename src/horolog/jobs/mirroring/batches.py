"""What a batch of the source becomes at the target.

Each batch of the source makes one batch, or none: so every attempt to mirror a partition makes the
same batches in the same order, of which several may be sent as one (`record.joining`). Only headers
are written; a batch is decoded and encoded again where a broker would refuse it from a producer
(`record.identity.needs_writing`), or where a range of time or a first offset takes only some of its
records.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader, iter_headers, parse_header, verify_crc
from horolog.record.column_writer import encode_batches
from horolog.record.columns import batch_schema, decode
from horolog.record.identity import is_left_out, needs_writing
from horolog.record.timestamps import NO_TIMESTAMP, TimestampType
from horolog.record.transactions import AbortedTransactions
from horolog.sources.batches import Batches

_COLUMNS = ("key", "value", "headers", "timestamp_ms", "offset")
_ROOM_PER_RECORD = 96  # more than the lengths and deltas of a record take
_NONE, _SOME, _ALL = 0, 1, 2


class Made(NamedTuple):
    """What one batch of the source became."""

    source: BatchHeader
    header: BatchHeader
    """Of `batch`, as it would be sent but for producer and sequence."""
    batch: Buffer | None
    """None where none of its records is mirrored."""
    records: int
    runs: tuple[tuple[int, int], ...]
    """Where offsets follow one another: the first one at the source, its place in `batch`."""
    is_rewritten: bool = False
    """Its records were decoded and encoded: another version may compress them otherwise."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is mirrored: times from `from_ms` to before `to_ms`, milliseconds; None is without end.

    Records without a time are in no limited range. With `target_stamps` the target replaces times
    by its append times.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    target_stamps: bool = False

    @property
    def takes_all(self) -> bool:
        """Whether times do not matter."""
        return self.from_ms is None and self.to_ms is None


def made_of(batches: Batches, rule: Rule) -> Iterator[Made]:
    """What becomes of batches of the source.

    Raises:
        CorruptBatch: what follows is no batch, or its checksum is wrong.
        RequestRefused: a batch that is rewritten decompresses to too much.
    """
    view, drop = memoryview(batches.data), AbortedTransactions(batches.aborted or ()).drop
    for position, header in iter_headers(view, least_offset=batches.start):
        if header.base_offset >= batches.end:
            return
        batch = view[position : position + header.size]
        if header.next_offset <= batches.start:
            drop(header, batch)
            continue
        try:
            verify_crc(view, position, header)
            is_out = drop(header, batch) or is_left_out(header)
            made = _nothing_of(header) if is_out else _made(header, batch, rule, batches.start)
        except CorruptBatch as error:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} of the source is damaged: {error.reason}"
            ) from error
        yield made


def _nothing_of(header: BatchHeader) -> Made:
    return Made(header, header, None, 0, ())


def _made(header: BatchHeader, batch: memoryview, rule: Rule, start: int) -> Made:
    times = _ALL if rule.takes_all else _within(header, batch, rule)
    if times == _NONE:
        return _nothing_of(header)
    is_cut = times == _SOME or header.base_offset < start
    if not is_cut and not needs_writing(header, keeps_stamps=not rule.target_stamps):
        return Made(header, header, batch, header.records_count, ((header.base_offset, 0),))
    rows = pa.Table.from_batches(
        decode(
            batch,
            start_offset=start,
            from_ms=rule.from_ms,
            to_ms=rule.to_ms,
            columns=_COLUMNS,
            check_crcs=False,
        ),
        schema=batch_schema(_COLUMNS),
    )
    if not rule.takes_all:
        rows = rows.filter(pc.not_equal(rows["timestamp_ms"], NO_TIMESTAMP))
    if not rows.num_rows:
        return _nothing_of(header)
    rows = rows.combine_chunks()
    room = rows.nbytes + _ROOM_PER_RECORD * rows.num_rows + 1024
    (table,) = rows.to_batches()
    (data,) = encode_batches(table, codec=header.codec, batch_bytes=room)
    runs = _runs(table.column("offset"))
    return Made(header, parse_header(data), data, rows.num_rows, runs, is_rewritten=True)


def _runs(offsets: pa.Array) -> tuple[tuple[int, int], ...]:
    found = offsets.to_numpy()
    begins = np.flatnonzero(np.diff(found) != 1) + 1
    return tuple((int(found[place]), int(place)) for place in (0, *begins))


def _within(header: BatchHeader, batch: memoryview, rule: Rule) -> int:
    """Whether no record has a time in the range, some do, or all do."""
    first = rule.from_ms if rule.from_ms is not None else -(1 << 63)
    if header.max_timestamp < first:
        return _NONE
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        is_in = rule.to_ms is None or header.max_timestamp < rule.to_ms
        return _ALL if is_in else _NONE
    inside = records = 0
    for rows in decode(batch, columns=("timestamp_ms",), check_crcs=False):
        times = rows.column(0).to_numpy()
        is_inside = (times >= first) & (times != NO_TIMESTAMP)
        if rule.to_ms is not None:
            is_inside &= times < rule.to_ms
        inside += int(is_inside.sum())
        records += len(times)
    return _ALL if inside == records else _SOME if inside else _NONE
