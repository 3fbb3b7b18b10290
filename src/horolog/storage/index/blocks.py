"""The block map's entries: what one stretch of a log holds, by time.

A v2 header has the largest timestamp of its batch and not the smallest, and Kafka's time index
only the largest so far: neither excludes the batches behind a range of time. So beside each
segment there is a file of ours, which Kafka ignores, with an entry for each block of whole
batches, about 256 KiB of log. All numbers are big-endian.

    header, 20 bytes                          entry, 152 bytes
     0  4s  "hbm1": the version               0  u32  position of the block in the `.log`
     4  u32 0                                 4  u32  its size
     8  i64 base offset of the segment        8  u32  position of its last batch
    16  u32 CRC-32C of all before            12  u32  how many batches
                                             16  i64  base offset of the first batch
                                             24  u32  offset after the last, minus that
                                             28  u32  how many records, without control records
                                             32  i64  smallest create time
                                             40  i64  largest create time
                                             48  i64  smallest append time
                                             56  i64  largest append time
                                             64  i64  create time of the first record with one
                                             72  i64  and of the last
                                             80  u32  records without a time
                                             84  u32  records earlier than the one before
                                             88  u32  flags
                                             92  u32  x 12: records by latency, create to append
                                            140  u32  CRC-32C of the last batch's header, 61 bytes
                                            144  u32  CRC-32C of the headers of all its batches
                                            148  u32  CRC-32C of all before

A time without its flag is 0. Entries are in the order of the log; they may leave gaps, of which
nothing is known. A log is only appended to and cut at its end, so an entry is proved, and with it
all before, by the header of its last batch: is it still the one that is in the log there? The
CRC of all headers, each of which has the CRC of its records, is what `horolog log verify`
compares.
"""

from collections.abc import Sequence
from itertools import compress
from operator import gt
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from horolog.buffers import Buffer
from horolog.record.scan import LATENCY_COUNT, RecordFacts

BLOCK_BYTES: Final = 256 << 10
"""A block ends before a batch that would make it larger; a larger batch is a block alone."""

HAS_CREATE_TIMES: Final = 1
"""A record has a create time."""
HAS_APPEND_TIMES: Final = 2
"""The append time of a batch is known."""
LACKS_APPEND_TIMES: Final = 4
"""The append time of a batch is not known: that of another broker's CreateTime batch."""
OF_CREATE_TIME: Final = 8
"""A batch's records have their create times as timestamps."""
OF_APPEND_TIME: Final = 16
"""A batch's records have its append time as timestamps."""
UNREADABLE: Final = 32
"""The records of a batch cannot be read: nothing is known of the block's times."""

_FLAGS: Final = 63
_UINT32_MAX: Final = (1 << 32) - 1
_ENTRY: Final = Struct(">IIIIqIIqqqqqqIII12III")
_CRC: Final = Struct(">I")
_HEADER: Final = Struct(">4sIq")
_MAGIC: Final = b"hbm1"
_TIMES: Final = Struct(">II8xqI4xqqqq16xI4xI60x")

ENTRY_SIZE: Final = _ENTRY.size + _CRC.size
HEADER_SIZE: Final = _HEADER.size + _CRC.size


class Met(NamedTuple):
    """A batch that was appended, or read: what its block's entry is made of."""

    position: int
    size: int
    header: Buffer
    """61 bytes, or a whole message of an older format that is shorter."""
    base_offset: int
    last_offset: int
    is_control: bool
    flags: int
    append_ms: int
    """Only with HAS_APPEND_TIMES."""
    facts: RecordFacts | None
    """Of create times; None where the records cannot be read."""


