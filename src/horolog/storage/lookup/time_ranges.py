"""Find the offsets of a log that may hold records of a time, by its segments' block maps."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from horolog.offsets import OffsetRange, TimeBlock
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


class TimeBlocks(NamedTuple):
    """Blocks of a log with the earliest time of each."""

    blocks: list[TimeBlock]
    """Each in one segment, in order, without gaps."""
    end: int
    """Nothing is said about offsets from here on."""
    lacks_maps: bool
    """Some finished segments have no block map yet, so that times of theirs are unknown."""


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
    for segment, next_offset, has_map in _mapped(segments):
        lacks_maps |= not has_map
        end = segment.end
        for span in segment.blocks.spans(window, end.size, next_offset):
            start = max(span.base_offset, from_offset)
            stop = min(next_offset if span.next_offset is None else span.next_offset, end_offset)
            if start >= stop:
                continue
            if len(found) >= limit:
                return TimeRanges(found, start, lacks_maps)
            found.append(OffsetRange(start, stop, span.end - span.position))
    return TimeRanges(found, end_offset, lacks_maps)


def time_blocks(
    segments: Sequence[Segment], from_offset: int, end_offset: int, limit: int, *, of_append: bool
) -> TimeBlocks:
    """The blocks between two offsets with the earliest time of each, `limit` at most.

    Args:
        segments: the one that holds `from_offset`, and all that follow.
        end_offset: of the log, taken before the segments.
        limit: on how many blocks are returned.
        of_append: by append times; otherwise by the records' own timestamps.

    Raises:
        StorageFailed: the disk refused.
    """
    found: list[TimeBlock] = []
    lacks_maps = False
    for segment, next_offset, has_map in _mapped(segments):
        lacks_maps |= not has_map
        look = segment.blocks.look(segment.end.size)
        for block in look.time_blocks(next_offset, of_append=of_append):
            start, stop = max(block.start, from_offset), min(block.end, end_offset)
            if start >= stop:
                continue
            if len(found) >= limit:
                return TimeBlocks(found, start, lacks_maps)
            found.append(block._replace(start=start, end=stop))
    return TimeBlocks(found, end_offset, lacks_maps)


def _mapped(segments: Sequence[Segment]) -> Iterator[tuple[Segment, int, bool]]:
    """Yield each segment, the offset after its last, and True unless it lacks a block map.

    Maps of finished segments are made, of as much as may be read for an answer.
    """
    budget = MAPPED_AT_ONCE
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        size, has_map = segment.end.size, True
        if following is not None and not segment.blocks.is_final(size):
            has_map = size <= budget
            if has_map:
                budget -= size
                segment.complete_blocks()
        next_offset = segment.end.next_offset if following is None else following.base_offset
        yield segment, next_offset, has_map
