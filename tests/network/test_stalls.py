"""Clients that hold memory and do not move, of several shapes, beside one that is honest."""

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable

import pytest
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog.network import TICK_SECONDS, WINDOW_TICKS
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

BUDGET = 4 << 20
CLAIMED = 100_000_000
DESCRIBED = 100  # topics, in answers of a third of a megabyte
LARGE = build_batch([LogRecord(-1, None, b"x" * 900_000)])


class Attack:
    """Connections of one kind, and what they keep doing."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sockets: list[socket.socket] = []
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def connect(self) -> RawConnection:
        connection = RawConnection(self.address)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sockets.append(connection.socket)
        return connection

    def claim(self, claimed: int, sent: int) -> None:
        """Begin a request and send as much of it as the broker takes."""
        sock = self.connect().socket
        head = struct.pack(">ihhih", claimed, 0, 8, 1, -1)
        sock.settimeout(0.05)
        with contextlib.suppress(TimeoutError, OSError):
            sock.sendall(head + bytes(max(sent - len(head), 0)))

    def every(self, seconds: float, act: Callable[[socket.socket], object]) -> None:
        """Have each connection do something now and then, until it is closed."""

        def go_on() -> None:
            while not self._over.wait(seconds):
                for sock in self.sockets:
                    sock.settimeout(0.01)
                    with contextlib.suppress(OSError):
                        act(sock)

        self._threads.append(threading.Thread(target=go_on, daemon=True))
        self._threads[-1].start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for sock in self.sockets:
            sock.close()


def claim_and_stop(attack: Attack) -> None:
    for _ in range(6):
        attack.claim(CLAIMED, 2 << 20)


def claim_and_trickle(attack: Attack) -> None:
    claim_and_stop(attack)
    attack.every(0.05, lambda sock: sock.send(b"x"))


def claim_only(attack: Attack) -> None:
    for _ in range(300):
        attack.claim(CLAIMED, 0)


def claim_only_and_trickle(attack: Attack) -> None:
    for _ in range(6):
        attack.claim(CLAIMED, 0)
    attack.every(0.05, lambda sock: sock.send(b"x"))


def many_small_claims(attack: Attack) -> None:
    for _ in range(150):
        attack.claim(60_000, 59_000)
    attack.every(0.2, lambda sock: sock.send(b"x"))


def ask_and_do_not_read(attack: Attack) -> None:
    resources = [
        {"resource_type": 2, "resource_name": f"described-{n}", "configuration_keys": None}
        for n in range(DESCRIBED)
    ]
    asked = {"include_synonyms": True, "include_documentation": True, "resources": resources}
    for _ in range(20):
        connection = attack.connect()
        for _ in range(4):
            connection.send(ApiKey.DESCRIBE_CONFIGS, 4, **asked)


def ask_and_read_a_byte_now_and_then(attack: Attack) -> None:
    ask_and_do_not_read(attack)
    attack.every(0.5, lambda sock: sock.recv(1))


SHAPES = [
    claim_and_stop,
    claim_and_trickle,
    claim_only,
    claim_only_and_trickle,
    many_small_claims,
    ask_and_do_not_read,
    ask_and_read_a_byte_now_and_then,
]


broker = a_broker(
    "t",
    *(f"described-{n}" for n in range(DESCRIBED)),
    now_ms=None,
    horolog_max_buffered_bytes=str(BUDGET),
    socket_send_buffer_bytes="4096",
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_client_that_reads_is_served_while_others_hold_memory_and_stall(
    broker: RunningBroker, shape: Callable[[Attack], None]
) -> None:
    attack = Attack(broker.address)
    try:
        shape(attack)
        if shape in (ask_and_do_not_read, ask_and_read_a_byte_now_and_then):
            assert eventually(lambda: broker.service.budget.used > BUDGET)
        with RawConnection(broker.address, PATIENCE_S / 2) as honest:
            answer = honest.ask(ApiKey.PRODUCE, 8, **produce_fields("t", {0: LARGE}))
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert broker.service.budget.used <= BUDGET + CLAIMED // 10
    finally:
        attack.end()
    assert eventually(lambda: broker.service.budget.used == 0)


def test_a_client_that_stalls_is_named_in_the_log_with_what_it_holds(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    attack = Attack(broker.address)
    try:
        with caplog.at_level(logging.WARNING):
            claim_and_stop(attack)
            broker.ask(ApiKey.PRODUCE, 8, **produce_fields("t", {0: LARGE}))
            assert eventually(lambda: "which stalls: it holds" in caplog.text)
        assert "of a request that is not whole" in caplog.text
        assert "127.0.0.1" in caplog.text
    finally:
        attack.end()


def test_a_slow_client_is_kept_while_memory_is_not_short(
    broker: RunningBroker,
) -> None:
    with broker.connect() as slow:
        request = slow.packed(ApiKey.PRODUCE, 8, produce_fields("t", {0: LARGE}))
        slow.socket.sendall(request[:-1])
        window_s = WINDOW_TICKS * TICK_SECONDS
        assert slow.is_silent(2 * window_s)
        assert broker.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        slow.socket.sendall(request[-1:])
        assert slow.receive()[1].responses[0].partition_responses[0].error_code == 0


def test_unread_responses_release_their_files_to_others(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(socket_send_buffer_bytes="4096")
    broker.create_topic("t")
    broker.ask(ApiKey.PRODUCE, 8, **produce_fields("t", {0: LARGE}))
    slots = broker.broker.slices_to_send
    spare = 3
    taken = sum(slots.acquire() for _ in range(broker.broker.open_files.answers - spare))
    attack = Attack(broker.address)
    asked = fetch_fields("t", {0: 0}, max_bytes=1 << 28, partition_max_bytes=1 << 28)
    try:
        for _ in range(spare):
            attack.connect().send(ApiKey.FETCH, 11, **asked)
        assert eventually(lambda: sum(c.holds_files for c in broker.service.connections) == spare)
        with broker.connect() as honest:
            honest.ask(ApiKey.FETCH, 11, **asked)  # copied, for want of a file
            assert eventually(lambda: len(broker.service.connections) == 1)
            answer = honest.ask(ApiKey.FETCH, 11, **asked)
            assert len(answer.responses[0].partitions[0].records) == len(LARGE)
    finally:
        attack.end()
        for _ in range(taken):
            slots.release()
