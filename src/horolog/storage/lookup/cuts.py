"""Cuts: the place in a log that parts what was appended before a time from the rest.

Because append times do not go back, that is one offset. A transaction counts as appended when its
marker was: readers of committed records stop before the transactions that had not ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from horolog.offsets import Doubts, Inexact, TransactionStart
from horolog.record.batch import MAGIC
from horolog.storage.companion.blocks import blocks_of
from horolog.storage.directory.checkpoints import AheadSpan, AppendTimeReset
from horolog.storage.lookup.by_append_time import (
    AppendedAt,
    HeldPart,
    append_times,
    find_in_parts,
    goes_back,
)
from horolog.storage.segments.reader import SegmentReader

_MOST_UNMAPPED: Final = 1 << 20
"""Bytes of batches in no block that are read; only those of other brokers have more."""


class CutLog(NamedTuple):
    """Everything of one log that decides where it is cut."""

    parts: Sequence[HeldPart]
    """All readable offsets, in order."""
    start: int
    end: int
    """Offset after the last readable one."""
    resets: Sequence[AppendTimeReset] = ()
    ahead: AheadSpan | None = None
    floor_ms: int | None = None
    cleaner_point: int | None = None
    follows: bool = False
    """True if the log takes the batches of a source, which may have more."""
    has_open: bool = True
    """False if no transaction is open at the end."""
    may_have_gaps: bool = True
    """False if no cleaner has removed records, here or at a source."""


class LogCut(NamedTuple):
    """First offset that was appended at or after a time."""

    offset: int
    why: Inexact | None
    """Reason why another offset may be right; None if the offset is exact."""


def cut_log(log: CutLog, at_ms: int, clock_ms: int) -> LogCut:
    """Cut a log at a time.

    Args:
        clock_ms: every record that is appended from now on gets this append time or a later one.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    found = find_in_parts(log.parts, at_ms, {reset.offset for reset in log.resets})
    if found is not None and found.offset >= log.end:
        found = None
    offset = log.end if found is None else found.offset
    if at_ms > clock_ms and (found is None or found.ms is None):
        return LogCut(offset, Inexact.FUTURE)
    return LogCut(offset, _why(log, at_ms, found, offset))


def _why(log: CutLog, at_ms: int, found: AppendedAt | None, offset: int) -> Inexact | None:
    """Return why a cut is not exact; None if it is."""
    doubts = doubts_of(log)
    if doubts.is_reset(at_ms):
        return Inexact.RESET  # also where the records before the reset are deleted
    if found is None:
        if log.follows:
            return Inexact.FOLLOWING
        is_gone = log.start == log.end > 0 and (log.floor_ms is None or log.floor_ms >= at_ms)
        return Inexact.DELETED if is_gone else None
    why = doubts.why(at_ms, offset, found.ms)
    if why is None and goes_back(log.parts, at_ms, offset):
        return Inexact.RESET
    has_unknown_gaps = why is None and log.cleaner_point is None and log.may_have_gaps
    # A source's cleaner leaves gaps alone: how far it came is not known.
    if has_unknown_gaps and any(
        _has_gap(part, offset) for part in log.parts if part.start < offset
    ):
        return Inexact.COMPACTED
    return Inexact.DELETED if why is None and offset == log.start > 0 else why


def _has_gap(part: HeldPart, before: int) -> bool:
    """Return True if offsets of a segment in front of another one have no record.

    Block maps count records. Of batches that are in no block only few are read.
    """
    segment, _, end, size = part
    at, expected = 0, segment.base_offset
    for block in blocks_of(segment.blocks.entries(size)):
        if block.position == at and block.base_offset > expected:
            return True
        if block.base_offset >= before:
            return False
        held = block.times.records + block.times.control_records
        if block.is_exact and block.base_offset + held < block.next_offset:
            return True
        at, expected = block.end, block.next_offset
    if size - at > _MOST_UNMAPPED:
        return False
    for _, header in segment.headers(at, size):
        if header.base_offset > expected:
            return True
        if header.base_offset >= before:
            return False
        if header.magic == MAGIC and header.records_count <= header.last_offset_delta:
            return True
        expected = header.next_offset
    return expected < min(end, before)


