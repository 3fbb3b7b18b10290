"""Parses lines to records: a value, key and value, or JSON as `horolog consume` prints it."""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, BinaryIO, Literal, TypeAlias

from horolog.client.lines import Line
from horolog.errors import HorologError, Misconfigured
from horolog.record.builder import Header, LogRecord
from horolog.times import parse_record_time

_READ_BYTES = 1 << 20


Input: TypeAlias = Literal["text", "json"]
"""Format of input lines."""


class BadLineError(HorologError):
    """An invalid line; the message has its number and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """Format of input lines.

    Attributes:
        shape: Text, or JSON records.
        key_separator: Separator of key and value; None if lines have no key.
        null: Text of a null value; None if no text is null.
        timestamp_ms: Timestamp of every record; None for the line's own, or now.
        timestamp_field: Field of a JSON value with the timestamp.
        key_field: Field of a JSON value with the key.
        headers: Headers of every record.
        zone: Zone of times without a zone.
    """

    shape: Input = "text"
    key_separator: bytes | None = None
    null: bytes | None = None
    timestamp_ms: int | None = None
    timestamp_field: str | None = None
    key_field: str | None = None
    headers: tuple[Header, ...] = ()
    zone: tzinfo | None = None

    def read(self, number: int, line: bytes, now_ms: int) -> Line:
        """Parse a line.

        Raises:
            BadLineError: the line is invalid; the error names its number.
        """
        try:
            if self.shape == "json":
                return self._read_json(number, line, now_ms)
            return Line(number, self._read_text(line, now_ms), None)
        except (ValueError, TypeError, Misconfigured) as cause:
            raise BadLineError(f"line {number}: {cause}") from None

    def _read_text(self, line: bytes, now_ms: int) -> LogRecord:
        key, value = None, line
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"no {self.key_separator.decode()!r} between key and value")
        time = now_ms if self.timestamp_ms is None else self.timestamp_ms
        if self.timestamp_field or self.key_field:
            fields = _json_object(value)
            if self.timestamp_field:
                time = self._time(_field(fields, self.timestamp_field), now_ms)
            if self.key_field:
                key = _as_bytes(_field(fields, self.key_field))
        return LogRecord(time, key, None if value == self.null else value, self.headers)

    def _read_json(self, number: int, line: bytes, now_ms: int) -> Line:
        fields = _json_object(line)
        time = self.timestamp_ms
        if time is None:
            given = fields.get("timestamp", fields.get("time"))
            # `consume` prints milliseconds, so every number is taken as such.
            time = now_ms if given is None else given
            if not isinstance(time, int):
                time = self._time(time, now_ms)
        headers = tuple(
            (str(_field(header, "key")), _bytes_of(header, "value"))
            for header in fields.get("headers", ())
        )
        record = LogRecord(
            time, _bytes_of(fields, "key"), _bytes_of(fields, "value"), headers + self.headers
        )
        partition = fields.get("partition")
        return Line(number, record, partition if isinstance(partition, int) else None)

    def _time(self, value: Any, now_ms: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{value!r} is not a time")
        return parse_record_time(str(value), now_ms=now_ms, zone=self.zone)


def read_chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield complete lines as they become available, all available ones together."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    rest = b""
    while data := read(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _field(fields: Any, name: str) -> Any:
    if not isinstance(fields, dict) or name not in fields:
        raise ValueError(f"no field {name!r}")
    return fields[name]


def _as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is None:
        return _as_bytes(fields.get(name))
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError(f"{name}_base64 is not base64") from None
