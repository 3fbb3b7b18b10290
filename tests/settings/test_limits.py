"""What many clients, or one that wants too much, can take of a broker.

Single limits (the largest request, batch, fetch; how many connections, how long idle) are
shown in connection_checks.py; malformed frames in tests/network/test_connection.py.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from patience import eventually
from raw_connection import fetch_fields, produce_fields
from running_broker import BrokerProcess
from settings_lab import BROKER, Lab

from horolog.record import LogRecord, build_batch
from horolog.storage import LogDir
from horolog.wire import ApiKey

MIB = 1 << 20


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab", {"horolog.max.buffered.bytes": str(MIB)}) as lab:
        yield lab


def test_requests_sent_one_upon_the_other_are_bounded_too(lab: Lab) -> None:
    """Each is small enough to be taken as it comes; the disk takes none of them."""
    trial = lab.topic("t")
    disk_is_back = threading.Event()
    partition = lab.broker.broker.led("t", 0)
    lab.broker.call(lambda: partition.writes.run(disk_is_back.wait) and None)
    batch = build_batch([LogRecord(-1, None, b"x" * 60_000)])
    with lab.connect() as connection:
        requests = [
            connection.packed(ApiKey.PRODUCE, 8, produce_fields("t", {0: batch})) for _ in range(60)
        ]
        sender = threading.Thread(target=connection.socket.sendall, args=(b"".join(requests),))
        sender.start()
        try:
            assert not eventually(lambda: lab.broker.service.budget.used > 2 * MIB, 0.5)
            assert lab.broker.service.budget.used > MIB // 2
        finally:
            disk_is_back.set()
        answers = [connection.receive()[1].responses[0] for _ in requests]
        sender.join()
    offsets = [answer.partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(60))
    assert trial.log.log_end_offset == 60
    assert eventually(lambda: lab.broker.service.budget.used == 0)


def test_a_client_that_stops_within_a_request_is_idle_like_any_other(tmp_path: Path) -> None:
    with (
        Lab(tmp_path, {"connections.max.idle.ms": "100"}) as lab,
        lab.connect() as within_length,
        lab.connect() as within_request,
    ):
        within_length.socket.sendall(b"\0\0")
        within_request.socket.sendall(b"\0\1\0\0" + b"\0" * 70)
        for connection in (within_length, within_request):
            assert connection.is_closed()
        assert eventually(lambda: lab.broker.service.budget.used == 0)


def test_a_limit_that_is_lowered_keeps_connections_that_are_open(lab: Lab) -> None:
    with lab.connect() as first, lab.connect() as second:
        for connection in (first, second):
            assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        lab.alter(BROKER, max_connections="1", max_connections_per_ip="1")
        for connection in (first, second):
            assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        with lab.connect() as third:
            third.send(ApiKey.API_VERSIONS, 0)
            assert third.is_silent(0.3)
            lab.alter(BROKER, max_connections="9", max_connections_per_ip="9")
            assert third.receive()[1].error_code == 0


def test_who_is_one_too_many_is_named_in_the_log(tmp_path: Path) -> None:
    with (
        Lab(tmp_path, {"max.connections.per.ip": "1"}) as lab,
        lab.log_lines() as lines,
        lab.connect() as first,
        lab.connect() as second,
    ):
        assert second.is_closed()
        assert first.ask(ApiKey.API_VERSIONS, 0).error_code == 0
    assert any("127.0.0.1" in line and "max.connections.per.ip" in line for line in lines)


def test_an_interval_of_zero_does_not_busy_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr(LogDir, "checkpoint", lambda *given: written.append(given))
    static = {"log.flush.offset.checkpoint.interval.ms": "0", "log.initial.task.delay.ms": "0"}
    began = time.monotonic()
    with Lab(tmp_path, static):
        assert eventually(lambda: len(written) >= 30)
    assert len(written) <= 5 + 100 * (time.monotonic() - began)


@pytest.mark.slow
def test_a_hundred_slow_consumers_and_a_thousand_idle_clients_take_little_memory(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "log", {"socket.listen.backlog.size": "2000"}) as process:
        with ExitStack() as stack:
            first = stack.enter_context(process.connect())
            first.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
            batch = build_batch([LogRecord(-1, None, b"x" * 1_000_000)])
            first.ask(ApiKey.PRODUCE, 8, **produce_fields("t", {0: batch}))  # kernels are loaded
            before = resident_bytes(process)
            for _ in range(1000):
                stack.enter_context(process.connect())
            with_idle = resident_bytes(process)
            for _ in range(16):
                first.ask(ApiKey.PRODUCE, 8, **produce_fields("t", {0: batch}))
            asked = fetch_fields("t", {0: 0}, max_bytes=1 << 28, partition_max_bytes=1 << 28)
            for _ in range(100):
                slow = stack.enter_context(process.connect())
                slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
                slow.send(ApiKey.FETCH, 11, **asked)
            # All have been begun when one that came later is answered.
            answer = first.ask(ApiKey.FETCH, 11, **asked)
            assert len(answer.responses[0].partitions[0].records) > 16_000_000
            with_slow = resident_bytes(process)
        # Measured 2026-11: 4 kB an idle client, 530 kB a slow one, which asks for 16 MB.
        assert with_idle - before < 1000 * 16_000
        assert with_slow - with_idle < 100 * MIB


def resident_bytes(process: BrokerProcess) -> int:
    """What the process has in memory."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        pytest.skip("there is no /proc to measure with")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