def doubts_of(log: CutLog) -> Doubts:
    """Return where cuts of a log are not exact, apart from gaps in its append times."""
    resets = tuple((reset.offset, reset.old_ms, reset.new_ms) for reset in log.resets)
    ahead = () if log.ahead is None else ((log.ahead.since_ms, log.ahead.floor_ms),)
    return Doubts(resets, ahead, log.cleaner_point)


def unfinished(
    log: CutLog,
    before: int,
    opened_at: Callable[[int], tuple[int, Mapping[int, int]]],
    *,
    behind: int | None = None,
    since: Mapping[int, int],
    first_id: int = 0,
) -> Iterator[TransactionStart]:
    """Yield, for each producer, its first transaction that had not ended at some place of the log.

    Only transactions that begin before an offset are found, all before the first is yielded.

    Args:
        before: that offset, at which the log is cut.
        opened_at: gives an offset up to another, and the transactions that are open there.
        behind: the place, as the first offset at which a marker counts; None is `before`.
        since: places of some producers, as the first append times of markers that count. Without
            `behind` only theirs are found.
        first_id: producers with smaller ids are left out.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    others = before if behind is None else min(behind, before)
    resets = {reset.offset for reset in log.resets}
    firsts = {ms: find_in_parts(log.parts, ms, resets) for ms in set(since.values())}
    places = {
        producer_id: before if (found := firsts[ms]) is None else min(before, found.offset)
        for producer_id, ms in since.items()
    }
    start, begun = opened_at(min([others, *places.values()]))
    if not begun and _has_none(log, start, before, opened_at):
        return iter(())
    opened, unended = dict(begun), dict[int, int]()
    for number, (segment, first, end, size) in enumerate(log.parts):
        if end <= start or first >= before:
            continue
        # Batches in front of the log start may have begun a transaction.
        first = max(first, start) if number else start
        for _, header in segment.headers(segment.position_for(None, first), size):
            if header.base_offset >= min(before, end):
                break
            producer_id = header.producer_id
            if not header.is_transactional or header.base_offset < first or producer_id in unended:
                continue
            if header.is_control:
                began = opened.pop(producer_id, None)
                if began is not None and header.base_offset >= places.get(producer_id, others):
                    unended[producer_id] = began
            elif header.records_count:  # compaction may leave a batch of a sequence number alone
                opened.setdefault(producer_id, header.base_offset)
    is_all = behind is not None or not since
    return (
        TransactionStart(producer_id, max(offset, log.start), _append_ms(log, offset))
        for producer_id, offset in sorted({**opened, **unended}.items())
        if offset < before and producer_id >= first_id and (is_all or producer_id in since)
    )


def _has_none(
    log: CutLog,
    start: int,
    before: int,
    opened_at: Callable[[int], tuple[int, Mapping[int, int]]],
) -> bool:
    """Return True if no transaction of a range is known without a look at each of its batches.

    That is so if no marker is behind its start, up to the end of its last segment, and no
    transaction is open there.
    """
    within = [part for part in log.parts if part.end > start and part.segment.base_offset < before]
    following = [part.segment.base_offset for part in log.parts if part.start >= before]
    if not within:
        return True
    if following:
        at, opened = opened_at(following[0])
        if opened or at != following[0]:
            return False
    elif log.has_open:
        return False
    return not any(_may_have_marker(part, start) for part in within)


def _may_have_marker(part: HeldPart, start: int) -> bool:
    """Return True if a segment may have the marker of a transaction behind an offset.

    Block maps count markers. Only batches that are in no block are read.
    """
    segment, _, _, size = part
    at = segment.position_for(None, max(start, segment.base_offset))
    for block in blocks_of(segment.blocks.entries(size)):
        if block.end <= at:
            continue
        if not block.is_exact or block.times.control_records:
            return True
        if block.position > at and _is_transactional(segment, at, block.position):
            return True
        at = block.end
    return _is_transactional(segment, at, size)


def _is_transactional(segment: SegmentReader, start: int, end: int) -> bool:
    return any(header.is_transactional for _, header in segment.headers(start, end))


def _append_ms(log: CutLog, offset: int) -> int | None:
    """Return the append time of a record; None if it is unknown."""
    for number, (segment, first, end, size) in enumerate(log.parts):
        # Records in front of the log start may still be in its segment.
        if (first if number else segment.base_offset) <= offset < end:
            return append_times(segment, offset, offset + 1, size)[0].known_ms
    return None
