"""What a connection does whatever is asked on it: order, limits, and how it ends."""

import asyncio
import logging
import random
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from patience import eventually
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import MakeBroker, RunningBroker, new_event_loop

from horolog.record import LogRecord, build_batch
from horolog.wire import SUPPORTED, ApiKey


def batch(value: bytes = b"v") -> bytes:
    return build_batch([LogRecord(-1, b"k", value)])


@pytest.fixture(params=[new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def broker(request: pytest.FixtureRequest, make_broker: MakeBroker) -> RunningBroker:
    """On either event loop: their transports differ in when they write and pause."""
    return make_broker(new_loop=request.param)


@pytest.fixture
def with_topic(broker: RunningBroker) -> RunningBroker:
    broker.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    return broker


def test_requests_sent_at_once_are_answered_in_their_order(with_topic: RunningBroker) -> None:
    with with_topic.connect() as connection:
        requests = []
        for n in range(300):
            fields = produce_fields("t", {0: batch(b"%d" % n)})
            requests.append(connection.packed(ApiKey.PRODUCE, 8, fields))
            if n % 7 == 0:
                requests.append(connection.packed(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}))
        connection.socket.sendall(b"".join(requests))
        answers = [connection.receive() for _ in requests]
    assert [correlation_id for correlation_id, _ in answers] == list(range(1, len(requests) + 1))
    offsets = [
        answer.responses[0].partition_responses[0].base_offset
        for _, answer in answers
        if hasattr(answer, "responses")
    ]
    assert offsets == list(range(300))


def test_order_is_kept_where_some_writes_take_a_thread_and_others_do_not(
    with_topic: RunningBroker,
) -> None:
    large = build_batch([LogRecord(-1, None, b"x" * 900_000)])
    packed = build_batch([LogRecord(-1, None, b"x" * 300_000)], codec=2)
    with with_topic.connect() as connection:
        connection.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [
                        {"name": "segment.bytes", "config_operation": 0, "value": "1048576"}
                    ],
                }
            ],
        )
        for n in range(24):
            sent = (large, packed, batch())[n % 3]
            connection.send(ApiKey.PRODUCE, 8, **produce_fields("t", {0: sent}))
        offsets = [
            connection.receive()[1].responses[0].partition_responses[0].base_offset
            for _ in range(24)
        ]
    assert offsets == list(range(24))


def test_requests_of_several_megabytes_from_many_clients_arrive_as_they_were_sent(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t", 4, max_message_bytes=str(8 << 20))
    values = [random.Random(n).randbytes(3_000_000 + n) for n in range(4)]
    with ExitStack() as opened:
        clients = [opened.enter_context(broker.connect()) for _ in values]

        def produce(n: int) -> None:
            for _ in range(2):
                clients[n].send(ApiKey.PRODUCE, 8, **produce_fields("t", {n: batch(values[n])}))

        with ThreadPoolExecutor(len(clients)) as pool:
            list(pool.map(produce, range(len(clients))))
        for client in clients:
            for base_offset in (0, 1):
                (answer,) = client.receive()[1].responses[0].partition_responses
                assert (answer.error_code, answer.base_offset) == (0, base_offset)
    for n, value in enumerate(values):
        assert [header.records_count for header in broker.headers("t", n)] == [1, 1]
        assert broker.log("t", n).segments[0].size > 2 * len(value)
        with Path(broker.log_dir, f"t-{n}", f"{0:020}.log").open("rb") as log:
            assert log.read().count(value) == 2


def test_a_request_after_a_waiting_fetch_waits_for_it(with_topic: RunningBroker) -> None:
    with with_topic.connect() as connection:
        started = time.monotonic()
        fetch = connection.send(ApiKey.FETCH, 11, **fetch_fields("t", {0: 0}, max_wait_ms=300))
        after = connection.send(ApiKey.API_VERSIONS, 0)
        assert connection.receive()[0] == fetch
        assert time.monotonic() - started >= 0.3
        assert connection.receive()[0] == after


def test_an_api_versions_request_from_the_future_gets_the_supported_versions(
    broker: RunningBroker,
) -> None:
    with broker.connect() as connection:
        connection.socket.sendall(struct.pack(">ihhih", 10, 18, 99, 77, -1))
        size, correlation_id, error, count = struct.unpack(">iihi", connection.exactly(14))
        rest = connection.exactly(size - 10)
        assert (correlation_id, error, count) == (77, 35, len(SUPPORTED))
        ranges = list(struct.iter_unpack(">hhh", rest))
        assert (18, 0, 5) in ranges
        assert (0, 0, 13) in ranges  # produce from 0, as Apache Kafka tells (KAFKA-18659)
        # The connection continues.
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (struct.pack(">i", -5), "too short"),
        (struct.pack(">i", 3) + b"abc", "too short"),
        (struct.pack(">i", 0x7FFFFFFF), "socket.request.max.bytes"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "socket.request.max.bytes"),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), "API key 999"),
        (struct.pack(">ihhihb", 11, 3, 99, 1, -1, 0), "not served"),
        (struct.pack(">ihhih", 10, 0, -1, 1, -1), "not served"),
        (struct.pack(">ihhih", 10, 3, 1, 1, 500), "client id"),
        (struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1_000_000), "Metadata v1"),
    ],
)
def test_nonsense_is_answered_with_a_line_in_the_log_and_a_closed_connection(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, sent: bytes, why: str
) -> None:
    with broker.connect() as connection, caplog.at_level(logging.WARNING):
        connection.socket.sendall(sent)
        assert connection.is_closed()
    assert any(why in record.message for record in caplog.records), caplog.text
    assert not any(record.exc_info for record in caplog.records), "a client's fault is no bug"
    assert broker.ask(ApiKey.API_VERSIONS, 0).error_code == 0


