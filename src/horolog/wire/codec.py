"""Kafka's messages as bytes and as objects, any API and version of `api.SUPPORTED`.

    request = decode_request(header.api_key, header.api_version, frame, header.body_position)
    for topic in request.topics: ...                       # a named tuple in kio's names
    body = encode_response(api_key, version, {"topics": [{"name": ..., ...}]})

- Times are `int` milliseconds and end in `_ms`, as in Kafka's own names: `request.timeout_ms`,
  `request.max_wait_ms`, `{"throttle_time_ms": 0}`. No timedelta or datetime ever appears.
- Error codes are plain ints when read; `ErrorCode` members are ints when written.
- Records and bytes are bytes; in a message over 64 KiB they are views of it, not copies, and of
  such a request no more than `MAX_FIELDS` fields are read, or as few as one wants to wait for.
- A string is valid UTF-8 of at most 32,767 bytes: whatever was read can be written.
- A UUID of zeros is `None`, both ways. Null arrays, where allowed, are `None`.
- Written from nested mappings in the names of any version, the newest first of all: what this
  version lacks is dropped, what is missing takes its default: Kafka's own, null where null may be,
  0 for `error_code` and `throttle_time_ms`. A field without default that is missing, or a name that
  no version has, raises `Unwritable`, a ValueError: a bug, except for a user's number too large.

Schemas load on first use of a version, 5 to 10 ms each.
"""

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from horolog.wire.api import ApiKey
from horolog.wire.careful_reader import MAX_FIELDS, TooManyFields, Unreadable
from horolog.wire.malformed import MalformedRequest, MalformedResponse
from horolog.wire.packing import Bytes
from horolog.wire.reader import Reader, reader_of
from horolog.wire.schema import Kind, load
from horolog.wire.writer import Unwritable, Writer, writer_of

__all__ = [
    "MAX_FIELDS",
    "TooManyFields",
    "Unwritable",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "preload",
]


def decode_request(
    api_key: ApiKey, version: int, frame: Bytes, position: int = 0, max_fields: int = MAX_FIELDS
) -> Any:
    """The body of a request, which starts at `position` of `frame`.

    Raises:
        MalformedRequest: the bytes do not follow the protocol; says which field, where and why.
        TooManyFields: it is large and has more than `max_fields`, which are fewer than MAX_FIELDS:
            to be decoded where that may take long.
    """
    try:
        return _reader("request", api_key, version)(frame, position, max_fields)
    except Unreadable as error:
        if isinstance(error, TooManyFields) and max_fields < MAX_FIELDS:
            raise
        raise MalformedRequest(f"{api_key.title} v{version} request: {error}") from None


def decode_response(api_key: ApiKey, version: int, frame: Bytes, position: int = 0) -> Any:
    """The body of an answer, which starts at `position` and ends with `frame`.

    Raises:
        MalformedResponse: the bytes do not follow the protocol; says which field, where and why.
    """
    try:
        return _reader("response", api_key, version)(frame, position, sys.maxsize)
    except Unreadable as error:
        raise MalformedResponse(f"{api_key.title} v{version} answer: {error}") from None


def encode_response(api_key: ApiKey, version: int, answer: Mapping[str, Any]) -> bytes:
    """The body of an answer.

    Raises:
        Unwritable: a name that no version has, a value that does not fit, or one forgotten.
    """
    out = bytearray()
    _writer("response", api_key, version)(out, answer)
    return bytes(out)


def encode_request(api_key: ApiKey, version: int, request: Mapping[str, Any]) -> bytes:
    """The body of a request.

    Raises:
        Unwritable: a name that no version has, a value that does not fit, or one forgotten.
    """
    out = bytearray()
    _writer("request", api_key, version)(out, request)
    return bytes(out)


def preload(api_key: ApiKey, version: int) -> None:
    """Make ready to serve this version, so that the first request of it does not wait."""
    _reader("request", api_key, version)
    _writer("response", api_key, version)


@cache
def _reader(kind: Kind, api_key: ApiKey, version: int) -> Reader:
    return reader_of(load(kind, api_key, version), is_request=kind == "request")


@cache
def _writer(kind: Kind, api_key: ApiKey, version: int) -> Writer:
    return writer_of(load(kind, api_key, version), kind, api_key)
