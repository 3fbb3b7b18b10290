"""The lab's ways between processes are cut and mended as tests say, and its clocks stepped."""

import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_links import Way, owner_of
from stepped_clock import SteppedClock

from horolog.clock import SystemClock

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(100):
            self.request.sendall(data)


@pytest.fixture
def way() -> Iterator[Way]:
    """The way to a server that says what it hears."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        way = Way(server.server_address[1])
        way.open()
        yield way
        way.close()
        server.shutdown()


def connected(way: Way) -> socket.socket:
    return socket.create_connection(("127.0.0.1", way.port), 30)


def answers(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
        return connection.recv(1) == b"x"
    except OSError:
        return False


def test_owner_of_a_connection_is_found(way: Way) -> None:
    with connected(way) as connection:
        port, pids = connection.getsockname()[1], (os.getppid(), os.getpid())
        assert owner_of(port, way.port, pids) == os.getpid()
        assert owner_of(port, way.port, pids[:1]) is None
        assert owner_of(way.port, 1, pids) is None


def test_cut_ends_connections_and_refuses_new_ones_until_it_is_mended(way: Way) -> None:
    with connected(way) as before, connected(way) as between, connected(way) as after:
        assert answers(before)
        way.cut(None, is_silent=False)
        assert not answers(before)
        assert not answers(between)
        with connected(way) as late:
            assert not answers(late)
        way.mend()
        assert not answers(after)
    with connected(way) as again:
        assert answers(again)


def test_silent_cut_keeps_back_what_is_said_and_ends_with_the_connection(way: Way) -> None:
    with connected(way) as before:
        assert answers(before)
        way.cut(None, is_silent=True)
        with connected(way) as late:
            for connection in (before, late):
                connection.sendall(b"x")
                connection.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            way.mend()
            for connection in (before, late):
                connection.settimeout(30)
                assert not answers(connection)


def test_connections_of_one_process_alone_are_cut(way: Way) -> None:
    said = "import socket,sys;s=socket.create_connection(('127.0.0.1',int(sys.argv[1])));"
    said += "[(s.sendall(b'x'),print(s.recv(1)==b'x',flush=True)) for _ in sys.stdin]"
    with subprocess.Popen(
        [sys.executable, "-c", said, str(way.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        with connected(way) as own:
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "True\n"
            way.cut({other.pid}, is_silent=False)
            assert answers(own)
            other.stdin.close()
            assert other.stdout.readline() in ("False\n", "")
            with connected(way) as late:
                assert answers(late)


def test_clock_of_a_process_is_stepped_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "saying.py").write_text(
        "import sys\nfrom horolog.clock import SystemClock\n"
        "for _ in sys.stdin: print(SystemClock().now_ms(), sys.argv[1:], flush=True)\n"
    )
    clock = SteppedClock(tmp_path / "clock")
    with subprocess.Popen(
        [sys.executable, *clock.launcher, "saying", "a"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for by_ms in (0, -3_600_000, 86_400_000):
            clock.step(by_ms)
            before = SystemClock().now_ms()
            process.stdin.write("\n")
            process.stdin.flush()
            said, arguments = process.stdout.readline().split(" ", 1)
            assert before <= int(said) - by_ms <= SystemClock().now_ms()
            assert arguments == "['a']\n"
        process.stdin.close()
