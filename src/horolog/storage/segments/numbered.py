"""Batches that have their offsets and append times: all that the writer of a log takes.

A leader numbers and stamps what producers send (`Prepared.numbered`). A copy, a conversion, a
restore or a follower takes the batches of another log as they are (`as_they_are`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import CorruptBatch
from horolog.record.batch import MAGIC, UNKNOWN_COUNT, BatchHeader, parse_header
from horolog.record.markers import Marker
from horolog.record.old_format.plain import PlainMessages, largest_of, list_messages
from horolog.record.timestamps import AppendTimeStretch
from horolog.storage.names import MAX_RELATIVE_OFFSET


class Particulars(NamedTuple):
    """Fields that only plain messages, markers and batches of another log have."""

    header: BatchHeader | None = None
    """Header of a marker, of a batch of another log, or of the first of its plain messages."""
    messages: Sequence[PlainMessages] | None = None
    """The plain messages of v0 or v1, in order; each is a batch of its own."""
    is_seen: bool = False
    """The append time is when a follower saw the batch (`AppendTimeStretch.is_seen`)."""
    marker: Marker | None = None
    """The marker in a control batch of this broker's; others are read."""


NO_PARTICULARS: Final = Particulars()
"""Those of a batch of records that a leader numbers."""


@dataclass(slots=True)
class Numbered:
    """A batch, or plain messages of v0 or v1 with one append time; see the module."""

    parts: Sequence[Buffer]
    """The bytes. Of a batch whose records were counted, the first part is the header."""
    size: int
    """Bytes of all parts."""
    base_offset: int
    last_offset: int
    max_timestamp: int
    """Largest timestamp, below zero too (KIP-228); -1 if no record has one."""
    leader_epoch: int
    """-1 in formats v0 and v1, and where it is unknown."""
    append_ms: int | None
    """When it was appended, in milliseconds; None if that is unknown."""
    counts: bytes | None = None
    """Bytes of `Counts`: what the leader counted of its records' times, for the block map."""
    is_stamped: bool = False
    """The records have the append time as timestamps."""
    particulars: Particulars = NO_PARTICULARS


_OFFSET = attrgetter("offset")
_UNKNOWN = AppendTimeStretch(0, None)


def as_they_are(
    data: Buffer, least_offset: int, append_times: Sequence[AppendTimeStretch] = ()
) -> Iterator[Numbered]:
    """Yield the batches in a buffer, of any format.

    Args:
        least_offset: of the first; in v0 and v1 a compressed message says only where it ends.
        append_times: of the records, in order, as far as they are known.

    Raises:
        CorruptBatch: a header is none, or the last batch is not whole.
    """
    view, position = memoryview(data), 0
    while position < len(view):
        header = parse_header(view, position, least_offset)
        after, appended = _appended(header, append_times)
        listed = None
        if header.magic != MAGIC and not header.codec_number:
            listed = list_messages(view, header, position, least_offset=least_offset)
        if listed is None:
            end = position + header.size
            if end > len(view):
                raise CorruptBatch(f"the batch at offset {header.base_offset} is not whole")
            batch = as_it_is(header, [view[position:end]], appended.ms, is_seen=appended.is_seen)
        else:
            reach = bisect_right(listed.offsets, listed.offsets[0] + MAX_RELATIVE_OFFSET)
            if reach < len(listed.offsets):  # compaction has left a gap that no segment spans
                listed = listed.until(reach)
            if after < len(append_times):  # as far as the append time is the same
                count = bisect_left(listed.offsets, append_times[after].offset)
                listed = listed.until(count) if count < len(listed.offsets) else listed
            end = listed.end
            batch = as_it_is(header, [view[position:end]], appended.ms)
            batch.size = end - position
            batch.last_offset = listed.offsets[-1]
            batch.max_timestamp = largest_of(listed.times)
            batch.particulars = Particulars(header, (listed,), appended.is_seen)
        yield batch
        position, least_offset = end, batch.last_offset + 1


def appended_at(
    header: BatchHeader, append_times: Sequence[AppendTimeStretch]
) -> AppendTimeStretch:
    """Return the append time of a batch, by the append times of its log."""
    return _appended(header, append_times)[1]


def _appended(
    header: BatchHeader, append_times: Sequence[AppendTimeStretch]
) -> tuple[int, AppendTimeStretch]:
    """Return the append time of a batch, and the index of the next stretch."""
    # Where a compressed message of v0 or v1 begins is not known, if there is a gap before it.
    is_known = header.records_count != UNKNOWN_COUNT
    offset = header.base_offset if is_known else header.last_offset
    after = bisect_right(append_times, offset, key=_OFFSET)
    if after:
        return after, append_times[after - 1]
    if append_times and append_times[0].offset <= header.last_offset:
        return after, append_times[0]  # known from within the batch on, as of all of it
    return after, _UNKNOWN


def as_it_is(
    header: BatchHeader,
    parts: Sequence[Buffer],
    append_ms: int | None,
    *,
    is_seen: bool = False,
) -> Numbered:
    """Wrap a batch of another log, with its append time."""
    base_offset = header.base_offset
    if header.records_count == UNKNOWN_COUNT:  # only where it ends is known; the least, where not
        base_offset = max(base_offset, header.last_offset - MAX_RELATIVE_OFFSET)
    return Numbered(
        parts,
        header.size,
        base_offset,
        header.last_offset,
        header.max_timestamp,
        header.leader_epoch,
        append_ms,
        particulars=tuple.__new__(Particulars, (header, None, is_seen, None)),
    )
