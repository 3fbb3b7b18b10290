"""Tokens of OAUTHBEARER: the same verdicts as Apache Kafka, and Java's clients with a token."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
import tokens
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker
from tokens import claims, first_message, joined, jwks, public_jwk, signed, token
from tools.peers.kafka import SHORT_LIVED, Kafka, run_tool

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.testing import ManualClock
from horolog.wire import ApiKey

LISTENERS = {"TOKENS": "SASL_PLAINTEXT"}
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *tokens.CURVES, "EdDSA"]
SECRET = b"0123456789abcdef0123456789abcdef"


def keys() -> bytes:
    """A set with a key for each algorithm, and others that must not count."""
    symmetric = {"kty": "oct", "kid": "oct", "k": tokens.encoded(SECRET)}
    return jwks(
        *(public_jwk(algorithm, algorithm) for algorithm in ALGORITHMS),
        public_jwk("one"),
        {**public_jwk("encrypts", "RS256"), "use": "enc"},
        {**public_jwk("signs", "RS256"), "key_ops": ["sign"]},
        {**public_jwk("other-alg", "RS256"), "alg": "RS256"},
        tokens.short_rsa_jwk("short"),
        symmetric,
        {"kty": "unknown"},
    )


def cases(now_s: int) -> dict[str, bytes]:
    """First messages of clients by what they are about."""

    def of(**changed: Any) -> bytes:
        return first_message(token(claims(now_s, **changed)))

    good = token(claims(now_s))
    es256 = tokens.private_key("ES256")
    twice = json.dumps(claims(now_s)).encode()[:-1] + b', "sub": "bob"}'
    key = {"alg": "ES256", "kid": "one"}
    return {
        **{
            algorithm: first_message(token(claims(now_s), algorithm, algorithm))
            for algorithm in ALGORITHMS
        },
        "authorization id": first_message(good, "alice"),
        "another authorization id": first_message(good, "bob"),
        "extensions": first_message(good, more="trace=a b\1x=y\1"),
        "auth twice": first_message(good, more=f"auth=Bearer {good}x\1"),
        "a wrong extension": first_message(good, more="tr4ce=a\1"),
        "an empty extension": first_message(good, more="trace=\1"),
        "lower case": first_message(good).replace(b"Bearer", b"bearer"),
        "more blanks": first_message(good).replace(b"Bearer ", b"Bearer   "),
        "Basic": first_message(good).replace(b"Bearer", b"Basic"),
        "channel binding": b"p" + first_message(good)[1:],
        "y": b"y" + first_message(good)[1:],
        "no end": first_message(good)[:-1],
        "bytes behind": first_message(good) + b"x",
        "empty": b"",
        "one": b"\1",
        "no auth": b"n,,\1host=x\1\1",
        "a wild authorization id": first_message(good, "a=b"),
        "unicode": first_message(good, more="trace=ü\1"),
        "no exp": of(exp=None),
        "no iat": of(iat=None),
        "no sub": of(sub=None),
        "no iss": of(iss=None),
        "no aud": of(aud=None),
        "no scope": of(scope=None),
        "expired": of(exp=now_s - 60, iat=now_s - 90),
        "expired within the skew": of(exp=now_s - 10, iat=now_s - 90),
        "exp is a text": of(exp=str(now_s + 60)),
        "exp is a fraction": of(exp=now_s + 60.5),
        "exp is true": of(exp=True),
        "exp is far": of(exp=1 << 40),
        "exp is beyond": of(exp=1 << 70),
        "exp is a large fraction": of(exp=1e25),
        "exp before iat": of(exp=now_s + 60, iat=now_s + 90),
        "iat is later": of(iat=now_s + 600),
        "iat is negative": of(iat=-1),
        "nbf is later": of(nbf=now_s + 600),
        "nbf within the skew": of(nbf=now_s + 20),
        "nbf behind exp": of(nbf=now_s + 3700),
        "nbf is a text": of(nbf="now"),
        "sub is a number": of(sub=1),
        "sub is blank": of(sub=" \t "),
        "sub has blanks around": of(sub=" alice "),
        "sub is empty": of(sub=""),
        "sub is not ASCII": of(sub="Zoë"),
        "another iss": of(iss="https://other.example"),
        "iss is a list": of(iss=[tokens.ISSUER]),
        "another aud": of(aud="other"),
        "aud is a list": of(aud=["other", tokens.AUDIENCE]),
        "aud is an empty list": of(aud=[]),
        "aud has a number": of(aud=[tokens.AUDIENCE, 1]),
        "aud is an object": of(aud={tokens.AUDIENCE: 1}),
        "jti is a number": of(jti=1),
        "scope is a text": of(scope="a b"),
        "scope is empty": of(scope=""),
        "scope is an empty list": of(scope=[]),
        "scope twice": of(scope=["a", "a"]),
        "scope is blank": of(scope=["a", " "]),
        "scope is an object": of(scope={"a": 1}),
        "scope is a number": of(scope=1),
        "another key": first_message(token(claims(now_s), number=1)),
        "an unknown kid": first_message(token(claims(now_s), "unknown")),
        "no kid": first_message(token(claims(now_s), None)),
        "kid is a number": first_message(signed({"alg": "ES256", "kid": 1}, claims(now_s), es256)),
        "a key of another use": first_message(token(claims(now_s), "encrypts", "RS256")),
        "a key that only signs": first_message(token(claims(now_s), "signs", "RS256")),
        "a short key": first_message(
            signed({"alg": "RS256", "kid": "short"}, claims(now_s), tokens.short_rsa())
        ),
        "a key of another kind": first_message(token(claims(now_s), "RS256")),
        "none": first_message(joined({"alg": "none"}, claims(now_s))),
        "none with a signature": first_message(joined({"alg": "none"}, claims(now_s), b"x")),
        "nOnE": first_message(joined({"alg": "nOnE", "kid": "one"}, claims(now_s), b"x")),
        "no alg": first_message(joined({"kid": "one"}, claims(now_s), b"x")),
        "no signature": first_message(good.rpartition(".")[0] + "."),
        "two parts": first_message(good.rpartition(".")[0]),
        "four parts": first_message(good + ".x"),
        "HMAC by the public key": first_message(
            tokens.hmac_token(
                {"alg": "HS256", "kid": "RS256"}, claims(now_s), tokens.public_pem("RS256")
            )
        ),
        "no JSON": first_message(signed(key, b"claims", es256)),
        "no object": first_message(signed(key, [1], es256)),
        "a claim twice": first_message(signed(key, twice, es256)),
        "crit": first_message(signed({**key, "crit": ["exp"]}, claims(now_s), es256)),
        "a long kid": first_message(token(claims(now_s), "k" * 2_000)),
        "not a token": first_message("x"),
        "dots": first_message("..."),
    }


DIFFERING = {
    "HMAC by a key of the set": ((0, b""), (0, b'{"status":"invalid_token"}')),
    "RS256's key with PS256": ((0, b""), (0, b'{"status":"invalid_token"}')),
    "a long token": ((0, b""), (58, b"")),
}
"""What Apache Kafka takes, and horolog does not."""


def differing_cases(now_s: int) -> dict[str, bytes]:
    hmac = tokens.hmac_token({"alg": "HS256", "kid": "oct"}, claims(now_s), SECRET)
    other = signed({"alg": "PS256", "kid": "other-alg"}, claims(now_s), tokens.private_key("RS256"))
    long = token(claims(now_s, groups=["g" * 70_000]))
    return dict(zip(DIFFERING, map(first_message, (hmac, other, long)), strict=True))


Verdict: TypeAlias = tuple[int, str | None, bytes, bool]
CLOSED: Verdict = (-1, "closed", b"", False)


def verdict(address: str, message: bytes) -> Verdict:
    """Return what a broker says to a first message, and whether the session has an end."""
    with RawConnection(address) as connection:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        try:
            answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        except ConnectionError:
            return CLOSED
        challenge, has_end = bytes(answer.auth_bytes), answer.session_lifetime_ms > 0
        first = (answer.error_code, answer.error_message, challenge, has_end)
        if challenge:
            answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\1")
            assert (answer.error_code, answer.error_message) == (58, challenge.decode())
        return first


def is_let_in(verdict: Verdict) -> bool:
    return verdict[0] == 0 and not verdict[2]


@pytest.fixture
def broker(make_broker: MakeBroker, tmp_path: Path) -> RunningBroker:
    path = tmp_path / "keys.json"
    path.write_bytes(keys())
    settings = tokens.broker_settings(tokens.file_url(path))
    settings["connection.failed.authentication.delay.ms"] = "0"
    return make_broker(clock=ManualClock.following(), **settings)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    path = tmp_path / "kafka-keys.json"
    path.write_bytes(keys())
    url = tokens.file_url(path)
    settings = tokens.listener_settings("TOKENS", url)
    settings["connection.failed.authentication.delay.ms"] = "0"
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    flags = (*SHORT_LIVED, f"{allowed}.urls={url}", f"{allowed}.files={url},{path}")
    with Kafka(tmp_path / "kafka", settings=settings, listeners=LISTENERS, flags=flags) as running:
        yield running


def test_tokens_meet_the_verdict_that_they_meet_at_kafka(
    kafka: Kafka, broker: RunningBroker
) -> None:
    now_s = SystemClock().now_ms() // 1000
    wrong = {}
    for what, message in cases(now_s).items():
        theirs = verdict(kafka.address_of("TOKENS"), message)
        ours = verdict(broker.address, message)
        # Where Kafka stumbles over itself, the client is refused with an answer here.
        if ours != theirs and (theirs != CLOSED or is_let_in(ours)):
            wrong[what] = (theirs, ours)
    assert wrong == {}
    for what, message in differing_cases(now_s).items():
        theirs, ours = (
            verdict(address, message) for address in (kafka.address_of("TOKENS"), broker.address)
        )
        assert ((theirs[0], theirs[2]), (ours[0], ours[2])) == DIFFERING[what]


@pytest.mark.parametrize("name", ["go", "node"])
def test_a_client_logs_in_with_a_token(
    name: str,
    broker: RunningBroker,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = request.getfixturevalue(f"{name}_client")
    where = SimpleNamespace(bootstrap=broker.address)
    monkeypatch.setenv("TOKEN", token(claims(SystemClock().now_ms() // 1000)))
    client.ask(where, "create", topic="t")
    client.ask(where, "produce", topic="t", records=[[1_700_000_000_000, "k", "v"]])
    told = client.ask(where, "consume", topic="t", count=1)
    assert len(told["records"]) == 1
    assert not broker.broker.login_counts.failed
    monkeypatch.setenv("TOKEN", token(claims(SystemClock().now_ms() // 1000), number=1))
    with pytest.raises(AssertionError):
        client.ask(where, "create", topic="other")
    assert broker.broker.login_counts.failed


def test_javas_clients_log_in_with_a_token_in_a_file(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(token(claims(SystemClock().now_ms() // 1000)))
    url = tokens.file_url(file)
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url} "
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={url},{file}",
    )
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={tokens.MODULE} required;\n"
        f"sasl.login.callback.handler.class={tokens.PACKAGE}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\n"
    )
    common = ("--bootstrap-server", broker.address, "--command-config", str(properties))
    lines = [b"record %d" % index for index in range(100)]
    run_tool("producer", *common, "--topic", "t", stdin=b"\n".join(lines) + b"\n")
    done = run_tool(
        "consumer", *common, "--topic", "t", "--from-beginning", "--max-messages", "100"
    )
    assert done.stdout.split(b"\n")[:100] == lines
    # The same file serves our client.
    security = dict(line.split("=", 1) for line in properties.read_text().splitlines())
    with Client(broker.address, security=security) as client:
        assert "t" in client.metadata().topics
    file.write_text(token(claims(SystemClock().now_ms() // 1000), number=1))
    done = run_tool("topics", *common, "--list", check=False)
    assert done.returncode != 0
    assert b"invalid_token" in done.stdout + done.stderr
