"""Clients that break TLS, stall in it, or are taken for others: the broker serves on."""

import os
import socket
import ssl
import struct
import threading
from contextlib import suppress

import pytest
from certificates import Certificates, client_context
from examples import some_of
from overrides import override
from patience import eventually
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import MakeBroker, RunningBroker
from stepped_loop import SteppedLoop

from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

HELLO = bytes.fromhex("16030100f8010000f40303")  # the first bytes of a ClientHello


@pytest.fixture
def settings(certificates: Certificates) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(certificates.pem("broker")),
    }


@pytest.fixture
def broker(make_broker: MakeBroker, settings: dict[str, str]) -> RunningBroker:
    return make_broker(**settings)


@pytest.fixture
def tls(certificates: Certificates) -> ssl.SSLContext:
    return client_context(certificates)


def serves(broker: RunningBroker, tls: ssl.SSLContext) -> bool:
    with broker.connect(tls) as connection:
        return bool(connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0)


def stalled(broker: RunningBroker, count: int) -> list[RawConnection]:
    connections = [broker.connect() for _ in range(count)]
    for connection in connections:
        connection.socket.sendall(HELLO)
    return connections


def close_all(connections: list[RawConnection]) -> None:
    for connection in connections:
        connection.socket.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_stalled_handshakes_hold_nobody_up_and_leave_nothing(
    broker: RunningBroker, tls: ssl.SSLContext
) -> None:
    assert serves(broker, tls)
    before = open_files()
    connections = stalled(broker, 500)
    assert serves(broker, tls)
    close_all(connections)
    assert eventually(lambda: open_files() <= before)


def test_the_oldest_stalled_handshake_goes_first(
    make_broker: MakeBroker, settings: dict[str, str], tls: ssl.SSLContext
) -> None:
    broker = make_broker(**settings, horolog_connections_without_login="3")
    connections = stalled(broker, 3)
    assert serves(broker, tls)
    assert connections[0].is_closed()
    assert connections[2].is_silent(0.1)
    close_all(connections)


def test_a_stalled_handshake_is_closed_after_the_time_for_logins(
    make_broker: MakeBroker, settings: dict[str, str], tls: ssl.SSLContext
) -> None:
    broker = make_broker(new_loop=SteppedLoop, **settings)
    assert isinstance(broker.loop, SteppedLoop)
    (stalling,) = stalled(broker, 1)
    assert serves(broker, tls)
    broker.loop.advance(11)
    assert stalling.is_closed()
    close_all([stalling])


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff",  # a request of Kafka's protocol
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x16\x03\x01\0\x04\1\0\0\0",
        b"\x15\x03\x01\0\x02\x02\x28",
        b"\x17\x03\x03\0\x10" + bytes(16),
        b"\x80\x2e\x01\0\x02" + bytes(50),  # SSL 2
        bytes(100),
        b"\xff" * 20_000,
    ],
)
def test_garbage_instead_of_a_handshake_ends_the_connection(
    broker: RunningBroker, tls: ssl.SSLContext, sent: bytes
) -> None:
    with broker.connect() as connection:
        connection.socket.sendall(sent)
        received = b"?"
        while received:
            try:
                received = connection.socket.recv(4096)
            except ConnectionResetError:
                break
    assert serves(broker, tls)


@pytest.mark.parametrize("cut", some_of(range(1, 400, 7), 8))
def test_a_handshake_that_is_cut_off_or_damaged_ends_the_connection(
    broker: RunningBroker, tls: ssl.SSLContext, cut: int
) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    for end in (b"", b"\xff" * 600):
        with broker.connect() as connection:
            connection.socket.sendall(hello[:cut] + end)
            connection.socket.shutdown(socket.SHUT_WR)
            while connection.socket.recv(4096):
                pass
    assert serves(broker, tls)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x17\x03\x03\0\x20" + bytes(32),
        b"\x17\x03\x03\xff\xff",  # a record longer than any may be is not waited for
        b"\x17\x03\x03\0\0" * 200,
        b"\x99\x03\x03\0\1?",
    ],
)
def test_garbage_after_the_handshake_ends_the_connection(
    broker: RunningBroker, tls: ssl.SSLContext, sent: bytes
) -> None:
    with broker.connect(tls) as connection:
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        socket.socket.sendall(connection.socket, sent)
        with suppress(ssl.SSLError, ConnectionError):  # an alert, which says why
            assert not connection.socket.recv(1)
    assert eventually(lambda: not broker.service.connections)
    assert serves(broker, tls)


