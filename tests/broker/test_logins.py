"""Logins over a listener that asks for one (SASL): states, wrong input at every step, limits."""

import json
import logging
from collections.abc import Iterator

import pytest
import rights_matrix as matrix
from overrides import override
from raw_connection import RawConnection, encoded
from running_broker import MakeBroker, RunningBroker

from horolog.client import AuthenticationFailed, Client
from horolog.config import Settings
from horolog.testing import Broker
from horolog.wire import ApiKey

HANDSHAKE, AUTHENTICATE, VERSIONS = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.API_VERSIONS,
)
PASSWORD = matrix.PASSWORD(matrix.ADMIN)
GOOD = f"\0{matrix.ADMIN}\0{PASSWORD}".encode()
WRONG = "Authentication failed: Invalid username or password"
PARTS = "Invalid SASL/PLAIN response: expected 3 tokens, got {}".format
MISSING = "Authentication failed: {} not specified".format
QUICK = {"connection.failed.authentication.delay.ms": "0"}


@pytest.fixture
def broker(make_broker: MakeBroker) -> RunningBroker:
    return make_broker(**matrix.OURS, **QUICK)


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[RawConnection]:
    with broker.connect() as connection:
        yield connection


def authenticate(connection: RawConnection, message: bytes, version: int = 2) -> tuple[int, str]:
    connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
    answer = connection.ask(AUTHENTICATE, version, auth_bytes=message)
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_with_the_password_is_served(connection: RawConnection, version: int) -> None:
    assert connection.ask(VERSIONS, 3).error_code == 0
    assert authenticate(connection, GOOD, version) == (0, "")
    assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"\0{matrix.ADMIN}\0wrong".encode(), WRONG),
        (b"\0nobody\0" + PASSWORD.encode(), WRONG),
        (b"", PARTS(1)),
        (b"\0", PARTS(2)),
        (GOOD + b"\0", PARTS(4)),
        (GOOD + bytes(9), PARTS(4)),
        (b"\0\0secret", MISSING("username")),
        (b"\0\0", MISSING("username")),
        (f"\0{matrix.ADMIN}\0".encode(), MISSING("password")),
        (b"\0\xff\xfe\0\xff", WRONG),
        (b"other" + GOOD, "Authentication failed: Client requested an authorization id"),
    ],
)
def test_a_wrong_login_is_answered_and_ends_the_connection(
    connection: RawConnection, message: bytes, words: str
) -> None:
    code, said = authenticate(connection, message)
    assert code == 58
    assert said.startswith(words)
    assert PASSWORD not in said
    assert connection.is_closed()


def test_the_name_itself_may_be_the_authorization_id(connection: RawConnection) -> None:
    assert authenticate(connection, matrix.ADMIN.encode() + GOOD) == (0, "")


def test_a_failed_login_is_answered_after_a_while(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, connection_failed_authentication_delay_ms="150")
    with broker.connect() as connection:
        connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
        sent = connection.send(AUTHENTICATE, 2, auth_bytes=b"\0a\0b")
        assert connection.is_silent(0.1)
        assert connection.receive()[0] == sent


def test_a_refused_handshake_is_answered_after_a_while(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, connection_failed_authentication_delay_ms="150")
    with broker.connect() as connection:
        sent = connection.send(HANDSHAKE, 1, mechanism="GSSAPI")
        assert connection.is_silent(0.1)
        assert connection.receive()[0] == sent
        assert connection.is_closed()


def test_the_broker_s_own_name_in_its_login_module_logs_nobody_in(make_broker: MakeBroker) -> None:
    """It is that of its client's side; Apache Kafka's broker has it for other brokers."""
    module = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="broker" password="secret" user_alice="secret";'
    )
    jaas = {"listener.name.users.plain.sasl.jaas.config": module}
    broker = make_broker(**{**matrix.OURS, **QUICK, **jaas})
    for name, code in (("broker", 58), ("alice", 0)):
        with broker.connect() as connection:
            assert authenticate(connection, f"\0{name}\0secret".encode())[0] == code


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_mechanism_is_refused_with_the_known_ones(
    connection: RawConnection, version: int
) -> None:
    answer = connection.ask(HANDSHAKE, version, mechanism="GSSAPI")
    assert (answer.error_code, tuple(answer.mechanisms)) == (33, ("PLAIN",))
    assert connection.is_closed()


def test_messages_come_without_headers_after_the_first_handshake(connection: RawConnection) -> None:
    assert connection.ask(HANDSHAKE, 0, mechanism="PLAIN").error_code == 0
    connection.socket.sendall(len(GOOD).to_bytes(4, "big") + GOOD)
    assert connection.exactly(4) == b"\0\0\0\0"
    assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


