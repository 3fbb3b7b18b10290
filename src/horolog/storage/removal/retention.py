"""Decisions of retention: the segments that may be deleted, and the reasons.

A segment may go if it is before the log start, if later segments reach `retention.bytes`, or if it
is older than `retention.ms`. These are Kafka's three passes, for one segment after the other. The
first segment that stays keeps all later ones, so that a log is only cut at its beginning. The
active segment may go unless it is empty.

`removal/retention_report.py` shows the decisions to users.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Final, NamedTuple

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
    """It was adopted, and its topic has no settings here."""
    POLICY = "cleanup-policy"
    HIGH_WATERMARK = "high-watermark"
    EMPTY = "empty"
    NO_LIMIT = "no-time-limit"
    UNKNOWN_TIME = "unknown-time"
    YOUNG = "not-old-enough"
    AHEAD = "ahead-of-clock"
    """The time that counts is ahead of the clock."""


MAY_GO: Final = frozenset({Because.BEFORE_START, Because.BEYOND_SIZE, Because.EXPIRED})


class Candidate(NamedTuple):
    """Facts of a segment by which retention and compaction decide."""

    base_offset: int
    end_offset: int
    """The next segment's base offset, or the log end offset."""
    size: int
    is_last: bool


class SegmentTime(NamedTuple):
    """Time of a segment that retention counts from."""

    time_ms: int
    is_record_time: bool
    """Of a record; else when its file was last changed, as no record has one that counts."""
    was_reset: bool = False
    """Append times were reset behind it: the clock at that moment, as its own are still ahead."""
    is_append_time: bool = False
    """It is when its last record was appended, not what that carries."""
    is_seen: bool = False
    """It is when a follower saw that, as it is unknown when it was appended."""


class Verdict(NamedTuple):
    """Decision on one segment by itself. An earlier segment may still keep it."""

    because: Because
    reason: str
    time: SegmentTime | None = None
    """That counts for `retention.ms`, where it was asked for and is known."""
    due_ms: int | None = None
    """The first moment at which `retention.ms` lets it go; None if that is never or unknown."""
    bytes_to_go: int | None = None
    """How much more must be appended until `retention.bytes` lets it go; None without a limit."""

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
    by_base = {segment.base_offset: segment for segment in segments}

    def time_of(candidate: Candidate) -> SegmentTime | None:
        if not candidate.size:  # compaction has left nothing of it: it goes with what follows
            following = facts[facts.index(candidate) :]
            candidate = next((later for later in following if later.size), candidate)
        return time_that_counts(by_base[candidate.base_offset], candidate, config, resets, now_ms)

    facts = candidates(segments)
    judged = judge(facts, config, log_start_offset, high_watermark, now_ms, time_of)
    return zip(facts, judged, strict=True)


def time_that_counts(
    segment: SegmentReader,
    candidate: Candidate,
    config: TopicConfig,
    resets: Sequence[AppendTimeReset],
    now_ms: int,
) -> SegmentTime | None:
    """Return the time of a segment's latest record, by `horolog.retention.by`; None if unknown."""
    times = times_that_count(
        config,
        lambda: None if (largest := segment.largest()) is None else largest.timestamp,
        lambda: last_append_time(segment, candidate.end_offset, candidate.size),
        segment.modified_ms,
    )
    bound = (bounded(time, candidate.end_offset, resets, now_ms) for time in times)
    return max(bound, key=lambda time: time.time_ms, default=None)


def candidates(segments: Sequence[SegmentReader]) -> list[Candidate]:
    """Return the facts of segments. The end of the last one, which may grow, is read once."""
    *finished, last = segments
    end = last.end
    following = [*(segment.base_offset for segment in segments[1:]), end.next_offset]
    sizes = [*(segment.size for segment in finished), end.size]
    return [
        Candidate(segment.base_offset, end_offset, size, segment is last)
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


def times_that_count(
    config: TopicConfig,
    largest_ms: Callable[[], int | None],
    last_append: Callable[[], AppendTimeStretch],
    modified_ms: Callable[[], int],
) -> Iterator[SegmentTime]:
    """Yield the times of a segment, of which the latest counts.

    Yields nothing if none is known.

    Args:
        largest_ms: gives the largest timestamp, never on the word of the time index: a seal or
            the headers say it (`Indexes.largest`).
        last_append: gives the append time of the last record, or when it was seen.
        modified_ms: gives when the file was last changed.
    """
    by = config.horolog_retention_by
    largest = None if by == "append-time" else largest_ms()
    counts = largest is not None and _may_expire(largest, config)
    if by == "create-time" and largest is not None and counts:
        yield SegmentTime(largest, is_record_time=True)
        return
    last = last_append()
    last_ms = last.ms if config.horolog_seen_as_append_time else last.known_ms
    if last_ms is not None:
        yield SegmentTime(last_ms, is_record_time=True, is_append_time=True, is_seen=last.is_seen)
        if largest is not None and counts:
            yield SegmentTime(largest, is_record_time=True)
    elif by == "create-time":
        yield SegmentTime(modified_ms(), is_record_time=False)


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
    time_of: Callable[[Candidate], SegmentTime | None],
) -> Iterator[Verdict]:
    """Decide on each segment, oldest first.

    Other arguments are as in `verdicts`.

    `time_of` is called for no more segments than necessary. A segment whose time is None stays.
    """
    size = sum(segment.size for segment in segments)
    for segment in segments:
        if not segment.is_last and segment.end_offset <= log_start_offset:
            reason = f"it is before the log start offset {log_start_offset}"
            yield Verdict(Because.BEFORE_START, reason)
        elif "delete" not in config.cleanup_policy:
            yield Verdict(Because.POLICY, "cleanup.policy does not contain delete")
        else:
            limit = config.retention_bytes
            to_go = None if limit < 0 else max(0, limit - (size - segment.size))
            yield _judge_age_and_size(
                segment, config, high_watermark, now_ms, time_of, size, to_go
            )._replace(bytes_to_go=to_go)
        size -= segment.size


def _judge_age_and_size(
    segment: Candidate,
    config: TopicConfig,
    high_watermark: int,
    now_ms: int,
    time_of: Callable[[Candidate], SegmentTime | None],
    size: int,
    bytes_to_go: int | None,
) -> Verdict:
    """Decide on a segment by age and size. The log has `size` bytes from here on."""
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
    time = time_of(segment)
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
