"""`horolog.audit.log`: who was denied what, and who changed what, in a file of its own."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rights_matrix as matrix
from overrides import override
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker, a_broker

from horolog.broker import AuditFile
from horolog.client import ResourceType
from horolog.errors import Misconfigured
from horolog.wire import ApiKey

broker = a_broker()

CHANGES = "horolog.broker.changes"


def written(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Says a line of the audit."""
    file = AuditFile(str(tmp_path / "audit.log"))
    logger = logging.getLogger(CHANGES)
    logger.setLevel(logging.INFO)
    yield lambda line: logger.info("%s", line)
    file.close()
    logger.setLevel(logging.NOTSET)


ENTRY = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def test_denials_failed_logins_and_changes_are_in_the_file_alone(
    make_broker: MakeBroker, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    broker = make_broker(**matrix.OURS, horolog_audit_log=str(path))
    for name, code in ((matrix.ADMIN, 0), (matrix.user(1), 31)):
        with matrix.login(broker.connect(), name) as connection:
            (result,) = connection.ask(ApiKey.CREATE_ACLS, 3, creations=[ENTRY]).results
            assert result.error_code == code
    with broker.connect() as connection, pytest.raises(AssertionError):
        matrix.login(connection, "nobody")
    parts = ("added StandardAcl[", "is Denied operation = ALTER", "Failed authentication with /")
    assert eventually(lambda: all(any(p in line for line in written(path)) for p in parts))
    assert path.stat().st_mode & 0o777 == 0o600
    assert not any(part in record.getMessage() for record in log.records for part in parts)
    before = len(written(path))
    broker.restart()
    with matrix.login(broker.connect(), matrix.ADMIN) as connection:
        connection.ask(ApiKey.CREATE_ACLS, 3, creations=[{**ENTRY, "principal": "User:bob"}])
    broker.stop()
    assert len(written(path)) == before + 1
    logging.getLogger(CHANGES).info("after the end")
    assert "after the end" not in path.read_text()
    assert "after the end" in log.text


def test_a_file_that_is_moved_away_is_made_anew(
    audit: Callable[[str], None], tmp_path: Path
) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    audit("first")
    assert eventually(lambda: len(written(path)) == 1)
    path.rename(moved)
    audit("second")
    assert eventually(lambda: len(written(path)) == 1)
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    audit("third")
    assert eventually(lambda: len(written(path)) == 1)
    os.truncate(path, 0)  # as `copytruncate` does
    audit("fourth")
    assert eventually(lambda: [line.split()[-1] for line in written(path)] == ["fourth"])
    assert [line.split()[-1] for line in written(moved)] == ["first"]


def test_lines_that_the_disk_refuses_are_in_the_log_until_it_takes_them(
    audit: Callable[[str], None], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    full.replace(path)
    for line in ("first", "second"):
        audit(line)
        assert eventually(lambda line=line: f"{CHANGES}: {line}" in log.text)
    assert log.text.count("cannot be written (No space left on device)") == 1
    path.unlink()
    audit("third")
    assert eventually(lambda: "third" in "".join(written(path)))
    assert eventually(lambda: "is written again" in log.text)
    assert f"{CHANGES}: third" not in log.text


def test_a_line_begins_anew_after_one_that_was_cut_off(tmp_path: Path) -> None:
    """Of the one that was cut off the log has the whole."""
    program = (
        "import logging, resource, sys, time\n"
        "from horolog.broker import AuditFile\n"
        "logging.basicConfig(format='%(message)s', level=logging.INFO)\n"
        "_, most = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, most))\n"
        "file, logger = AuditFile(sys.argv[1]), logging.getLogger('horolog.broker.changes')\n"
        "class Wait(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        if record.levelno == logging.INFO:\n"
        "            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))\n"
        "            logger.warning('second')\n"
        "logging.root.addHandler(Wait())\n"
        "logger.info('first line of the audit')\n"
        "while 'second' not in open(sys.argv[1]).read(): time.sleep(0.01)\n"
        "file.close()\n"
    )
    path = tmp_path / "audit.log"
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert path.read_text() == "first line\nsecond\n"
    assert f"{CHANGES}: first line of the audit" in done.stderr


def test_more_lines_than_may_wait_for_the_disk_are_in_the_log(
    tmp_path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_LINES=5)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(Misconfigured, match="No such device"):
        AuditFile(str(pipe))  # nobody reads it, and a start does not wait for that
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = AuditFile(str(pipe))
    logger = logging.getLogger(CHANGES)
    for number in range(5_000):  # more than a pipe holds
        logger.info("line %d %s", number, "x" * 100)
    file.close()
    begun = os.read(reader, 1 << 20).count(b" line ")
    assert begun > 0
    assert log.text.count(f"{CHANGES}: line ") >= 5_000 - begun
    os.close(reader)


@pytest.mark.parametrize(
    ("name", "why"),
    [("none/audit.log", "No such file or directory"), ("", "Is a directory"), ("a\0b", "null")],
)
def test_a_file_that_cannot_be_opened_is_refused_at_the_start(
    make_broker: MakeBroker, tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(Misconfigured, match=f"horolog.audit.log=.*{why}"):
        make_broker(horolog_audit_log=f"{tmp_path}/{name}")
    assert logging.getLogger(CHANGES).propagate
    assert not logging.getLogger(CHANGES).handlers


def test_a_start_that_fails_gives_the_loggers_back(make_broker: MakeBroker, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        make_broker(
            horolog_audit_log=str(tmp_path / "audit.log"),
            listeners="SSL://127.0.0.1:0",
            ssl_keystore_location="/nonexistent",
        )
    assert logging.getLogger(CHANGES).propagate
    assert not logging.getLogger(CHANGES).handlers


def test_a_file_that_others_can_read_is_named(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    path.touch()
    for mode, is_named in ((0o640, True), (0o600, False)):
        path.chmod(mode)
        log.clear()
        AuditFile(str(path)).close()
        assert (f"chmod 600 {path}" in log.text) is is_named


def test_the_audit_of_kafka_has_a_level_that_clients_set(broker: RunningBroker) -> None:
    name = "kafka.authorizer.logger"
    resource = (ResourceType.BROKER_LOGGER, "1")
    broker.client.alter_configs({resource: {name: "DEBUG"}})
    try:
        assert broker.client.describe_configs([resource])[resource][name].value == "DEBUG"
    finally:
        broker.client.alter_configs({resource: {name: None}})
