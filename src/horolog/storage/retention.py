"""Which segments may go, and why; decides, and deletes nothing.

Kafka's three passes, in this order: what is before the log start, what exceeds
`retention.bytes`, what is older than `retention.ms`. Each goes on from the oldest
segment that is left and stops at the first that must stay, so that a log is only ever
cut at its beginning. The active segment may go like any other unless it is empty.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from horolog.config import TopicConfig
from horolog.record.timestamps import NO_TIMESTAMP
from horolog.storage.append_time_lookup import last_append_time
from horolog.storage.checkpoints import AppendTimeReset
from horolog.storage.segment import Segment


class Candidate(NamedTuple):
    """What retention looks at in one segment."""

    base_offset: int
    end_offset: int
    """The next segment's base offset, or the log end offset."""
    size: int
    is_last: bool


class SegmentTime(NamedTuple):
    """The time that counts for a segment."""

    time_ms: int
    is_record_time: bool
    """Of a record; else when its file was last changed, as no record has one that counts."""
    was_reset: bool = False
    """Append times were reset behind it: the clock at that moment, as its own are still ahead."""
    is_append_time: bool = False
    """It is when its last record was appended, not what that carries."""


def deletable(
    segments: Sequence[Segment],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset] = (),
) -> list[str]:
    """Why each of the oldest segments may go; there are as many reasons as segments that may.

    Args:
        segments: all of a log, oldest first.
        config: its settings. Without `delete` in `cleanup.policy` only the first pass counts.
        log_start_offset: what is before it is gone for readers already.
        high_watermark: what is not below it stays.
        now_ms: the clock.
        resets: where append times were lowered, in order of offsets.
    """
    by_base = {segment.base_offset: segment for segment in segments}

    def time_of(candidate: Candidate) -> SegmentTime | None:
        times = _times_of(by_base[candidate.base_offset], candidate, config)
        bound = (bounded(time, candidate.end_offset, resets, now_ms) for time in times)
        return max(bound, key=lambda time: time.time_ms, default=None)

    return decide(_candidates(segments), config, log_start_offset, high_watermark, now_ms, time_of)


def _candidates(segments: Sequence[Segment]) -> list[Candidate]:
    last = segments[-1]
    ends = [*(segment.base_offset for segment in segments[1:]), last.end.next_offset]
    return [
        Candidate(segment.base_offset, end_offset, segment.size, segment is last)
        for segment, end_offset in zip(segments, ends, strict=True)
    ]


def expired_ms(config: TopicConfig, timestamp: int, now_ms: int) -> int:
    """For how long records up to this create time have been due for deletion; 0 if they are not."""
    if config.horolog_retention_by != "create-time" or timestamp == NO_TIMESTAMP:
        return 0
    if not _may_expire(timestamp, config):
        return 0
    if config.retention_ms < 0 or "delete" not in config.cleanup_policy:
        return 0
    return max(0, now_ms - timestamp - config.retention_ms)


def _times_of(segment: Segment, candidate: Candidate, config: TopicConfig) -> Iterator[SegmentTime]:
    """The times of which the later counts; none if nothing is known that could count.

    Never on the word of the time index: a seal or the headers say it (`Indexes.largest`).
    """
    by = config.horolog_retention_by
    largest = None if by == "append-time" else segment.largest()
    counts = largest is not None and _may_expire(largest.timestamp, config)
    if by == "create-time" and largest is not None and counts:
        yield SegmentTime(largest.timestamp, is_record_time=True)
        return
    last_ms = last_append_time(segment, candidate.end_offset, candidate.size)
    if last_ms is not None:
        yield SegmentTime(last_ms, is_record_time=True, is_append_time=True)
        if largest is not None and counts:
            yield SegmentTime(largest.timestamp, is_record_time=True)
    elif by == "create-time":
        yield SegmentTime(segment.modified_ms(), is_record_time=False)


def _may_expire(timestamp: int, config: TopicConfig) -> bool:
    """Whether retention may go by this create time; one before 1970 is not when it was written."""
    return timestamp >= 0 or config.horolog_retention_before_1970


def bounded(
    time: SegmentTime, end_offset: int, resets: Sequence[AppendTimeReset], now_ms: int
) -> SegmentTime:
    """A segment's time, no later than the clock was when append times were reset behind it.

    What a clock that was far ahead has stamped would hold back retention of everything behind
    it, until the clock has caught up. Such records were appended before the reset. This counts
    only while their own time is ahead of the clock: if it was the reset that happened under a
    wrong clock, their own time is right. A create time later than any append time counts.
    """
    for reset in resets:
        is_stamped = time.is_record_time and reset.clock_ms < time.time_ms <= reset.old_ms
        if end_offset <= reset.offset and is_stamped and time.time_ms > now_ms:
            time = time._replace(time_ms=reset.clock_ms, was_reset=True)
    return time


def decide(
    segments: Sequence[Candidate],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    time_of: Callable[[Candidate], SegmentTime | None],
) -> list[str]:
    """The decision of `deletable`; `time_of` is asked for no more segments than necessary.

    A segment whose time is unknown, None, stays.
    """
    reasons = list(_before_start(segments, log_start_offset))
    if "delete" in config.cleanup_policy:
        reasons += _beyond_size(segments[len(reasons) :], config.retention_bytes, high_watermark)
        reasons += _beyond_time(
            segments[len(reasons) :], config.retention_ms, high_watermark, now_ms, time_of
        )
    return reasons


def _before_start(segments: Sequence[Candidate], log_start_offset: int) -> Iterator[str]:
    for segment in segments:
        if segment.is_last or segment.end_offset > log_start_offset:
            return
        yield f"it is before the log start offset {log_start_offset}"


def _beyond_size(
    segments: Sequence[Candidate], retention_bytes: int, high_watermark: int
) -> Iterator[str]:
    size = sum(segment.size for segment in segments)
    if retention_bytes < 0:
        return
    for segment in _removable(segments, high_watermark):
        if size - segment.size < retention_bytes:
            return
        yield f"the log has {size} bytes, retention.bytes is {retention_bytes}"
        size -= segment.size


def _beyond_time(
    segments: Sequence[Candidate],
    retention_ms: int,
    high_watermark: int,
    now_ms: int,
    time_of: Callable[[Candidate], SegmentTime | None],
) -> Iterator[str]:
    if retention_ms < 0:
        return
    for segment in _removable(segments, high_watermark):
        time = time_of(segment)
        if time is None or now_ms - time.time_ms <= retention_ms:
            return
        time_ms = time.time_ms
        what = "largest timestamp"
        if not time.is_record_time:
            what = "last change (no record has a timestamp that counts)"
        elif time.is_append_time:
            what = "last append time"
        if time.was_reset:
            what = "append time is ahead of the clock, but not later than the reset at"
        yield f"its {what} {time_ms} is {now_ms - time_ms} ms old, retention.ms is {retention_ms}"


def _removable(segments: Sequence[Candidate], high_watermark: int) -> Iterator[Candidate]:
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.is_last and segment.size == 0):
            return
        yield segment
