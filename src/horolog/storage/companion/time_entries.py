"""Entries of a companion with the append times of a segment's records.

Big-endian, 12 bytes each, behind the head of the file (file.py):

     0  8  43 bits: append time - middle; 1: as seen by a follower; 12: of the batch's identity;
           8: check of the entry
     8  4  (offset - base offset) << 1, and 1 if append times are unknown from there on

An entry holds for its batch and all later ones up to the next entry. Its time is when the leader
appended the batch. With the follower's bit it is when a follower saw the batch, in the log of a
product that gives no append times. That is an upper bound.

Invariant: neither time nor offset decreases from one entry to the next. In this module an entry is
a tuple of its columns `time` and `place`. proof.py says which entries a log proves.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from crc32c import crc32c

from horolog.record.timestamps import AppendTimeStretch
from horolog.storage.companion.file import MOST_MS

ENTRY: Final = Struct(">qI")
_pack: Final = ENTRY.pack

CHECK_BITS: Final = 21  # of the follower, the batch and the entry, below the time
SEEN_BIT = 1 << 20
BATCH_BITS = 0xFFF << 8
_SEEN = bytes(byte << 16 & SEEN_BIT != 0 for byte in range(256))  # by the sixth byte
_UNKNOWN = bytes((byte & 1) << 1 for byte in range(256))  # by the last byte
_MIDDLE_AHEAD_MS = 1 << 41  # so that a clock may jump 200 years ahead, and 70 back
_FARTHEST_MS = (1 << 63) - MOST_MS  # a middle from which every time is an int64


def middle_for(first_ms: int) -> int:
    """Return the middle of the times that fit into a file with this first append time."""
    return max(-_FARTHEST_MS, min(first_ms + _MIDDLE_AHEAD_MS, _FARTHEST_MS))


def earliest_for(middle_ms: int) -> int:
    """Return the earliest append time for which a file with this middle is made."""
    return middle_ms - _MIDDLE_AHEAD_MS


# Entries.


def packed_entry(
    delta_ms: int, delta: int, identity: int, is_unknown: bool = False, is_seen: bool = False
) -> bytes:
    """Return the bytes of an entry.

    Args:
        is_unknown: append times are unknown from there on.
        is_seen: the time is when a follower saw the batch.
    """
    time, place = delta_ms << CHECK_BITS | identity & BATCH_BITS, delta << 1
    if is_seen:
        time |= SEEN_BIT
    if is_unknown:
        place |= 1
    crc = crc32c(_pack(time, place))  # as `_check_of`
    crc ^= crc >> 16
    return _pack(time | (crc ^ crc >> 8) & 0xFF, place)


def is_seen(time: int) -> bool:
    """Return True if the entry's time is the one at which a follower saw the batch."""
    return time & SEEN_BIT != 0


def kinds_of(data: bytes) -> bytes:
    """Return a byte for each entry: 0 known, 1 seen, 2 or 3 unknown."""
    count = len(data) // ENTRY.size
    data = data[: count * ENTRY.size]
    kinds = int.from_bytes(data[5 :: ENTRY.size].translate(_SEEN))
    kinds |= int.from_bytes(data[11 :: ENTRY.size].translate(_UNKNOWN))
    return kinds.to_bytes(count)


def is_intact(entry: tuple[int, ...]) -> bool:
    """Return True if the entry's check is right."""
    time, place = entry
    return time & 0xFF == _check_of(time, place)


def is_of_batch(entry: tuple[int, ...], identity: int) -> bool:
    """Return True if twelve bits of the identities of an entry and a batch agree."""
    return (identity ^ entry[0]) & BATCH_BITS == 0


def follows(before: tuple[int, ...], entry: tuple[int, ...]) -> bool:
    """Return True if neither time nor offset decreases from one entry to the next."""
    return before[0] >> CHECK_BITS <= entry[0] >> CHECK_BITS and before[1] <= entry[1]


BEFORE_ALL: Final = (-1 << 63, 0)
"""Columns that precede every possible entry."""


def without_damaged(data: bytes, covered: int) -> tuple[bytes, int]:
    """Return the entries without damaged ones, and the number of covered entries that remain.

    Append times are unknown from the entry before a damaged one on.
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


def stretches_of(data: bytes, base_offset: int, middle_ms: int) -> list[AppendTimeStretch]:
    """Return one stretch of append times, known or seen, for each intact entry.

    The stretch before a damaged entry is unknown, since its end is lost.
    """
    stretches: list[AppendTimeStretch] = []
    before: tuple[int, ...] = BEFORE_ALL
    for entry in ENTRY.iter_unpack(data):
        if is_intact(entry) and follows(before, entry):
            time, place = before = entry
            offset, was_seen = base_offset + (place >> 1), is_seen(time) and not place & 1
            ms = None if place & 1 else (time >> CHECK_BITS) + middle_ms
            stretches.append(AppendTimeStretch(offset, ms, was_seen))
        elif stretches:
            stretches[-1] = AppendTimeStretch(stretches[-1].offset, None)
    return stretches


def first_damaged(entries: Iterable[tuple[int, ...]], before: tuple[int, ...]) -> int | None:
    """Return the index of the first entry that is damaged or out of order."""
    for number, entry in enumerate(entries):
        if not is_intact(entry) or not follows(before, entry):
            return number
        before = entry
    return None


def _check_of(time: int, place: int) -> int:
    """Return the 8 check bits of an entry."""
    crc: int = crc32c(_pack(time & ~0xFF, place))
    crc ^= crc >> 16
    return (crc ^ crc >> 8) & 0xFF


LOST: Final = (1 ^ _check_of(0, 0), 0)
"""Columns of a missing entry. They fail the check."""
