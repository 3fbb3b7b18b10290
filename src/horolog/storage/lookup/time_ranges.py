"""Find the offsets of a log that may hold records of a time, by its segments' block maps."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from horolog.offsets import OffsetRange
from horolog.record.timestamps import TimeRange
from horolog.storage.segments.segment import Segment

MAPPED_AT_ONCE: Final = 64 << 20
"""Bytes of log that are read to make maps before an answer; a background task does the rest."""


class TimeRanges(NamedTuple):
    """Ranges of offsets that may hold the records looked for."""

    ranges: list[OffsetRange]
    """Each in one segment, in order; all other offsets before `end` hold no such record."""
    end: int
    """Nothing is said about offsets from here on."""
    lacks_maps: bool
    """Some finished segments have no block map yet, so that more was named than need be."""


def time_ranges(
    segments: Sequence[Segment], window: TimeRange, from_offset: int, end_offset: int, limit: int
) -> TimeRanges:
    """Return at most `limit` ranges of offsets that may hold a record in a window.

    Args:
        segments: the one that holds `from_offset`, and all that follow.
        end_offset: of the log, taken before the segments.
        limit: on how many ranges are returned.

    Raises:
        StorageFailed: the disk refused.
    """
    found: list[OffsetRange] = []
    lacks_maps = False
    budget = MAPPED_AT_ONCE
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        end = segment.end
        if following is None:
            next_offset = end.next_offset
        else:
            next_offset = following.base_offset
            if not segment.blocks.is_final(end.size):
                if end.size <= budget:
                    budget -= end.size
                    segment.complete_blocks()
                else:
                    lacks_maps = True
        for span in segment.blocks.spans(window, end.size, next_offset):
            start = max(span.base_offset, from_offset)
            stop = min(next_offset if span.next_offset is None else span.next_offset, end_offset)
            if start >= stop:
                continue
            if len(found) >= limit:
                return TimeRanges(found, start, lacks_maps)
            found.append(OffsetRange(start, stop, span.end - span.position))
    return TimeRanges(found, end_offset, lacks_maps)