class Block(NamedTuple):
    """One entry; see the module."""

    position: int
    size: int
    last_position: int
    batches: int
    base_offset: int
    next_offset: int
    records: int
    create_min_ms: int
    create_max_ms: int
    append_min_ms: int
    append_max_ms: int
    first_create_ms: int
    last_create_ms: int
    untimed: int
    setbacks: int
    flags: int
    latencies: Sequence[int]
    """Records in each class of `LATENCY_BOUNDS`; the first class was ahead of the clock."""
    last_header_crc: int
    headers_crc: int

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.size

    def pack(self) -> bytes:
        """As an entry."""
        entry = _ENTRY.pack(
            *self[:5],
            self.next_offset - self.base_offset,
            *self[6:16],
            *self.latencies,
            self.last_header_crc,
            self.headers_crc,
        )
        return entry + _CRC.pack(crc32c.crc32c(entry))


class Window(NamedTuple):
    """Times from `first_ms` to `last_ms`, both included, that are looked for."""

    first_ms: int
    last_ms: int
    of_append: bool = False
    """They are append times; else they are the records' timestamps."""
    with_untimed: bool = False
    """Records without a time are looked for as well."""


class Span(NamedTuple):
    """A stretch of a log, by position and offsets; the end is not included."""

    position: int
    end: int
    base_offset: int
    next_offset: int | None
    """None where only the caller knows where the segment's offsets end."""


def pack_header(base_offset: int) -> bytes:
    """What a file of a segment begins with."""
    header = _HEADER.pack(_MAGIC, 0, base_offset)
    return header + _CRC.pack(crc32c.crc32c(header))


def fold(met: Sequence[Met], headers_crc: int = 0) -> Block:
    """The block that consecutive batches make; `headers_crc` is of the headers before them.

    Column by column, since this is done for every batch that is appended.
    """
    _, sizes, headers, _, _, controls, flags, append_times, facts = zip(*met, strict=True)
    first, last = met[0], met[-1]
    readable = facts if None not in facts else tuple(filter(None, facts))
    all_flags = 0
    for each in set(flags):
        all_flags |= each
    if len(readable) < len(facts):
        all_flags |= UNREADABLE
    appended = [
        append_ms
        for append_ms, each in zip(append_times, flags, strict=True)
        if each & HAS_APPEND_TIMES
    ]
    records = untimed = setbacks = smallest = largest = first_time = last_time = 0
    latencies: tuple[int, ...] = (0,) * LATENCY_COUNT
    if readable:
        (counts, maxima, minima, _, _, _, _, _, timed, firsts, lasts, setbacks_of, classes) = zip(
            *readable, strict=True
        )
        records, untimed, setbacks = sum(counts), sum(counts) - sum(timed), sum(setbacks_of)
        latencies = tuple(map(sum, zip(*classes, strict=True)))
        if not all(timed):
            maxima, minima, firsts, lasts = (
                tuple(compress(each, timed)) for each in (maxima, minima, firsts, lasts)
            )
        if maxima:
            all_flags |= HAS_CREATE_TIMES
            smallest, largest = min(minima), max(maxima)
            first_time, last_time = firsts[0], lasts[-1]
            setbacks += sum(map(gt, lasts, firsts[1:]))
        if True in controls:
            records -= sum(each.facts.count for each in met if each.is_control and each.facts)
    return Block(
        first.position,
        sum(sizes),
        last.position,
        len(met),
        first.base_offset,
        last.last_offset + 1,
        min(records, _UINT32_MAX),
        smallest,
        largest,
        min(appended, default=0),
        max(appended, default=0),
        first_time,
        last_time,
        min(untimed, _UINT32_MAX),
        min(setbacks, _UINT32_MAX),
        all_flags,
        tuple(min(each, _UINT32_MAX) for each in latencies),
        crc32c.crc32c(last.header),
        crc32c.crc32c(b"".join(headers), headers_crc),
    )


