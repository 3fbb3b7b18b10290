"""Users over the protocol: set, described, removed, kept, and what they log in with."""

import stat
from collections.abc import Iterator
from typing import Any

import pytest
import rights_matrix as matrix
from faulty_calls import full_disk
from raw_connection import RawConnection
from running_broker import BrokerProcess, MakeBroker, RunningBroker
from secrets_kept import Kept, password

from horolog.client import AuthenticationFailed, Client
from horolog.errors import ErrorCode
from horolog.security import ScramLogin, ScramMechanism, salted
from horolog.wire import ApiKey

SHA_256, SHA_512 = ScramMechanism
ALTER, DESCRIBE = ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
SALT = b"a salt of the client"
SECRET, OLD = password("alice"), password("old")
SETTINGS = {
    **matrix.OURS,
    "listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms": "0",
}


def upsertion(
    name: str, password: str, mechanism: int = SHA_512, iterations: int = 4096
) -> dict[str, Any]:
    known = ScramMechanism(mechanism) if mechanism in (1, 2) else SHA_256
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted(known, password, SALT, iterations),
    }


def alter(connection: RawConnection, **changes: Any) -> dict[str, int]:
    answer = connection.ask(ALTER, 0, **changes)
    return {one.user: one.error_code for one in answer.results}


def described(connection: RawConnection, *names: str) -> dict[str, Any]:
    users = [{"name": name} for name in names] or None
    answer = connection.ask(DESCRIBE, 0, users=users)
    assert answer.error_code == 0
    return {
        one.user: one.error_code
        or [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in answer.results
    }


def may_log_in(
    broker: RunningBroker | BrokerProcess, name: str, password: str, mechanism: str
) -> bool:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{name}" password="{password}";',
    }
    with Client(broker.address, security=security) as client:
        try:
            client.metadata()
        except AuthenticationFailed:
            return False
    return True


@pytest.fixture
def broker(make_broker: MakeBroker) -> RunningBroker:
    return make_broker(**SETTINGS)


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[RawConnection]:
    with matrix.login(broker.connect(), matrix.ADMIN) as connection:
        yield connection


def test_a_user_logs_in_by_each_mechanism_that_has_its_password(
    broker: RunningBroker, connection: RawConnection
) -> None:
    assert alter(connection, upsertions=[upsertion("alice", SECRET)]) == {"alice": 0}
    assert may_log_in(broker, "alice", SECRET, "SCRAM-SHA-512")
    assert not may_log_in(broker, "alice", "wrong", "SCRAM-SHA-512")
    assert not may_log_in(broker, "alice", SECRET, "SCRAM-SHA-256")
    assert not may_log_in(broker, "nobody", SECRET, "SCRAM-SHA-512")
    alter(connection, upsertions=[upsertion("alice", "other", SHA_256, 8192)])
    assert may_log_in(broker, "alice", "other", "SCRAM-SHA-256")
    assert may_log_in(broker, "alice", SECRET, "SCRAM-SHA-512")
    assert described(connection) == {"alice": [(1, 8192), (2, 4096)]}


def test_a_changed_password_counts_at_the_next_login_alone(
    broker: RunningBroker, connection: RawConnection
) -> None:
    alter(connection, upsertions=[upsertion("alice", OLD)])
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} username="alice" password="{OLD}";',
    }
    with Client(broker.address, security=security) as client:
        client.metadata()
        alter(connection, upsertions=[upsertion("alice", "new")])
        client.metadata()
    assert not may_log_in(broker, "alice", OLD, "SCRAM-SHA-512")
    assert may_log_in(broker, "alice", "new", "SCRAM-SHA-512")


def test_a_removed_user_does_not_log_in_and_stays_where_it_is(
    broker: RunningBroker, connection: RawConnection
) -> None:
    alter(connection, upsertions=[upsertion("alice", SECRET)])
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} username="alice" password="{SECRET}";',
    }
    gone = [{"name": "alice", "mechanism": SHA_512}]
    with Client(broker.address, security=security) as client:
        client.metadata()
        assert alter(connection, deletions=gone) == {"alice": 0}
        client.metadata()
    assert not may_log_in(broker, "alice", SECRET, "SCRAM-SHA-512")
    assert described(connection) == {}


