"""Decisions of retention: the segments that may be deleted, and the reasons.

A segment may go if it is before the log start, if later segments reach `retention.bytes`, or if it
is older than `retention.ms`. These are Kafka's three passes, for one segment after the other. The
first segment that stays keeps all later ones, so that a log is only cut at its beginning. The
active segment may go unless it is empty.

`removal/retention_report.py` shows the decisions to users.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from horolog.config import TopicConfig
from horolog.record.timestamps import NO_TIMESTAMP, AppendTimeStretch
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.lookup.by_append_time import last_append_time
from horolog.storage.segments.reader import SegmentReader


class Because(StrEnum):
    """Reason for a decision of retention."""

    BEFORE_START = "before-log-start"
    BEYOND_SIZE = "beyond-retention-bytes"
    EXPIRED = "expired"
    # It stays:
    EXEMPT = "exempt"
    """The log was adopted, and its topic has no settings here."""
    POLICY = "cleanup-policy"
    HIGH_WATERMARK = "high-watermark"
    EMPTY = "empty"
    NO_LIMIT = "no-time-limit"
    UNKNOWN_TIME = "unknown-time"
    YOUNG = "not-old-enough"
    AHEAD = "ahead-of-clock"
    """The time that counts is ahead of the clock."""


MAY_GO: Final = frozenset({Because.BEFORE_START, Because.BEYOND_SIZE, Because.EXPIRED})
_FAR_AHEAD_MS: Final = 3_600_000


def is_odd(because: Because, counts_ms: int | None, now_ms: int) -> bool:
    """Return True if an unknown time, or one far ahead of the clock, keeps a segment."""
    if because is Because.AHEAD and counts_ms is not None:
        return counts_ms - now_ms > _FAR_AHEAD_MS
    return because is Because.UNKNOWN_TIME


class SegmentTimes(Protocol):
    """Times of a segment, each read from the disk when it is asked for."""

    def largest_ms(self) -> int | None:
        """Return the largest timestamp by the seal or the headers; None without one."""

    def last_append(self) -> AppendTimeStretch:
        """Return the append time of the last record, or when a follower saw it."""

    def modified_ms(self) -> int:
        """Return the modification time of the file."""


class _StoredTimes(NamedTuple):
    """Times of a segment on the disk."""

    segment: SegmentReader
    end_offset: int
    size: int

    def largest_ms(self) -> int | None:
        largest = self.segment.largest()
        return None if largest is None else largest.timestamp

    def last_append(self) -> AppendTimeStretch:
        return last_append_time(self.segment, self.end_offset, self.size)

    def modified_ms(self) -> int:
        return self.segment.modified_ms()


class Candidate(NamedTuple):
    """Facts of a segment by which retention and compaction decide."""

    base_offset: int
    end_offset: int
    """The next segment's base offset, or the log end offset."""
    size: int
    is_last: bool
    times: SegmentTimes


class SegmentTime(NamedTuple):
    """Time of a segment that retention counts from."""

    time_ms: int
    is_record_time: bool
    """True for the time of a record; False for the modification time of the file."""
    was_reset: bool = False
    """True for the clock at a reset of append times, as those of the segment are still ahead."""
    is_append_time: bool = False
    """True for the append time of the last record."""
    is_seen: bool = False
    """True for the time at which a follower saw the last record."""


class Verdict(NamedTuple):
    """Decision on one segment by itself. An earlier segment may still keep it."""

    because: Because
    reason: str
    time: SegmentTime | None = None
    """Time that counts for `retention.ms`; None if unknown or not asked for."""
    due_ms: int | None = None
    """The first moment at which `retention.ms` lets it go; None if that is never or unknown."""
    bytes_to_go: int | None = None
    """Bytes to append until `retention.bytes` lets it go; None without a limit."""

    @property
    def may_go(self) -> bool:
        """True if the segment may be deleted."""
        return self.because in MAY_GO


def verdicts(
    segments: Sequence[SegmentReader],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset] = (),
) -> Iterator[tuple[Candidate, Verdict]]:
    """Decide on each segment by itself, oldest first.

    A segment is read when its verdict is taken from the iterator.

    Args:
        segments: all of a log, oldest first.
        config: its settings. Without `delete` in `cleanup.policy` only the first pass counts.
        log_start_offset: what is before it is gone for readers already.
        high_watermark: what is not below it stays.
        resets: where append times were lowered, in order of offsets.
    """
    facts = candidates(segments)
    judged = judge(facts, config, log_start_offset, high_watermark, now_ms, resets)
    return zip(facts, judged, strict=True)


def time_that_counts(
    candidate: Candidate, config: TopicConfig, resets: Sequence[AppendTimeReset], now_ms: int
) -> SegmentTime | None:
    """Return the time of a segment's latest record, by `horolog.retention.by`; None if unknown."""
    times = _times_that_count(candidate.times, config)
    bound = (bounded(time, candidate.end_offset, resets, now_ms) for time in times)
    return max(bound, key=lambda time: time.time_ms, default=None)


def candidates(segments: Sequence[SegmentReader]) -> list[Candidate]:
    """Return the facts of segments. The end of the last one, which may grow, is read once."""
    *finished, last = segments
    end = last.end
    following = [*(segment.base_offset for segment in segments[1:]), end.next_offset]
    sizes = [*(segment.size for segment in finished), end.size]
    return [
        Candidate(
            segment.base_offset,
            end_offset,
            size,
            segment is last,
            _StoredTimes(segment, end_offset, size),
        )
        for segment, end_offset, size in zip(segments, following, sizes, strict=True)
    ]


