"""Walk over the batches of a segment's log, with a judgement of each.

Recovery cuts a log at the first fault; `horolog log verify` reports every fault. So a start keeps
exactly what verify calls whole. `horolog log inspect` counts the batches before the first fault,
and a conversion reads their formats.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from horolog.errors import CorruptBatch
from horolog.record.batch import BatchHeader
from horolog.record.old_format.plain import PlainMessages
from horolog.storage.batches.reader import BatchReader
from horolog.storage.files import Files
from horolog.storage.names import MAX_RELATIVE_OFFSET


class WrongChecksum(CorruptBatch):
    """Error: the checksum of a batch does not match its bytes."""


class Walked(NamedTuple):
    """Batch of a walk, or consecutive plain messages of v0 or v1."""

    position: int
    header: BatchHeader
    """Header of the batch, or of the first message."""
    messages: PlainMessages | None
    fault: CorruptBatch | None = None
    """The reason why a start cuts the log here; None for a whole batch."""

    @property
    def end(self) -> int:
        """Position just past the batch."""
        return self.position + (self.header.size if self.messages is None else self.messages.end)

    @property
    def next_offset(self) -> int:
        """Offset just past the batch."""
        return (self.header if self.messages is None else self.messages).next_offset

    def singly(self, log: BatchReader) -> "Iterable[Walked]":
        """Yield the batch, or each of the messages."""
        if self.messages is None:
            return (self,)
        return (Walked(at, one, None) for at, one in log.headers(self.position, self.end))


def walk(
    log: BatchReader,
    start: int = 0,
    next_offset: int | None = None,
    limit: int | None = None,
    *,
    check_crcs: bool = True,
) -> Iterator[Walked]:
    """Judge every batch of a log.

    The walk continues behind a batch with a fault.

    Args:
        log: of a segment, with its base offset as least offset.
        start: position of the first batch.
        next_offset: the least offset of that batch, unless it is the first of the log.
        limit: base offset of the next segment; None if there is none.
        check_crcs: whether a wrong checksum is a fault; otherwise only headers are read.

    Raises:
        CorruptBatch: no batch begins where one should.
    """
    base_offset, log.in_any_order = log.least_offset, True
    bound = base_offset + MAX_RELATIVE_OFFSET + 1
    if limit is not None:
        bound = min(bound, limit)
    least_offset = base_offset if next_offset is None else next_offset
    for position, header, listed in log.stretches(start, check_crcs=check_crcs):
        singly: Iterable[tuple[int, BatchHeader]] = ((position, header),)
        if listed is not None and position + listed.positions[-1] <= MAX_RELATIVE_OFFSET:
            count = len(listed.offsets)
            fit = bisect_left(listed.offsets, bound) if listed.offsets[0] >= least_offset else 0
            if fit:
                part = listed if fit == count else listed.until(fit)
                yield Walked(position, header, part, None)
                least_offset = part.next_offset
            if fit == count:
                continue
            singly = log.headers(position + listed.positions[fit], position + listed.end)
        for at, one in singly:
            first, last, fault = one.base_offset, one.last_offset, None
            if first < least_offset or last >= bound or at > MAX_RELATIVE_OFFSET:
                fault = _misplaced(log, at, one, least_offset, limit)
            else:
                try:
                    if check_crcs:
                        log.check(at, one)
                    least_offset = last + 1
                except CorruptBatch as error:
                    fault = log.corrupt(at, error.reason, WrongChecksum)
            yield tuple.__new__(Walked, (at, one, None, fault))


def walk_headers(log: BatchReader) -> Iterator[Walked]:
    """Walk over the headers up to the first fault.

    Raises:
        CorruptBatch: a batch is misplaced, or no batch begins where one should.
    """
    for batch in walk(log, check_crcs=False):
        if batch.fault is not None:
            raise batch.fault
        yield batch


def _misplaced(
    log: BatchReader, position: int, header: BatchHeader, least_offset: int, limit: int | None
) -> CorruptBatch:
    """Return the reason why a batch with these offsets cannot be at this position."""
    first, last, base_offset = header.base_offset, header.last_offset, log.least_offset
    bound = base_offset + MAX_RELATIVE_OFFSET + 1
    if first < least_offset:
        return log.corrupt(position, f"the batch begins at offset {first}, before {least_offset}")
    if last >= bound:
        return log.corrupt(
            position,
            f"the batch ends with offset {last}, and the segment's offsets are before {bound}",
        )
    if limit is not None and last >= limit:
        return CorruptBatch(
            f"the batch at byte {position} ends with offset {last}, and the next segment begins "
            f"at {limit}"
        )
    return CorruptBatch(
        f"the batch at byte {position} has the offsets {first} to {last}, which a segment that "
        f"begins at {base_offset} cannot hold"
    )


def whole_end(files: Files, path: str, base_offset: int) -> int | None:
    """Return the offset after the last batch of a file that contains whole batches alone.

    None for an empty file, and for one with anything but whole batches whose offsets increase.
    """
    log = BatchReader(files, files.get(path), files.size(path), least_offset=base_offset)
    end, next_offset = 0, base_offset
    try:
        for batch in walk(log):
            if batch.fault is not None:
                return None
            end, next_offset = batch.end, batch.next_offset
    except CorruptBatch:
        return None
    return next_offset if 0 < log.size == end else None
