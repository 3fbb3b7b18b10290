"""The bytes of `<base>.appendtimes`, which says when each record of a segment was appended.

Big-endian:

     0  4  "hat1"
     4  8  base offset of the segment
    12  8  middle of the times that fit, milliseconds since the epoch
    20  4  CRC-32C of all before
    24  4  how many entries are covered
    28  8  offset after the last covered batch; the base offset if none is covered
    36  8  bytes of `.log` up to there
    44  4  CRC-32C of the first 21 bytes of that batch: offset, size, epoch, checksum
    48  4  CRC-32C of these 24 bytes; if it is wrong, a kill came between, and nothing is covered

then for each entry:

     0  8  44 bits: append time - middle; 12: of such a CRC of its batch; 8: check of the entry
     8  4  (offset - base offset) << 1, and 1 if append times are unknown from there on

Invariant: neither the time nor the offset goes back from one entry to the next. An entry is here a
tuple of its two columns, `time` and `place`. Which entries are true of a log is decided in
append_times/proof.py.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

import crc32c

_HEADER = Struct(">4sqq")
_COVERED = Struct(">IqqI")
_CRC = Struct(">I")
_MAGIC = b"hat1"
COVERED_AT: Final = _HEADER.size + _CRC.size
HEADER_SIZE: Final = COVERED_AT + _COVERED.size + _CRC.size
ENTRY: Final = Struct(">qI")

CHECK_BITS: Final = 20  # of the batch and of the entry, below the time
_BATCH_BITS = 0xFFF << 8
MOST_MS: Final = 1 << 43  # from the middle, either way: 278 years
_MIDDLE_AHEAD_MS = 1 << 42  # so that a clock may jump 400 years ahead, and 100 back
_FARTHEST_MS = (1 << 63) - MOST_MS  # a middle from which every time is an int64


class Covered(NamedTuple):
    """How far a finished file says that it covers its log."""

    entries: int
    end: int
    """Offset after the last covered batch."""
    size: int
    """Bytes of the log up to there."""
    identity: int
    """Of that batch (`identity_of`)."""


# The header.


def middle_for(first_ms: int) -> int:
    """The middle of the times that fit into a file whose first append time this is."""
    return max(-_FARTHEST_MS, min(first_ms + _MIDDLE_AHEAD_MS, _FARTHEST_MS))


def earliest_for(middle_ms: int) -> int:
    """An append time before all that a file with this middle was made for, and that it holds."""
    return middle_ms - _MIDDLE_AHEAD_MS


def packed_header(base_offset: int, middle_ms: int) -> bytes:
    """The first part of a header; `packed_covered` follows."""
    return _with_crc(_HEADER.pack(_MAGIC, base_offset, middle_ms))


def packed_covered(covered: Covered) -> bytes:
    """The second part of a header, at `COVERED_AT`."""
    return _with_crc(_COVERED.pack(*covered))


def parsed_header(data: bytes, base_offset: int) -> tuple[int, Covered | None] | None:
    """The middle of the times and what is covered, None if that is damaged.

    Args:
        data: the first `HEADER_SIZE` bytes of a file, or fewer.
        base_offset: of its segment.

    Returns:
        None if the header is damaged or another segment's.
    """
    head, rest = _checked(data[:COVERED_AT]), _checked(data[COVERED_AT:])
    if len(data) < HEADER_SIZE or head is None:
        return None
    magic, written_base, middle_ms = _HEADER.unpack(head)
    if magic != _MAGIC or written_base != base_offset or abs(middle_ms) > _FARTHEST_MS:
        return None
    return middle_ms, None if rest is None else Covered(*_COVERED.unpack(rest))


def _with_crc(content: bytes) -> bytes:
    return content + _CRC.pack(crc32c.crc32c(content))


def _checked(data: bytes) -> bytes | None:
    """What comes before the CRC, if that is right."""
    content = data[: -_CRC.size]
    return content if content and _with_crc(content) == data else None


# Entries.


def entry_of(delta_ms: int, delta: int, identity: int, *, is_unknown: bool) -> tuple[int, int]:
    """The columns of an entry.

    Args:
        delta_ms: append time - middle.
        delta: offset - base offset.
        identity: of its batch.
        is_unknown: whether append times are unknown from there on.
    """
    time = delta_ms << CHECK_BITS | (identity & _BATCH_BITS)
    place = delta << 1 | is_unknown
    return time | _check_of(time, place), place


def is_intact(entry: tuple[int, ...]) -> bool:
    """Whether an entry's own check is right."""
    time, place = entry
    return time & 0xFF == _check_of(time, place)


def is_of_batch(entry: tuple[int, ...], identity: int) -> bool:
    """Whether an entry may be of a batch, by twelve bits."""
    return (identity ^ entry[0]) & _BATCH_BITS == 0


def follows(before: tuple[int, ...], entry: tuple[int, ...]) -> bool:
    """Whether neither time nor offset go back from one entry to the next."""
    return before[0] >> CHECK_BITS <= entry[0] >> CHECK_BITS and before[1] <= entry[1]


BEFORE_ALL: Final = (-1 << 63, 0)
"""What every entry follows."""


def without_damaged(data: bytes, covered: int) -> tuple[bytes, int]:
    """Entries without those that are damaged, and how many of the covered ones are left.

    Where one is damaged, append times are unknown from the one before it on, since that is where
    its records would have begun.
    """
    kept: list[tuple[int, ...]] = []
    dropped = 0
    for number, entry in enumerate(ENTRY.iter_unpack(data)):
        if is_intact(entry) and (not kept or follows(kept[-1], entry)):
            kept.append(entry)
            continue
        dropped += number < covered
        if kept:
            time, place = kept[-1]
            kept[-1] = ((time & ~0xFF) | _check_of(time, place | 1), place | 1)
    return b"".join(ENTRY.pack(*entry) for entry in kept), covered - dropped


def first_damaged(entries: Iterable[tuple[int, ...]], before: tuple[int, ...]) -> int | None:
    """The index of the first entry that is damaged or does not follow the one before."""
    for number, entry in enumerate(entries):
        if not is_intact(entry) or not follows(before, entry):
            return number
        before = entry
    return None


def _check_of(time: int, place: int) -> int:
    """The 8 bits that check an entry."""
    crc: int = crc32c.crc32c(ENTRY.pack(time & ~0xFF, place))
    return (crc ^ crc >> 8 ^ crc >> 16 ^ crc >> 24) & 0xFF
