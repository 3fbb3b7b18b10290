"""The event loop's end of an encrypted connection, with a protocol that notes what it is told."""

import asyncio
import hmac
import os
import re
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates, client_context
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from overrides import override

from horolog.network import READ_BYTES, TlsSession, TlsTransport

KEY_BYTES, NONCE_BYTES = 16, 4  # of AES128-GCM


class Noting(asyncio.BufferedProtocol):
    """Notes the sizes of what it receives, and the calls that pause and end it."""

    def __init__(self) -> None:
        self.buffer = bytearray(2 * READ_BYTES)
        self.received = bytearray()
        self.sizes: list[int] = []
        self.calls: list[str] = []
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.sizes.append(nbytes)
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")
        self.queued = self.transport.get_write_buffer_size()

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
        assert protocol.queued > 1_000_000  # all of the first, for the budget
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
    override(monkeypatch, "horolog.network", RECORDS=10)

    async def test(transport: TlsTransport, protocol: Noting, client: ssl.SSLSocket) -> None:
        transport.pause_reading()
        for _ in range(200):
            client.send(b"x")
        transport.resume_reading()
        while len(protocol.received) < 200:
            await asyncio.sleep(0.001)
        assert max(protocol.sizes) == 10

    run(certificates, test)


def test_records_that_arrive_in_pieces_are_decrypted_once_they_are_whole(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    override(monkeypatch, "horolog.network", RECEIVED_BYTES=7)
    data = os.urandom(40_000)

    async def test(transport: TlsTransport, protocol: Noting, client: ssl.SSLSocket) -> None:
        await asyncio.to_thread(client.sendall, data)
        while len(protocol.received) < len(data):
            await asyncio.sleep(0.001)
        assert protocol.received == data

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


def wish_to_renegotiate(secrets: Path, begun: bytes, answered: bytes) -> bytes:
    """The record of TLS 1.2 in which a client begins another handshake as its first message."""
    (master,) = re.findall(r"CLIENT_RANDOM \w+ (\w+)", secrets.read_text())
    seed = b"key expansion" + answered[11:43] + begun[11:43]
    made, digest = b"", seed
    while len(made) < 2 * (KEY_BYTES + NONCE_BYTES):
        digest = hmac.digest(bytes.fromhex(master), digest, "sha256")
        made += hmac.digest(bytes.fromhex(master), digest + seed, "sha256")
    key, nonce = made[:KEY_BYTES], made[2 * KEY_BYTES : 2 * KEY_BYTES + NONCE_BYTES]
    hello = begun[5:]  # without the record's header
    number = (1).to_bytes(8, "big")  # the end of the handshake was 0
    about = number + b"\x16\3\3" + len(hello).to_bytes(2, "big")
    sealed = number + AESGCM(key).encrypt(nonce + number, hello, about)
    return b"\x16\3\3" + len(sealed).to_bytes(2, "big") + sealed


def test_a_client_that_wants_to_renegotiate_and_does_not_read_is_closed(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Each wish gets an answer, which would be queued without end."""
    secrets = tmp_path / "secrets"
    context = client_context(certificates, newest=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    context.keylog_filename = str(secrets)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)

    async def body() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.options |= ssl.OP_NO_RENEGOTIATION
        serving.load_cert_chain(certificates.pem("broker"))
        session = TlsSession(ours, serving)
        flights = []
        for _ in range(2):
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            flights.append(outgoing.read())
            theirs.sendall(flights[-1])
            session.advance()
            flights.append(theirs.recv(1 << 16))
            incoming.write(flights[-1])
        client.do_handshake()
        protocol = Noting()
        transport = TlsTransport(asyncio.get_running_loop(), session, protocol, {"peername": "x"})
        wish = wish_to_renegotiate(secrets, *flights[:2])
        transport.write(bytes(5_000_000))
        theirs.sendall(wish)
        await asyncio.wait_for(protocol.lost.wait(), 60)
        assert transport.get_write_buffer_size() == 0
        theirs.close()

    asyncio.run(body())