def test_what_was_asked_before_the_nonsense_is_still_answered(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        good = connection.packed(ApiKey.API_VERSIONS, 0, {})
        connection.socket.sendall(good + struct.pack(">i", -5))
        assert connection.receive()[1].error_code == 0
        assert connection.is_closed()


def test_a_request_larger_than_the_limit_is_refused(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(socket_request_max_bytes="50000")
    with broker.connect() as connection:
        connection.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
        fields = produce_fields("t", {0: build_batch([LogRecord(-1, None, b"x" * 40_000)])})
        assert connection.ask(ApiKey.PRODUCE, 8, **fields).responses
        fields = produce_fields("t", {0: build_batch([LogRecord(-1, None, b"x" * 50_001)])})
        connection.send(ApiKey.PRODUCE, 8, **fields)
        assert connection.is_closed()


def test_a_bug_ends_the_connection_and_not_the_broker(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.broker.groups, "all", lambda: 1 // 0)
    with broker.connect() as connection:
        connection.send(ApiKey.LIST_GROUPS, 0)
        assert connection.is_closed()
    assert any(record.exc_info for record in caplog.records)
    assert broker.ask(ApiKey.API_VERSIONS, 0).error_code == 0


def test_no_more_connections_from_one_address_than_allowed(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(max_connections_per_ip="2")
    with broker.connect() as first, broker.connect() as second, broker.connect() as third:
        assert first.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        assert second.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        assert third.is_closed()
    assert eventually(lambda: not broker.service.connections)
    assert broker.ask(ApiKey.API_VERSIONS, 0).error_code == 0


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(connections_max_idle_ms="300")
    with broker.connect() as idle, broker.connect() as busy:
        busy.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
        busy.send(ApiKey.FETCH, 11, **fetch_fields("t", {0: 0}, max_wait_ms=900))
        assert idle.is_closed()
        assert busy.receive()[1].responses


@pytest.mark.slow
def test_a_slow_consumer_takes_no_memory(with_topic: RunningBroker) -> None:
    """Twenty clients ask for 16 MB each and read nothing: the broker holds a piece for each."""
    with with_topic.connect() as connection:
        large = build_batch([LogRecord(-1, None, b"x" * 1_000_000)])
        for _ in range(16):
            connection.ask(ApiKey.PRODUCE, 8, **produce_fields("t", {0: large}))
    slow = [with_topic.connect() for _ in range(20)]
    try:
        for connection in slow:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            asked = fetch_fields("t", {0: 0}, max_bytes=1 << 28, partition_max_bytes=1 << 28)
            for _ in range(3):
                connection.send(ApiKey.FETCH, 11, **asked)
        assert eventually(lambda: len(with_topic.service.connections) == 20)
        time.sleep(0.5)
        transports = [c.transport for c in with_topic.service.connections]
        held = sum(t.get_write_buffer_size() for t in transports if t is not None)
        assert len(transports) == 20
        assert held <= 20 * (1 << 20), held
        # Of the budget they hold what their transports hold, and no more.
        assert held <= with_topic.service.budget.used < held + (1 << 20)
        # And a quick one gets all of it meanwhile.
        with with_topic.connect() as quick:
            answer = quick.ask(ApiKey.FETCH, 11, **asked)
            assert len(answer.responses[0].partitions[0].records) > 16_000_000
    finally:
        for connection in slow:
            connection.socket.close()
    assert eventually(lambda: with_topic.service.budget.used == 0)


def test_bytes_of_requests_in_work_are_bounded_over_all_connections(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(horolog_max_buffered_bytes=str(2 << 20))
    large = build_batch([LogRecord(-1, None, b"x" * 900_000)])
    broker.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    stuck = [broker.connect() for _ in range(2)]
    try:
        for connection in stuck:
            request = connection.packed(ApiKey.PRODUCE, 8, produce_fields("t", {0: large}))
            connection.socket.sendall(request[:-1])
        assert eventually(lambda: broker.service.budget.used > 1_800_000)
        with broker.connect() as third:
            third.socket.settimeout(0.3)
            third.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            request = third.packed(ApiKey.PRODUCE, 8, produce_fields("t", {0: large}))
            with pytest.raises(TimeoutError):
                third.socket.sendall(request)
        assert broker.service.budget.used < 2 << 20
        # Small requests are answered all the same, and the stuck ones continue.
        assert broker.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        for connection in stuck:
            connection.socket.sendall(request[-1:])
            assert connection.receive()[1].responses[0].partition_responses[0].error_code == 0
    finally:
        for connection in stuck:
            connection.socket.close()


def test_ipv6_is_served(make_broker: MakeBroker) -> None:
    broker = make_broker(listeners="PLAINTEXT://[::1]:0")
    with RawConnection(f"[::1]:{broker.port}") as connection:
        answer = connection.ask(ApiKey.METADATA, 9, topics=[])
        assert (answer.brokers[0].host, answer.brokers[0].port) == ("::1", broker.port)


def test_clients_are_reported_the_advertised_address(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(
        listeners="PLAINTEXT://0.0.0.0:0",
        advertised_listeners="PLAINTEXT://kafka.example:9999",
        horolog_open_listeners="PLAINTEXT",
    )
    with RawConnection(f"127.0.0.1:{broker.port}") as connection:
        answer = connection.ask(ApiKey.METADATA, 9, topics=[])
        assert (answer.brokers[0].host, answer.brokers[0].port) == ("kafka.example", 9999)
