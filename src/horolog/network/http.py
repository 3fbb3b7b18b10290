"""Answers HTTP requests without a body (GET and HEAD), one on each connection, with TLS or without.

The cost of a client is limited: bytes and time of its request, time for reading the response, and
the number of connections. Connections without a whole request, and those in a handshake, have
places of their own. One too many closes the oldest of them. Connections with a whole request have
other places. One too many closes the oldest whose client does not read its response, otherwise the
newest. A response is handed to the socket piece by piece, so that a slow reader holds no copy of
it.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qs

from horolog.config import BrokerConfig, Endpoint, ListenerTls
from horolog.errors import printable
from horolog.network.accepting import Acceptor
from horolog.network.server import bind
from horolog.network.tls.contexts import TlsContexts
from horolog.network.tls.handshakes import Handshake, Handshakes, TlsSession
from horolog.network.tls.transport import TlsTransport

_LOG = logging.getLogger(__name__)

REQUEST_BYTES: Final = 8 * 1024
REQUEST_SECONDS: Final = 10.0
RESPONSE_SECONDS: Final = 30.0
"""Time after which a client that has not read its response is disconnected."""
ANSWERED: Final = 8
"""Most connections with a whole request."""
INCOMPLETE: Final = 16
"""Most connections without a whole request."""
_ACCEPTED_AT_ONCE: Final = INCOMPLETE // 4
"""New connections at a time: so few that their requests are read before they lose their place."""
_BACKLOG: Final = 128
_PIECE_BYTES: Final = 64 * 1024
_BUFFER_BYTES: Final = 4 * 1024

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    505: "HTTP Version Not Supported",
}
_METHODS: Final = ("GET", "HEAD")


class HttpRequest(NamedTuple):
    """Request to the metrics port."""

    path: str
    query: dict[str, str]
    """Last value of each parameter."""


class HttpResponse(NamedTuple):
    """Response of the metrics port."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]


