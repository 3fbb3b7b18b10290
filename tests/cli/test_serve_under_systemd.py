"""`horolog serve` under a service manager such as systemd, which is a socket of the test."""

from __future__ import annotations

import asyncio
import configparser
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_S
from running_broker import BrokerProcess

from horolog.broker import ServiceManager
from horolog.client import Client

WATCHDOG_S = 0.6
UNIT = Path(__file__).parents[2] / "deploy" / "horolog.service"
INSTALLED = "/opt/horolog/bin/horolog"


class Manager:
    """What systemd is to a service: a socket that takes datagrams."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))

    def close(self) -> None:
        self._socket.close()

    def next(self, within_s: float = PATIENCE_S) -> dict[str, str]:
        """The next report, by name."""
        self._socket.settimeout(within_s)
        lines = self._socket.recv(1 << 16).decode().split("\n")
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def until(self, name: str, value: str) -> dict[str, str]:
        while (report := self.next()).get(name) != value:
            pass
        return report

    def falls_silent(self, after_s: float) -> bool:
        """True once no report has come for so long."""
        try:
            while self.next(after_s):
                pass
        except TimeoutError:
            return True
        return False


@pytest.fixture
def manager(request: pytest.FixtureRequest) -> Iterator[Manager]:
    start = getattr(request, "param", "/tmp/")  # the path of a socket has room for 100 characters
    if start == "@" and sys.platform != "linux":
        pytest.skip("abstract names are Linux's")
    manager = Manager(f"{start}horolog-{uuid.uuid4()}")
    yield manager
    manager.close()
    Path(manager.address).unlink(missing_ok=True)


PLAIN = "from horolog.cli import main\nmain()\n"


@contextmanager
def serving(
    manager: str, log_dir: Path, program: str = PLAIN, *args: str, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--log-dir", str(log_dir)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "NOTIFY_SOCKET": manager, **environment}
    with subprocess.Popen([*command, *args], env=environment, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("manager", ["/tmp/", "@"], indirect=True, ids=["path", "abstract"])
def test_a_start_and_a_stop_are_reported(manager: Manager, tmp_path: Path) -> None:
    with serving(manager.address, tmp_path / "log") as process:
        status = manager.until("READY", "1")["STATUS"]
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"ready {status.rpartition(' ')[2]} ")
        process.send_signal(signal.SIGTERM)
        assert "closing the logs" in manager.until("STOPPING", "1")["STATUS"]
        assert process.wait(PATIENCE_S) == 0
        assert manager.falls_silent(0.01)  # no watchdog was asked for


EACH_LOG_WAITS_FOR_A_LINE = """
import sys
from horolog.broker import service
from horolog.cli import main
from horolog.storage.log_dir import log_dir

service.LOGGED_EVERY_S = 1
load = log_dir.load_log

def load_after_a_line(*args):
    sys.stdin.readline()
    return load(*args)