@pytest.mark.parametrize("size", [0, 1, 100, 100_000])
def test_a_client_that_resets_the_connection_behind_its_bytes_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    make_broker: MakeBroker,
    settings: dict[str, str],
    tls: ssl.SSLContext,
    size: int,
) -> None:
    """uvloop tells once of both."""
    override(monkeypatch, "horolog.network", SWEEP_SECONDS=0.05)
    broker = make_broker(**settings)
    with broker.connect(tls) as connection:
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        is_gone = threading.Event()
        broker.loop.call_soon_threadsafe(is_gone.wait)
        if size:  # not the whole of a request
            connection.socket.sendall(size.to_bytes(4, "big") + bytes(size - 1))
        linger = struct.pack("ii", 1, 0)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    is_gone.set()
    assert eventually(lambda: not broker.service.connections)


def test_a_client_with_tls_on_a_plain_listener_is_closed(
    broker: RunningBroker, tls: ssl.SSLContext
) -> None:
    address = f"127.0.0.1:{broker.bound[1].port}"
    with pytest.raises(OSError):  # noqa: PT011
        RawConnection(address, tls=tls)
    with RawConnection(address) as connection:
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_half_closed_connection_is_closed(
    broker: RunningBroker, certificates: Certificates, newest: ssl.TLSVersion, is_orderly: bool
) -> None:
    with broker.connect(client_context(certificates, newest=newest)) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        connection.ask(ApiKey.API_VERSIONS, 0)
        if is_orderly:
            connection.socket.unwrap()  # waits for the broker's word that it has closed
        else:
            socket.socket.shutdown(connection.socket, socket.SHUT_WR)
        assert eventually(lambda: not broker.service.connections)


def test_requests_in_one_record_are_all_answered(
    broker: RunningBroker, tls: ssl.SSLContext
) -> None:
    """OpenSSL holds those that did not fit, and no selector tells of them."""
    with broker.connect(tls) as connection:
        asked = [connection.packed(ApiKey.API_VERSIONS, 0, {}) for _ in range(3_000)]
        sender = threading.Thread(target=connection.socket.sendall, args=[b"".join(asked)])
        sender.start()
        for index in range(3_000):
            number, answer = connection.receive()
            assert (number, answer.error_code) == (index + 1, 0)
        sender.join()


def test_a_slow_reader_holds_little_memory_and_gets_all(
    broker: RunningBroker, tls: ssl.SSLContext
) -> None:
    broker.create_topic("t")
    value = os.urandom(900_000)
    batch = build_batch([LogRecord(broker.clock.now_ms(), None, value)])
    with broker.connect(tls) as connection:
        for _ in range(20):
            connection.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch}))
        fields = fetch_fields("t", {0: 0}) | {"max_bytes": 1 << 30}
        fields["topics"][0]["partitions"][0]["partition_max_bytes"] = 1 << 30
        for _ in range(10):
            connection.send(ApiKey.FETCH, 12, **fields)
        (served,) = broker.service.connections
        assert eventually(lambda: served.sending is not None)
        assert served.sending is not None
        assert served.sending.held < 4 << 20
        for _ in range(10):
            _, answer = connection.receive()
            records = answer.responses[0].partitions[0].records
            assert bytes(records).count(value) == 20
    assert eventually(lambda: not broker.service.connections)


def test_a_broker_stops_during_handshakes(broker: RunningBroker, tls: ssl.SSLContext) -> None:
    connections = stalled(broker, 50)
    assert serves(broker, tls)
    broker.stop()
    assert all(connection.is_closed() for connection in connections)
    close_all(connections)
    assert not [it for it in threading.enumerate() if it.name == "horolog-handshakes"]
