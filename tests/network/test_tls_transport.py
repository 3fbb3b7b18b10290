"""The event loop's end of an encrypted connection, with a protocol that notes what it is told."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from certificates import Certificates, client_context
from overrides import override

from horolog.network import READ_BYTES, TlsSession, TlsTransport


class Noting(asyncio.BufferedProtocol):
    """Notes the sizes of what it receives, and the calls that pause and end it."""

    def __init__(self) -> None:
        self.buffer = bytearray(2 * READ_BYTES)
        self.received = bytearray()
        self.sizes: list[int] = []
        self.calls: list[str] = []
        self.lost = asyncio.Event()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.sizes.append(nbytes)
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


Ends = tuple[TlsTransport, Noting, ssl.SSLSocket]


async def connected(certificates: Certificates) -> Ends:
    """A transport and its protocol, and the client's blocking socket."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("broker"))
    session = TlsSession(ours, context)
    wrapping = asyncio.create_task(
        asyncio.to_thread(client_context(certificates).wrap_socket, theirs)
    )
    while not session.advance():
        await asyncio.sleep(0.001)
    protocol = Noting()
    transport = TlsTransport(asyncio.get_running_loop(), session, protocol, {"peername": "x"})
    return transport, protocol, await wrapping


def run(certificates: Certificates, test: Callable[..., Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        transport, protocol, client = await connected(certificates)
        try:
            await asyncio.wait_for(test(transport, protocol, client), 60)
        finally:
            client.close()
            transport.abort()
            await asyncio.wait_for(protocol.lost.wait(), 60)

    asyncio.run(body())


def read_all(client: ssl.SSLSocket) -> bytes:
    received = bytearray()
    while part := client.recv(1 << 16):
        received += part
    return bytes(received)


def test_all_is_sent_before_a_close_however_slowly_it_is_read(certificates: Certificates) -> None:
    data = os.urandom(5_000_000)

    async def test(transport: TlsTransport, protocol: Noting, client: ssl.SSLSocket) -> None:
        transport.writelines([data[:10], data[10:3_000_000]])
        transport.write(memoryview(data)[3_000_000:])
        assert transport.get_write_buffer_size() > 1_000_000
        transport.close()
        transport.close()
        assert await asyncio.to_thread(read_all, client) == data
        await protocol.lost.wait()
        assert protocol.calls == ["pause", "resume"]

    run(certificates, test)


def test_nothing_is_received_while_reading_is_paused(certificates: Certificates) -> None:
    async def test(transport: TlsTransport, protocol: Noting, client: ssl.SSLSocket) -> None:
        transport.pause_reading()
        client.sendall(b"a" * 1_000)
        await asyncio.sleep(0.05)
        assert not protocol.received
        transport.resume_reading()
        while len(protocol.received) < 1_000:
            await asyncio.sleep(0.001)

    run(certificates, test)


def test_what_did_not_fit_the_buffer_is_received_without_another_event(
    certificates: Certificates,
) -> None:
    async def test(transport: TlsTransport, protocol: Noting, client: ssl.SSLSocket) -> None:
        protocol.buffer = bytearray(100)
        client.sendall(bytes(range(250)) * 40)
        while len(protocol.received) < 10_000:
            await asyncio.sleep(0.001)
        assert protocol.received == bytes(range(250)) * 40
        assert max(protocol.sizes) == 100

    run(certificates, test)


def test_a_client_of_tiny_records_is_read_little_by_little(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    """Updates of keys cost as much, and give nothing: others must not wait for their end."""
    override(monkeypatch, "horolog.network", FED_BYTES=1_024)

    async def test(transport: TlsTransport, protocol: Noting, client: ssl.SSLSocket) -> None:
        transport.pause_reading()
        for _ in range(200):
            client.send(b"x")
        transport.resume_reading()
        while len(protocol.received) < 200:
            await asyncio.sleep(0.001)
        assert max(protocol.sizes) <= 1_024 // 20

    run(certificates, test)


@pytest.mark.parametrize("is_orderly", [True, False])
def test_the_end_of_a_client_comes_after_its_bytes(
    certificates: Certificates, is_orderly: bool
) -> None:
    async def test(transport: TlsTransport, protocol: Noting, client: ssl.SSLSocket) -> None:
        transport.pause_reading()
        client.sendall(b"last words")
        if is_orderly:
            unwrapping = asyncio.create_task(asyncio.to_thread(client.unwrap))
        else:
            client.shutdown(socket.SHUT_WR)
        transport.resume_reading()
        await protocol.lost.wait()
        assert (bytes(protocol.received), protocol.calls) == (b"last words", ["eof"])
        if is_orderly:
            await unwrapping

    run(certificates, test)
