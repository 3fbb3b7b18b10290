"""Logins by tokens over a listener (OAUTHBEARER): what counts, keys that change, sessions."""

import itertools
import logging
import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tokens
from certificates import Certificates
from overrides import override
from patience import eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker
from tokens import Issuer, claims, file_url, first_message, joined, jwks, public_jwk, token

from horolog.client import Client
from horolog.errors import Misconfigured
from horolog.testing import ManualClock
from horolog.wire import ApiKey

HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
REFUSED = '{"status":"invalid_token"}'
MALFORMED = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "OAUTHBEARER"
)
PREFIX = "listener.name.tokens.oauthbearer.sasl."
QUICK = {"connection.failed.authentication.delay.ms": "0"}


@pytest.fixture
def make_broker(make_broker: MakeBroker) -> MakeBroker:
    """Start brokers at the time for which tokens are made."""
    return partial(make_broker, clock=ManualClock(1000 * tokens.NOW_S))


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(public_jwk("one"), public_jwk("rsa", "RS256")))
    return path


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with tokens.running_issuer() as issuer:
        yield issuer


@pytest.fixture
def broker(make_broker: MakeBroker, keys_file: Path) -> RunningBroker:
    return make_broker(**tokens.broker_settings(file_url(keys_file)), **QUICK)


def authenticate(connection: RawConnection, message: bytes) -> Any:
    connection.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER")
    return connection.ask(AUTHENTICATE, 2, auth_bytes=message)


def is_let_in(broker: RunningBroker, value: str) -> bool:
    with broker.connect() as connection:
        answer = authenticate(connection, first_message(value))
        assert answer.error_code == 0
        assert bytes(answer.auth_bytes) in (b"", REFUSED.encode())
        return not answer.auth_bytes


def test_a_client_with_a_token_is_served(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        answer = authenticate(connection, first_message(token(), "alice", "trace=a b\1"))
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
        assert answer.session_lifetime_ms == 3_600_000
        assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id


def test_a_refused_token_is_answered_with_its_status_and_then_fails(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    expired = token(claims(exp=1_000, iat=900))
    with broker.connect() as connection:
        answer = authenticate(connection, first_message(expired))
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, REFUSED.encode())
        answer = connection.ask(AUTHENTICATE, 2, auth_bytes=b"\1")
        assert (answer.error_code, answer.error_message) == (58, REFUSED)
        assert connection.is_closed()
    lines = [line for line in caplog.messages if "Failed authentication" in line]
    assert lines == ["Failed authentication with /127.0.0.1 (the token has expired (exp))"]
    assert broker.broker.login_counts.failed == {("TOKENS", "OAUTHBEARER"): 1}
    assert expired not in caplog.text


def test_a_second_token_is_not_tried_after_a_refused_one(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        assert authenticate(connection, first_message(token(number=1))).auth_bytes
        answer = connection.ask(AUTHENTICATE, 2, auth_bytes=first_message(token()))
        assert answer.error_code == 58
        assert connection.is_closed()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"n,,\1\1",
        b"y,,\1auth=Bearer a.b.c\1\1",
        b"n,,\1auth=Basic a.b.c\1\1",
        b"n,,\1auth=Bearer a b\1\1",
        b"n,,\1auth=Bearer a.b.c\1",
        b"n,,\1host=Bearer a.b.c\1\1",
        b"n,,\1auth=Bearer a.b.c\1a1=b\1\1",
        "n,,\1auth=Bearer a.b.c\1a=ü\1\1".encode(),
        first_message("a" * 70_000),
    ],
)
def test_a_message_of_another_form_fails(broker: RunningBroker, message: bytes) -> None:
    with broker.connect() as connection:
        answer = authenticate(connection, message)
        assert (answer.error_code, answer.error_message) == (58, MALFORMED)
        assert connection.is_closed()