def test_each_user_has_its_own_error(connection: RawConnection) -> None:
    alter(connection, upsertions=[upsertion("both", SECRET, SHA_256)])
    outcomes = alter(
        connection,
        deletions=[
            {"name": "nobody", "mechanism": SHA_256},
            {"name": "odd", "mechanism": 3},
            {"name": "both", "mechanism": SHA_256},
            {"name": "nobody", "mechanism": SHA_512},
        ],
        upsertions=[
            upsertion("good", SECRET),
            upsertion("", SECRET),
            upsertion("fast", SECRET, iterations=4095),
            upsertion("slow", SECRET, iterations=16_385),
            upsertion("twice", SECRET, SHA_256),
            upsertion("twice", SECRET, SHA_512),
            upsertion("unknown", SECRET, 0),
            upsertion("both", SECRET),
            upsertion("first", SECRET, iterations=1),
            upsertion("first", SECRET),
            {**upsertion("empty", SECRET), "salted_password": b""},
        ],
    )
    assert outcomes == {
        "nobody": 91,
        "odd": 33,
        "good": 0,
        "": 93,
        "fast": 93,
        "slow": 93,
        "twice": 92,
        "unknown": 33,
        "both": 92,
        "first": 93,
        "empty": 93,
    }
    assert alter(connection, deletions=[{"name": "", "mechanism": SHA_256}]) == {"": 93}
    assert alter(connection, upsertions=[upsertion("", SECRET, 0)]) == {"": 93}
    assert described(connection) == {"good": [(2, 4096)], "both": [(1, 4096)]}


def test_a_request_that_changes_too_many_passwords_changes_none(
    connection: RawConnection,
) -> None:
    gone = [{"name": f"{number}", "mechanism": SHA_256} for number in range(10_001)]
    assert set(alter(connection, deletions=gone).values()) == {44}
    assert set(alter(connection, deletions=gone[1:]).values()) == {91}


def test_users_are_described_by_name(connection: RawConnection) -> None:
    alter(connection, upsertions=[upsertion("a", SECRET), upsertion("b", SECRET)])
    assert described(connection, "a", "none") == {"a": [(2, 4096)], "none": 91}
    assert described(connection, "a", "a") == {"a": 92}


@pytest.mark.parametrize("asked", [None, ["alice"], ["alice", "nobody"]])
def test_one_who_may_not_describe_users_is_told_one_empty_result(
    broker: RunningBroker, connection: RawConnection, asked: list[str] | None
) -> None:
    """Where all users are asked for, Apache Kafka never answers such a client."""
    alter(connection, upsertions=[upsertion("alice", SECRET)])
    users = asked and [{"name": name} for name in asked]
    with matrix.login(broker.connect(), matrix.user(0)) as other:
        answer = other.ask(DESCRIBE, 0, users=users)
        told = [(one.user, one.error_code, one.credential_infos) for one in answer.results]
        assert (answer.error_code, told) == (31, [("", 31, ())])
        assert alter(other, upsertions=[upsertion("alice", "x"), upsertion("bob", "x")]) == {
            "alice": 31,
            "bob": 31,
        }


@pytest.mark.parametrize(
    ("first", "final"),
    [
        (b"", None),
        (b"n,,", None),
        (b"y,,n=alice,r=x", None),
        (b"p=tls-unique,,n=alice,r=x", None),
        (b"n,a=bob,n=alice,r=x", None),
        (b"n,,n=alice,r=x,tokenauth=true", None),
        (b"n,,n=\xff\xfe,r=x", None),
        (b"n,,n=nobody,r=x", b"c=biws,r={},p=AAAA"),
        (b"n,,n=alice,r=x", b""),
        (b"n,,n=alice,r=x", b"c=biws,r={}y,p=AAAA"),
        (b"n,,n=alice,r=x", b"c=biws,r={},p=AAAA"),
    ],
)
@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_wrong_message_of_scram_is_answered_and_ends_the_connection(
    broker: RunningBroker,
    connection: RawConnection,
    first: bytes,
    final: bytes | None,
    mechanism: ScramMechanism,
) -> None:
    alter(connection, upsertions=[upsertion("alice", SECRET, mechanism)])
    with broker.connect() as other:
        other.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism.title)
        answer = other.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=first)
        if final is not None:
            assert answer.error_code == 0
            nonce = bytes(answer.auth_bytes).split(b",")[0][2:]
            message = final.replace(b"{}", nonce)
            answer = other.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        assert answer.error_code == 58
        assert b"bob" in first or answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {mechanism.title}"
        )
        assert answer.auth_bytes == b""
        assert other.is_closed()


def test_users_outlive_a_restart(broker: RunningBroker, connection: RawConnection) -> None:
    alter(connection, upsertions=[upsertion("alice", SECRET), upsertion("gone", SECRET)])
    alter(connection, deletions=[{"name": "gone", "mechanism": SHA_512}])
    broker.restart()
    assert may_log_in(broker, "alice", SECRET, "SCRAM-SHA-512")
    assert not may_log_in(broker, "gone", SECRET, "SCRAM-SHA-512")


def test_a_user_that_was_answered_outlives_a_kill(broker_process: BrokerProcess) -> None:
    with matrix.login(broker_process.connect(), matrix.ADMIN) as connection:
        assert alter(connection, upsertions=[upsertion("alice", SECRET)]) == {"alice": 0}
    broker_process.kill()
    broker_process.start_again()
    assert may_log_in(broker_process, "alice", SECRET, "SCRAM-SHA-512")


@pytest.fixture
def broker_process(tmp_path: Any) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "log", SETTINGS) as running:
        yield running


