"""Report of retention on every segment of a log, for users.

The decisions are those of removal/retention.py. A log is only cut at its beginning. So the report
adds the earlier segment that keeps a segment, and the record that keeps that one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from horolog.config import TopicConfig
from horolog.errors import CorruptBatch, RequestRefused
from horolog.record.markers import read_marker
from horolog.storage.batches.log_file import TimeEntry
from horolog.storage.directory.checkpoints import AppendTimeReset
from horolog.storage.lookup.by_append_time import last_append_time
from horolog.storage.lookup.by_timestamp import find_by_timestamp
from horolog.storage.removal.retention import (
    MAY_GO,
    Because,
    SegmentTime,
    Verdict,
    expired_ms,
    is_odd,
    verdicts,
)
from horolog.storage.segments.reader import SegmentReader

_MAX_BATCH_BYTES = 1 << 30
_MAX_MARKER_BYTES = 1 << 20


class Holder(NamedTuple):
    """First record with a segment's largest create time, which is ahead of the clock."""

    offset: int
    timestamp: int
    appended_ms: int | None
    """Append time of the record; None if it is unknown."""
    producer_id: int
    """Id of the idempotent producer; -1 for others. A log keeps no client id."""
    producer_epoch: int


class KeepingMarker(NamedTuple):
    """Marker that keeps a segment whose records are expired, because its time is the largest."""

    offset: int
    timestamp: int
    """Append time of the marker, its timestamp."""
    producer_id: int
    """Producer of the transaction that the marker ends."""
    producer_epoch: int
    is_commit: bool
    records_ms: int | None
    """The largest timestamp of the records; None if there is none left."""


class SegmentRetention(NamedTuple):
    """State of one segment under retention. Times are in milliseconds."""

    base_offset: int
    end_offset: int
    """The next segment's base offset, or the log end offset."""
    size: int
    is_active: bool
    """True for the active segment, whose times are those of now."""
    largest_ms: int | None
    """The largest timestamp of its records; None if none has one."""
    appended_ms: int | None
    """Append time of the last record; None if it is unknown."""
    because: Because
    """Reason for the decision on this segment alone."""
    reason: str
    counts_ms: int | None
    """Time that `retention.ms` counts from; None if unknown or not asked for."""
    counts_by: str | None
    """Kind of that time: create-time, append-time, seen-time (a follower saw the last record),
    modification-time (no record has a time that counts), or append-time-reset (the clock when
    append times were lowered)."""
    due_ms: int | None
    """Time at which `retention.ms` lets the segment go by itself; None for never or unknown."""
    bytes_to_go: int | None
    """Bytes to append until `retention.bytes` lets it go; None without a limit."""
    goes_ms: int | None
    """Time of the deletion, if nothing is appended: the segment and all before it may go. None for
    never or unknown. After a time in the past the next check deletes it."""
    kept_by: int | None
    """Base offset of the earlier segment that keeps it; None without one."""
    holder: Holder | None
    """The record whose create time, ahead of the clock, keeps the segment."""
    seen_ms: int | None = None
    """Time at which a follower saw the last record, if its append time is unknown."""
    marker: KeepingMarker | None = None
    """Marker that keeps the segment, if markers were looked for."""

    @property
    def goes_now(self) -> bool:
        """True if the next check of retention deletes the segment."""
        return self.kept_by is None and self.because in MAY_GO

    def as_json(self) -> dict[str, Any]:
        """Convert the report to JSON."""
        holder = None if self.holder is None else self.holder._asdict()
        marker = None if self.marker is None else self.marker._asdict()
        return {**self._asdict(), "holder": holder, "marker": marker}

    def is_odd(self, now_ms: int) -> bool:
        """Return True if an unknown time, or one far ahead of the clock, keeps it."""
        return is_odd(self.because, self.counts_ms, now_ms)


def settings_of(config: TopicConfig) -> dict[str, str | int | bool]:
    """Return the settings that retention depends on, under Kafka's names."""
    return {
        "cleanup.policy": ",".join(sorted(config.cleanup_policy)),
        "retention.ms": config.retention_ms,
        "retention.bytes": config.retention_bytes,
        "horolog.retention.by": config.horolog_retention_by,
        "horolog.retention.before.1970": config.horolog_retention_before_1970,
        "horolog.seen.as.append.time": config.horolog_seen_as_append_time,
    }