def expired_ms(config: TopicConfig, timestamp: int, now_ms: int) -> int:
    """Return for how long records up to this create time have been expired; 0 if they are not."""
    if config.horolog_retention_by != "create-time" or timestamp == NO_TIMESTAMP:
        return 0
    if not _may_expire(timestamp, config):
        return 0
    if config.retention_ms < 0 or "delete" not in config.cleanup_policy:
        return 0
    return max(0, now_ms - timestamp - config.retention_ms)


def _times_that_count(times: SegmentTimes, config: TopicConfig) -> Iterator[SegmentTime]:
    """Yield the times of a segment, of which the latest counts.

    Yields nothing if none is known.
    """
    by = config.horolog_retention_by
    largest = None if by == "append-time" else times.largest_ms()
    counts = largest is not None and _may_expire(largest, config)
    if by == "create-time" and largest is not None and counts:
        yield SegmentTime(largest, is_record_time=True)
        return
    last = times.last_append()
    last_ms = last.ms if config.horolog_seen_as_append_time else last.known_ms
    if last_ms is not None:
        yield SegmentTime(last_ms, is_record_time=True, is_append_time=True, is_seen=last.is_seen)
        if largest is not None and counts:
            yield SegmentTime(largest, is_record_time=True)
    elif by == "create-time":
        yield SegmentTime(times.modified_ms(), is_record_time=False)


def _may_expire(timestamp: int, config: TopicConfig) -> bool:
    """Return True if a create time counts. By default, one before 1970 does not."""
    return timestamp >= 0 or config.horolog_retention_before_1970


def bounded(
    time: SegmentTime, end_offset: int, resets: Sequence[AppendTimeReset], now_ms: int
) -> SegmentTime:
    """Limit a segment's time to the clock at the reset of append times that followed it.

    Records stamped by a clock far ahead would hold back retention of all later ones. They were
    appended before the reset. The limit holds only while their own time is ahead of the clock:
    otherwise the reset may have happened under a wrong clock. A create time later than any append
    time is not limited.
    """
    for reset in resets:
        is_stamped = time.is_record_time and reset.clock_ms < time.time_ms <= reset.old_ms
        if end_offset <= reset.offset and is_stamped and time.time_ms > now_ms:
            time = time._replace(time_ms=reset.clock_ms, was_reset=True)
    return time


def going(decisions: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts on the oldest segments, up to the first that stays."""
    return list(takewhile(lambda verdict: verdict.may_go, decisions))


def judge(
    segments: Sequence[Candidate],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset] = (),
) -> Iterator[Verdict]:
    """Decide on each segment, oldest first, as `verdicts`.

    Times are read of no more segments than necessary. A segment whose time is unknown stays.
    """
    size = sum(segment.size for segment in segments)
    for place, segment in enumerate(segments):
        if not segment.is_last and segment.end_offset <= log_start_offset:
            reason = f"it is before the log start offset {log_start_offset}"
            yield Verdict(Because.BEFORE_START, reason)
        elif "delete" not in config.cleanup_policy:
            yield Verdict(Because.POLICY, "cleanup.policy does not contain delete")
        else:
            limit = config.retention_bytes
            to_go = None if limit < 0 else max(0, limit - (size - segment.size))
            yield _judge_age_and_size(
                segments[place:], config, high_watermark, now_ms, resets, size, to_go
            )._replace(bytes_to_go=to_go)
        size -= segment.size


def _judge_age_and_size(
    segments: Sequence[Candidate],
    config: TopicConfig,
    high_watermark: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset],
    size: int,
    bytes_to_go: int | None,
) -> Verdict:
    """Decide by age and size on the first of some segments, which have `size` bytes."""
    segment = segments[0]
    if segment.end_offset > high_watermark:
        return Verdict(
            Because.HIGH_WATERMARK, f"it is not below the high watermark {high_watermark}"
        )
    if segment.is_last and segment.size == 0:
        return Verdict(Because.EMPTY, "it is the active segment, and empty")
    if bytes_to_go == 0:
        return Verdict(
            Because.BEYOND_SIZE,
            f"the log has {size} bytes, retention.bytes is {config.retention_bytes}",
        )
    limit_ms = config.retention_ms
    if limit_ms < 0:
        return Verdict(Because.NO_LIMIT, "retention.ms sets no limit")
    # What compaction has emptied goes with the next segment that is not empty.
    timed = next((later for later in segments if later.size), segment)
    time = time_that_counts(timed, config, resets, now_ms)
    if time is None:
        return Verdict(
            Because.UNKNOWN_TIME,
            "its last append time is unknown, and retention counts from that "
            f"(horolog.retention.by={config.horolog_retention_by})",
        )
    age_ms = now_ms - time.time_ms
    age = f"{age_ms} ms old" if age_ms >= 0 else f"{-age_ms} ms ahead of the clock"
    whose = "its" if segment.size else "it is empty; of what follows, the"
    reason = f"{whose} {_what(time)} {time.time_ms} is {age}, retention.ms is {limit_ms}"
    because = Because.EXPIRED
    if age_ms <= limit_ms:
        because = Because.YOUNG if age_ms >= 0 else Because.AHEAD
    return Verdict(because, reason, time, time.time_ms + limit_ms + 1)


def _what(time: SegmentTime) -> str:
    if time.was_reset:
        return "append time is ahead of the clock, but not later than the reset at"
    if not time.is_record_time:
        return "last change (no record has a timestamp that counts)"
    if time.is_seen:
        return "last record was seen by a follower: that time"
    return "last append time" if time.is_append_time else "largest timestamp"