def test_a_wrong_message_without_header_closes_without_a_word(connection: RawConnection) -> None:
    assert connection.ask(HANDSHAKE, 0, mechanism="PLAIN").error_code == 0
    connection.socket.sendall(b"\0\0\0\x03\0a\0")
    assert connection.is_closed()


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, AUTHENTICATE])
def test_nothing_else_is_answered_before_the_handshake(
    connection: RawConnection, key: ApiKey
) -> None:
    connection.send(key, 2 if key is AUTHENTICATE else 9)
    assert connection.is_closed()


def test_versions_are_told_once_before_the_handshake(connection: RawConnection) -> None:
    assert connection.ask(VERSIONS, 3).error_code == 0
    connection.send(VERSIONS, 3)
    assert connection.is_closed()


def test_versions_that_are_not_served_may_be_asked_again(connection: RawConnection) -> None:
    body = encoded(VERSIONS, 3, {})
    connection.socket.sendall(
        (len(body) + 14).to_bytes(4, "big") + b"\0\x12\0\x63\0\0\0\x07\0\x04test" + body
    )
    assert connection.exactly(int.from_bytes(connection.exactly(4), "big"))[4:6] == b"\0\x23"
    assert connection.ask(VERSIONS, 3).error_code == 0


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [(ApiKey.METADATA, 9, {"topics": []}), (VERSIONS, 3, {}), (HANDSHAKE, 1, {"mechanism": "x"})],
)
def test_another_request_instead_of_the_login_is_an_error_and_the_end(
    connection: RawConnection, key: ApiKey, version: int, fields: dict[str, object]
) -> None:
    connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
    answer = connection.ask(key, version, **fields)
    if key is not ApiKey.METADATA:  # which has no error of its own in this version
        assert answer.error_code == 34
    assert connection.is_closed()


def test_a_login_after_the_login_is_refused(connection: RawConnection) -> None:
    authenticate(connection, GOOD)
    assert connection.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == 34
    answer = connection.ask(AUTHENTICATE, 2, auth_bytes=GOOD)
    assert (answer.error_code, answer.error_message) == (
        34,
        "SaslAuthenticate request received after successful authentication",
    )
    assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


LIFETIME = "connections.max.reauth.ms"


def session(connection: RawConnection, message: bytes = GOOD, version: int = 2) -> int:
    """Log in, and return how long that lasts, in milliseconds."""
    connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
    answer = connection.ask(AUTHENTICATE, version, auth_bytes=message)
    assert answer.error_code == 0
    return int(answer.session_lifetime_ms)


