"""`horolog users` and `horolog acls` against a broker with logins and rights."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import rights_matrix as matrix
from command_runner import run_command
from running_broker import MakeBroker, RunningBroker
from scripted_broker import ScriptedBroker, Silence
from secrets_kept import password

from horolog.metadata import MetadataLog
from horolog.schemas.metadata import AccessControlEntry
from horolog.storage import Files
from horolog.wire import ApiKey, Versions

SETTINGS = {
    **matrix.OURS,
    "listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
}
MODULE = "org.apache.kafka.common.security"


def properties(path: Path, mechanism: str, name: str, password: str) -> Path:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={MODULE}.{kind}LoginModule required username="{name}" '
        f'password="{password}";\n'
    )
    return path


PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_closes_a_broker_in_five_lines(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    of_broker, of_admin, *_ = blocks("properties")
    lines = of_broker.replace(":9092", ":0").splitlines()
    assert len(lines) == 5
    broker = RunningBroker(tmp_path / "log", dict(line.split("=", 1) for line in lines))
    request.addfinalizer(broker.stop)
    admin = tmp_path / "admin.properties"
    admin.write_text(of_admin)
    ran = []
    for line in blocks("sh")[0].splitlines():
        command = [it.replace(admin.name, str(admin)) for it in shlex.split(line, comments=True)]
        assert command[0] == "horolog"
        ran.append(run_command(*command[1:], "-b", broker.address, stdin=password("alice") + "\n"))
    assert [it.code for it in ran] == [0, 0, 0, 1], [it.err for it in ran]
    assert "User:alice may not write topic:clicks" in ran[-1].out
    listed = run_command("acls", "list", "-b", broker.address)
    assert "security.protocol" in listed.err


def test_the_pages_certificates_are_served_and_trusted(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    openssl = shutil.which("openssl")
    if openssl is None or b"OpenSSL 3" not in subprocess.check_output([openssl, "version"]):
        pytest.skip("no OpenSSL 3 here")
    commands = blocks("sh")[1].replace("DNS:kafka.example.org", "IP:127.0.0.1")
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "broker.pem").stat().st_mode & 0o077 == 0
    broker = make_broker(
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(tmp_path / "broker.pem"),
    )
    trust = ("ssl.truststore.type=PEM", f"ssl.truststore.location={tmp_path / 'ca.pem'}")
    given = [f"--command-property={it}" for it in ("security.protocol=SSL", *trust)]
    listed = run_command("topics", "list", "-b", broker.address, *given)
    assert (listed.code, listed.err) == (0, "")


@pytest.fixture
def run(make_broker: MakeBroker, tmp_path: Path) -> Any:
    broker = make_broker(**SETTINGS)
    admin = properties(
        tmp_path / "admin.properties", "PLAIN", matrix.ADMIN, matrix.PASSWORD(matrix.ADMIN)
    )

    def run(*arguments: str, config: Path = admin, **more: Any) -> Any:
        connection = ("-b", broker.address, "--command-config", str(config))
        return run_command(*arguments, *connection, **more)

    return run


def test_a_user_is_added_given_a_right_and_removed(run: Any, tmp_path: Path) -> None:
    secret = password("alice")
    (tmp_path / "alice.password").write_text(f"{secret}\n")
    added = run("users", "add", "alice", "--password-file", str(tmp_path / "alice.password"))
    assert (added.code, added.out) == (0, "alice logs in by SCRAM-SHA-512\n")
    added = run("users", "add", "alice", "--mechanism", "scram-sha-256", stdin=f"{secret}\n" * 2)
    assert added.code == 0
    listed = json.loads(run("users", "list", "--json").out)
    assert [user["mechanism"] for user in listed] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert secret not in run("users", "list").out

    alice = properties(tmp_path / "alice.properties", "SCRAM-SHA-512", "alice", secret)
    assert run("topics", "create", "clicks").code == 0
    asked = ("topics", "describe", "clicks")
    assert run(*asked, config=alice).code == 1
    assert run("acls", "add", "User:alice", "describe", "topic:clicks").code == 0
    assert run("acls", "add", "User:alice", "describe-configs", "topic:clicks").code == 0
    assert run(*asked, config=alice).code == 0

    removed = run("users", "remove", "alice")
    assert removed.out == "alice is removed: SCRAM-SHA-256, SCRAM-SHA-512\n"
    assert run(*asked, config=alice).code == 1
    assert run("users", "remove", "alice").code == 1
    assert run("users", "list").out == "no users\n"


NO_OPERATIONS = {
    "error_code": 0,
    "cluster_id": "theirs",
    "controller_id": 1,
    "cluster_authorized_operations": 0,
    "brokers": [],
}


def test_users_are_not_waited_for_where_kafka_denies_them_without_an_answer() -> None:
    asked = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    answers = {asked: Silence(), ApiKey.DESCRIBE_CLUSTER: NO_OPERATIONS}
    with ScriptedBroker(answers) as broker:
        refused = run_command("users", "list", "-b", broker.bootstrap)
        assert refused.code == 1
        assert "needs DESCRIBE on the cluster" in refused.err
        assert run_command("users", "remove", "alice", "-b", broker.bootstrap).code == 1
        assert not broker.asked(asked)


def test_users_of_a_broker_that_cannot_describe_its_cluster_are_listed() -> None:
    none = {"error_code": 0, "error_message": None, "results": ()}
    later = {ApiKey.DESCRIBE_CLUSTER: Versions(7, 7)}
    answers = {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: none}
    with ScriptedBroker(answers, versions=later) as broker:
        assert run_command("users", "list", "-b", broker.bootstrap).out == "no users\n"


@pytest.mark.parametrize("text", ["", "\n", "a\nb\n", "a\na\na\n"])
def test_a_password_is_one_line_or_two_equal_ones(run: Any, text: str) -> None:
    refused = run("users", "add", "alice", stdin=text)
    assert refused.code == 2
    assert "one line with the password" in refused.err


def test_entries_are_listed_explained_and_removed(run: Any) -> None:
    assert run("acls", "list").out == "no access control entries\n"
    allowing = ("User:alice", "read", "topic:click", "--prefixed")
    denying = ("User:alice", "all", "topic:clicks-old", "--deny", "--host", "127.0.0.1")
    for entry in (allowing, denying, ("User:*", "describe", "cluster")):
        assert run("acls", "add", *entry).code == 0
    listed = run("acls", "list").out
    assert "topic:click..." in listed
    assert "cluster:kafka-cluster" in listed
    applying = json.loads(run("acls", "list", "--on", "topic:clicks-old", "--json").out)
    assert [row["effect"] for row in applying] == ["allow", "deny"]

    assert run("acls", "explain", "User:alice", "describe", "topic:clicks").code == 0
    denied = run("acls", "explain", "User:alice", "read", "topic:clicks-old")
    assert denied.code == 1
    assert "User:alice may not read topic:clicks-old from 127.0.0.1, by" in denied.out
    other = ("acls", "explain", "User:alice", "read", "topic:clicks-old", "--host", "10.0.0.1")
    assert run(*other).code == 0
    none = run("acls", "explain", "User:bob", "read", "group:g", "--json")
    assert (none.code, json.loads(none.out)) == (1, {"allowed": False, "entry": None})

    assert run("acls", "remove", *allowing).code == 0
    again = run("acls", "remove", *allowing)
    assert again.code == 1
    assert "there is no such entry" in again.out


def test_ranges_that_kafka_has_not_obeyed_are_named(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(**SETTINGS)
    admin = properties(
        tmp_path / "admin.properties", "PLAIN", matrix.ADMIN, matrix.PASSWORD(matrix.ADMIN)
    )
    listing = ("acls", "list", "-b", broker.address, "--command-config", str(admin))
    assert "range" not in run_command(*listing).out
    broker.stop()
    log = MetadataLog.open(Files(), str(broker.log_dir), node_id=1)
    hosts = ("10.0.0.0/8", "2001:db8::/32", "10.0.0.0/99", "10.0.0.1")
    log.append([AccessControlEntry(uuid4(), 2, "t", 3, "User:a", it, 3, 3) for it in hosts], 1)
    log.close()
    caplog.clear()
    broker.start()
    (warned,) = (it.getMessage() for it in caplog.records if "range of addresses" in it.message)
    listing = ("acls", "list", "-b", broker.address, "--command-config", str(admin))
    listed = run_command(*listing)
    assert warned in listed.out.replace("\n", " ")
    assert warned.startswith("access control entries with a range of addresses: 2. horolog obeys")
    assert [host for host in hosts if f"host={host}," in warned] == list(hosts[:2])
    assert len(json.loads(run_command(*listing, "--json").out)) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("User:a", "reed", "topic:t"), "reed is no operation"),
        (("User:a", "any", "topic:t"), "any is no operation"),
        (("User:a", "read", "queue:t"), "queue is no kind of a resource"),
        (("User:a", "read", "clicks"), "clicks is no kind of a resource, as in KIND:NAME"),
        (("User:a", "read", "topic"), "give the name as well"),
        (("a", "read", "topic:t"), "write User:a"),
    ],
)
def test_what_is_no_entry_is_misuse(run: Any, arguments: tuple[str, ...], words: str) -> None:
    refused = run("acls", "add", *arguments)
    assert refused.code == 2
    assert words in refused.err


JAAS = f"{MODULE}.plain.PlainLoginModule required user_alice=secret-word;"
SETTING = "listener.name.plaintext.plain.sasl.jaas.config"


def test_a_password_is_not_taken_from_the_command_line(tmp_path: Path) -> None:
    refused = run_command("serve", "--log-dir", str(tmp_path / "log"), "--set", f"{SETTING}={JAAS}")
    assert refused.code == 2
    assert "write it into the file of --config" in refused.err
    assert "secret-word" not in refused.err


def test_passwords_that_others_can_read_are_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    for mode, is_warned in ((0o644, True), (0o640, True), (0o600, False)):
        file.write_text(f"{SETTING}={JAAS}\nnum.partitions=0\n")
        file.chmod(mode)
        refused = run_command("serve", "--log-dir", str(tmp_path / "log"), "--config", str(file))
        assert refused.code == 2
        assert ("chmod 600" in refused.err) is is_warned
        assert "secret-word" not in refused.err


FILE_PROVIDER = (
    "config.providers=file\n"
    "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
)


def test_a_password_comes_from_a_file_of_its_own(run: Any, tmp_path: Path) -> None:
    secret = matrix.PASSWORD(matrix.ADMIN)
    (tmp_path / "admin.password").write_text(f"admin={secret}\n")
    variable = f"${{file:{tmp_path}/admin.password:admin}}"
    admin = properties(tmp_path / "by-file.properties", "PLAIN", matrix.ADMIN, variable)
    admin.write_text(admin.read_text() + FILE_PROVIDER)
    listed = run("acls", "list", config=admin)
    assert (listed.code, listed.err) == (0, "")
    (tmp_path / "admin.password").write_text(f"other={secret}\n")
    refused = run("acls", "list", config=admin)
    assert refused.code == 2
    assert "the file does not have the key" in refused.err
    assert secret not in refused.err


def test_a_broker_takes_passwords_from_a_file_and_warns_if_others_can_read_it(
    tmp_path: Path,
) -> None:
    secrets, file = tmp_path / "secrets", tmp_path / "server.properties"
    secrets.write_text(f"jaas={JAAS}\nparts=secret-count\n")
    file.write_text(
        f"{FILE_PROVIDER}{SETTING}=${{file:{secrets}:jaas}}\n"
        f"num.partitions=${{file:{secrets}:parts}}\n"
    )
    file.chmod(0o644)
    for mode in (0o644, 0o600):
        secrets.chmod(mode)
        refused = run_command("serve", "--log-dir", str(tmp_path / "log"), "--config", str(file))
        assert refused.code == 2
        assert "Invalid value [hidden] for configuration num.partitions" in refused.err
        assert (f"chmod 600 {secrets}" in refused.err) is (mode == 0o644)
        assert f"chmod 600 {file}" not in refused.err
        assert "secret-" not in refused.err
