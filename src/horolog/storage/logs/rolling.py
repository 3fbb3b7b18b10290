"""When a log rolls, and how the next segment begins; decides, and rolls nothing.

Invariant: a segment holds what its files have room for, and no records of both sides of a reset
of append times. Logs that are exempt from retention do not roll by time.
"""

import random

from horolog.config import TopicConfig
from horolog.storage.files import Files
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.segment import Segment


def must_roll(
    active: ActiveSegment,
    config: TopicConfig,
    size: int,
    last_offset: int,
    timestamp: int,
    append_time: int,
    now_ms: int,
    *,
    reset_offset: int,
    by_time: bool,
) -> bool:
    """Whether a batch begins a segment.

    Args:
        active: the segment that it would be appended to.
        config: of the topic.
        size: bytes of the batch.
        last_offset: its last offset.
        timestamp: its largest timestamp.
        append_time: its append time.
        now_ms: the clock.
        reset_offset: the first offset after the last reset of append times, -1 if there was none.
        by_time: whether `segment.ms` counts.
    """
    end = active.segment.end
    if end.size == 0:
        return False
    if end.next_offset == reset_offset:
        return True  # its records are from before the reset
    if not active.has_room(size, last_offset, config.segment_bytes, append_time):
        return True
    return (
        by_time
        and (
            active.waited_ms(timestamp, now_ms)
            if config.horolog_roll_by == "first-time"
            else active.age_ms(config.horolog_roll_by, timestamp, append_time, now_ms)
        )
        > config.segment_ms - active.jitter_ms
    )


def must_roll_idle(active: ActiveSegment, config: TopicConfig, now_ms: int) -> bool:
    """Whether the active segment's time is over, though nothing is appended."""
    if not config.horolog_roll_idle or not active.segment.size:
        return False
    age_ms = active.age_ms(config.horolog_roll_by, now_ms, now_ms, now_ms)
    return age_ms > config.segment_ms - active.jitter_ms


def new_segment(
    files: Files, directory: str, base_offset: int, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """An empty segment to append to.

    Raises:
        StorageFailed: the disk refused.
    """
    return ActiveSegment.create(
        files, directory, base_offset, config, created_ms=now_ms, jitter_ms=_jitter_ms(config)
    )


def active_segment(
    files: Files, segment: Segment, config: TopicConfig, now_ms: int
) -> ActiveSegment:
    """A segment that is there, to be appended to."""
    return ActiveSegment(files, segment, config, created_ms=now_ms, jitter_ms=_jitter_ms(config))


def _jitter_ms(config: TopicConfig) -> int:
    """By how much earlier one segment ends: its share of `segment.jitter.ms`."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(bound) if bound > 0 else 0  # noqa: S311 - spreads rolls, no secret
