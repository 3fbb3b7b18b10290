"""Count the records between two offsets of a log, and find the time of the first.

Block maps say it of whole blocks; the blocks that an offset cuts, one at each end, are read, and so
is what no map covers, if that is not too much.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.batch import BatchHeader
from horolog.record.scan import scan_batch
from horolog.record.transactions import AbortedTransaction, AbortedTransactions
from horolog.storage.batches.reader import MAX_HELD_BYTES
from horolog.storage.companion.blocks import Block, blocks_of, earliest
from horolog.storage.index.abort import AbortedTxn
from horolog.storage.lookup.by_append_time import with_ends
from horolog.storage.lookup.time_ranges import MAPPED_AT_ONCE
from horolog.storage.segments.reader import SegmentReader


class Unread(NamedTuple):
    """Records between two offsets: their number and their oldest times."""

    records: int | None = 0
    """Without control records; None if block maps do not say it."""
    oldest_create_ms: int | None = None
    """The smallest create time, or timestamp, if that was asked for; None if no record has one, or
    block maps do not say it."""
    is_known: bool = True
    """Whether the smallest create time is that of all: block maps say it of all of them."""

    def plus(self, other: "Unread") -> "Unread":
        """Add another stretch."""
        records = None
        if self.records is not None and other.records is not None:
            records = self.records + other.records
        times = [
            time_ms
            for time_ms in (self.oldest_create_ms, other.oldest_create_ms)
            if time_ms is not None
        ]
        is_known = self.is_known and other.is_known
        return Unread(records, min(times, default=None) if is_known else None, is_known)


_UNKNOWN: Final = Unread(None, None, False)


def dropping(aborted: Sequence[AbortedTxn]) -> Callable[[BatchHeader], bool]:
    """Return a predicate for batches: is a batch of these transactions?"""
    its = AbortedTransactions(
        AbortedTransaction(
            transaction.producer_id, transaction.first_offset, transaction.last_offset
        )
        for transaction in aborted
    )
    return its.may_hold


def unread(
    segments: Sequence[SegmentReader],
    from_offset: int,
    to_offset: int,
    max_batch_bytes: int,
    aborted: Sequence[AbortedTxn] = (),
    *,
    create_times: bool = True,
) -> Unread:
    """Count the records between two offsets.

    Finished segments get their maps first, as far as not too much has to be read for it.

    Args:
        segments: the one that holds `from_offset`, and all that follow.
        from_offset: of the first record that counts.
        to_offset: where a batch ends, at most the log's end.
        max_batch_bytes: a batch of the blocks that are read may decompress to.
        aborted: transactions whose records do not count.
        create_times: by create times; otherwise by timestamps, which may be append times.

    Raises:
        StorageFailed: the disk refused.
    """
    found, budget = Unread(), MAPPED_AT_ONCE
    drops, where = dropping(aborted), _AbortedRanges(aborted)
    for segment, end_offset, size in with_ends(segments):
        first, last = max(from_offset, segment.base_offset), min(to_offset, end_offset)
        if first >= last:
            continue
        stretch = _UnreadStretch(first, last, max_batch_bytes, where, drops, create_times)
        if segment is not segments[-1] and not segment.blocks.is_final(size) and size <= budget:
            budget -= size
            segment.complete_blocks()
        at = 0
        for block in blocks_of(segment.blocks.entries(size)):
            if block.position > at and block.base_offset > first:
                budget -= block.position - at
                found = found.plus(_scanned(segment, at, block.position, stretch, budget))
            at = block.position + block.size
            if block.next_offset > first and block.base_offset < last:
                if stretch.is_aborted(block):
                    budget -= block.size
                found = found.plus(_of_block(segment, block, stretch, budget))
        if at < size:
            budget -= size - at
            found = found.plus(_scanned(segment, at, size, stretch, budget))
    return found


class _UnreadStretch(NamedTuple):
    first: int
    last: int
    """After the last."""
    max_batch_bytes: int
    aborted: "_AbortedRanges"
    drops: Callable[[BatchHeader], bool]
    create_times: bool

    def is_aborted(self, block: Block) -> bool:
        """Return True if some records of a block may be aborted."""
        return self.aborted.is_within(block.base_offset, block.next_offset)


class _AbortedRanges:
    """Offset ranges of aborted transactions, of which there may be as many as blocks."""

    def __init__(self, aborted: Sequence[AbortedTxn]) -> None:
        in_order = sorted(
            (transaction.first_offset, transaction.last_offset) for transaction in aborted
        )
        self._firsts = [first for first, _ in in_order]
        self._latest = [*accumulate((last for _, last in in_order), max)]

    def is_within(self, offset: int, end_offset: int) -> bool:
        """Return True if a range has an offset from `offset` to before `end_offset`."""
        begun = bisect_left(self._firsts, end_offset)
        return begun > 0 and self._latest[begun - 1] >= offset


def _of_block(segment: SegmentReader, block: Block, stretch: _UnreadStretch, budget: int) -> Unread:
    """Count the records of a block within a stretch."""
    if not block.is_exact:
        return _UNKNOWN
    is_whole = stretch.first <= block.base_offset and block.next_offset <= stretch.last
    is_aborted = stretch.is_aborted(block)
    # The times of control records count in a block.
    if is_whole and not is_aborted and not block.times.control_records:
        least_ms = block.times.create_min_ms
        if not stretch.create_times:
            least_ms, _ = earliest(block.times, of_append=False)
        return Unread(block.times.records, least_ms)
    end = block.position + block.size
    return _scanned(segment, block.position, end, stretch, budget if is_aborted else 0)


def _scanned(
    segment: SegmentReader, start: int, end: int, stretch: _UnreadStretch, budget: int = 0
) -> Unread:
    """Count the records in some bytes of a segment within a stretch, by reading them."""
    if budget < 0:
        return _UNKNOWN
    found = Unread()
    try:
        for position, header in segment.headers(start, end):
            if header.next_offset <= stretch.first or header.is_control:
                continue
            if header.base_offset >= stretch.last:
                break
            if stretch.drops(header):
                continue
            if header.size > MAX_HELD_BYTES:
                return _UNKNOWN
            first = max(stretch.first, header.base_offset)
            last = min(stretch.last, header.next_offset)
            facts = scan_batch(
                segment.read_batch(position, header),
                header,
                max_bytes=stretch.max_batch_bytes,
                min_offset=first,
                create_times=stretch.create_times,
            )
            is_whole = (first, last) == (header.base_offset, header.next_offset)
            records = facts.count if is_whole else last - first if facts.dense_offsets else None
            found = found.plus(Unread(records, facts.min_timestamp))
    except (CorruptBatch, RequestRefused):
        return _UNKNOWN
    return found
