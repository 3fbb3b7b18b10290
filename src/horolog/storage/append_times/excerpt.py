"""Append times of records that recovery has set aside: `<name>.cut.times` next to `<name>.cut`.

The bytes are those of a file of append times (append_times/format.py) with the entries of these
records alone; what they cover was sure when they were written, and nothing is compared again.
"""

from bisect import bisect_right

from horolog.storage import names
from horolog.storage.append_times.format import (
    CHECK_BITS,
    ENTRY,
    HEADER_SIZE,
    is_intact,
    parsed_header,
)
from horolog.storage.files import Files

_LONGEST = 1 << 30


class Excerpt:
    """When records were appended, by their offsets."""

    def __init__(self, content: bytes, base_offset: int) -> None:
        """Of a segment's records; damaged bytes say nothing."""
        self._offsets: list[int] = []
        self._times: list[int | None] = []
        self._end = base_offset
        header = parsed_header(content[:HEADER_SIZE], base_offset)
        if header is None:
            return
        middle_ms, covered = header
        if covered is None:
            return
        entries = content[HEADER_SIZE : HEADER_SIZE + covered.entries * ENTRY.size]
        if len(entries) < covered.entries * ENTRY.size:
            return
        for entry in ENTRY.iter_unpack(entries):
            time, place = entry
            if is_intact(entry):
                self._offsets.append(base_offset + (place >> 1))
                self._times.append(None if place & 1 else (time >> CHECK_BITS) + middle_ms)
            elif self._times:  # where its stretch begins is unknown
                self._times[-1] = None
        self._end = covered.end

    def at(self, offset: int) -> int | None:
        """When the record with this offset was appended; None if that is unknown."""
        index = bisect_right(self._offsets, offset) - 1
        return self._times[index] if index >= 0 and offset < self._end else None


def excerpt_of(files: Files, path: str, base_offset: int) -> Excerpt | None:
    """The append times of a file that was set aside; None if nothing is known of them.

    Raises:
        StorageFailed: the disk refused.
    """
    content = files.read_whole(path + names.CUT_TIMES, _LONGEST)
    return None if content is None else Excerpt(content, base_offset)
