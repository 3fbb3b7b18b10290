"""The block map's entries: what one stretch of a log holds, by time.

A v2 header has the largest timestamp of its batch and not the smallest, and Kafka's time index
only the largest so far: neither excludes the batches behind a range of time. So next to each
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
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import crc32c

from horolog.buffers import Buffer
from horolog.record import scan
from horolog.record.kernels import layout
from horolog.record.scan import NO_TALLY, Tally

BLOCK_BYTES: Final = 256 << 10
"""A block ends before a batch that would make it larger; a larger batch is a block alone."""

HAS_CREATE_TIMES: Final = layout.HAS_CREATE_TIMES
"""A record has a create time."""
HAS_APPEND_TIMES: Final = layout.HAS_APPEND_TIMES
"""The append time of a batch is known."""
LACKS_APPEND_TIMES: Final = 4
"""The append time of a batch is not known: that of another broker's CreateTime batch."""
OF_CREATE_TIME: Final = 8
"""A batch's records have their create times as timestamps."""
OF_APPEND_TIME: Final = 16
"""A batch's records have its append time as timestamps."""
UNREADABLE: Final = 32
"""The records of a batch cannot be read: nothing is known of the block's times."""

IS_CONTROL: Final = layout.IS_CONTROL
"""A batch's records are markers; not in entries."""

_FLAGS: Final = 63
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_UINT32_MAX: Final = (1 << 32) - 1
_ENTRY: Final = Struct(">IIIIqIIqqqqqqIII12III")
_CRC: Final = Struct(">I")
_HEADER: Final = Struct(">4sIq")
_MAGIC: Final = b"hbm1"
_TIMES: Final = Struct(">II8xqI4xqqqq16xI4xI60x")
_SOUND: Final = Struct(">II8xqI60xI56xI")  # position, size, offsets, flags, and the check

ENTRY_SIZE: Final = layout.ENTRY_SIZE
HEADER_SIZE: Final = _HEADER.size + _CRC.size


# What an entry is made of: a batch that was appended, or read. No class, since one is made for
# every batch: position, size, header (61 bytes, or a whole message of an older format that is
# shorter), base offset, last offset, flags, append time (only with HAS_APPEND_TIMES), and the tally
# of create times; None where the records cannot be read.
Met: TypeAlias = "tuple[int, int, bytes | bytearray, int, int, int, int, Tally | None]"


class MetSet(NamedTuple):
    """Batches that follow one another, taken as one: plain messages of v0 or v1."""

    met: Met
    """What there is of all of them; as header it has the headers of all."""
    batches: int
    last_position: int
    """Of the last of them."""
    last_header: bytes
    """Of the last of them."""


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


class Sum(NamedTuple):
    """What is known of consecutive batches."""

    end: int = 0
    last_position: int = 0
    batches: int = 0
    next_offset: int = 0
    control_records: int = 0
    append_min_ms: int = _INT64_MAX
    append_max_ms: int = _INT64_MIN
    flags: int = 0
    tally: Tally = NO_TALLY
    last_header_crc: int = 0
    headers_crc: int = 0


NOTHING: Final = Sum()


def add_up(before: Sum, met: Sequence[Met]) -> Sum:
    """Take more batches, which follow those before. Costs little for each of many."""
    positions, sizes, headers, _, last_offsets, kinds, append_times, tallies = zip(
        *met, strict=True
    )
    flags = before.flags
    for each in set(kinds):
        flags |= each
    if None in tallies:
        flags |= UNREADABLE
        tallies = tuple(tally for tally in tallies if tally is not None)
    if flags & LACKS_APPEND_TIMES:
        append_times = tuple(
            append_ms
            for append_ms, kind in zip(append_times, kinds, strict=True)
            if kind & HAS_APPEND_TIMES
        )
    control_records = before.control_records
    if flags & IS_CONTROL:
        control_records += sum(
            tally[0]
            for tally, kind in zip((each[-1] for each in met), kinds, strict=True)
            if tally is not None and kind & IS_CONTROL
        )
    last_crc = crc32c.crc32c(headers[-1])
    is_more = before.batches > 0 or len(met) > 1
    return Sum(
        positions[-1] + sizes[-1],
        positions[-1],
        before.batches + len(met),
        last_offsets[-1] + 1,
        control_records,
        min(before.append_min_ms, min(append_times, default=_INT64_MAX)),
        max(before.append_max_ms, max(append_times, default=_INT64_MIN)),
        flags,
        scan.add_up(before.tally, tallies),
        last_crc,
        crc32c.crc32c(b"".join(headers), before.headers_crc) if is_more else last_crc,
    )


