"""An active controller that gets what a broker relays, without a socket."""

import asyncio
import struct
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from every_request import requests
from raw_connection import encoded
from running_broker import RunningBroker

from horolog.broker import Dispatcher
from horolog.broker.cluster.relaying import Relay
from horolog.errors import ErrorCode, HorologError
from horolog.metadata import Image
from horolog.network import Peer
from horolog.wire import (
    ApiKey,
    RequestHeader,
    Versions,
    decode_request,
    decode_response,
    encode_response,
    parse_request_header,
    parse_response_header,
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
        self.plain: Callable[[ApiKey, Any], Any] | None = None
        """Answers what the broker asks with its own rights."""

    async def ask(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        if self.failure is not None:
            raise self.failure
        if api_key is not ApiKey.ENVELOPE:
            assert self.plain is not None
            return self.plain(api_key, fields)
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


class Relaying:
    """A broker that relays to controllers of the test; clients are alice's."""

    def __init__(self, broker: RunningBroker) -> None:
        self.controllers = FakeControllers()
        self.image = Image()
        self.broker = broker
        self.peer = Peer(broker.bound[0], "192.0.2.7")
        self.peer.authenticate("User:alice")

        def relay() -> Dispatcher:
            broker.broker.relay = Relay(self.controllers, self)
            return Dispatcher(broker.broker)

        self.dispatcher = broker.call(relay)
        topic = broker.broker.topics.find("t")
        self.fields = requests(topic.topic_id)

    def frame(self, key: ApiKey, version: int, fields: Any = None) -> bytes:
        given = self.fields.get(key, {}) if fields is None else fields
        given = given(version) if callable(given) else given
        header = struct.pack(">hhih", key, version, 77, 2) + b"me"
        tags = b"\x00" if version >= key.flexible_from else b""
        return header + tags + encoded(key, version, given)

    def ask(self, key: ApiKey, version: int, fields: Any = None) -> bytes:
        """The response with its header, without its length."""
        frame = self.frame(key, version, fields)

        async def ask() -> Any:
            answer = self.dispatcher(frame, self.peer)
            return await answer if isinstance(answer, asyncio.Future) else answer

        packed = b"".join(self.broker.run(ask()))
        assert len(packed) - 4 == int.from_bytes(packed[:4], "big")
        return packed[4:]

    def decoded(self, key: ApiKey, version: int, fields: Any = None) -> Any:
        answer = self.ask(key, version, fields)
        correlation_id, position = parse_response_header(answer, key, version)
        assert correlation_id == 77
        return decode_response(key, version, answer, position)
