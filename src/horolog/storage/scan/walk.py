"""One walk over the batches of a segment's log, with a judgement of each.

Recovery cuts a log at the first fault; `horolog log verify` reports every fault. So a start keeps
exactly what verify calls whole.
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
    """The checksum of a batch does not match its bytes."""


class Walked(NamedTuple):
    """A batch, or several plain messages of v0 or v1 that follow each other."""

    position: int
    header: BatchHeader
    """Header of the batch, or of the first message."""
    messages: PlainMessages | None
    fault: CorruptBatch | None = None
    """The reason why a start cuts the log here; None for a whole batch."""

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + (self.header.size if self.messages is None else self.messages.end)

    @property
    def next_offset(self) -> int:
        """The offset after it."""
        return (self.header if self.messages is None else self.messages).next_offset


def walk(
    log: BatchReader, start: int = 0, next_offset: int | None = None, limit: int | None = None
) -> Iterator[Walked]:
    """Judge every batch of a log. After a fault the walk continues behind the batch.

    Args:
        log: of a segment, with its base offset as least offset.
        start: position of the first batch.
        next_offset: the least offset of that batch, unless it is the first of the log.
        limit: base offset of the next segment; None if there is none.

    Raises:
        CorruptBatch: no batch begins where one should.
    """
    base_offset, log.in_any_order = log.least_offset, True
    bound = base_offset + MAX_RELATIVE_OFFSET + 1
    if limit is not None:
        bound = min(bound, limit)
    least_offset = base_offset if next_offset is None else next_offset
    for position, header, listed in log.stretches(start, check_crcs=True):
        singly: Iterable[tuple[int, BatchHeader]] = ((position, header),)
        if listed is not None and position + listed.positions[-1] <= MAX_RELATIVE_OFFSET:
            count = len(listed.offsets)
            fit = bisect_left(listed.offsets, bound) if listed.offsets[0] >= least_offset else 0
            if fit:
                part = listed if fit == count else listed.until(fit)
                yield Walked(position, header, part)
                least_offset = part.next_offset
            behind = listed.end if fit == count else listed.positions[fit]
            singly = log.headers(position + behind, position + listed.end)
        for at, one in singly:
            fault = _fault(log, at, one, least_offset, limit)
            yield Walked(at, one, None, fault)
            if fault is None:
                least_offset = one.next_offset


def _fault(
    log: BatchReader, position: int, header: BatchHeader, least_offset: int, limit: int | None
) -> CorruptBatch | None:
    """The first thing that is wrong with a batch as a part of a segment."""
    first, last, base_offset = header.base_offset, header.last_offset, log.least_offset
    if first < least_offset:
        return log.corrupt(position, f"the batch begins at offset {first}, before {least_offset}")
    if last - base_offset > MAX_RELATIVE_OFFSET:
        return log.corrupt(
            position,
            f"the batch ends with offset {last}, and the segment's offsets are before "
            f"{base_offset + MAX_RELATIVE_OFFSET + 1}",
        )
    if limit is not None and last >= limit:
        return CorruptBatch(
            f"the batch at byte {position} ends with offset {last}, and the next segment begins "
            f"at {limit}"
        )
    try:
        log.check(position, header)
    except CorruptBatch as error:
        return log.corrupt(position, error.reason, WrongChecksum)
    if position > MAX_RELATIVE_OFFSET:
        return CorruptBatch(
            f"the batch at byte {position} has the offsets {first} to {last}, which a segment that "
            f"begins at {base_offset} cannot hold"
        )
    return None


def whole_stretches(
    log: BatchReader, limit: int | None = None
) -> Iterator[tuple[int, BatchHeader, PlainMessages | None]]:
    """The batches of a segment before the first fault, as `BatchReader.stretches` yields them.

    Raises:
        CorruptBatch: the first fault.
    """
    for batch in walk(log, limit=limit):
        if batch.fault is not None:
            raise batch.fault
        yield batch[:3]


def whole_end(files: Files, path: str, base_offset: int) -> int | None:
    """The offset after the last batch of a file that can be the log of a segment.

    None if the file is empty or contains anything but whole batches whose offsets increase from
    `base_offset` on.
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