class HttpServer:
    """Listens on one endpoint. For the event loop's thread only."""

    def __init__(
        self,
        endpoint: Endpoint,
        config: BrokerConfig,
        respond: Respond,
        tls: ListenerTls | None = None,
    ) -> None:
        """Start listening.

        Raises:
            Misconfigured: the address cannot be bound, or a certificate cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._listeners = {} if tls is None else {endpoint.name: tls}
        self._contexts = TlsContexts(self._listeners)
        sockets = bind(endpoint, config)
        self.bound = endpoint._replace(port=sockets[0].getsockname()[1])
        """Endpoint with its actual port."""
        self.respond = respond
        self.incomplete: dict[_Connection | Handshake, None] = {}
        """The connections without a whole request, the oldest first."""
        self.answered: dict[_Connection, None] = {}
        """The connections with a whole request, the oldest first."""
        self._handshakes: Handshakes | None = None
        self._reloading: asyncio.Task[None] | None = None
        hand_over = None
        if self._contexts:
            hand_over = self._begin_handshake
            self._handshakes = Handshakes(self._loop, self._on_handshake, self._on_no_handshake, 1)
            self._reloading = self._loop.create_task(
                self._contexts.keep_loaded(lambda: self._listeners)
            )
        connect = partial(_Connection, self)
        self._acceptors = [
            Acceptor(sock, _BACKLOG, connect, _ACCEPTED_AT_ONCE, hand_over) for sock in sockets
        ]

    def close(self) -> None:
        """Stop listening, and close all connections."""
        for acceptor in self._acceptors:
            acceptor.close()
        for connection in [*self.incomplete, *self.answered]:
            connection.close()
        if self._reloading is not None:
            self._reloading.cancel()
        if self._handshakes is not None:
            self._handshakes.stop()

    def admit(self, connection: "_Connection | Handshake") -> None:
        """Give a new connection a place; the oldest without a whole request may lose its own."""
        if len(self.incomplete) >= INCOMPLETE:
            self._close(next(iter(self.incomplete)))
        self.incomplete[connection] = None

    def _close(self, connection: "_Connection | Handshake") -> None:
        self.incomplete.pop(connection, None)
        connection.close()

    def _begin_handshake(self, client: socket.socket) -> None:
        assert self._handshakes is not None
        name = self.bound.name
        context, rules = self._contexts[name].context, self._listeners[name].rules
        handshake = self._handshakes.begin(client, self.bound, context, rules)
        if handshake is not None:
            self.admit(handshake)
            self._loop.call_later(REQUEST_SECONDS, self._end_late, handshake)

    def _end_late(self, handshake: Handshake) -> None:
        if handshake in self.incomplete:
            self._close(handshake)

    def _on_handshake(self, handshake: Handshake, session: TlsSession, _: str) -> None:
        if handshake not in self.incomplete:  # it has lost its place
            session.sock.close()
            return
        del self.incomplete[handshake]
        TlsTransport(self._loop, session, _Connection(self), {"peername": handshake.address})

    def _on_no_handshake(self, handshake: Handshake, why: str) -> None:
        self.incomplete.pop(handshake, None)
        _LOG.debug("a connection of %s to the metrics has failed: %s", handshake.host, why)

    def complete(self, connection: "_Connection") -> bool:
        """Move a connection to those with a whole request; False if there is no place."""
        self.incomplete.pop(connection, None)
        if len(self.answered) >= ANSWERED:
            unread = (other for other in self.answered if other.is_unread)
            next(unread, connection).close()
            if connection.is_closed:
                return False
        self.answered[connection] = None
        return True

    def forget(self, connection: "_Connection") -> None:
        """Free the place of a connection."""
        self.incomplete.pop(connection, None)
        self.answered.pop(connection, None)


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, server: HttpServer) -> None:
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._loop = asyncio.get_running_loop()
        self._server = server
        self.is_closed = False
        self.is_unread = False
        """True if the client has not read its whole response."""
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self._rest = memoryview(b"")
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_PIECE_BYTES, low=0)
        self._deadline = self._loop.call_later(REQUEST_SECONDS, self.close)
        self._server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.is_closed = True
        self._server.forget(self)
        self._rest = memoryview(b"")
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def close(self) -> None:
        """Close immediately."""
        self.is_closed = True
        self._server.forget(self)
        if self.transport is not None:
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._answering is not None:
            return  # a body, or another request: it is not read
        self._received += self._buffer[: min(nbytes, REQUEST_BYTES + 1 - len(self._received))]
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if not end and len(self._received) <= REQUEST_BYTES:
            return
        method, request = _parsed(bytes(head)) if end else ("", 431)
        if not self._server.complete(self):
            return
        self._answering = self._loop.create_task(self._answer(method, request))

    def eof_received(self) -> bool:
        """Keep the connection open if the client may still read a response."""
        return self._answering is not None

    async def _answer(self, method: str, request: HttpRequest | int) -> None:
        if isinstance(request, int):
            response = HttpResponse(request, f"{_REASONS[request]}\n".encode())
        else:
            try:
                response = await self._server.respond(request)
            except Exception:  # noqa: BLE001 - a bug ends this exchange, not the server
                _LOG.exception("%s could not be answered: a bug", printable(request.path))
                response = HttpResponse(500, b"the broker's log has the reason\n")
        allow = f"Allow: {', '.join(_METHODS)}\r\n" if response.status == 405 else ""
        head = (
            f"HTTP/1.1 {response.status} {_REASONS[response.status]}\r\n"
            f"Content-Type: {response.content_type}\r\n"
            f"Content-Length: {len(response.body)}\r\n"
            f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        if self.transport is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(RESPONSE_SECONDS, self.close)
        self.is_unread = True
        self.transport.write(head.encode())
        self._rest = memoryview(b"" if method == "HEAD" else response.body)
        self._send()

    def resume_writing(self) -> None:
        if self._answering is not None and self._answering.done():
            self._send()

    def _send(self) -> None:
        transport = self.transport
        while transport is not None and self._rest:
            if transport.get_write_buffer_size() > _PIECE_BYTES:
                return
            transport.write(self._rest[:_PIECE_BYTES])
            self._rest = self._rest[_PIECE_BYTES:]
        if transport is not None and not self._rest:
            transport.close()


def _parsed(head: bytes) -> tuple[str, HttpRequest | int]:
    """Return the method and the request, or the HTTP status of an invalid one."""
    words: Sequence[str] = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[0].isalpha():
        return "", 400
    method, target, version = words
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        return "", 505 if version.startswith("HTTP/") else 400
    if method not in _METHODS:
        return method, 405
    path, _, query = target.partition("?")
    try:
        values = parse_qs(query, keep_blank_values=True, max_num_fields=16)
    except ValueError:
        return "", 400
    return method, HttpRequest(path, {name: value[-1] for name, value in values.items()})
