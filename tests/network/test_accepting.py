import asyncio
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import uvloop
from overrides import override

from horolog.network import Acceptor

PATIENCE_S = 60


class Starved(socket.socket):
    """Finds no file for a client while it has refusals left."""

    refusals = 0
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class Echo(asyncio.Protocol):
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Listening:
    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.socket = Starved()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.loop = new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.acceptor = self.run(self._listen)

    def run(self, call: Callable[[], Acceptor]) -> Acceptor:
        async def on_loop() -> Acceptor:
            return call()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(PATIENCE_S)

    def _listen(self) -> Acceptor:
        return Acceptor(self.socket, 50, Echo)

    def close(self) -> None:
        async def close() -> None:
            self.acceptor.close()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(close(), self.loop).result(PATIENCE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.socket.getsockname(), timeout=PATIENCE_S)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def listening(request: pytest.FixtureRequest) -> Iterator[Listening]:
    listening = Listening(request.param)
    yield listening
    listening.close()


def is_answered(client: socket.socket) -> bool:
    client.sendall(b"x")
    return client.recv(1) == b"x"


@pytest.mark.slow
def test_many_clients_at_once_are_all_served(listening: Listening) -> None:
    clients = [listening.connect() for _ in range(40)]
    for client in clients:
        client.sendall(b"x")
    assert all(client.recv(1) == b"x" for client in clients)
    for client in clients:
        client.close()


def test_clients_for_whom_there_is_no_file_wait_and_the_others_are_served(
    listening: Listening, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.network", RETRY_SECONDS=0.1)
    with listening.connect() as present:
        assert is_answered(present)
        asked = listening.socket.asked
        listening.socket.refusals = 2
        with listening.connect() as late:
            late.sendall(b"x")
            assert is_answered(present)
            assert late.recv(1) == b"x"
    (warning,) = caplog.messages
    assert warning == (
        "clients wait to be connected: Too many open files; raise the limit of open files "
        "(ulimit -n) or close connections"
    )
    # Twice in vain, each time with a rest, and then the client and the end of the backlog.
    assert listening.socket.asked - asked <= 4


def test_a_closed_listener_accepts_no_connections(listening: Listening) -> None:
    address = listening.socket.getsockname()
    listening.run(listening.acceptor.close)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(address, timeout=PATIENCE_S)
    listening.acceptor = listening.run(lambda: Acceptor(socket.create_server(("", 0)), 1, Echo))
