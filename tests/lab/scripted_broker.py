"""A broker that answers what a test tells it to: for what a healthy broker never does."""

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeAlias

from patience import PATIENCE_S

from horolog.wire import (
    SUPPORTED,
    ApiKey,
    MalformedRequest,
    RequestHeader,
    Versions,
    decode_request,
    encode_response,
    parse_request_header,
    response_prefix,
    unsupported_api_versions,
)


class HangUp(NamedTuple):
    """Close the connection, after these bytes."""

    after: bytes = b""


class Silence(NamedTuple):
    """Send nothing and keep the connection."""


class Raw(NamedTuple):
    """Send these bytes instead of an answer, length and header included."""

    data: bytes


Reply: TypeAlias = "Mapping[str, Any] | bytes | HangUp | Silence | Raw"
Answers: TypeAlias = "Callable[[Any], Reply] | Reply"


def answer_requests(
    connection: socket.socket, reply_to: Callable[[RequestHeader, bytes], Reply]
) -> None:
    """Answer the requests of a connection, one after the other, until one is to hang up."""
    with connection.makefile("rb") as incoming:
        while len(prefix := incoming.read(4)) == 4:
            frame = incoming.read(int.from_bytes(prefix, "big"))
            header = parse_request_header(frame)
            reply = reply_to(header, frame)
            match reply:
                case HangUp(after):
                    connection.sendall(after)
                    return
                case Silence():
                    continue
                case Raw(data):
                    connection.sendall(data)
                case bytes():
                    key, version = header.api_key, header.api_version
                    lead = response_prefix(key, version, header.correlation_id, len(reply))
                    connection.sendall(lead + reply)


class Seen(NamedTuple):
    api_key: ApiKey
    version: int
    request: Any


@dataclass
class ScriptedBroker:
    """Listens while its `with` block lasts. ApiVersions and Metadata answer by themselves."""

    answers: Mapping[ApiKey, Answers] = field(default_factory=dict)
    node_id: int = 1
    leader: Callable[[], int] | int = 1  # of every partition
    leader_of: Mapping[str, int] = field(default_factory=dict)  # of some topics another
    others: list["ScriptedBroker"] = field(default_factory=list)
    versions: Mapping[ApiKey, Versions] = field(default_factory=dict)
    host: str = "127.0.0.1"
    advertised_port: int | None = None
    seen: list[Seen] = field(default_factory=list)
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listener = socket.create_server((self.host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    @property
    def bootstrap(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def asked(self, api_key: ApiKey) -> list[Any]:
        """The requests of one kind, in the order in which they came."""
        return [each.request for each in self.seen if each.api_key is api_key]

    def hang_up(self) -> None:
        """Close all connections, as a broker does that tires of idle ones."""
        for connection in self._connections:
            with suppress(OSError):  # the other side was quicker
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        # A client that resets the connection, or speaks no Kafka, is done with it.
        with suppress(ConnectionError, ssl.SSLError, MalformedRequest), connection:
            if self.tls is None:
                answer_requests(connection, self._reply)
                return
            with self.tls.wrap_socket(connection, server_side=True) as secured:
                self._connections.append(secured)
                answer_requests(secured, self._reply)

    def _reply(self, header: RequestHeader, frame: bytes) -> Any:
        api_key, version, position = header.api_key, header.api_version, header.body_position
        if api_key is ApiKey.API_VERSIONS and version > self._range(api_key).max:
            return unsupported_api_versions({api_key: self._range(api_key)})
        request = decode_request(api_key, version, frame, position)
        self.seen.append(Seen(api_key, version, request))
        reply = self.answers[api_key] if api_key in self.answers else self._usual(api_key, request)
        if callable(reply):
            reply = reply(request)
        return encode_response(api_key, version, reply) if isinstance(reply, Mapping) else reply

    def _usual(self, api_key: ApiKey, request: Any) -> Mapping[str, Any]:
        if api_key is ApiKey.API_VERSIONS:
            ranges = {key: self._range(key) for key in SUPPORTED}
            return {
                "api_keys": [
                    {"api_key": key, "min_version": its.min, "max_version": its.max}
                    for key, its in ranges.items()
                ]
            }
        assert api_key is ApiKey.METADATA, f"the script has no answer to {api_key.title}"
        leader = self.leader() if callable(self.leader) else self.leader

        def partition(topic: str) -> Mapping[str, Any]:
            its = self.leader_of.get(topic, leader)
            return {
                "partition_index": 5,
                "leader_id": its,
                "leader_epoch": 3,
                "replica_nodes": [its],
                "isr_nodes": [its],
            }

        return {
            "brokers": [
                {
                    "node_id": each.node_id,
                    "host": each.host,
                    "port": each.advertised_port or each.port,
                }
                for each in (self, *self.others)
            ],
            "controller_id": self.node_id,
            "topics": [
                {"name": topic.name, "topic_id": None, "partitions": [partition(topic.name)]}
                for topic in request.topics or ()
            ],
        }

    def _range(self, api_key: ApiKey) -> Versions:
        return self.versions.get(api_key, api_key.versions)
