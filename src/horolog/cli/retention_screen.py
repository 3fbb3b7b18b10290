"""The output of `horolog retention explain`: tables, sentences and JSON."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from horolog.cli.held_up import held_up_text
from horolog.cli.screen import show_table, size
from horolog.cli.terminal import echo
from horolog.client import GroupUnread, HeldUp
from horolog.clock import format_duration
from horolog.record.looks_like import unit_of
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


class Explained(NamedTuple):
    """What retention does about one partition."""

    name: str
    now_ms: int
    settings: Mapping[str, Any]
    """Those that it depends on."""
    source: str
    """Where they are from."""
    is_exempt: bool
    segments: Sequence[SegmentRetention] = ()
    notes: Sequence[str] = ()
    damage: str | None = None
    """Why nothing is known of its segments."""
    unread: Sequence[GroupUnread] | None = None
    """What groups lose by it; None where no broker is asked, which alone knows groups."""
    held_up: HeldUp | None = None
    """What consumers of committed records wait for."""


def as_json(explained: Explained) -> dict[str, Any]:
    """A partition as JSON; times in milliseconds, `null` if absent."""
    unread = explained.unread
    return {
        "partition": explained.name,
        "now": explained.now_ms,
        "settings": dict(explained.settings),
        "source": explained.source,
        "exempt": explained.is_exempt,
        "segments": [
            {
                **each.as_json(),
                "goes_now": each.goes_now,
                "is_odd": each.is_odd(explained.now_ms),
            }
            for each in explained.segments
        ],
        "held_up": explained.held_up and explained.held_up._asdict(),
        "unread": unread and [each._asdict() for each in unread],
        "notes": list(explained.notes),
        "damage": explained.damage,
    }


def show(explained: Explained, zone: tzinfo) -> None:
    """Print a partition: its settings, a line for each segment, and what is to be known."""
    settings = explained.settings
    echo(explained.name)
    if settings:
        echo(f"  {', '.join(f'{name}={value}' for name, value in settings.items())}")
        echo(f"  settings from {explained.source}; now {format_moment(explained.now_ms, zone)}")
    if explained.damage is not None:
        echo(f"  {explained.damage}")
    if explained.segments:
        echo("")
        _show_segments(explained, zone)
        echo("")
        for line in (_next(explained, zone), *_held(explained, zone)):
            echo(f"  {line}")
    if explained.held_up is not None:
        echo(f"  {held_up_text(explained.name, explained.held_up, zone)}")
        if "compact" in str(explained.settings["cleanup.policy"]):
            echo("  Compaction stops there, too")
    for each in explained.unread or ():
        first_ms = each.first_deleted_ms
        when = "" if first_ms is None else f", first at {format_time(first_ms, zone)}"
        echo(
            f"  retention deletes {each.records:,} records that group {each.group} has not read"
            f"{when}"
        )
    for note in explained.notes:
        echo(f"  {note}")


def _show_segments(explained: Explained, zone: tzinfo) -> None:
    rows = [
        (
            each.base_offset,
            each.end_offset,
            size(each.size),
            None if each.largest_ms is None else format_time(each.largest_ms, zone),
            _appended(each, zone),
            _goes(each, zone),
            _why(each, explained, zone),
        )
        for each in explained.segments
    ]
    columns = (
        "base offset",
        "end offset",
        "size",
        "largest timestamp",
        "last append time",
        "goes",
        "why",
    )
    show_table(columns, rows)


def _appended(segment: SegmentRetention, zone: tzinfo) -> str | None:
    if segment.seen_ms is not None:
        return f"seen by a follower {format_time(segment.seen_ms, zone)}"
    return None if segment.appended_ms is None else format_time(segment.appended_ms, zone)


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


def moment_text(time_ms: int | None, zone: tzinfo) -> str:
    """A time, with the other unit that it seems to be in, if it is no likely one."""
    unit = "" if time_ms is None else unit_of(time_ms)
    return format_time(time_ms, zone) + (f" (looks like {unit})" if unit else "")


def _distance(time_ms: int, now_ms: int) -> str:
    if time_ms > now_ms:
        return f"{format_duration(time_ms - now_ms)} ahead of the clock"
    return f"{format_duration(now_ms - time_ms)} ago"


def _next(explained: Explained, zone: tzinfo) -> str:
    """What is deleted next, and when."""
    if explained.is_exempt:
        return (
            "nothing is deleted: the topic was adopted or has an invalid setting. Give it "
            "settings (horolog topics alter), and try them here with --set"
        )
    segments = explained.segments
    going = [each for each in segments if each.goes_now]
    if going:
        total = size(sum(each.size for each in going))
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
    """What keeps segments for longer than the settings would have it."""
    lines = []
    for number, each in enumerate(explained.segments):
        behind = [
            one for one in explained.segments[number + 1 :] if one.kept_by == each.base_offset
        ]
        waiting = (
            f"; {len(behind)} segment{'' if len(behind) == 1 else 's'} behind it "
            f"({size(sum(one.size for one in behind))}) could go earlier"
            if behind
            else ""
        )
        if each.holder is not None and each.is_odd(explained.now_ms):
            holder = each.holder
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
                f"segment {each.base_offset} is kept by the record at offset {holder.offset}, "
                f"stamped {moment_text(holder.timestamp, zone)} and appended {appended}{producer}"
                f"{waiting}. Compare --set horolog.retention.by=append-time"
            )
        elif each.marker is not None:
            lines.append(f"{_kept_by_marker(each.base_offset, each.marker, zone)}{waiting}")
        elif each.because is Because.AHEAD and each.is_odd(explained.now_ms):
            lines.append(
                f"segment {each.base_offset} is kept by append times ahead of the clock{waiting}. "
                "horolog topics reset-append-time lowers them (docs/append-times.md)"
            )
        elif each.because is Because.UNKNOWN_TIME:
            tried = "horolog.retention.by=create-time"
            if each.seen_ms is not None:
                tried = "horolog.seen.as.append.time=true"
            lines.append(
                f"segment {each.base_offset} is kept as {each.reason}{waiting}. "
                f"Compare --set {tried}"
            )
    return lines
