"""Users and access control entries of one directory under horolog and Apache Kafka, in turn."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import rights_matrix as matrix
from running_broker import MakeBroker, RunningBroker
from tools.peers.kafka import Kafka, run_tool

from horolog.client import AuthenticationFailed, Client
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import LogRecord, build_batch
from horolog.rights import AclEntry, AclFilter
from horolog.security import ScramMechanism
from horolog.wire import AclOperation, AclPattern, AclPermission, AclResource

MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    **matrix.settings(f"User:{matrix.ADMIN};User:ANONYMOUS"),
    "listener.name.users.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    **{
        f"listener.name.users.{mechanism}.sasl.jaas.config": (
            f"{MODULES}.scram.ScramLoginModule required;"
        )
        for mechanism in ("scram-sha-256", "scram-sha-512")
    },
}
OURS = {**matrix.OURS, **SETTINGS}
BATCH = build_batch([LogRecord(1_700_000_000_000, b"k", b"v")])
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
OP = AclOperation
SHA_256, SHA_512 = ScramMechanism
ENTRIES = [
    AclEntry(AclResource.TOPIC, "kept", LITERAL, "User:zoe, =x", "*", OP.WRITE, ALLOW),
    AclEntry(AclResource.TOPIC, "ke", PREFIXED, "User:bob", "127.0.0.1", OP.ALL, ALLOW),
    AclEntry(AclResource.TOPIC, "kept", LITERAL, "User:bob", "*", OP.WRITE, DENY),
    AclEntry(AclResource.GROUP, "*", LITERAL, "User:*", "127.0.0.1", OP.READ, ALLOW),
]
ODD = "zoe, =x"
"""A name with everything that SCRAM escapes; Kafka takes ASCII alone."""


def security(mechanism: str, name: str, password: str) -> dict[str, str]:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    module = f"{MODULES}.{kind}LoginModule required"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{name}" password="{password}";',
    }


ADMIN = security("PLAIN", matrix.ADMIN, matrix.PASSWORD(matrix.ADMIN))


def may_log_in(address: str, mechanism: str, name: str, password: str) -> bool:
    with Client(address, security=security(mechanism, name, password)) as client:
        try:
            client.metadata()
        except AuthenticationFailed:
            return False
    return True


def error_of_produce(address: str, login: Mapping[str, str], topic: str) -> int:
    with Client(address, security=dict(login)) as client:
        try:
            client.produce(topic, 0, BATCH)
        except RequestRefused as error:
            return int(error.code)
    return 0


def check_everything(address: str) -> None:
    """Check logins and rights of what `prepare` made."""
    assert may_log_in(address, "SCRAM-SHA-256", ODD, "pencil")
    assert not may_log_in(address, "SCRAM-SHA-256", ODD, "pencils")
    assert not may_log_in(address, "SCRAM-SHA-512", ODD, "pencil")
    assert may_log_in(address, "SCRAM-SHA-512", "bob", "p=,ü")
    zoe, bob = security("SCRAM-SHA-256", ODD, "pencil"), security("SCRAM-SHA-512", "bob", "p=,ü")
    assert error_of_produce(address, zoe, "kept") == 0
    assert error_of_produce(address, zoe, "kept2") == ErrorCode.topic_authorization_failed
    assert error_of_produce(address, bob, "kept") == ErrorCode.topic_authorization_failed
    assert error_of_produce(address, bob, "kept2") == 0


def prepare(address: str) -> None:
    with Client(address, security=ADMIN) as client:
        client.create_topics({"kept": 1, "kept2": 1})
        client.acls.add(ENTRIES)
        client.users.put(ODD, "pencil", SHA_256)
        client.users.put("bob", "p=,ü", SHA_512)
        client.users.put("gone", "x", SHA_512)
        client.users.remove("gone", [SHA_512])


def kafka_of(path: Path, *format_arguments: str) -> Kafka:
    return Kafka(
        path,
        settings=SETTINGS,
        listeners={matrix.LISTENER: "SASL_PLAINTEXT"},
        format_arguments=format_arguments,
    )


def admin_file(path: Path) -> tuple[str, str]:
    file = path / "admin.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in ADMIN.items()))
    return "--command-config", str(file)


@pytest.mark.timeout(1800)
def test_kafka_obeys_what_horolog_wrote_and_horolog_what_kafka_changed(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", OURS) as ours:
        prepare(ours.address)
        now_ms = ours.clock.now_ms()
        ours.call(lambda: ours.broker.metadata._store._log.snapshot(now_ms))  # as when it has grown
        ours.restart()
        check_everything(ours.address)
    assert list((tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    kafka = kafka_of(tmp_path)
    with kafka:
        address = kafka.address_of(matrix.LISTENER)
        check_everything(address)
        with Client(address, security=ADMIN) as client:
            assert client.acls.list() == sorted(ENTRIES)
            assert {user.user for user in client.users.list()} == {ODD, "bob"}
            client.acls.remove(AclFilter(name="kept", principal="User:bob"))
            client.users.put("bob", "another", SHA_512)
            client.users.remove(ODD, [SHA_256])
    with RunningBroker(tmp_path / "data", {**OURS, "horolog.take.over": "true"}) as ours:
        assert not may_log_in(ours.address, "SCRAM-SHA-256", ODD, "pencil")
        assert not may_log_in(ours.address, "SCRAM-SHA-512", "bob", "p=,ü")
        bob = security("SCRAM-SHA-512", "bob", "another")
        assert error_of_produce(ours.address, bob, "kept") == 0
        with Client(ours.address, security=ADMIN) as client:
            assert client.acls.list() == sorted([*ENTRIES[:2], ENTRIES[3]])


@pytest.mark.timeout(1800)
def test_horolog_obeys_what_kafka_wrote_and_changes_it_once_taken_over(tmp_path: Path) -> None:
    formatted = 'SCRAM-SHA-256=[name="cram",password="pencil"]'
    kafka = kafka_of(tmp_path, "--add-scram", formatted)
    with kafka:
        prepare(kafka.address_of(matrix.LISTENER))
        users = ("--entity-type", "users", "--entity-name", "tools")
        added = "SCRAM-SHA-512=[iterations=8192,password=by-kafka]"
        kafka.tool("configs", "--alter", *users, "--add-config", added)
        allowed = ("--add", "--allow-principal", "User:tools", "--allow-host", "127.0.0.1")
        kafka.tool("acls", *allowed, "--producer", "--topic", "ke", *PREFIX)
    tools = security("SCRAM-SHA-512", "tools", "by-kafka")
    with RunningBroker(tmp_path / "data", OURS) as ours:
        check_everything(ours.address)
        assert may_log_in(ours.address, "SCRAM-SHA-256", "cram", "pencil")
        assert error_of_produce(ours.address, tools, "kept") == 0
        with Client(ours.address, security=ADMIN) as client:
            entries = client.acls.list()
            for change in (
                lambda: client.users.put("bob", "another", SHA_512),
                lambda: client.acls.add([ENTRIES[0]._replace(name="other")]),
                lambda: client.acls.remove(AclFilter()),
            ):
                with pytest.raises(RequestRefused) as refused:
                    change()
                assert refused.value.code == ErrorCode.policy_violation
            assert client.acls.list() == entries
    with RunningBroker(tmp_path / "data", {**OURS, "horolog.take.over": "true"}) as ours:
        check_everything(ours.address)
        with Client(ours.address, security=ADMIN) as client:
            assert client.acls.list() == entries
            client.users.put("bob", "another", SHA_512)
            client.acls.remove(AclFilter(principal="User:tools"))
        ours.restart(crash=True)
        assert may_log_in(ours.address, "SCRAM-SHA-512", "bob", "another")
        assert error_of_produce(ours.address, tools, "kept") != 0


PREFIX = ("--resource-pattern-type", "prefixed")


@pytest.mark.timeout(1800)
def test_kafka_s_tools_change_users_and_entries_of_a_horolog(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(**OURS)
    where = ("--bootstrap-server", broker.address, *admin_file(tmp_path))

    def tool(name: str, *arguments: str) -> str:
        done = run_tool(name, *where, *arguments)
        assert b"rror" not in done.stderr, done.stderr
        return done.stdout.decode()

    alice = ("--entity-type", "users", "--entity-name", "alice")
    added = "SCRAM-SHA-256=[iterations=8192,password=one],SCRAM-SHA-512=[password=two]"
    for one in added.split(",SCRAM"):
        one = one if one.startswith("SCRAM") else f"SCRAM{one}"
        assert "Completed updating" in tool("configs", "--alter", *alice, "--add-config", one)
    described = tool("configs", "--describe", *alice)
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    assert may_log_in(broker.address, "SCRAM-SHA-256", "alice", "one")
    assert may_log_in(broker.address, "SCRAM-SHA-512", "alice", "two")
    tool("configs", "--alter", *alice, "--delete-config", "SCRAM-SHA-256")
    assert not may_log_in(broker.address, "SCRAM-SHA-256", "alice", "one")

    who = ("--allow-principal", "User:alice")
    tool("acls", "--add", *who, "--consumer", "--topic", "t", "--group", "g", *PREFIX)
    tool("acls", "--add", "--deny-principal", "User:bob", "--operation", "All", "--cluster")
    with Client(broker.address, security=ADMIN) as client:
        assert {(entry.resource_type, entry.name) for entry in client.acls.list()} == {
            (AclResource.TOPIC, "t"),
            (AclResource.GROUP, "g"),
            (AclResource.CLUSTER, "kafka-cluster"),
        }
    listed = tool("acls", "--list", "--topic", "theirs", "--resource-pattern-type", "match")
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "User:bob" not in listed
    tool("acls", "--remove", "--force", "--topic", "t", *PREFIX)
    assert "resourceType=TOPIC" not in tool("acls", "--list")
