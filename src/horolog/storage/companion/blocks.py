"""Entries of a block map: the time statistics of consecutive parts of a log.

A v2 header contains the largest timestamp of its batch, and Kafka's time index the largest so far.
Neither excludes the batches behind a range of time. So a companion (file.py) has an entry of 152
bytes for each block of whole batches, about 256 KiB of log. All numbers are big-endian.

      0  u32  position of the block in the `.log`
      4  u32  its size
      8  u32  position of its last batch
     12  u32  how many batches
     16  i64  base offset of the first batch
     24  u32  offset after the last, minus that
     28  u32  how many records, without control records
     32  u32  how many control records
     36  i64  smallest create time
     44  i64  largest create time
     52  i64  smallest append time
     60  i64  largest append time
     68  i64  create time of the first record with one
     76  i64  and of the last
     84  u32  records without a time
     88  u32  records earlier than the one before
     92  u32  flags: 1 create times are known, 2 append times; others as in record/time_stats.py
     96  u32  x 12: records by latency, create to append
    144  u32  identity of the last batch
    148  u32  CRC-32C of all before

An unknown time is 0. Entries are in the order of the log. Nothing is known of gaps between them. A
log is only appended to and cut at its end. So the last batch of a block, if it is still in the log,
proves the entry and all before it.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from horolog.buffers import Buffer
from horolog.record.kernels import layout
from horolog.record.time_stats import (
    LACKS_APPEND_TIMES,
    OF_APPEND_TIME,
    OF_CREATE_TIME,
    UNREADABLE,
    TimeStats,
)
from horolog.record.timestamps import ALL_TIMES, TimeRange

BLOCK_BYTES: Final = 256 << 10
"""Size at which a block ends before the next batch. A larger batch is a block of its own."""

_HAS_CREATE_TIMES: Final = layout.HAS_CREATE_TIMES
_HAS_APPEND_TIMES: Final = layout.HAS_APPEND_TIMES
_FLAGS: Final = 63
_HAS: Final = _HAS_CREATE_TIMES | _HAS_APPEND_TIMES
_UINT32_MAX: Final = (1 << 32) - 1
_ENTRY: Final = Struct(">IIIIqIIIqqqqqqIII12II")
_CRC: Final = Struct(">I")
_PLACE: Final = Struct(">I12xq128x")  # position and base offset
_TIMES: Final = Struct(">II8xqI8xqqqq16xI4xI56x")
_SOUND: Final = Struct(">II8xqI64xI52xI")  # position, size, offsets, flags, and the check

ENTRY_SIZE: Final = layout.ENTRY_SIZE
LONGEST_MAP: Final = 64 << 20


class Block(NamedTuple):
    """Consecutive batches of a log, and the statistics of their records."""

    position: int
    size: int
    last_position: int
    batches: int
    base_offset: int
    next_offset: int
    identity: int
    """Identity of the last batch (proof.py)."""
    times: TimeStats

    @property
    def end(self) -> int:
        """Position just past the last batch."""
        return self.position + self.size

    @property
    def is_exact(self) -> bool:
        """Return True if all records could be read and every count fits into an entry."""
        times = self.times
        counts = (times.records, times.untimed, times.out_of_order, *times.latencies)
        return not times.flags & UNREADABLE and max(counts) < _UINT32_MAX


class Span(NamedTuple):
    """Part of a log, by positions and offsets. Both ends are exclusive."""

    position: int
    end: int
    base_offset: int
    next_offset: int | None
    """None if only the caller knows the end of the segment's offsets."""


def unpack(content: Buffer, start: int) -> Block:
    """Parse the entry at a position of bytes that `possible_entries` returned."""
    position, size, last_position, batches, base_offset, length, records, control, *rest = (
        _ENTRY.unpack_from(content, start)
    )
    create_min, create_max, append_min, append_max, first, last, untimed, disorder, flags = rest[:9]
    is_created, is_appended = flags & _HAS_CREATE_TIMES, flags & _HAS_APPEND_TIMES
    times = TimeStats(
        records,
        untimed,
        disorder,
        create_min if is_created else None,
        create_max if is_created else None,
        first if is_created else None,
        last if is_created else None,
        append_min if is_appended else None,
        append_max if is_appended else None,
        tuple(rest[9:21]),
        control,
        flags & ~_HAS,
    )
    offsets = base_offset, base_offset + length
    return Block(position, size, last_position, batches, *offsets, rest[21], times)


