"""Which segments may go, and why; decides, and deletes nothing.

Kafka's three passes, in this order: what lies before the log start, what exceeds
`retention.bytes`, what is older than `retention.ms`. Each goes on from the oldest
segment that is left and stops at the first that must stay, so that a log is only ever
cut at its beginning. The active segment may go like any other unless it is empty.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from horolog.config import TopicConfig
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
    """Its largest timestamp; else when its file was last changed, as no record has one."""


def deletable(
    segments: Sequence[Segment],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[str]:
    """Why each of the oldest segments may go; there are as many reasons as segments that may.

    Args:
        segments: all of a log, oldest first.
        config: its settings. Without `delete` in `cleanup.policy` only the first pass counts.
        log_start_offset: what lies before it is gone for readers already.
        high_watermark: what is not below it stays.
        now_ms: the clock.
    """
    by_base = {segment.base_offset: segment for segment in segments}
    return decide(
        _candidates(segments),
        config,
        log_start_offset,
        high_watermark,
        now_ms,
        lambda candidate: _time_of(by_base[candidate.base_offset]),
    )


def _candidates(segments: Sequence[Segment]) -> list[Candidate]:
    last = segments[-1]
    ends = [*(segment.base_offset for segment in segments[1:]), last.end.next_offset]
    return [
        Candidate(segment.base_offset, end_offset, segment.size, segment is last)
        for segment, end_offset in zip(segments, ends, strict=True)
    ]


def _time_of(segment: Segment) -> SegmentTime:
    """Never on the word of the time index: a seal or the headers say it (`Indexes.largest`)."""
    largest = segment.largest()
    if largest is None:
        return SegmentTime(segment.modified_ms(), is_record_time=False)
    return SegmentTime(largest.timestamp, is_record_time=True)


def decide(
    segments: Sequence[Candidate],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    time_of: Callable[[Candidate], SegmentTime],
) -> list[str]:
    """The decision of `deletable`; `time_of` is asked for no more segments than necessary."""
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
        yield f"it lies before the log start offset {log_start_offset}"


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
    time_of: Callable[[Candidate], SegmentTime],
) -> Iterator[str]:
    if retention_ms < 0:
        return
    for segment in _removable(segments, high_watermark):
        time_ms, is_record_time = time_of(segment)
        if now_ms - time_ms <= retention_ms:
            return
        what = "largest timestamp" if is_record_time else "last change (no record has a timestamp)"
        yield f"its {what} {time_ms} is {now_ms - time_ms} ms old, retention.ms is {retention_ms}"


def _removable(segments: Sequence[Candidate], high_watermark: int) -> Iterator[Candidate]:
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.is_last and segment.size == 0):
            return
        yield segment
