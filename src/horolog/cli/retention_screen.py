"""Output of `horolog retention explain`: tables, sentences and JSON."""

from collections.abc import Iterator
from datetime import tzinfo
from typing import Any

from horolog.cli.held_up import held_up_text
from horolog.clock import format_duration
from horolog.config.values import to_text
from horolog.report.retention import Explained, moment_text
from horolog.results import Shown, Table, size
from horolog.storage.removal.retention import Because
from horolog.storage.removal.retention_report import KeepingMarker, SegmentRetention
from horolog.times import format_moment, format_time

CLOCKS = {
    "create-time": "its largest create time",
    "append-time": "its last append time",
    "seen-time": "when a follower saw its last record",
    "modification-time": "when its file was changed, as no record has a time that counts,",
    "append-time-reset": "when append times ahead of the clock were reset",
}


def plain_retention(explained: Explained) -> dict[str, Any]:
    """Convert the explanation of a partition for JSON; times in milliseconds."""
    return {
        "partition": explained.name,
        "now": explained.now_ms,
        "settings": explained.settings,
        "source": explained.source,
        "exempt": explained.is_exempt,
        "segments": [
            {
                **segment.as_json(),
                "goes_now": segment.goes_now,
                "is_odd": segment.is_odd(explained.now_ms),
            }
            for segment in explained.segments
        ],
        **{name: getattr(explained, name) for name in ("held_up", "unread", "notes", "damage")},
    }


def retention_lines(explained: Explained, zone: tzinfo) -> Iterator[Shown]:
    """Yield the settings of a partition, a row for each segment, and explanations."""
    settings = explained.settings
    yield explained.name
    if settings:
        yield f"  {', '.join(f'{name}={to_text(value)}' for name, value in settings.items())}"
        yield f"  settings from {explained.source}; now {format_moment(explained.now_ms, zone)}"
    if explained.damage is not None:
        yield f"  {explained.damage}"
    if explained.segments:
        yield ""
        yield Table(
            explained.segments,
            "base offset",
            "end offset",
            ("size", lambda segment: size(segment.size)),
            ("largest timestamp", lambda segment: _time(segment.largest_ms, zone)),
            ("last append time", lambda segment: _appended(segment, zone)),
            ("goes", lambda segment: _goes(segment, zone)),
            ("why", lambda segment: _why(segment, explained, zone)),
        )
        yield ""
        for line in (_next(explained, zone), *_held(explained, zone)):
            yield f"  {line}"
    if explained.held_up is not None:
        yield f"  {held_up_text(explained.name, explained.held_up, zone)}"
        if "compact" in str(explained.settings["cleanup.policy"]):
            yield "  Compaction stops there, too"
    for unread in explained.unread or ():
        first = _time(unread.first_deleted_ms, zone)
        yield (
            f"  retention deletes {unread.records:,} record{'' if unread.records == 1 else 's'} "
            f"that group {unread.group} has not read{f', first at {first}' if first else ''}"
        )
    yield from (f"  {note}" for note in explained.notes)


def _time(ms: int | None, zone: tzinfo) -> str | None:
    return None if ms is None else format_time(ms, zone)


def _appended(segment: SegmentRetention, zone: tzinfo) -> str | None:
    if segment.seen_ms is not None:
        return f"seen by a follower {format_time(segment.seen_ms, zone)}"
    return _time(segment.appended_ms, zone)


def _goes(segment: SegmentRetention, zone: tzinfo) -> str:
    if segment.goes_now:
        return "at the next check"
    return "never by time" if segment.goes_ms is None else format_time(segment.goes_ms, zone)


def _why(segment: SegmentRetention, explained: Explained, zone: tzinfo) -> str:
    why = segment.reason
    if segment.counts_ms is not None and segment.counts_by is not None:
        counts = f"{CLOCKS[segment.counts_by]} is {moment_text(segment.counts_ms, zone)}"
        why = f"{counts}, {_distance(segment.counts_ms, explained.now_ms)}"
    if segment.kept_by is not None:
        why += f"; the segment {segment.kept_by} keeps it"
    if segment.bytes_to_go:
        why += f"; retention.bytes deletes it after {size(segment.bytes_to_go)} more"
    return f"{why} (active)" if segment.is_active else why