def blocks_of(entries: Buffer) -> list[Block]:
    """Parse entries that `possible_entries` returned."""
    return [unpack(entries, at) for at in range(0, len(entries), ENTRY_SIZE)]


def possible_entries(content: bytes, base_offset: int) -> bytes:
    """Return the leading entries that are possible: whole, in order, with a valid CRC.

    The batches of the log are not compared.
    """
    entries = content[: len(content) // ENTRY_SIZE * ENTRY_SIZE]
    end, next_offset, place = 0, base_offset, 0
    crc_of, checked = crc32c.crc32c, ENTRY_SIZE - _CRC.size
    for position, size, base, length, flags, crc in _SOUND.iter_unpack(entries):
        if (
            position < end
            or base < next_offset
            or flags & ~_FLAGS
            or crc_of(entries[place : place + checked]) != crc
        ):
            return entries[:place]
        end, next_offset, place = position + size, base + length, place + ENTRY_SIZE
    return entries


def spans(
    entries: Buffer,
    windows: Sequence[TimeRange],
    base_offset: int,
    size: int,
    next_offset: int | None,
) -> list[Span]:
    """Return the parts of a log that may contain a record in every window.

    Args:
        entries: proved ones; what is between and behind them may hold anything.
        windows: what is looked for, at least one.
        next_offset: where its offsets end, if that is known.
    """
    parts: list[Span] = []
    at, offset = 0, base_offset
    one, *others = windows
    whole = memoryview(entries)[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]
    for position, length, base, offsets, *times in _TIMES.iter_unpack(whole):
        if position + length > size:
            break
        if position > at:
            _join(parts, Span(at, position, offset, base))
        at, offset = position + length, base + offsets
        if _overlap(one, *times) and all(_overlap(other, *times) for other in others):
            _join(parts, Span(position, at, base, offset))
    if at < size:
        _join(parts, Span(at, size, offset, next_offset))
    return parts


def iter_places(entries: Buffer) -> Iterator[tuple[int, int]]:
    """Yield the position and base offset of each entry that `sound` has accepted."""
    whole = memoryview(entries)[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]
    yield from _PLACE.iter_unpack(whole)


def earliest(times: TimeStats, *, of_append: bool) -> tuple[int | None, bool]:
    """Return a time that no record is before, and True if a record may have no time.

    The time is None if no record has one, and the earliest of all times where it is not known.

    Args:
        of_append: by append times; otherwise by the records' own timestamps.
    """
    flags = times.flags
    if flags & UNREADABLE or (flags & LACKS_APPEND_TIMES and (of_append or flags & OF_APPEND_TIME)):
        return ALL_TIMES.first_ms, True
    if of_append:
        return times.append_min_ms, False
    found = [
        ms
        for flag, ms in (
            (OF_CREATE_TIME, times.create_min_ms),
            (OF_APPEND_TIME, times.append_min_ms),
        )
        if flags & flag and ms is not None
    ]
    return min(found, default=None), times.untimed > 0


def _join(parts: list[Span], span: Span) -> None:
    if parts and parts[-1].end == span.position:
        before = parts.pop()
        span = Span(before.position, span.end, before.base_offset, span.next_offset)
    parts.append(span)


def may_hold(window: TimeRange, times: TimeStats) -> bool:
    """Return True if a record in the window can be among the records of these statistics."""
    has_create_times = times.create_min_ms is not None
    has_append_times = times.append_min_ms is not None
    return _overlap(
        window,
        times.create_min_ms or 0,
        times.create_max_ms or 0,
        times.append_min_ms or 0,
        times.append_max_ms or 0,
        times.untimed,
        times.flags | has_create_times | has_append_times << 1,
    )


def _overlap(
    window: TimeRange,
    low: int,
    high: int,
    append_low: int,
    append_high: int,
    untimed: int,
    flags: int,
) -> bool:
    first, last, of_append, with_untimed = window
    if flags & UNREADABLE or (with_untimed and untimed):
        return True
    if not of_append:
        if flags & OF_CREATE_TIME and flags & _HAS_CREATE_TIMES and low <= last and high >= first:
            return True
        if not flags & OF_APPEND_TIME:
            return False
    if flags & LACKS_APPEND_TIMES:
        return True
    return bool(flags & _HAS_APPEND_TIMES) and append_low <= last and append_high >= first