def report(
    segments: Sequence[SegmentReader],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    resets: Sequence[AppendTimeReset] = (),
    *,
    is_exempt: bool = False,
    first_offset: int = 0,
    names_markers: bool = False,
) -> Iterator[SegmentRetention]:
    """Report what retention does with each segment, oldest first.

    All headers of a segment without a seal are read. Segments before `first_offset` are judged,
    since they may keep later ones. Segments behind the last report that is taken are not read.

    Args:
        segments: all of a log, oldest first, the last one with its end.
        config: the topic's settings, or others that are tried.
        log_start_offset: what is before it is gone for readers already.
        high_watermark: what is not below it stays.
        resets: where append times were lowered, in order of offsets.
        is_exempt: the log was adopted, and nothing of it is deleted.
        first_offset: only segments with this base offset, or a later one.
        names_markers: look for markers that keep segments. It reads the headers of a segment whose
            largest time is a marker's.

    Raises:
        StorageFailed: the disk refused.
        CorruptBatch: the log is damaged where it has to be read.
    """
    goes_ms: int | None = now_ms  # of all so far
    keeper: int | None = None  # the one of them that goes last
    judged = verdicts(segments, config, log_start_offset, high_watermark, now_ms, resets)
    for segment, (candidate, each) in zip(segments, judged, strict=True):
        verdict = each
        if is_exempt:
            verdict = Verdict(Because.EXEMPT, "it was adopted, and its topic has no settings here")
        own_ms = now_ms if verdict.may_go else verdict.due_ms
        # It goes no earlier than all before it; None means never.
        if own_ms is None or (goes_ms is not None and own_ms >= goes_ms):
            goes_ms, keeper, kept_by = own_ms, candidate.base_offset, None
        else:
            kept_by = keeper
        if candidate.base_offset < first_offset:
            continue
        largest = segment.largest() if candidate.size else None
        last = last_append_time(segment, candidate.end_offset, candidate.size)
        is_held = verdict.because is Because.AHEAD and not (
            verdict.time is None or verdict.time.is_append_time
        )
        yield SegmentRetention(
            candidate.base_offset,
            candidate.end_offset,
            candidate.size,
            candidate.is_last,
            None if largest is None else largest.timestamp,
            last.known_ms,
            verdict.because,
            verdict.reason,
            None if verdict.time is None else verdict.time.time_ms,
            None if verdict.time is None else kind_of(verdict.time),
            verdict.due_ms,
            verdict.bytes_to_go,
            goes_ms,
            kept_by,
            _holder(segment, largest) if is_held and largest is not None else None,
            last.seen_ms,
            _marker(segment, largest, candidate.size, verdict, config, now_ms)
            if names_markers and largest is not None
            else None,
        )


def _marker(
    segment: SegmentReader,
    largest: TimeEntry,
    size: int,
    verdict: Verdict,
    config: TopicConfig,
    now_ms: int,
) -> KeepingMarker | None:
    """Return the marker whose time keeps a segment with expired records; None without one."""
    time = verdict.time
    if time is None or verdict.may_go or time.time_ms != largest.timestamp:
        return None
    if time.is_append_time or not time.is_record_time:
        return None
    try:
        located = segment.locate(largest.offset)
        if located is None or not located[1].is_control or located[1].size > _MAX_MARKER_BYTES:
            return None
        position, header = located
        marker = read_marker(segment.read_batch(position, header))
        records_ms = max(
            (batch.max_timestamp for _, batch in segment.headers(0, size) if not batch.is_control),
            default=None,
        )
    except CorruptBatch:
        return None
    if marker is None:
        return None
    if records_ms is not None and not expired_ms(config, records_ms, now_ms):
        return None
    return KeepingMarker(
        header.base_offset,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        not marker.is_abort,
        records_ms,
    )


def kind_of(time: SegmentTime) -> str:
    """Return the kind of a segment's time, as in `SegmentRetention.counts_by`."""
    if time.was_reset:
        return "append-time-reset"
    if not time.is_record_time:
        return "modification-time"
    if time.is_seen:
        return "seen-time"
    return "append-time" if time.is_append_time else "create-time"


def _holder(segment: SegmentReader, largest: TimeEntry) -> Holder | None:
    """Return the first record with the largest time; None if its batch cannot be read."""
    try:
        record = find_by_timestamp([segment], largest.timestamp, 0, _MAX_BATCH_BYTES)
        located = None if record is None else segment.locate(record.offset)
    except (CorruptBatch, RequestRefused):
        return None
    if record is None or located is None:
        return None
    header = located[1]
    return Holder(
        record.offset,
        record.timestamp,
        last_append_time(segment, record.offset + 1, segment.size).known_ms,
        header.producer_id,
        header.producer_epoch,
    )