def _distance(time_ms: int, now_ms: int) -> str:
    if time_ms > now_ms:
        return f"{format_duration(time_ms - now_ms)} ahead of the clock"
    return f"{format_duration(now_ms - time_ms)} ago"


def _next(explained: Explained, zone: tzinfo) -> str:
    """Name the next deletion and its time."""
    if explained.is_exempt:
        return (
            "nothing is deleted: the topic was adopted or has an invalid setting. Give it "
            "settings (horolog topics alter), and try them here with --set"
        )
    segments = explained.segments
    going = [segment for segment in segments if segment.goes_now]
    if going:
        total = size(sum(segment.size for segment in going))
        what = f"{len(going)} segment{'' if len(going) == 1 else 's'}"
        return f"the next check deletes {what}, {total}, the offsets before {going[-1].end_offset}"
    first = segments[0]
    what = f"next goes segment {first.base_offset}, {size(first.size)}"
    if first.goes_ms is not None:
        wait = format_duration(max(0, first.goes_ms - explained.now_ms))
        return f"{what}, in {wait}: {format_time(first.goes_ms, zone)}"
    if first.bytes_to_go:
        return f"{what}, when {size(first.bytes_to_go)} more are appended"
    return "nothing is deleted with these settings"


def _kept_by_marker(base_offset: int, marker: KeepingMarker, zone: tzinfo) -> str:
    records = "it has no records with a time"
    if marker.records_ms is not None:
        latest = format_time(marker.records_ms, zone)
        records = f"its records, the latest stamped {latest}, are old enough"
    return (
        f"segment {base_offset} is kept by the {'commit' if marker.is_commit else 'abort'} marker "
        f"at offset {marker.offset}, of {format_time(marker.timestamp, zone)}, of producer "
        f"{marker.producer_id}, epoch {marker.producer_epoch}: {records}"
    )


def _held(explained: Explained, zone: tzinfo) -> list[str]:
    """Explain segments that outlive the settings."""
    lines = []
    for number, segment in enumerate(explained.segments):
        behind = [
            one for one in explained.segments[number + 1 :] if one.kept_by == segment.base_offset
        ]
        waiting = (
            f"; {len(behind)} segment{'' if len(behind) == 1 else 's'} behind it "
            f"({size(sum(one.size for one in behind))}) could go earlier"
            if behind
            else ""
        )
        if segment.holder is not None and segment.is_odd(explained.now_ms):
            holder = segment.holder
            appended = (
                "at an unknown time"
                if holder.appended_ms is None
                else format_time(holder.appended_ms, zone)
            )
            producer = (
                f" by producer {holder.producer_id}, epoch {holder.producer_epoch}"
                if holder.producer_id >= 0
                else ""
            )
            lines.append(
                f"segment {segment.base_offset} is kept by the record at offset {holder.offset}, "
                f"stamped {moment_text(holder.timestamp, zone)} and appended {appended}{producer}"
                f"{waiting}. Compare --set horolog.retention.by=append-time"
            )
        elif segment.marker is not None:
            lines.append(f"{_kept_by_marker(segment.base_offset, segment.marker, zone)}{waiting}")
        elif segment.because is Because.AHEAD and segment.is_odd(explained.now_ms):
            lines.append(
                f"segment {segment.base_offset} is kept by append times ahead of the clock{waiting}"
                ". horolog topics reset-append-time lowers them (docs/append-times.md)"
            )
        elif segment.because is Because.UNKNOWN_TIME:
            tried = "horolog.retention.by=create-time"
            if segment.seen_ms is not None:
                tried = "horolog.seen.as.append.time=true"
            lines.append(
                f"segment {segment.base_offset} is kept as {segment.reason}{waiting}. "
                f"Compare --set {tried}"
            )
    return lines
