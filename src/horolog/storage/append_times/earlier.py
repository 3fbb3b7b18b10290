"""Append times of files from before the companion was one: only they have them, so they are kept.

`<base>.appendtimes` has a head of 52 bytes, then entries: "hat1", base offset and middle of the
times with a CRC, how far it covers its log with another (as in index/companion.py), and entries as
in append_times/format.py, but for 44 bits of time and none of a follower. Seals and block maps of
that time are made again.
"""

from struct import Struct
from typing import Final

import crc32c

from horolog.record.batch import SMALLEST_BATCH
from horolog.storage import names
from horolog.storage.append_times.format import ENTRY, entry_of, is_intact, middle_for
from horolog.storage.files import Files
from horolog.storage.index.companion import MOST_MS, Covered, packed_head

_HEADER: Final = Struct(">4sqqI")
_COVERED: Final = Struct(">IqqII")
_MAGIC: Final = b"hat1"
_CHECK_BITS: Final = 20


def take_over(files: Files, directory: str, present: set[str]) -> None:
    """Make companions of the files of a partition that are from before; `present` follows.

    Whatever writes there calls it first: one that has a companion is taken to have been taken over.
    A kill in between leaves both, and the next call takes over again.

    Raises:
        StorageFailed: the disk refused.
    """
    earlier = [
        (name, name.removesuffix(suffix))
        for name in sorted(present)
        for suffix in names.EARLIER
        if names.base_offset_of(name, suffix) is not None
        and name.removesuffix(suffix) + names.LOG in present
    ]
    for name, stem in earlier:
        companion = stem + names.COMPANION
        if name.endswith(names.EARLIER_TIMES) and companion not in present:
            converted = _converted_from(files, f"{directory}/{stem}")
            if converted is not None:
                files.replace(f"{directory}/{companion}", converted)
                present.add(companion)
    if earlier:
        files.sync_path(directory)  # the companions are there before what they were is gone
    for name, _ in earlier:
        files.remove(f"{directory}/{name}")
        present.discard(name)


def _converted_from(files: Files, stem: str) -> bytes | None:
    most = files.size(stem + names.LOG) // SMALLEST_BATCH + 1  # each entry is of a batch
    size = _HEADER.size + _COVERED.size + most * ENTRY.size
    return converted_file(files.read_at(files.get(stem + names.EARLIER_TIMES), size, 0))


def converted_file(content: bytes) -> bytes | None:
    """The companion that says what such a file says; None if its header is damaged."""
    if len(content) < _HEADER.size + _COVERED.size:
        return None
    magic, base_offset, middle_ms, crc = _HEADER.unpack_from(content)
    if magic != _MAGIC or crc != _crc_before(content, 0, _HEADER.size):
        return None
    *covered, crc = _COVERED.unpack_from(content, _HEADER.size)
    if crc != _crc_before(content, _HEADER.size, _HEADER.size + _COVERED.size):
        covered = [0, base_offset, 0, 0]  # of a kill: each entry is compared with its batch
    start = _HEADER.size + _COVERED.size
    end = start + (len(content) - start) // ENTRY.size * ENTRY.size
    entries = memoryview(content)[start:end]
    first_ms = next((_ms_of(each, middle_ms) for each in ENTRY.iter_unpack(entries)), 0)
    middle = middle_for(first_ms)
    converted = bytearray(packed_head(base_offset, middle, Covered(*covered)))
    for time, place in ENTRY.iter_unpack(entries):
        converted += ENTRY.pack(*_converted(time, place, middle_ms, middle))
    return bytes(converted)


def _crc_before(content: bytes, start: int, end: int) -> int:
    return crc32c.crc32c(memoryview(content)[start : end - 4])


def _ms_of(entry: tuple[int, ...], middle_ms: int) -> int:
    return (entry[0] >> _CHECK_BITS) + middle_ms


def _converted(time: int, place: int, middle_ms: int, middle: int) -> tuple[int, int]:
    delta_ms = _ms_of((time,), middle_ms) - middle
    fitting = max(-MOST_MS, min(delta_ms, MOST_MS - 1))
    is_unknown = bool(place & 1) or fitting != delta_ms
    entry = entry_of(fitting, place >> 1, time, is_unknown=is_unknown)
    return entry if is_intact((time, place)) else (entry[0] ^ 1, entry[1])
