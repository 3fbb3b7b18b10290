"""An active controller that gets what a broker relays, without a socket."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from horolog.errors import ErrorCode, HorologError
from horolog.wire import (
    ApiKey,
    RequestHeader,
    Versions,
    decode_request,
    encode_response,
    parse_request_header,
    response_prefix,
)


class Relayed(NamedTuple):
    """A request in an Envelope."""

    header: RequestHeader
    body: Any
    principal: bytes
    address: bytes
    frame: bytes


class FakeControllers:
    """Gives Envelopes to `answer`, which returns fields of a response, bytes, or an error.

    Bytes are the whole answer in the Envelope; an error code is that of the Envelope.
    """

    def __init__(self) -> None:
        self.versions: Mapping[int, Versions] | None = None
        self.seen: list[Relayed] = []
        self.answer: Callable[[Relayed], Mapping[str, Any] | bytes | ErrorCode] = lambda _: (
            ErrorCode.unknown_server_error
        )
        self.failure: HorologError | None = None

    async def ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        assert (api_key, timeout_ms > 0) == (ApiKey.ENVELOPE, True)
        if self.failure is not None:
            raise self.failure
        frame = fields["request_data"]
        header = parse_request_header(frame)
        key, version, correlation_id, _, position = header
        body = decode_request(key, version, frame, position)
        principal, address = fields["request_principal"], fields["client_host_address"]
        relayed = Relayed(header, body, principal, address, frame)
        self.seen.append(relayed)
        answer = self.answer(relayed)
        if isinstance(answer, ErrorCode):
            return SimpleNamespace(error_code=int(answer), response_data=None)
        if not isinstance(answer, bytes):
            encoded = encode_response(key, version, answer)
            prefix = response_prefix(key, version, correlation_id, len(encoded))
            answer = prefix[4:] + encoded
        return SimpleNamespace(error_code=0, response_data=answer)
