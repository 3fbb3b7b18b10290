"""Decode and encode Kafka's messages, for every API and version in `api.ApiKey`.

    request = decode_request(header.api_key, header.api_version, frame, header.body_position)
    for topic in request.topics: ...                       # a view of `requests`, in kio's names
    body = encode_response(api_key, version, {"topics": [{"name": ..., ...}]})

- Times are `int` milliseconds and end in `_ms`, as in Kafka's own names: `request.timeout_ms`,
  `request.max_wait_ms`, `{"throttle_time_ms": 0}`. No timedelta or datetime ever appears.
- Error codes are plain ints when read; `ErrorCode` members are ints when written.
- Records and bytes are bytes. In a message over 64 KiB they are views of it, not copies; such a
  request is read up to `MAX_FIELDS` fields, or fewer if the caller sets a limit.
- A string is valid UTF-8 of at most 32,767 bytes: every decoded string can be encoded again.
- A UUID of zeros is `None`, both ways. Null arrays, where allowed, are `None`.
- Messages are encoded from nested mappings with the field names of any version, preferably the
  newest. Fields that this version lacks are dropped; missing ones take their default: Kafka's own,
  null if nullable, 0 for `error_code` and `throttle_time_ms`. A missing field without default, or
  a name that no version has, raises `Unwritable`, a ValueError: a bug, except for a user's number
  that is too large.

A schema loads on the first use of its version and takes one to three milliseconds.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from horolog.buffers import Buffer
from horolog.wire.api import ASKED_VERSIONS, ApiKey
from horolog.wire.careful_reader import MAX_FIELDS, TooManyFields, Unreadable
from horolog.wire.malformed import MalformedRequest, MalformedResponse
from horolog.wire.reader import Reader, reader_of
from horolog.wire.schema import Kind, knows, load
from horolog.wire.writer import MOST_ANSWER_BYTES, Paced, Pieces, Unwritable, Writer, writer_of

__all__ = [
    "MAX_FIELDS",
    "MOST_ANSWER_BYTES",
    "TooManyFields",
    "Unwritable",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "preload",
    "preload_asking",
    "request_pieces",
]


def decode_request(
    api_key: ApiKey,
    version: int,
    frame: Buffer,
    position: int = 0,
    max_fields: int = MAX_FIELDS,
    checkpoint: Callable[[], None] | None = None,
) -> Any:
    """Decode the body of a request, which starts at `position` of `frame`.

    `checkpoint` is called between the fields of a large one, and may raise to end it.

    Raises:
        MalformedRequest: the bytes do not follow the protocol; names field, byte and reason.
        TooManyFields: a large request has more than `max_fields` fields, and `max_fields` is less
            than MAX_FIELDS: decode it again in a thread.
    """
    try:
        return _reader("request", api_key, version)(frame, position, max_fields, checkpoint)
    except Unreadable as error:
        if isinstance(error, TooManyFields) and max_fields < MAX_FIELDS:
            raise
        raise MalformedRequest(f"{api_key.title} v{version} request: {error}") from None


def decode_response(api_key: ApiKey, version: int, frame: Buffer, position: int = 0) -> Any:
    """Decode the body of a response, which starts at `position` and ends with `frame`.

    Raises:
        MalformedResponse: the bytes do not follow the protocol; names field, byte and reason.
    """
    try:
        return _reader("response", api_key, version)(frame, position, sys.maxsize, None)
    except Unreadable as error:
        raise MalformedResponse(f"{api_key.title} v{version} response: {error}") from None


def encode_response(
    api_key: ApiKey,
    version: int,
    response: Mapping[str, Any],
    checkpoint: Callable[[], None] | None = None,
) -> bytes:
    """Encode the body of a response.

    `checkpoint` is called between the elements of its arrays, and may raise to end it.

    Raises:
        Unwritable: a name that no version has, a value that does not fit, or a missing one.
        RequestRefused: with a checkpoint, a body of more than `MOST_ANSWER_BYTES`.
    """
    out = bytearray() if checkpoint is None else Paced(checkpoint)
    _writer("response", api_key, version)(out, response)
    return bytes(out)


def encode_request(api_key: ApiKey, version: int, request: Mapping[str, Any]) -> bytes:
    """Encode the body of a request.

    Raises:
        Unwritable: a name that no version has, a value that does not fit, or a missing one.
    """
    return b"".join(request_pieces(api_key, version, request))


def request_pieces(api_key: ApiKey, version: int, request: Mapping[str, Any]) -> list[Buffer]:
    """Encode the body of a request in pieces; large record batches are not copied.

    Raises:
        Unwritable: as `encode_request`.
    """
    out = Pieces()
    _writer("request", api_key, version)(out, request)
    return out.all()


def preload(api_key: ApiKey, version: int) -> None:
    """Load the schemas of a version, so that its first request does not wait for them."""
    _reader("request", api_key, version)
    _writer("response", api_key, version)


def preload_asking(api_key: ApiKey) -> None:
    """Load the schemas with which a client asks a broker that knows our newest version.

    All versions are loaded, because `knows` looks in them for a field that this version lacks.
    """
    version = ASKED_VERSIONS if api_key is ApiKey.API_VERSIONS else api_key.versions.max
    _writer("request", api_key, version)
    _reader("response", api_key, version)
    knows("request", api_key, "")


@cache
def _reader(kind: Kind, api_key: ApiKey, version: int) -> Reader:
    return reader_of(load(kind, api_key, version), is_request=kind == "request")


@cache
def _writer(kind: Kind, api_key: ApiKey, version: int) -> Writer:
    return writer_of(load(kind, api_key, version), kind, api_key)