def add_set(before: Sum, added: MetSet) -> Sum:
    """Take a set of batches, which follows those before."""
    known = add_up(before, [added.met])
    return known._replace(
        last_position=added.last_position,
        batches=before.batches + added.batches,
        last_header_crc=crc32c.crc32c(added.last_header),
    )


def block_of(position: int, base_offset: int, known: Sum) -> Block:
    """The block that batches make from a position and an offset on."""
    tally = scan.fields_of(known.tally)
    latencies: Sequence[int] = tally.latencies
    if tally.records > _UINT32_MAX:
        latencies = tuple(min(each, _UINT32_MAX) for each in latencies)
    flags = known.flags & ~IS_CONTROL | (HAS_CREATE_TIMES if tally.timed else 0)
    has_append_times = bool(flags & HAS_APPEND_TIMES)
    return Block(
        position,
        known.end - position,
        known.last_position,
        known.batches,
        base_offset,
        known.next_offset,
        min(tally.records - known.control_records, _UINT32_MAX),
        tally.smallest,
        tally.largest,
        known.append_min_ms if has_append_times else 0,
        known.append_max_ms if has_append_times else 0,
        tally.first,
        tally.last,
        min(tally.records - tally.timed, _UINT32_MAX),
        min(tally.setbacks, _UINT32_MAX),
        flags,
        latencies,
        known.last_header_crc,
        known.headers_crc,
    )


def sum_of(block: Block) -> Sum:
    """What more batches can be added to, from the entry of a block that has room left."""
    has_append_times = bool(block.flags & HAS_APPEND_TIMES)
    return Sum(
        block.end,
        block.last_position,
        block.batches,
        block.next_offset,
        0,
        block.append_min_ms if has_append_times else _INT64_MAX,
        block.append_max_ms if has_append_times else _INT64_MIN,
        block.flags,
        scan.tally_of(
            scan.TallyFields(
                block.records,
                max(block.records - block.untimed, bool(block.flags & HAS_CREATE_TIMES)),
                block.create_max_ms,
                block.create_min_ms,
                block.first_create_ms,
                block.last_create_ms,
                block.setbacks,
                tuple(block.latencies),
            )
        ),
        block.last_header_crc,
        block.headers_crc,
    )


def fold(parts: "Sequence[Met | MetSet]") -> Block:
    """The block that consecutive batches make."""
    known, pending = NOTHING, list[Met]()
    for part in parts:
        if not isinstance(part, MetSet):
            pending.append(part)
            continue
        known = add_set(add_up(known, pending) if pending else known, part)
        pending = []
    first = parts[0].met if isinstance(parts[0], MetSet) else parts[0]
    return block_of(first[0], first[3], add_up(known, pending) if pending else known)


def joined(one: Block, two: Block) -> Block:
    """A summary of two blocks, one after the other, without what proves them."""
    creates = [each for each in (one, two) if each.flags & HAS_CREATE_TIMES]
    appends = [each for each in (one, two) if each.flags & HAS_APPEND_TIMES]
    return one._replace(
        size=two.end - one.position,
        next_offset=two.next_offset,
        create_min_ms=min((each.create_min_ms for each in creates), default=0),
        create_max_ms=max((each.create_max_ms for each in creates), default=0),
        append_min_ms=min((each.append_min_ms for each in appends), default=0),
        append_max_ms=max((each.append_max_ms for each in appends), default=0),
        untimed=min(one.untimed + two.untimed, _UINT32_MAX),
        flags=one.flags | two.flags,
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
    count = (len(content) - HEADER_SIZE) // ENTRY_SIZE
    entries = content[HEADER_SIZE : HEADER_SIZE + count * ENTRY_SIZE]
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
    windows: Sequence[Window],
    base_offset: int,
    size: int,
    next_offset: int | None,
) -> list[Span]:
    """The stretches of the first `size` bytes of a log that may hold a record in all windows.

    Args:
        entries: proved ones; what is between and behind them may hold anything.
        windows: what is looked for, at least one.
        base_offset: of the segment.
        size: of its log.
        next_offset: where its offsets end, if that is known.
    """
    found: list[Span] = []
    at, offset = 0, base_offset
    one, *others = windows
    whole = memoryview(entries)[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]
    for position, length, base, offsets, *times in _TIMES.iter_unpack(whole):
        if position + length > size:
            break
        if position > at:
            _take(found, Span(at, position, offset, base))
        at, offset = position + length, base + offsets
        if _overlap(one, *times) and all(_overlap(other, *times) for other in others):
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
