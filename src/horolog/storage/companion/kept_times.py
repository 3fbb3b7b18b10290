"""Append times of records that were set aside: `<name>.cut.times` next to `<name>.cut`.

The format is that of a companion (file.py) with the append times of these records alone. They were
proved when they were written, and are not compared again.
"""

from bisect import bisect_right
from operator import attrgetter

from horolog.record.timestamps import AppendTimeStretch
from horolog.storage import names
from horolog.storage.companion.file import TIMES_AT, parsed_head
from horolog.storage.companion.time_entries import ENTRY, stretches_of
from horolog.storage.files import Files

_LONGEST = 1 << 30


class KeptTimes:
    """Append times of records that were set aside, by offset."""

    def __init__(self, content: bytes, base_offset: int) -> None:
        """Parse the bytes of the file; append times before a damaged entry are unknown."""
        self._times: list[AppendTimeStretch] = []
        self._end = base_offset
        head = parsed_head(content[:TIMES_AT], base_offset)
        if head is None or head.covered is None:
            return
        size = head.covered.entries * ENTRY.size
        entries = content[TIMES_AT : TIMES_AT + size]
        if len(entries) == size:
            self._times = stretches_of(entries, base_offset, head.middle_ms)
            self._end = head.covered.end

    def at(self, offset: int) -> AppendTimeStretch:
        """Return the time at which a record was appended, or seen by a follower."""
        index = bisect_right(self._times, offset, key=attrgetter("offset")) - 1
        is_known = index >= 0 and offset < self._end
        return self._times[index] if is_known else AppendTimeStretch(offset, None)


def kept_times_of(files: Files, path: str, base_offset: int) -> KeptTimes | None:
    """Read the append times of a set-aside file; None if they are unknown.

    Raises:
        StorageFailed: the disk refused.
    """
    content = files.read_whole(path + names.CUT_TIMES, _LONGEST)
    return None if content is None else KeptTimes(content, base_offset)