log_dir.load_log = load_after_a_line
main()
"""


def test_a_long_start_reports_and_logs_how_far_it_is(manager: Manager, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.client.create_topics({"t": 2})
    one = "--set", "num.recovery.threads.per.data.dir=1"
    with serving(manager.address, tmp_path / "log", EACH_LOG_WAITS_FOR_A_LINE, *one) as process:
        assert process.stdin is not None
        for loaded in 0, 1:
            assert manager.next() == {"STATUS": f"opened {loaded} of 2 logs"}
            process.stdin.write("\n")
            process.stdin.flush()
        assert manager.until("READY", "1")["STATUS"].startswith("serving 2 logs at 127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
    assert [f"starting: opened {loaded} of 2 logs" in log for loaded in (0, 1)] == [True, True]


HELD_BY_A_SIGNAL = """
import signal, time
from horolog.cli import main
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))
main()
"""


def test_a_watchdog_hears_of_the_event_loop_until_it_is_stuck(
    manager: Manager, tmp_path: Path
) -> None:
    watchdog = str(int(1e6 * WATCHDOG_S))
    program = manager.address, tmp_path / "log", HELD_BY_A_SIGNAL
    with serving(*program, WATCHDOG_USEC=watchdog) as process:
        manager.until("READY", "1")
        for _ in range(5):
            assert manager.next() == {"WATCHDOG": "1"}
        process.send_signal(signal.SIGUSR1)
        assert manager.falls_silent(4 * WATCHDOG_S)
        assert process.poll() is None


@pytest.mark.parametrize(
    ("address", "why"),
    [("/nowhere/notify", "No such file"), ("/" + "n" * 200, "too long"), ("vsock:2:1", "no path")],
)
def test_a_manager_that_cannot_be_reached_stops_no_broker(
    tmp_path: Path, address: str, why: str
) -> None:
    with serving(address, tmp_path / "log", WATCHDOG_USEC="1000") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        (warning,) = (line for line in log.splitlines() if "NOTIFY_SOCKET" in line)
        assert why in warning


def test_reports_wait_while_the_queue_of_the_manager_is_full(manager: Manager) -> None:
    sent = [str(number) for number in range(300)]

    async def report_more_than_a_queue() -> list[str]:
        reporting = ServiceManager({"NOTIFY_SOCKET": manager.address})
        for number in sent:
            reporting.report(f"STATUS={number}")
        loop = asyncio.get_running_loop()
        heard = [(await loop.run_in_executor(None, manager.next))["STATUS"] for _ in sent]
        reporting.close()
        return heard

    assert asyncio.run(report_more_than_a_queue()) == sent


@pytest.mark.parametrize(
    "watchdog", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}]
)
def test_a_watchdog_of_another_process_or_without_a_time_gets_no_pings(
    manager: Manager, watchdog: dict[str, str]
) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1"} | watchdog

    async def ready() -> None:
        reporting = ServiceManager(environment)
        reporting.ready("serving")
        await asyncio.sleep(0)
        reporting.close()

    asyncio.run(ready())
    assert environment == {}
    assert manager.next() == {"READY": "1", "STATUS": "serving"}
    assert manager.falls_silent(0.01)


def test_the_commands_of_the_unit_start_a_broker_whose_admin_has_the_password_of_a_file(
    manager: Manager, tmp_path: Path
) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(UNIT)
    service = unit["Service"]
    assert (service["Type"], service["TimeoutStartSec"]) == ("notify", "infinity")
    assert service["LoadCredential"] == "admin-password:/etc/horolog/admin-password"
    settings = (UNIT.parent / "server.properties").read_text()
    (tmp_path / "server.properties").write_text(settings.replace(":9092", ":0"))
    (tmp_path / "admin-password").write_text("pencil\n")
    inside = {
        "/etc/horolog": str(tmp_path),
        "${CREDENTIALS_DIRECTORY}": str(tmp_path),
        "%S/horolog": str(tmp_path),
    }

    def python_of(key: str) -> list[str]:
        command, *arguments = shlex.split(service[key].lstrip("-"))
        assert command == INSTALLED
        for place, here in inside.items():
            arguments = [argument.replace(place, here) for argument in arguments]
        return [sys.executable, "-m", "horolog", *arguments]

    for _ in range(2):  # each start sets the password
        subprocess.run(python_of("ExecStartPre"), check=True, cwd=tmp_path)
    environment = {**os.environ, "NOTIFY_SOCKET": manager.address}
    with subprocess.Popen(python_of("ExecStart"), env=environment, cwd=tmp_path) as process:
        try:
            status = manager.until("READY", "1")["STATUS"]
            assert status.startswith("serving 0 logs at 127.0.0.1:")
            assert (tmp_path / "horolog-data" / "meta.properties").exists()
            module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
            login = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{module} username="admin" password="pencil";',
            }
            with Client(status.rpartition(" ")[2], security=login) as client:
                client.create_topics({"t": 1})
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    horolog = tmp_path / "horolog"
    horolog.symlink_to(sys.executable)
    unit = tmp_path / "horolog.service"
    unit.write_text(UNIT.read_text().replace(INSTALLED, str(horolog)))
    command = [analyze, "verify", "--man=no", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "horolog.service" not in ran.stderr  # where it names a key that it does not know
