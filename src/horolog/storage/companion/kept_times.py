"""Append times of records that recovery has set aside: `<name>.cut.times` next to `<name>.cut`.

The bytes are those of a companion (file.py) with the append times of these records
alone; what they cover was sure when they were written, and nothing is compared again.
"""

from bisect import bisect_right

from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.companion.file import TIMES_AT, parsed_head
from horolog.storage.companion.time_entries import CHECK_BITS, ENTRY, is_intact, is_seen
from horolog.storage.files import Files

_LONGEST = 1 << 30


class KeptTimes:
    """When records were appended, by their offsets."""

    def __init__(self, content: bytes, base_offset: int) -> None:
        """Read the bytes of a file for a segment's records; damaged bytes are ignored."""
        self._offsets: list[int] = []
        self._times: list[AppendTimeStretch] = []
        self._end = base_offset
        head = parsed_head(content[:TIMES_AT], base_offset)
        if head is None or head.covered is None:
            return
        middle_ms, covered = head.middle_ms, head.covered
        entries = content[TIMES_AT : TIMES_AT + covered.entries * ENTRY.size]
        if len(entries) < covered.entries * ENTRY.size:
            return
        for entry in ENTRY.iter_unpack(entries):
            time, place = entry
            if is_intact(entry):
                self._offsets.append(base_offset + (place >> 1))
                ms = None if place & 1 else (time >> CHECK_BITS) + middle_ms
                was_seen = ms is not None and is_seen(time)
                self._times.append(AppendTimeStretch(self._offsets[-1], ms, was_seen))
            elif self._times:  # where its stretch begins is unknown
                self._times[-1] = AppendTimeStretch(self._offsets[-1], None)
        self._end = covered.end

    def at(self, offset: int) -> AppendTimeStretch:
        """When the record with this offset was appended, or else seen by a follower."""
        index = bisect_right(self._offsets, offset) - 1
        is_known = index >= 0 and offset < self._end
        return self._times[index] if is_known else AppendTimeStretch(offset, None)


def kept_times_of(files: Files, path: str, base_offset: int) -> KeptTimes | None:
    """The append times of a file that was set aside; None if nothing is known of them.

    Raises:
        StorageFailed: the disk refused.
    """
    content = files.read_whole(path + names.CUT_TIMES, _LONGEST)
    return None if content is None else KeptTimes(content, base_offset)
