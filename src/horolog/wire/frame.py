"""The frame of every message: its length, and the header of the request or response.

    request:  length i32, api_key i16, api_version i16, correlation_id i32,
              client_id nullable string, [v2: tagged fields], body
    response: length i32, correlation_id i32, [v1: tagged fields], body

Flexible versions have the v2 and v1 headers. The client id keeps its two-byte length, and an
ApiVersions response always has header v0, because the client does not know the versions yet
(KIP-511).
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from horolog.buffers import Buffer
from horolog.errors import ErrorCode
from horolog.wire.api import SUPPORTED, ApiKey, Versions, is_flexible
from horolog.wire.malformed import MalformedRequest, MalformedResponse
from horolog.wire.packing import EMPTY_TAGS, INT32, read_uvarint, string

__all__ = [
    "LENGTH_BYTES",
    "RequestHeader",
    "frame_length",
    "parse_request_header",
    "parse_response_header",
    "request_prefix",
    "response_prefix",
    "unsupported_api_versions",
]

LENGTH_BYTES: Final = 4
MAX_REQUEST_BYTES: Final = 104_857_600  # socket.request.max.bytes, Kafka's default
MIN_REQUEST_BYTES: Final = 10  # key, version, correlation id and a client id's length

_MAX_TAGS = 1000

_FIXED = Struct(">hhih")
_PREFIX = Struct(">ii")
_PREFIX_AND_TAGS = Struct(">iib")
_API_RANGE = Struct(">hhh")
_API_KEYS = {int(key): key for key in ApiKey}
_API_VERSIONS = ApiKey.API_VERSIONS


class RequestHeader(NamedTuple):
    """Header of a request; `body_position` is an offset in the frame without its length."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int

    @property
    def title(self) -> str:
        """Name of the request in logs: `Metadata v12`."""
        return f"{self.api_key.title} v{self.api_version}"


def frame_length(data: Buffer, max_bytes: int = MAX_REQUEST_BYTES, position: int = 0) -> int:
    """Return the size of the request that follows the four length bytes at `position`.

    Raises:
        MalformedRequest: negative, too small for a header, or larger than `max_bytes`.
    """
    length: int
    (length,) = INT32.unpack_from(data, position)
    if length < MIN_REQUEST_BYTES:
        raise MalformedRequest(f"a request of {length} bytes is too short for a header")
    if length > max_bytes:
        raise MalformedRequest(
            f"a request of {length} bytes is larger than socket.request.max.bytes={max_bytes}"
        )
    return length


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request; `frame` is the request without its length.

    The version may be unsupported; the caller checks it. For a newer version of ApiVersions only
    the fixed part is read, so that the response can contain the supported range.

    Raises:
        MalformedRequest: the API key is unknown, or the bytes end within the header.
    """
    if len(frame) < MIN_REQUEST_BYTES:
        raise MalformedRequest(f"a request of {len(frame)} bytes is too short for a header")
    key, version, correlation_id, client_id_length = _FIXED.unpack_from(frame)
    api_key = _API_KEYS.get(key)
    if api_key is None:
        raise MalformedRequest(f"API key {key} (version {version}) is not served here")
    position = MIN_REQUEST_BYTES
    client_id = None
    if client_id_length >= 0:
        end = position + client_id_length
        if end > len(frame):
            raise MalformedRequest(f"client id of {client_id_length} bytes at byte 8 is cut short")
        client_id = str(frame[position:end], "utf-8", "replace")
        position = end
    elif client_id_length < -1:
        raise MalformedRequest(f"client id of {client_id_length} bytes at byte 8")
    if is_flexible(api_key, version):
        newer = api_key is _API_VERSIONS and version > SUPPORTED[api_key].max
        if not newer:
            position = _skip_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def _skip_tags(frame: Buffer, position: int) -> int:
    """Return the position after the tagged fields of a header; Kafka defines no fields yet."""
    try:
        if frame[position] == 0:
            return position + 1
        count, position = read_uvarint(frame, position)
        if count > _MAX_TAGS:
            raise MalformedRequest(f"a header of {count} tagged fields")
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
            if position > len(frame):
                raise IndexError
    except IndexError:
        raise MalformedRequest(f"the header's tagged fields end at byte {len(frame)}") from None
    except ValueError as error:
        raise MalformedRequest(str(error)) from None
    return position


def response_prefix(api_key: ApiKey, version: int, correlation_id: int, body_size: int) -> bytes:
    """Return length and header of a response, whose body of `body_size` bytes follows."""
    if is_flexible(api_key, version) and api_key is not _API_VERSIONS:
        return _PREFIX_AND_TAGS.pack(5 + body_size, correlation_id, 0)
    return _PREFIX.pack(4 + body_size, correlation_id)


def request_prefix(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, body_size: int
) -> bytes:
    """Return length and header of a request, whose body of `body_size` bytes follows."""
    tags = EMPTY_TAGS if is_flexible(api_key, version) else b""
    text = string(client_id)
    length = 8 + len(text) + len(tags) + body_size
    return INT32.pack(length) + _FIXED.pack(api_key, version, correlation_id, 0)[:8] + text + tags


def parse_response_header(frame: Buffer, api_key: ApiKey, version: int) -> tuple[int, int]:
    """Return correlation id and body position of a response without its length.

    Raises:
        MalformedResponse: the bytes end within the header.
    """
    if len(frame) < 4:
        raise MalformedResponse(f"a response of {len(frame)} bytes is too short for a header")
    (correlation_id,) = INT32.unpack_from(frame)
    if api_key is ApiKey.API_VERSIONS or not is_flexible(api_key, version):
        return correlation_id, 4
    try:
        return correlation_id, _skip_tags(frame, 4)
    except MalformedRequest as error:
        raise MalformedResponse(str(error)) from None


def unsupported_api_versions(ranges: Mapping[ApiKey, Versions]) -> bytes:
    """Return the response body to an unsupported version of ApiVersions: v0, error 35 (KIP-511)."""
    return (
        ErrorCode.unsupported_version.to_bytes(2, "big")
        + INT32.pack(len(ranges))
        + b"".join(_API_RANGE.pack(key, *versions) for key, versions in ranges.items())
    )
