"""`horolog serve` as its users see it: a process, a line, signals."""

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_runner import run_command
from patience import PATIENCE_S, eventually

from horolog import __version__
from horolog.cli.serve import listener_settings, ready_line
from horolog.client import Client
from horolog.config import Endpoint, Settings
from horolog.errors import Misconfigured

READY = re.compile(r"^ready (\S+:\d+)")


@contextmanager
def serving(*args: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "horolog", "serve", *map(str, args)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            match = READY.match(line)
            assert match, line + process.stderr.read()
            yield process, match[1]
        finally:
            process.kill()


def ended(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "horolog", "serve", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_verbose_logs_more_of_the_broker_but_not_of_libraries() -> None:
    """Compiling the kernels alone would make twenty thousand lines."""
    source = (
        "import logging; from horolog.cli.serve import write_log_to_stderr\n"
        "write_log_to_stderr(verbose=True)\n"
        "for name in ('horolog.network', 'numba.core.byteflow', 'asyncio'):\n"
        "    logging.getLogger(name).debug('said')"
    )
    command = [sys.executable, "-c", source]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert [line.split()[3] for line in said.splitlines()] == ["horolog.network:"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_reports_that_it_is_ready_and_stops_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving("--port", 0, "--log-dir", tmp_path) as (process, address):
        sent = run_command("produce", "t", "-b", address, stdin="x\n")
        assert sent.code == 0, sent.err
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        log = process.stderr.read()
        assert "Traceback" not in log
        assert f"horolog {__version__} starts: node 1, log directory {tmp_path}" in log
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size > 0


def test_a_stop_while_logs_are_opened_ends_the_process(tmp_path: Path) -> None:
    with serving("--port", 0, "--log-dir", tmp_path) as (process, address):
        assert run_command("produce", "t", "-b", address, stdin="x\n").code == 0
        process.kill()
    source = (  # the thread that opens logs waits for the end of stdin when it asks for the time
        "import logging, sys, threading\n"
        "from horolog.broker.service import serve\n"
        "from horolog.clock import SystemClock\n"
        "from horolog.config import Settings\n"
        "class Clock(SystemClock):\n"
        "    def now_ms(self):\n"
        "        if threading.current_thread() is not threading.main_thread():\n"
        "            print('opening', flush=True), sys.stdin.read()\n"
        "        return super().now_ms()\n"
        "logging.basicConfig(stream=sys.stdout, level=logging.INFO)\n"
        "settings = Settings({'log.dir': sys.argv[1], 'listeners': 'PLAINTEXT://127.0.0.1:0'})\n"
        "serve(settings, clock=Clock(), on_ready=lambda _: print('serving', flush=True))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert any(line == "opening\n" for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert any("stopping before the broker is ready" in line for line in process.stdout)
        process.stdin.close()
        said = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0, said
    assert "serving" not in said
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with serving("--port", 0, "--log-dir", tmp_path) as (_, address):
        assert run_command("consume", "t", "-b", address).out.endswith("\tx\n")


def test_a_broker_goes_on_after_sighup_and_after_sigquit_which_prints_its_stacks(
    tmp_path: Path,
) -> None:
    with serving("--port", 0, "--log-dir", tmp_path) as (process, address):
        assert process.stderr is not None
        process.send_signal(signal.SIGHUP)
        assert any("SIGHUP is ignored" in line for line in process.stderr)
        process.send_signal(signal.SIGQUIT)
        assert any("in serve" in line for line in process.stderr)
        assert run_command("topics", "list", "-b", address).code == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_that_compiles_its_kernels_prints_its_stacks_and_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread within LLVM as the interpreter ends is a crash; to wait for it takes a minute."""
    for name in ("XDG_CACHE_HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    with serving("--port", 0, "--log-dir", tmp_path / "data") as (process, _):
        assert process.stderr is not None
        lines: list[str] = []
        threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True).start()

        def compiles() -> bool:
            process.send_signal(signal.SIGQUIT)  # again: a dump may lack frames that change
            return eventually(lambda: any("compile_kernel" in line for line in [*lines]), 0.2)

        assert eventually(compiles)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_settings_that_nobody_knows_are_named_in_the_log_where_they_are_ignored(
    tmp_path: Path,
) -> None:
    config = tmp_path / "server.properties"
    config.write_text("confluent.telemetry.enabled=true\nconfluent.balancer.enable=true\n")
    given = ("--config", config, "--port", 0, "--log-dir", tmp_path / "data")
    refused = run_command("serve", *given)
    assert refused.code == 2
    assert all(name in refused.err for name in ("telemetry", "balancer"))
    with serving(*given, "--set", "horolog.ignore.unknown.settings=true") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said.count("ignored: Unknown broker config name: confluent.") == 2


def test_settings_come_from_a_file_and_from_the_command_line_and_topics_survive(
    tmp_path: Path,
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n"
        "num.partitions=3\nlog.retention.ms=7200000\n"
    )
    with serving("--config", config, "--set", "num.partitions=5") as (process, address):
        with Client(address) as client:
            client.create_topics({"kept": -1}, configs={"segment.ms": "12345"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    with serving("--config", config) as (_, address), Client(address) as client:
        assert len(client.metadata().topics["kept"].partitions) == 5
        described = run_command("topics", "describe", "kept", "-b", address, "--json").json
        assert described["settings"] == {"retention.ms": "7200000", "segment.ms": "12345"}


def test_options_about_addresses_do_without_the_files_listeners(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "listeners=IN://127.0.0.1:1,OUT://127.0.0.1:2\n"
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\n"
        "inter.broker.listener.name=IN\nearly.start.listeners=IN\n"
    )
    data = tmp_path / "data"
    options = ("--config", config, "--log-dir", data, "--port", "0")
    with serving(*options) as (_, address), Client(address) as client:
        assert client.metadata().brokers


def test_ipv6_is_served(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with serving("--listen", "[::1]:0", "--log-dir", tmp_path) as (_, address):
        assert address.startswith("[::1]:")
        assert run_command("topics", "list", "-b", address).code == 0


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--host", "0.0.0.0"], "Add the line advertised.listeners=PLAINTEXT://HOST:9092"),
        (["--listen", "10.1.2.3:0"], "the line horolog.open.listeners=PLAINTEXT"),
        (["--set", "num.partitions=none"], "Invalid value none for configuration num.partitions"),
        (["--set", "nonsense=1"], "Unknown broker config name: nonsense"),
        (["--set", "log.cleanup.policy=keep"], "any of compact, delete"),
        (["--listen", "127.0.0.1:0", "--port", "0"], "give --listen HOST:PORT, or"),
        (["--listen", "::1:9092"], "an IPv6 address in brackets"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_made(
    tmp_path: Path, args: list[str], complaint: str
) -> None:
    refused = run_command("serve", "--log-dir", tmp_path / "data", *args)
    assert refused.code == 2
    assert complaint in refused.err
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = ended("--port", port, "--log-dir", tmp_path)
    assert refused.returncode == 2
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_broken_file_is_a_sentence(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("a=\\u12")
    refused = run_command("serve", "--config", config)
    assert (refused.code, "line 1" in refused.err) == (2, True)
    config.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in run_command("serve", "--config", config).err


def resolved(**options: object) -> tuple[list[str], list[str]]:
    given = {"host": None, "port": None, "listen": (), "advertise": (), "given": {}} | options
    config = Settings(listener_settings(**given)).broker_config()
    return [str(e) for e in config.listeners], [str(e) for e in config.advertised_listeners]


def test_options_about_addresses_become_listeners() -> None:
    assert listener_settings(None, None, (), (), {}) == {}
    assert resolved(port=7)[0] == ["PLAINTEXT://127.0.0.1:7"]
    assert resolved(host="::1")[0] == ["PLAINTEXT://[::1]:9092"]
    assert resolved(host="0.0.0.0", advertise=["example.org:1"]) == (
        ["PLAINTEXT://0.0.0.0:9092"],
        ["PLAINTEXT://example.org:1"],
    )
    assert resolved(listen=["127.0.0.1:1", "[::1]:2"])[0] == [
        "PLAINTEXT://127.0.0.1:1",
        "PLAINTEXT_2://[::1]:2",
    ]
    assert resolved(listen=[":1", "10.1.2.3:2"], advertise=["example.org:3"])[1] == [
        "PLAINTEXT://example.org:3",
        "PLAINTEXT_2://10.1.2.3:2",
    ]
    with pytest.raises(Misconfigured, match="given 2 times for 1 listeners"):
        resolved(port=1, advertise=["a:1", "b:2"])


def test_advertising_goes_with_the_listeners_of_the_file() -> None:
    given = {"listeners": "OUT://:9092, CONTROLLER://:9093"}
    settings = listener_settings(None, None, (), ["example.org:9092"], given)
    assert settings == {"advertised.listeners": "OUT://example.org:9092"}


def test_the_ready_line_names_the_ports_that_were_taken() -> None:
    bound = [Endpoint("PLAINTEXT", "0.0.0.0", 4711)]
    line = ready_line(bound, [Endpoint("PLAINTEXT", "example.org", 0)], "/data")
    assert line == "ready example.org:4711 (log directory /data)"