def joined(one: Block, two: Block) -> Block:
    """One block of two that follow one another; `two` has the CRC of the headers of both."""
    flags = one.flags | two.flags
    creates = [each for each in (one, two) if each.flags & HAS_CREATE_TIMES]
    appends = [each for each in (one, two) if each.flags & HAS_APPEND_TIMES]
    is_setback = len(creates) > 1 and one.last_create_ms > two.first_create_ms
    return Block(
        one.position,
        two.end - one.position,
        two.last_position,
        one.batches + two.batches,
        one.base_offset,
        two.next_offset,
        min(one.records + two.records, _UINT32_MAX),
        min((each.create_min_ms for each in creates), default=0),
        max((each.create_max_ms for each in creates), default=0),
        min((each.append_min_ms for each in appends), default=0),
        max((each.append_max_ms for each in appends), default=0),
        creates[0].first_create_ms if creates else 0,
        creates[-1].last_create_ms if creates else 0,
        min(one.untimed + two.untimed, _UINT32_MAX),
        min(one.setbacks + two.setbacks + is_setback, _UINT32_MAX),
        flags,
        tuple(min(a + b, _UINT32_MAX) for a, b in zip(one.latencies, two.latencies, strict=True)),
        two.last_header_crc,
        two.headers_crc,
    )


def unpack(content: Buffer, start: int) -> Block:
    """The entry at a place of what `sound` has accepted."""
    position, size, last_position, batches, base_offset, length, records, *rest = (
        _ENTRY.unpack_from(content, start)
    )
    start_and_count = position, size, last_position, batches
    offsets = base_offset, base_offset + length
    return Block._make((*start_and_count, *offsets, records, *rest[:9], rest[9:21], *rest[21:]))


def sound(content: bytes, base_offset: int) -> bytes:
    """The entries of a file that can be: whole, in the order of the log, each with its CRC.

    Ends before the first that cannot. Whether they are of the log is another question.
    """
    if content[:HEADER_SIZE] != pack_header(base_offset):
        return b""
    entries = memoryview(content)[HEADER_SIZE:]
    end, next_offset = 0, base_offset
    checked = ENTRY_SIZE - _CRC.size
    for place in range(0, len(entries) - ENTRY_SIZE + 1, ENTRY_SIZE):
        position, size, base, length, *_, flags = _TIMES.unpack_from(entries, place)
        (crc,) = _CRC.unpack_from(entries, place + checked)
        if (
            crc32c.crc32c(entries[place : place + checked]) != crc
            or position < end
            or base < next_offset
            or flags & ~_FLAGS
        ):
            return bytes(entries[:place])
        end, next_offset = position + size, base + length
    return bytes(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE])


def spans(
    entries: Buffer, window: Window, base_offset: int, size: int, next_offset: int | None
) -> list[Span]:
    """The stretches of the first `size` bytes of a log that may hold a record in a window.

    Args:
        entries: proved ones; what lies between and behind them may hold anything.
        window: what is looked for.
        base_offset: of the segment.
        size: of its log.
        next_offset: where its offsets end, if that is known.
    """
    found: list[Span] = []
    at, offset = 0, base_offset
    for place in range(0, len(entries) - ENTRY_SIZE + 1, ENTRY_SIZE):
        position, length, base, offsets, low, high, append_low, append_high, untimed, flags = (
            _TIMES.unpack_from(entries, place)
        )
        if position + length > size:
            break
        if position > at:
            _take(found, Span(at, position, offset, base))
        at, offset = position + length, base + offsets
        if _overlap(window, low, high, append_low, append_high, untimed, flags):
            _take(found, Span(position, at, base, offset))
    if at < size:
        _take(found, Span(at, size, offset, next_offset))
    return found


def _take(found: list[Span], span: Span) -> None:
    if found and found[-1].end == span.position:
        before = found.pop()
        span = Span(before.position, span.end, before.base_offset, span.next_offset)
    found.append(span)


def may_hold(window: Window, block: Block) -> bool:
    """Whether a record in a window can be in a block."""
    return _overlap(
        window,
        block.create_min_ms,
        block.create_max_ms,
        block.append_min_ms,
        block.append_max_ms,
        block.untimed,
        block.flags,
    )


def _overlap(
    window: Window,
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
        if flags & OF_CREATE_TIME and flags & HAS_CREATE_TIMES and low <= last and high >= first:
            return True
        if not flags & OF_APPEND_TIME:
            return False
    if flags & LACKS_APPEND_TIMES:
        return True
    return bool(flags & HAS_APPEND_TIMES) and append_low <= last and append_high >= first