def test_files_with_what_is_kept_of_passwords_are_their_owner_s(
    broker: RunningBroker, connection: RawConnection
) -> None:
    alter(connection, upsertions=[upsertion("alice", SECRET)])
    broker.call(lambda: broker.broker.node._store._log.snapshot(1))  # as when it has grown
    broker.restart()
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (broker.log_dir / "__cluster_metadata-0").iterdir()
        if path.suffix in (".log", ".checkpoint")
    }
    assert set(modes.values()) == {0o600}
    assert any(name.endswith(".checkpoint") for name in modes)


def test_the_secret_of_logins_is_its_owner_s_after_a_restart(broker: RunningBroker) -> None:
    """Without a user, too: a file that is made after the restart has the secret."""
    broker.restart()
    broker.call(lambda: broker.broker.node._store._log.snapshot(1))
    files = [*(broker.log_dir / "__cluster_metadata-0").glob("*.checkpoint")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_what_is_set_aside_of_damaged_metadata_is_its_owner_s(broker: RunningBroker) -> None:
    with matrix.login(broker.connect(), matrix.ADMIN) as connection:
        alter(connection, upsertions=[upsertion("alice", SECRET)])
    broker.stop()
    (log,) = (broker.log_dir / "__cluster_metadata-0").glob("*.log")
    found = bytearray(log.read_bytes())
    for lost in (b"horolog.state.login.secret", b"alice"):
        found[found.index(lost)] ^= 1
    log.write_bytes(found)
    for path in log.parent.iterdir():
        path.chmod(0o600)
    plain = {"listener_security_protocol_map": "USERS:PLAINTEXT", "authorizer_class_name": ""}
    broker.restart(horolog_open_listeners="*", **plain)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in log.parent.iterdir()}
    assert any(name.endswith(".cut") for name in modes)
    assert set(modes.values()) == {0o600}


def test_a_password_among_the_settings_is_its_owner_s(
    make_broker: MakeBroker, secrets_stay: Kept
) -> None:
    secrets_stay.exempt.add("__cluster_metadata-0")  # as in Kafka
    broker = make_broker()
    name = "listener.name.plaintext.plain.sasl.jaas.config"
    assert broker.alter("1", (name, 0, SECRET), kind=4).error_code == 0
    (file,) = (broker.log_dir / "__cluster_metadata-0").glob("*.log")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    broker.restart()
    broker.call(lambda: broker.broker.node._store._log.snapshot(1))
    (file,) = file.parent.glob("*.checkpoint")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_scram_that_is_enabled_later_tells_as_little_of_who_is_there(
    make_broker: MakeBroker,
) -> None:
    """The salt of a user that is not there cannot be computed without the broker's secret."""
    broker = make_broker(**matrix.OURS)
    setting = {"name": "listener.name.users.sasl.enabled.mechanisms", "value": "SCRAM-SHA-256"}
    changed = {"resource_type": 4, "resource_name": "1"}
    with matrix.login(broker.connect(), matrix.ADMIN) as connection:
        resources = [{**changed, "configs": [{**setting, "config_operation": 0}]}]
        answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
        assert answer.responses[0].error_code == 0
    first = b"n,,n=nobody,r=x"
    known = ScramLogin(ScramMechanism.SHA_256, lambda _: None, b"", "").answer(first)
    with broker.connect() as connection:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
        told = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=first).auth_bytes
    assert told.split(b",")[1] != known.split(b",")[1]


def test_a_change_that_a_full_disk_refuses_is_none(
    broker: RunningBroker, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, too: what a client is told, and who logs in, is as after a restart."""
    alter(connection, upsertions=[upsertion("alice", SECRET)])
    entry = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    with monkeypatch.context() as patched:
        full_disk(patched)
        refused = ErrorCode.kafka_storage_error
        assert alter(connection, upsertions=[upsertion("bob", SECRET)]) == {"bob": refused}
        gone = [{"name": "alice", "mechanism": SHA_512}]
        assert alter(connection, deletions=gone) == {"alice": refused}
        made = connection.ask(ApiKey.CREATE_ACLS, 3, creations=[entry])
        assert made.results[0].error_code == refused
    for crash in (None, True):
        if crash:
            connection.socket.close()
            broker.restart(crash=True)
        assert may_log_in(broker, "alice", SECRET, "SCRAM-SHA-512")
        assert not may_log_in(broker, "bob", SECRET, "SCRAM-SHA-512")
    assert len(broker.broker.access.rights or ()) == 0


def test_users_keep_a_broker_that_asks_for_no_login_from_starting(
    broker: RunningBroker, connection: RawConnection
) -> None:
    alter(connection, upsertions=[upsertion("alice", SECRET)])
    broker.stop()
    plain = {"listener_security_protocol_map": "USERS:PLAINTEXT", "authorizer_class_name": ""}
    with pytest.raises(Exception, match="SCRAM credentials: 1"):
        broker.restart(**plain)
