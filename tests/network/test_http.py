"""What the metrics port bears: hostile requests, slow readers, too many connections."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from patience import PATIENCE_S, eventually
from stepped_loop import SteppedLoop

from horolog.config import BrokerConfig, Endpoint
from horolog.network import (
    ANSWERED,
    INCOMPLETE,
    REQUEST_BYTES,
    REQUEST_SECONDS,
    RESPONSE_SECONDS,
    HttpRequest,
    HttpResponse,
    HttpServer,
)

T = TypeVar("T")

LARGE = bytes(64 << 20)


class Running:
    """A server on a loop of its own, which answers what was asked."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.held: asyncio.Event
        self.server = self.call(self._start)
        self.address = (self.server.bound.host, self.server.bound.port)

    def _start(self) -> HttpServer:
        self.held = asyncio.Event()
        return HttpServer(Endpoint("METRICS", "127.0.0.1", 0), BrokerConfig(), self._respond)

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/held":
            await self.held.wait()
        if request.path == "/bug":
            raise ZeroDivisionError
        body = LARGE if request.path == "/large" else f"{request.path} {request.query}".encode()
        return HttpResponse(200, body)

    def call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(PATIENCE_S)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, PATIENCE_S)

    def stop(self) -> None:
        self.call(self.server.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.stop()


def rest_of(client: socket.socket) -> bytes:
    parts = []
    try:
        while part := client.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def ask(running: Running, request: bytes) -> bytes:
    with running.connect() as client:
        client.sendall(request)
        return rest_of(client)


def test_a_request_is_answered_and_its_connection_closed(running: Running) -> None:
    answer = ask(running, b"GET /metrics?partitions=true&a=b%20c HTTP/1.1\r\nHost: h\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close" in head
    assert body == b"/metrics {'partitions': 'true', 'a': 'b c'}"


def test_head_has_no_body_but_its_length(running: Running) -> None:
    head, _, body = ask(running, b"HEAD /large HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert f"Content-Length: {len(LARGE)}".encode() in head
    assert body == b""


def test_a_request_may_come_byte_by_byte(running: Running) -> None:
    with running.connect() as client:
        for byte in b"GET /slow HTTP/1.0\r\n\r\n":
            client.sendall(bytes([byte]))
        assert rest_of(client).endswith(b"/slow {}")


def test_a_client_that_has_shut_down_its_side_is_answered(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"GET /half HTTP/1.0\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert rest_of(client).endswith(b"/half {}")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 "),
        (b"GET /metrics HTTP/2\r\n\r\n", b"505 "),
        (b"GET /metrics SPDY/1\r\n\r\n", b"400 "),
        (b"GET /metrics\r\n\r\n", b"400 "),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", b"400 "),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", b"400 "),
        (b"GET /?" + b"&".join([b"a=1"] * 20) + b" HTTP/1.1\r\n\r\n", b"400 "),
        (b"\r\n\r\n", b"400 "),
        (b"\x00\xff\xfe\r\n\r\n", b"400 "),
        (b"G\x00T / HTTP/1.1\r\n\r\n", b"400 "),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400 "),  # TLS
        (b"GET /bug HTTP/1.1\r\n\r\n", b"500 "),
    ],
)
def test_what_cannot_be_answered_gets_a_status(
    running: Running, request_bytes: bytes, status: bytes
) -> None:
    assert ask(running, request_bytes).startswith(b"HTTP/1.1 " + status)
    assert ask(running, b"GET /after HTTP/1.1\r\n\r\n").endswith(b"/after {}")


def test_a_header_without_end_is_refused_when_it_is_too_long(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (2 * REQUEST_BYTES))
        assert rest_of(client).startswith(b"HTTP/1.1 431 ")


def test_a_request_that_is_not_complete_in_time_ends_its_connection(running: Running) -> None:
    with running.connect() as slow, running.connect() as silent:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert eventually(lambda: running.call(lambda: len(running.server.incomplete)) == 2)
        running.loop.advance(REQUEST_SECONDS - 1)
        slow.sendall(b"X: y\r\n")
        running.loop.advance(2)
        assert rest_of(slow) == rest_of(silent) == b""


def test_a_reader_too_slow_is_disconnected_and_holds_no_copy(running: Running) -> None:
    with running.connect() as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert slow.recv(1) == b"H"
        assert ask(running, b"GET /other HTTP/1.1\r\n\r\n").endswith(b"/other {}")
        (connection,) = running.call(lambda: list(running.server.answered))
        buffered = running.call(connection.transport.get_write_buffer_size)
        assert buffered < 1 << 20
        running.loop.advance(RESPONSE_SECONDS + 1)
        assert len(rest_of(slow)) < len(LARGE)


def test_a_large_response_arrives_whole(running: Running) -> None:
    _, _, body = ask(running, b"GET /large HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert body == LARGE


def connected(running: Running, count: int) -> list[socket.socket]:
    """Clients that have sent nothing, the first of which the server knows longest."""
    clients: list[socket.socket] = []
    for _ in range(count):
        clients.append(running.connect())
        known = eventually(
            lambda: running.call(lambda: len(running.server.incomplete)) == len(clients)
        )
        assert known
    return clients


def test_one_connection_too_many_closes_the_oldest_without_a_whole_request(
    running: Running,
) -> None:
    with running.connect() as asked:
        asked.sendall(b"GET /held HTTP/1.1\r\n\r\n")
        assert eventually(lambda: running.call(lambda: len(running.server.answered)) == 1)
        idle = connected(running, INCOMPLETE)
        assert ask(running, b"GET /new HTTP/1.1\r\n\r\n").endswith(b"/new {}")
        assert rest_of(idle[0]) == b""
        running.call(running.held.set)
        assert rest_of(asked).endswith(b"/held {}")
    idle[1].sendall(b"GET /second HTTP/1.1\r\n\r\n")
    assert rest_of(idle[1]).endswith(b"/second {}")
    for client in idle:
        client.close()


def test_clients_that_do_not_read_their_responses_keep_no_other_from_its_own(
    running: Running,
) -> None:
    slow = [running.connect() for _ in range(ANSWERED + 2)]
    for client in slow:
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b"H"
    assert ask(running, b"GET /new HTTP/1.1\r\n\r\n").endswith(b"/new {}")
    for client in slow:
        client.close()


def test_requests_too_many_are_closed_and_those_before_are_answered(running: Running) -> None:
    asked = [running.connect() for _ in range(ANSWERED)]
    for client in asked:
        client.sendall(b"GET /held HTTP/1.1\r\n\r\n")
    assert eventually(lambda: running.call(lambda: len(running.server.answered)) == ANSWERED)
    assert ask(running, b"GET /new HTTP/1.1\r\n\r\n") == b""
    running.call(running.held.set)
    for client in asked:
        assert rest_of(client).endswith(b"/held {}")
        client.close()


def test_a_client_that_leaves_before_its_answer_leaves_nothing(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"GET /held HTTP/1.1\r\n\r\n")
        assert eventually(lambda: running.call(lambda: len(running.server.answered)) == 1)
    # Only a client that has shut down its side could still read.
    running.call(running.held.set)
    assert eventually(lambda: not running.call(lambda: list(running.server.answered)))
