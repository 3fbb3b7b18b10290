"""Rows for plain messages of v0 and v1, made without an object for each message.

Messages are scanned as the records of v2 that they would be. A scan takes as many as have one
append time and fit into a block.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TypeAlias

from horolog.errors import CorruptBatch
from horolog.record.old_format.plain import PlainMessages
from horolog.record.old_format.reading import open_run
from horolog.record.scan import scan_records
from horolog.record.time_stats import OF_APPEND_TIME, OF_CREATE_TIME
from horolog.record.timestamps import LOG_APPEND_TIME, NO_TIMESTAMP, AppendTimeStretch
from horolog.storage.companion.blocks import BLOCK_BYTES
from horolog.storage.companion.folding import row_of
from horolog.storage.companion.proof import IDENTITY_SIZE, identity_of

AppendTimesOf: TypeAlias = Callable[[int, int], Sequence[AppendTimeStretch]]
"""Returns the append times from one offset to another; the first stretch begins there."""


def rows_of(
    data: bytes,
    position: int,
    listed: PlainMessages,
    append_times: AppendTimesOf | None,
    least_offset: int,
) -> Iterator[bytes]:
    """Yield rows of messages.

    A row has one append time and is no larger than a block.

    Args:
        data: the bytes that were listed.
        position: of the first in the log.
        append_times: when they were appended, if they are not stamped with it.
        least_offset: that the first may have.
    """
    is_stamped = listed.header.timestamp_type is LOG_APPEND_TIME
    ends = (*listed.positions, listed.end)
    for begin, stop, append_ms in _with_one_time(listed, append_times):
        first = begin
        while first < stop:
            end = min(stop, max(first + 1, bisect_right(ends, ends[first] + BLOCK_BYTES) - 1))
            last = ends[end - 1]
            yield row_of(
                position + ends[first],
                ends[end] - ends[first],
                min(least_offset, listed.offsets[first]),
                listed.offsets[end - 1],
                identity_of(data[last : last + IDENTITY_SIZE]),
                0,
                append_ms,
                OF_APPEND_TIME if is_stamped else OF_CREATE_TIME,
                _counts(data[ends[first] : ends[end]], listed, first, append_ms),
                batches=end - first,
                last_position=position + last,
            )
            least_offset = listed.offsets[end - 1] + 1
            first = end


def _with_one_time(
    listed: PlainMessages, append_times: AppendTimesOf | None
) -> Iterator[tuple[int, int, int | None]]:
    """Yield the messages that share an append time: first index, end index, time."""
    count = len(listed.offsets)
    if listed.header.timestamp_type is LOG_APPEND_TIME:
        times = listed.times
        changes = (at for at, (one, two) in enumerate(pairwise(times), 1) if one != two)
        for begin, stop in pairwise((0, *changes, count)):
            yield begin, stop, None if times[begin] == NO_TIMESTAMP else times[begin]
        return
    if append_times is None:
        yield 0, count, None
        return
    stretches = append_times(listed.offsets[0], listed.next_offset)
    begins = [bisect_left(listed.offsets, stretch.offset) for stretch in stretches]
    for stretch, begin, stop in zip(stretches, begins, (*begins[1:], count), strict=True):
        if begin < stop:
            yield begin, stop, stretch.ms


def _counts(data: bytes, listed: PlainMessages, index: int, append_ms: int | None) -> bytes | None:
    """Return the bytes of the `Counts` of all records; None if a record cannot be read."""
    header = listed.header_of(index)
    with suppress(CorruptBatch):
        run = open_run(data, header, check_crcs=False)
        if run.size == len(data):
            opened = run.opened
            return scan_records(opened.header, opened.pieces, arrival_ms=append_ms).counts.tobytes()
    return None
