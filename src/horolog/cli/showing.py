"""Formats records as lines: text, JSON, or the bare values."""

import base64
import unicodedata
from collections.abc import Callable
from datetime import tzinfo
from typing import Any, Final, Literal, TypeAlias

from horolog.cli.terminal import json_line
from horolog.errors import escaped
from horolog.sources.records import ReadRecord
from horolog.times import format_time

Format: TypeAlias = Literal["text", "json", "value"]
"""Form of the output."""

_OF_TEXTS: Final = frozenset({"Zs", "Cn", "Co"})
_JOINERS: Final = "\u200c\u200d"


def line_maker(
    shape: Format, topic: str, zone: tzinfo, *, shows_append: bool = False
) -> Callable[[ReadRecord], bytes]:
    """Return a function that formats a record as a line, including its end."""
    match shape:
        case "text":
            return lambda read: _text_line(read, zone, shows_append)
        case "json":
            return lambda read: _json_line(read, topic, zone, shows_append)
        case "value":
            return lambda read: (read.record.value or b"") + b"\n"


def _text_line(read: ReadRecord, zone: tzinfo, shows_append: bool) -> bytes:
    record = read.record
    time = format_time(record.timestamp, zone)
    if shows_append:
        time = format_time(read.appended_ms, zone)
        if read.seen_ms is not None:
            time = f"seen {format_time(read.seen_ms, zone)}"
    place = f"{read.partition}@{read.offset}"
    cells = [time, place, _shown(record.key), _shown(record.value)]
    cells += [f"{escaped(name)}={_shown(value)}" for name, value in record.headers]
    return "\t".join(cells).encode() + b"\n"


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else escaped(text, keeps="".join(filter(_is_text, text)))


def _is_text(character: str) -> bool:
    """True if a character is safe for a terminal, although Python calls it not printable.

    Such characters are spaces of other scripts, joiners of letters and of emoji, and characters
    newer than this Python.
    """
    return character in _JOINERS or unicodedata.category(character) in _OF_TEXTS


def _json_line(read: ReadRecord, topic: str, zone: tzinfo, shows_append: bool) -> bytes:
    record = read.record
    value: dict[str, Any] = {
        "topic": topic,
        "partition": read.partition,
        "offset": read.offset,
        "timestamp": record.timestamp,
        "time": None if record.timestamp == -1 else format_time(record.timestamp, zone),
        "timestamp_type": read.timestamp_type,
        **({"append_time": read.appended_ms} if shows_append else {}),
        **({} if read.seen_ms is None else {"seen_time": read.seen_ms}),
        **({} if read.created_ms is None else {"create_time": read.created_ms}),
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
    }
    if record.headers:
        value["headers"] = [
            {"key": name, **json_bytes("value", header)} for name, header in record.headers
        ]
    return json_line(value).encode() + b"\n"


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """The member of a JSON object for bytes: a text, or base64 under another name."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