def test_the_authorization_id_has_to_be_the_name_in_the_token(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        answer = authenticate(connection, first_message(token(), "bob"))
        assert answer.error_code == 58
        assert answer.error_message == (
            "Authentication failed: Client requested an authorization id (bob) that is different "
            "from the token's principal name (alice)"
        )


def test_tokens_come_without_headers_after_the_first_handshake(broker: RunningBroker) -> None:
    def exchange(connection: RawConnection, message: bytes) -> bytes:
        connection.socket.sendall(len(message).to_bytes(4, "big") + message)
        return connection.exactly(int.from_bytes(connection.exactly(4), "big"))

    with broker.connect() as connection:
        connection.ask(HANDSHAKE, 0, mechanism="OAUTHBEARER")
        assert exchange(connection, first_message(token())) == b""
        assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id
    with broker.connect() as connection:
        connection.ask(HANDSHAKE, 0, mechanism="OAUTHBEARER")
        assert exchange(connection, first_message(token(number=1))) == REFUSED.encode()
        connection.socket.sendall(b"\0\0\0\1\1")
        assert connection.is_closed()


def test_a_session_ends_with_its_token(make_broker: MakeBroker, keys_file: Path) -> None:
    broker = make_broker(**tokens.broker_settings(file_url(keys_file)))
    within_skew = token(claims(exp=tokens.NOW_S - 5, iat=1))
    with broker.connect() as connection:
        answer = authenticate(connection, first_message(within_skew))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        connection.send(ApiKey.METADATA, 9, topics=[])
        assert connection.is_closed()


@pytest.mark.parametrize(("given", "told"), [("90000", 90_000), ("99999999", 3_600_000)])
def test_the_shorter_of_token_and_setting_ends_a_session(
    make_broker: MakeBroker, keys_file: Path, given: str, told: int
) -> None:
    settings = {"connections.max.reauth.ms": given, **tokens.broker_settings(file_url(keys_file))}
    with make_broker(**settings).connect() as connection:
        lifetime_ms = authenticate(connection, first_message(token())).session_lifetime_ms
        assert lifetime_ms == told


def test_a_session_continues_with_another_token_of_the_same_user(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", LOGINS_EVERY_S=0.0)
    with broker.connect() as connection:
        for _ in range(2):
            assert authenticate(connection, first_message(token())).session_lifetime_ms > 0
            assert connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id
        answer = authenticate(connection, first_message(token(claims(sub="bob"))))
        assert answer.error_code == 58
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert connection.is_closed()


def test_keys_of_a_changed_file_count_within_ten_seconds(
    make_broker: MakeBroker, keys_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", RENEWED_EVERY_S=0.01)
    broker = make_broker(**tokens.broker_settings(file_url(keys_file)))
    assert is_let_in(broker, token())
    keys_file.write_bytes(jwks(public_jwk("two", number=1)))
    assert eventually(lambda: not is_let_in(broker, token()))
    assert is_let_in(broker, token(kid="two", number=1))


@pytest.mark.parametrize("broken", [b"", b"[]", b'{"keys": []}', b'{"keys": [1]}', None])
def test_keys_stay_in_use_when_the_file_breaks(
    make_broker: MakeBroker,
    keys_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: bytes | None,
) -> None:
    override(monkeypatch, "horolog.broker", RENEWED_EVERY_S=0.01)
    broker = make_broker(**tokens.broker_settings(file_url(keys_file)))
    if broken is None:
        keys_file.unlink()
    else:
        keys_file.write_bytes(broken)
    assert eventually(lambda: "those that were read before stay in use" in caplog.text)
    assert is_let_in(broker, token())
    assert caplog.text.count("stay in use") == 1


@pytest.mark.parametrize("content", [b"", b"[]", b'{"keys": []}', b'{"keys": [1, {}]}', None])
def test_a_broker_without_keys_in_its_file_does_not_start(
    make_broker: MakeBroker, keys_file: Path, content: bytes | None
) -> None:
    if content is None:
        keys_file.unlink()
    else:
        keys_file.write_bytes(content)
    with pytest.raises(Misconfigured, match="keys that check tokens cannot be read: file:///"):
        make_broker(**tokens.broker_settings(file_url(keys_file)))


def test_an_unknown_key_is_asked_for_once_in_ten_seconds(
    make_broker: MakeBroker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(**tokens.broker_settings(issuer.keys_url))
    assert is_let_in(broker, token())
    issuer.keys = jwks(public_jwk("two", number=1))
    assert not is_let_in(broker, token(kid="two", number=1))
    assert issuer.asked == ["/keys"]
    override(monkeypatch, "horolog.broker", RENEWED_EVERY_S=0.0)
    assert is_let_in(broker, token(kid="two", number=1))
    assert issuer.asked == ["/keys", "/keys"]
    assert not is_let_in(broker, token())


def test_clients_that_wait_for_keys_share_one_request(
    make_broker: MakeBroker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", RENEWED_EVERY_S=0.0)
    broker = make_broker(**tokens.broker_settings(issuer.keys_url))
    issuer.keys = jwks(public_jwk("two", number=1))
    issuer.may_answer.clear()
    with broker.connect() as first, broker.connect() as second:
        for connection in (first, second):
            connection.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER")
            message = first_message(token(kid="two", number=1))
            connection.send(AUTHENTICATE, 2, auth_bytes=message)
        assert eventually(lambda: len(issuer.asked) == 2)
        with broker.connect() as third:  # the loop goes on
            assert not authenticate(third, first_message(token())).auth_bytes
        issuer.may_answer.set()
        assert [first.receive()[1].auth_bytes, second.receive()[1].auth_bytes] == [b"", b""]
    assert issuer.asked == ["/keys", "/keys"]


def test_a_broker_starts_without_its_issuer_and_reads_the_keys_later(
    make_broker: MakeBroker, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.status = 503
    backoff = {"jwks.endpoint.retry.backoff.ms": "1", "jwks.endpoint.retry.backoff.max.ms": "5"}
    broker = make_broker(**tokens.broker_settings(issuer.keys_url, **backoff))
    assert "answered 503 Service Unavailable; tokens are refused" in caplog.text
    assert not is_let_in(broker, token())
    assert eventually(lambda: len(issuer.asked) > 3)
    issuer.status = 200
    assert eventually(lambda: is_let_in(broker, token()))
    assert caplog.text.count("tokens are refused") == 1


def test_a_broker_starts_while_its_issuer_is_slow_and_clients_wait_for_the_keys(
    make_broker: MakeBroker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", STARTED_WITHIN_S=0.01)
    issuer.may_answer.clear()
    broker = make_broker(**tokens.broker_settings(issuer.keys_url))
    with broker.connect() as connection:
        connection.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER")
        connection.send(AUTHENTICATE, 2, auth_bytes=first_message(token()))
        assert connection.is_silent(0.05)
        issuer.may_answer.set()
        assert connection.receive()[1].auth_bytes == b""
    assert issuer.asked == ["/keys"]


def test_tokens_may_be_enabled_while_the_broker_runs(
    make_broker: MakeBroker, keys_file: Path
) -> None:
    settings = tokens.broker_settings(file_url(keys_file))
    settings["listeners"] += ",PLAINTEXT://127.0.0.1:0"
    mechanisms = "listener.name.tokens.sasl.enabled.mechanisms"
    settings[mechanisms] = "SCRAM-SHA-512"
    broker = make_broker(**settings)
    (plain,) = [it for it in broker.bound if it.name == "PLAINTEXT"]
    with RawConnection(f"{plain.host}:{plain.port}") as connection:
        change = {"name": mechanisms, "config_operation": 0, "value": "SCRAM-SHA-512,OAUTHBEARER"}
        resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
        answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        assert answer.responses[0].error_code == 0, answer
    assert is_let_in(broker, token())


def test_keys_are_read_again_after_a_while(make_broker: MakeBroker, issuer: Issuer) -> None:
    refresh = {"jwks.endpoint.refresh.ms": "1"}
    broker = make_broker(**tokens.broker_settings(issuer.keys_url, **refresh))
    issuer.keys = jwks(public_jwk("two", number=1))
    assert eventually(lambda: not is_let_in(broker, token()))
    assert is_let_in(broker, token(kid="two", number=1))


def test_keys_over_https_are_trusted_by_the_options_of_the_login_module(
    make_broker: MakeBroker, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("broker"))
    with tokens.running_issuer(tls=context) as issuer:
        settings = tokens.broker_settings(issuer.keys_url)
        assert not is_let_in(make_broker(**settings), token())
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        options = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.authority}"'
        settings[f"{PREFIX}jaas.config"] = f"{tokens.MODULE} required {options};"
        assert is_let_in(make_broker(**settings), token())


def test_keys_of_this_machine_are_not_asked_of_a_proxy(
    make_broker: MakeBroker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tokens.running_issuer() as proxy:
        proxy.keys = jwks(public_jwk("two", number=1))
        monkeypatch.setenv("http_proxy", proxy.url)
        assert is_let_in(make_broker(**tokens.broker_settings(issuer.keys_url)), token())
    assert proxy.asked == []


@pytest.mark.parametrize("answer", [b"x" * ((1 << 20) + 1), b"[" * 100_000, b'{"keys": 1}'])
def test_an_answer_of_an_issuer_that_is_no_set_of_keys_changes_nothing(
    make_broker: MakeBroker, issuer: Issuer, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    refresh = {"jwks.endpoint.refresh.ms": "1"}
    broker = make_broker(**tokens.broker_settings(issuer.keys_url, **refresh))
    issuer.keys = answer
    assert eventually(lambda: "stay in use" in caplog.text)
    assert is_let_in(broker, token())


def test_a_broker_stops_while_its_issuer_is_silent(
    make_broker: MakeBroker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", RENEWED_EVERY_S=0.0)
    broker = make_broker(**tokens.broker_settings(issuer.keys_url))
    issuer.may_answer.clear()
    with broker.connect() as connection:
        connection.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER")
        connection.send(AUTHENTICATE, 2, auth_bytes=first_message(token(kid="two")))
        assert eventually(lambda: len(issuer.asked) == 2)
        broker.stop()
        assert bytes(connection.receive()[1].auth_bytes) == REFUSED.encode()
        assert connection.is_closed()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"server.callback.handler.class": ""}, f"Add the line {PREFIX}server.callback.handler"),
        (
            {
                "server.callback.handler.class": f"{tokens.PACKAGE}.internals.unsecured."
                "OAuthBearerUnsecuredValidatorCallbackHandler"
            },
            "accepts unsigned tokens then. Add the line",
        ),
        ({"server.callback.handler.class": "com.example.Handler"}, "Add the line"),
        ({"login.callback.handler.class": "com.example.Handler"}, "classes of the JVM"),
        ({"oauthbearer.jwt.validator.class": "com.example.V"}, "DefaultJwtValidator"),
        ({"oauthbearer.jwks.endpoint.url": ""}, "jwks.endpoint.url is missing. Add the line"),
        ({"oauthbearer.jwks.endpoint.url": "http://example.org/k"}, "unencrypted"),
        ({"oauthbearer.jwks.endpoint.url": "ftp://example.org/k"}, "is not usable"),
        ({"oauthbearer.jwks.endpoint.url": "https://u:hush@example.org/k"}, "has a user in it"),
        ({"oauthbearer.expected.issuer": " "}, "expected.issuer is missing. Add the line"),
        ({"oauthbearer.expected.audience": ""}, "expected.audience is missing. Add the line"),
        ({"oauthbearer.sub.claim.name": ""}, "cannot be empty"),
        ({"oauthbearer.clock.skew.seconds": "-1"}, "at least 0"),
        ({"oauthbearer.clock.skew.seconds": "x"}, "whole number"),
        ({"jaas.config": "com.example.Module required;"}, "has to be"),
    ],
)
def test_a_listener_that_would_not_check_tokens_is_refused(
    make_broker: MakeBroker, keys_file: Path, changed: dict[str, str], said: str
) -> None:
    settings = tokens.broker_settings(file_url(keys_file))
    settings |= {PREFIX + name: value for name, value in changed.items()}
    with pytest.raises(Misconfigured) as refused:
        make_broker(**settings)
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("package", [tokens.PACKAGE, f"{tokens.PACKAGE}.secured"])
def test_names_of_kafkas_classes_are_accepted(
    make_broker: MakeBroker, keys_file: Path, package: str
) -> None:
    broker = make_broker(
        **{
            **tokens.broker_settings(file_url(keys_file)),
            f"{PREFIX}server.callback.handler.class": (
                f"{package}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{PREFIX}login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
            f"{PREFIX}login.connect.timeout.ms": "1000",
            f"{PREFIX}oauthbearer.token.endpoint.url": "https://issuer.example/token",
            f"{PREFIX}oauthbearer.jwt.validator.class": f"{tokens.PACKAGE}.BrokerJwtValidator",
        }
    )
    assert is_let_in(broker, token())


def test_our_client_logs_in_with_a_token_of_a_file_and_of_an_endpoint(
    broker: RunningBroker, issuer: Issuer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(token())
    handler = f"{tokens.PACKAGE}.secured.OAuthBearerLoginCallbackHandler"
    for more in (
        {"sasl.oauthbearer.token.endpoint.url": file_url(file)},
        {
            "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
            "sasl.jaas.config": f'{tokens.MODULE} required clientId="alice" clientSecret="hush";',
        },
    ):
        security = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": handler,
            **more,
        }
        with Client(broker.address, security=security) as client:
            assert client.metadata()


STEPS = ("handshake", "good", "bad", "acknowledge", "noise", "metadata")


def step(connection: RawConnection, what: str) -> bool:
    """Take one step, and return whether it shows that the client is let in."""
    if what == "metadata":
        return bool(connection.ask(ApiKey.METADATA, 9, topics=[]).cluster_id)
    if what == "handshake":
        connection.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER")
        return False
    message = {
        "good": first_message(token()),
        "bad": first_message(token(number=1)),
        "acknowledge": b"\1",
        "noise": b"noise",
    }[what]
    answer = connection.ask(AUTHENTICATE, 2, auth_bytes=message)
    return answer.error_code == 0 and not answer.auth_bytes


def expected(steps: list[str]) -> list[bool]:
    """Return the outcomes of steps until one ends the connection, with it or without an answer."""
    state, outcomes = "new", []
    for what in steps:
        is_message = what not in ("handshake", "metadata")
        if state in ("new", "in") and what == "handshake":
            state = "begun"
        elif state == "begun" and what == "good":
            state = "in"
            outcomes.append(True)
            continue
        elif state == "begun" and what == "bad":
            state = "refused"
        elif state == "new":
            return outcomes
        elif state != "in":
            return [*outcomes, False]
        outcomes.append(state == "in" and not is_message)
    return outcomes


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("lasting")
    path = directory / "keys.json"
    path.write_bytes(jwks(public_jwk("one")))
    settings = tokens.broker_settings(file_url(path)) | QUICK
    clock = ManualClock(1000 * tokens.NOW_S)
    with RunningBroker(directory / "log", settings, clock) as broker:
        yield broker


@pytest.mark.parametrize("begin", [(), ("handshake",)])
def test_steps_of_a_login_in_any_order_let_in_by_a_good_token_alone(
    lasting: RunningBroker, begin: tuple[str, ...]
) -> None:
    for last in itertools.product(STEPS, repeat=3):
        steps = [*begin, *last]
        # A third handshake within a second of another would be refused.
        steps = [it for n, it in enumerate(steps) if it != "handshake" or steps[:n].count(it) < 2]
        outcomes: list[bool] = []
        with lasting.connect() as connection, suppress(ConnectionError):
            outcomes.extend(step(connection, what) for what in steps)
        assert outcomes == expected(steps), steps


def test_an_unsigned_token_is_refused(broker: RunningBroker) -> None:
    assert not is_let_in(broker, joined({"alg": "none"}, claims(), b"x"))