@pytest.fixture
def at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients log in again before a second has passed."""
    override(monkeypatch, "horolog.broker", LOGINS_EVERY_S=0.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({LIFETIME: "90000"}, 90_000),
        ({LIFETIME: "1", "listener.name.users.connections.max.reauth.ms": "5000"}, 5_000),
        ({LIFETIME: "1", "listener.name.users.plain.connections.max.reauth.ms": "6000"}, 6_000),
        ({LIFETIME: "1", "listener.name.users.plain.connections.max.reauth.ms": "0"}, 0),
        ({"listener.name.users.scram-sha-512.connections.max.reauth.ms": "7"}, 0),
        ({LIFETIME: "-1"}, 0),
        ({LIFETIME: str(2**63 - 1)}, 2**63 - 1),
    ],
)
def test_a_client_is_told_how_long_its_login_lasts(
    make_broker: MakeBroker, given: dict[str, str], told: int
) -> None:
    with make_broker(**matrix.OURS, **given).connect() as connection:
        assert session(connection) == told
        assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


@pytest.mark.parametrize("version", [0, 2])
def test_a_request_after_the_end_of_a_login_closes_the_connection(
    make_broker: MakeBroker, version: int
) -> None:
    with make_broker(**matrix.OURS, **{LIFETIME: "1"}).connect() as connection:
        assert authenticate(connection, GOOD, version) == (0, "")
        assert connection.is_silent(0.05)
        connection.send(ApiKey.METADATA, 9, topics=[])
        assert connection.is_closed()


@pytest.mark.usefixtures("at_any_time")
@pytest.mark.parametrize("lifetime_ms", [1, 600_000])
def test_a_new_login_continues_the_connection(make_broker: MakeBroker, lifetime_ms: int) -> None:
    broker = make_broker(**matrix.OURS, **{LIFETIME: str(lifetime_ms)})
    with broker.connect() as connection:
        assert session(connection) == lifetime_ms
        assert connection.is_silent(0.02)
        assert session(connection) == lifetime_ms
        if lifetime_ms > 1:
            assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


def test_a_new_login_is_possible_once_a_second(make_broker: MakeBroker) -> None:
    """The first one does not count, as at Kafka."""
    with make_broker(**matrix.OURS, **{LIFETIME: "600000"}).connect() as connection:
        session(connection)
        session(connection)
        assert connection.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == 34
        assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


@pytest.mark.usefixtures("at_any_time")
def test_a_new_login_may_not_be_another_users(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, **QUICK, **{LIFETIME: "600000"})
    other = matrix.user(0)
    with broker.connect() as connection:
        session(connection)
        code, said = authenticate(connection, f"\0{other}\0{matrix.PASSWORD(other)}".encode())
        assert code == 58
        assert said == (
            "Cannot change principals during re-authentication from "
            f"User.{matrix.ADMIN}: User.{other}"
        )
        assert connection.is_closed()


@pytest.mark.usefixtures("at_any_time")
def test_a_new_login_by_another_mechanism_closes_the_connection(make_broker: MakeBroker) -> None:
    both = {"listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    broker = make_broker(**{**matrix.OURS, **QUICK, **both, LIFETIME: "600000"})
    with broker.connect() as connection:
        session(connection)
        assert connection.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-512").error_code == 0
        connection.send(AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=x")
        assert connection.is_closed()


@pytest.mark.usefixtures("at_any_time")
def test_nothing_else_is_answered_within_a_new_login(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, **QUICK, **{LIFETIME: "600000"})
    with broker.connect() as connection:
        session(connection)
        connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
        assert connection.ask(VERSIONS, 3).error_code == 34
        assert connection.is_closed()


@pytest.mark.usefixtures("at_any_time")
@pytest.mark.parametrize("handshake", [0, 1])
def test_a_new_login_is_as_small_as_the_first(make_broker: MakeBroker, handshake: int) -> None:
    broker = make_broker(**matrix.OURS, **QUICK, **{LIFETIME: "600000"})
    with broker.connect() as connection:
        session(connection)
        connection.ask(HANDSHAKE, handshake, mechanism="PLAIN")
        connection.socket.sendall((600_000).to_bytes(4, "big") + bytes(600_000))
        assert connection.is_closed()


def test_what_follows_a_wrong_login_is_not_answered(make_broker: MakeBroker) -> None:
    with make_broker(**matrix.OURS).connect() as connection:
        connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
        connection.send(AUTHENTICATE, 2, auth_bytes=GOOD + b"wrong")
        connection.send(AUTHENTICATE, 2, auth_bytes=GOOD)
        connection.send(ApiKey.METADATA, 9, topics=[])
        connection.receive()
        assert connection.is_closed()


def test_a_listener_without_logins_refuses_them(make_broker: MakeBroker) -> None:
    with make_broker().connect() as connection:
        assert connection.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == 34
        assert connection.ask(AUTHENTICATE, 2, auth_bytes=GOOD).error_code == 34
        assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


def test_requests_before_the_login_are_small(connection: RawConnection) -> None:
    connection.socket.sendall((524_289).to_bytes(4, "big") + b"\0\x11\0\x01\0\0\0\x01\xff\xff")
    assert connection.is_closed()


def test_requests_of_many_fields_are_not_decoded_before_the_login(
    connection: RawConnection,
) -> None:
    connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
    connection.send(ApiKey.METADATA, 9, topics=[{"name": "t"}] * 50_000)
    assert connection.is_closed()


def test_requests_after_the_login_may_be_large(connection: RawConnection) -> None:
    authenticate(connection, GOOD)
    topics = [{"name": "x" * 249} for _ in range(3_000)]
    answer = connection.ask(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=False)
    assert len(answer.topics) == 1


def test_the_oldest_connection_without_a_login_makes_room(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, horolog_connections_without_login="2")
    with broker.connect() as logged_in, broker.connect() as first:
        assert authenticate(logged_in, GOOD) == (0, "")
        with broker.connect() as second, broker.connect() as third:
            assert first.is_closed()
            assert authenticate(second, GOOD) == (0, "")
            assert authenticate(third, GOOD) == (0, "")
        assert logged_in.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


def test_a_client_that_does_not_log_in_is_closed(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, horolog_login_timeout_ms="50")
    with broker.connect() as connection:
        assert connection.is_closed()


def test_a_client_that_logs_in_byte_by_byte_is_closed(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, horolog_login_timeout_ms="100")
    with broker.connect() as connection:
        connection.ask(HANDSHAKE, 1, mechanism="PLAIN")
        connection.socket.sendall((500_000).to_bytes(4, "big"))

        def trickle() -> None:
            for _ in range(500_000):
                connection.socket.sendall(b"x")
                connection.is_silent(0.01)

        with pytest.raises(ConnectionError):
            trickle()


def test_nothing_behind_a_failed_login_counts(broker: RunningBroker) -> None:
    """Neither the right password, nor what the client would do with it."""
    topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
    with broker.connect() as connection:
        requests = (
            connection.packed(HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            connection.packed(AUTHENTICATE, 2, {"auth_bytes": GOOD[:-1]}),
            connection.packed(AUTHENTICATE, 2, {"auth_bytes": GOOD}),
            connection.packed(ApiKey.CREATE_TOPICS, 7, {"topics": topics}),
        )
        connection.socket.sendall(b"".join(requests))
        assert connection.receive()[1].error_code == 0
        assert connection.receive()[1].error_code == 58
        assert connection.is_closed()
    assert broker.broker.topics.find("t") is None


@pytest.mark.parametrize("slice_s", [0.005, 0.0])
def test_what_comes_in_one_packet_with_the_login_is_answered(
    monkeypatch: pytest.MonkeyPatch, connection: RawConnection, slice_s: float
) -> None:
    """Also what is larger than a message of a login may be, and where others have had the turn."""
    override(monkeypatch, "horolog.network", SLICE_SECONDS=slice_s, QUICK_SECONDS=slice_s)
    topics = [{"name": f"{number}-{'x' * 200}"} for number in range(3_000)]
    requests = (
        connection.packed(HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        connection.packed(AUTHENTICATE, 2, {"auth_bytes": GOOD}),
        connection.packed(
            ApiKey.METADATA, 9, {"topics": topics, "allow_auto_topic_creation": False}
        ),
    )
    connection.socket.sendall(b"".join(requests))
    answers = [connection.receive()[1] for _ in requests]
    assert len(answers[-1].topics) == len(topics)


def test_a_broker_stops_beside_logins_that_are_not_done(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS, horolog_login_timeout_ms="600000")
    with broker.connect() as silent, broker.connect() as half, broker.connect() as failed:
        half.ask(HANDSHAKE, 1, mechanism="PLAIN")
        half.socket.sendall(b"\0\0\1")
        failed.ask(HANDSHAKE, 1, mechanism="PLAIN")
        failed.send(AUTHENTICATE, 2, auth_bytes=GOOD[:-1])
        broker.stop()
        assert silent.is_closed()
        assert half.is_closed()


def test_our_client_logs_in(broker: RunningBroker) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} username="{matrix.ADMIN}" password="{PASSWORD}";',
    }
    with Client(broker.address, security=security) as client:
        assert client.topics.numbers("t", auto_create=True) == [0]
    security["sasl.jaas.config"] = f'{module} username="{matrix.ADMIN}" password="wrong";'
    with (
        Client(broker.address, security=security) as client,
        pytest.raises(AuthenticationFailed, match=WRONG),
    ):
        client.topics.numbers("t")


def test_passwords_are_in_no_log_description_or_repr(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with broker.connect() as connection:
        authenticate(connection, GOOD)
        for kind, name in ((4, "1"), (4, "")):
            resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            told = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
            assert "-password" not in repr(told)
            shown = {it.name: (it.value, it.is_sensitive) for it in told.results[0].configs}
            jaas = "listener.name.users.plain.sasl.jaas.config"
            assert shown.get(jaas) == ((None, True) if name else None)
    with broker.connect() as connection:
        authenticate(connection, f"\0{matrix.ADMIN}\0guess-{PASSWORD}".encode())
    config = broker.call(lambda: broker.broker.config)
    assert "-password" not in repr(config)
    assert "-password" not in repr(Settings(matrix.OURS))
    assert "-password" not in json.dumps([record.getMessage() for record in caplog.records])
    assert "Failed authentication with /127.0.0.1" in caplog.text


@pytest.mark.parametrize("lifetime_ms", ["0", "600000"])
def test_logins_fail_on_purpose_and_nothing_else_is_answered_before_them(lifetime_ms: str) -> None:
    with Broker({**matrix.OURS, "connections.max.reauth.ms": lifetime_ms}) as broker:
        broker.fail("SaslHandshake", "THROTTLING_QUOTA_EXCEEDED")
        broker.fail("SaslAuthenticate", "UNKNOWN_SERVER_ERROR")
        broker.fail("Metadata", "THROTTLING_QUOTA_EXCEEDED")
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.send(ApiKey.METADATA, 9, topics=[])
            assert connection.is_closed()
        with RawConnection(broker.bootstrap_servers) as connection:
            assert connection.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == 89
            assert authenticate(connection, GOOD)[0] == -1
            answer = connection.ask(AUTHENTICATE, 2, auth_bytes=GOOD)
            assert answer.error_code == 0
        with RawConnection(broker.bootstrap_servers) as connection:  # a fault is set
            connection.ask(HANDSHAKE, 0, mechanism="PLAIN")
            connection.socket.sendall(len(GOOD).to_bytes(4, "big") + GOOD)
            assert connection.exactly(4) == bytes(4)
            answer = connection.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
            assert answer.topics[0].error_code == 89
