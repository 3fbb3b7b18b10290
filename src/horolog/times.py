"""Parser and formatter of times as users write them, in milliseconds since 1970.

2026-11-20T09:00:00Z   ISO-8601, with a zone or with --tz; a date alone is its midnight
1795165200000          milliseconds since 1970
-15m  -1h30m  +2d      from now; units ms, s, m, h, d, w
now
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from horolog.clock import duration_ms, moment_ms
from horolog.errors import Misconfigured
from horolog.record.timestamps import NO_TIMESTAMP, UNWRITABLE

_PART = r"[0-9]+(?:ms|s|m|h|d|w)"
_DURATION = re.compile(rf"(?:{_PART})+")
_RELATIVE = re.compile(rf"([+-])((?:{_PART})+)")
_NUMBER = re.compile(r"([+-]?[0-9]+)(ms)?")
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
_SIZE = re.compile(r"([0-9]{1,15})\s*(?:([kKMG])(i?)B?|B)?")
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG = 1 << 63
_FORMS = "write it as 2026-11-20T09:00:00Z, as milliseconds since 1970, or relative as -15m"


def parse_time(
    text: str, *, now_ms: int, zone: tzinfo | None = None, rounds_up: bool = False
) -> int:
    """Parse a time in milliseconds since 1970.

    Args:
        now_ms: The base of relative times.
        zone: The zone of times without one; if `None`, such times are refused.
        rounds_up: To the next whole millisecond, as of bounds (`clock.moment_ms`).

    Raises:
        Misconfigured: Not a time, or probably not the intended one; the message shows the forms.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if match := _RELATIVE.fullmatch(text):
        return now_ms + (-1 if match[1] == "-" else 1) * _duration_ms(match[2])
    if match := _NUMBER.fullmatch(text):
        return _from_number(match[1], is_sure=match[2] is not None)
    moment = _from_iso(text, zone)
    return moment_ms(moment, rounds_up=rounds_up)


def parse_record_time(text: str, *, now_ms: int, zone: tzinfo | None = None) -> int:
    """Parse the timestamp of a record; the number -1 stands for none.

    Raises:
        Misconfigured: Also where a moment would be written as none.
    """
    found = parse_time(text, now_ms=now_ms, zone=zone)
    if found == NO_TIMESTAMP and _NUMBER.fullmatch(text.strip()) is None:
        raise Misconfigured(UNWRITABLE)
    return found


def parse_zone(text: str) -> tzinfo:
    """Parse a zone: a name (Europe/Berlin), an offset (+02:00), `UTC` or `local`."""
    if text == "local":
        return datetime.now().astimezone().tzinfo or UTC
    if match := _OFFSET.fullmatch(text):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset < timedelta(hours=24):
            return timezone(-offset if match[1] == "-" else offset)
    try:
        return UTC if text in ("UTC", "Z") else ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Misconfigured(
            f"--tz {text}: no such zone; write a name such as Europe/Berlin, an offset such as "
            "+02:00, UTC or local"
        ) from None


def format_time(timestamp_ms: int | None, zone: tzinfo = UTC) -> str:
    """Format a record's timestamp; "none" for None and -1."""
    if timestamp_ms is None or timestamp_ms == -1:
        return "none"
    return format_moment(timestamp_ms, zone)


def format_moment(ms: int, zone: tzinfo = UTC) -> str:
    """Format a time as ISO-8601 to the millisecond; the number itself beyond year 9999."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone)
    except (OverflowError, ValueError):
        return f"{ms} ms"
    text = moment.isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def parse_duration(text: str) -> int:
    """Parse a duration such as 500ms, 15m or 1h30m, in milliseconds.

    Raises:
        Misconfigured: it is none.
    """
    if not _DURATION.fullmatch(text):
        raise Misconfigured(f"{text} is not a duration: write 500ms, 30s, 15m, 2h or 7d")
    return _duration_ms(text)


def _duration_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise Misconfigured(str(error)) from None


def duration_text(ms: int) -> str:
    """Format a duration as `parse_duration` takes it, in its largest whole unit."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def _from_number(text: str, *, is_sure: bool) -> int:
    from horolog.record.looks_like import looks_like  # noqa: PLC0415 - only numbers need it

    number = int(text) if len(text) <= 20 else _LONG
    if not -_LONG <= number < _LONG:
        raise Misconfigured(f"{text:.100} is beyond 64 bits: {_FORMS}")
    if not is_sure and (hint := looks_like(number)):
        raise Misconfigured(f"{text} is refused. {hint}. If it is meant as such, write {text}ms")
    return number


def _from_iso(text: str, zone: tzinfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Misconfigured(f"{text} is not a time: {_FORMS}") from None
    if moment.tzinfo is None:
        if zone is None:
            utc = f"{text}Z" if ":" in text else f"{text}T00:00Z"
            raise Misconfigured(
                f"{text} has no zone: write {utc} for UTC, or add --tz Europe/Berlin or --tz local"
            )
        return _in_zone(moment, zone)
    return moment


def _in_zone(moment: datetime, zone: tzinfo) -> datetime:
    first, second = moment.replace(tzinfo=zone), moment.replace(tzinfo=zone, fold=1)
    if first.utcoffset() == second.utcoffset():
        return first
    exists = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == moment
    what = "comes twice, as" if exists else "does not exist, the clocks jump between"
    both = f"{first.isoformat()} and {second.isoformat()}"
    raise Misconfigured(f"{moment.isoformat()} {what} {both} in that zone: write one of them")


def bytes_of(text: str, option: str) -> int:
    """Parse a size: bytes, or a number with a unit (64MiB, 2GB).

    Raises:
        Misconfigured: it is none; `option` is named.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Misconfigured(f"{option} {text}: write a size, as 256MiB, 2GB or a number of bytes")
    unit = 1024 if match[3] else 1000
    return int(match[1]) * (unit ** _POWERS[match[2]] if match[2] else 1)
