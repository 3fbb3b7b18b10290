"""SASL mechanisms, message by message, and their exchange with a scripted broker."""

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from certificates import Certificates
from patience import PATIENCE_S, eventually
from scram_server import ScramServer
from scripted_broker import HangUp, Raw, ScriptedBroker
from tokens import running_issuer

from horolog.client import AuthenticationFailed, Client, NoAnswer, NoToken, scram
from horolog.errors import Misconfigured
from horolog.wire import ApiKey

MODULE = "org.apache.kafka.common.security"
USER = f'{MODULE}.scram.ScramLoginModule required username="user" password="pencil";'


def settings(mechanism: str, jaas: str | None = USER, **more: str) -> dict[str, str]:
    jaas_config = {} if jaas is None else {"sasl.jaas.config": jaas}
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        **jaas_config,
        **more,
    }


def test_scram_sha_256_is_that_of_rfc_7677() -> None:
    exchange = scram("SHA256", "user", "pencil", extensions={}, nonce="rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.send(answer) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not answer this client's"),
        (b"r=mine,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not answer this client's"),
        (b"r=mine2,s=,i=4096", "does not answer this client's"),
        (b"r=mine2,s=W22Z,i=4095", "4095 iterations"),
        (b"r=mine2,s=W22Z,i=99999999999999999999999", "iterations"),
        (b"r=mine2,s=W22Z,i=00000040969999", "00000040969999 iterations"),
        (b"r=mine2,s=W22Z,i=1000001", "1000001 iterations"),
        ("r=mine2,s=W22Z,i=٤٠٩٦".encode(), "iterations"),
        (b"r=mine2,s=W22Z", "no iterations"),
        (b"\xff\xfe", "does not answer this client's"),
    ],
)
def test_a_broker_that_breaks_scram_is_refused(answer: bytes, said: str) -> None:
    exchange = scram("SHA512", "user", "pencil", extensions={}, nonce="mine")
    next(exchange)
    with pytest.raises(AuthenticationFailed, match=said):
        exchange.send(answer)


@pytest.mark.parametrize("last", [b"v=AAAA", b"", b"e=other-error"])
def test_a_broker_that_does_not_know_the_password_is_refused(last: bytes) -> None:
    exchange = scram("SHA256", "user", "pencil", extensions={}, nonce="mine")
    next(exchange)
    exchange.send(b"r=mine2,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(AuthenticationFailed, match="SCRAM"):
        exchange.send(last)


def test_scram_escapes_a_user_and_names_a_delegation_token() -> None:
    exchange = scram("SHA256", "a=b,c", "p", extensions={"tokenauth": "true"}, nonce="mine")
    assert next(exchange) == b"n,,n=a=3Db=2Cc,r=mine,tokenauth=true"


def sasl(
    authenticate: Callable[[Any], dict[str, Any]], handshake: dict[str, Any] | None = None
) -> ScriptedBroker:
    return ScriptedBroker(
        {
            ApiKey.SASL_HANDSHAKE: handshake or {"error_code": 0, "mechanisms": ()},
            ApiKey.SASL_AUTHENTICATE: authenticate,
        }
    )


def test_scram_authenticates_each_connection_before_anything_else() -> None:
    with sasl(ScramServer()) as broker:
        with Client(broker.bootstrap, security=settings("SCRAM-SHA-256")) as client:
            client.metadata()
            client.metadata()
        assert [each.api_key for each in broker.seen] == [
            ApiKey.API_VERSIONS,
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.METADATA,
            ApiKey.METADATA,
        ]


def test_a_wrong_password_is_reported_once_and_not_tried_again() -> None:
    with (
        sasl(ScramServer(b"pen")) as broker,
        Client(broker.bootstrap, security=settings("SCRAM-SHA-256")) as client,
    ):
        with pytest.raises(AuthenticationFailed) as refused:
            client.metadata()
        assert str(refused.value) == (
            f"{broker.bootstrap}: authentication failed: wrong password "
            "(sasl.mechanism=SCRAM-SHA-256)"
        )
        assert len(broker.asked(ApiKey.SASL_HANDSHAKE)) == 1


def test_a_mechanism_that_the_broker_refuses_is_reported_with_those_it_takes() -> None:
    with (
        sasl(ScramServer(), {"error_code": 33, "mechanisms": ["PLAIN", "GSSAPI"]}) as broker,
        Client(broker.bootstrap, security=settings("SCRAM-SHA-512")) as client,
        pytest.raises(AuthenticationFailed, match="it offers PLAIN, GSSAPI"),
    ):
        client.metadata()


def test_plain_sends_user_and_password() -> None:
    with sasl(lambda _: {"auth_bytes": b""}) as broker:
        with Client(broker.bootstrap, security=settings("PLAIN")) as client:
            client.metadata()
        assert broker.asked(ApiKey.SASL_AUTHENTICATE)[0].auth_bytes == b"\0user\0pencil"


def test_a_session_that_is_about_to_end_is_followed_by_another() -> None:
    with (
        sasl(lambda _: {"auth_bytes": b"", "session_lifetime_ms": 1}) as broker,
        Client(broker.bootstrap, security=settings("PLAIN")) as client,
    ):
        until_s = time.monotonic() + PATIENCE_S
        while len(broker.asked(ApiKey.SASL_AUTHENTICATE)) < 2:
            assert time.monotonic() < until_s
            client.metadata()


def test_a_token_of_a_function_is_sent() -> None:
    tokens = iter(["first.one", "second.one"])
    with sasl(lambda _: {"auth_bytes": b""}) as broker:
        with Client(
            broker.bootstrap,
            security=settings("OAUTHBEARER", None),
            oauth_token=lambda: next(tokens),
        ) as client:
            client.metadata()
            client.close()
            client.metadata()
        sent = [bytes(each.auth_bytes) for each in broker.asked(ApiKey.SASL_AUTHENTICATE)]
    assert sent == [
        b"n,,\x01auth=Bearer first.one\x01\x01",
        b"n,,\x01auth=Bearer second.one\x01\x01",
    ]


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer b"])
def test_what_is_no_token_is_not_sent(token: str) -> None:
    with (
        sasl(lambda _: {"auth_bytes": b""}) as broker,
        Client(
            broker.bootstrap, security=settings("OAUTHBEARER", None), oauth_token=lambda: token
        ) as client,
        pytest.raises(NoToken),
    ):
        client.metadata()


def test_a_refused_token_is_answered_with_the_brokers_reason() -> None:
    def refuse(request: Any) -> dict[str, Any]:
        if bytes(request.auth_bytes) == b"\x01":
            return {"error_code": 58, "error_message": "{expired}", "auth_bytes": b""}
        return {"auth_bytes": b'{"status":"invalid_token"}'}

    with (
        sasl(refuse) as broker,
        Client(
            broker.bootstrap, security=settings("OAUTHBEARER", None), oauth_token=lambda: "a.b"
        ) as client,
        pytest.raises(AuthenticationFailed, match="expired"),
    ):
        client.metadata()


def test_an_unsecured_token_carries_the_claims_of_its_options() -> None:
    jaas = (
        f"{MODULE}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope=",a,b" '
        'unsecuredLoginNumberClaim_level="3" unsecuredLoginExtension_tenant="t";'
    )
    with sasl(lambda _: {"auth_bytes": b""}) as broker:
        with Client(broker.bootstrap, security=settings("OAUTHBEARER", jaas)) as client:
            client.metadata()
        (asked,) = broker.asked(ApiKey.SASL_AUTHENTICATE)
    start, token, extension, *_ = bytes(asked.auth_bytes).decode().split("\x01")
    header, claims, signature = token.removeprefix("auth=Bearer ").split(".")
    assert (start, extension, signature) == ("n,,", "tenant=t", "")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    found = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert found.pop("exp") - found.pop("iat") == 3600
    assert found == {"sub": "alice", "scope": ["a", "b"], "level": 3}


class Endpoint:
    """A token endpoint: each answer is (status, body); what it was asked is kept.

    Where the status is 0 the body is all that is sent.
    """

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes | Iterable[bytes]]] = []
        self.asked: list[tuple[str, bytes]] = []


@pytest.fixture
def endpoint() -> Iterator[tuple[str, Endpoint]]:
    state = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.asked.append((self.headers["Authorization"], body))
            status, answer = state.answers.pop(0)
            if status:
                self.send_response(status)
                self.end_headers()
            for piece in [answer] if isinstance(answer, bytes) else answer:
                self.wfile.write(piece)
                self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", state
        server.shutdown()
        thread.join()


def credentials(url: str, patience_ms: int = 0) -> dict[str, str]:
    return settings(
        "OAUTHBEARER",
        None,
        **{
            "sasl.login.retry.backoff.ms": "1",
            "sasl.login.retry.backoff.max.ms": str(patience_ms),
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hush",
            "sasl.oauthbearer.scope": "kafka",
        },
    )


def test_a_token_endpoint_is_asked_with_client_credentials_once_for_its_life(
    endpoint: tuple[str, Endpoint],
) -> None:
    url, state = endpoint
    state.answers = [(200, b'{"access_token": "a.b.c", "expires_in": 3600}')]
    with sasl(lambda _: {"auth_bytes": b""}) as broker:
        with Client(broker.bootstrap, security=credentials(url)) as client:
            client.metadata()
            client.close()
            client.metadata()
        assert len(broker.asked(ApiKey.SASL_AUTHENTICATE)) == 2
    basic = "Basic " + base64.b64encode(b"me:hush").decode()
    assert state.asked == [(basic, b"grant_type=client_credentials&scope=kafka")]


@pytest.mark.parametrize("status", [500, 503, 429, 0])
def test_an_endpoint_that_fails_for_a_while_is_asked_again(
    endpoint: tuple[str, Endpoint], status: int
) -> None:
    url, state = endpoint
    state.answers = [(status, b""), (status, b""), (200, b'{"access_token": "a.b.c"}')]
    with (
        sasl(lambda _: {"auth_bytes": b""}) as broker,
        Client(broker.bootstrap, security=credentials(url, 60_000)) as client,
    ):
        client.metadata()
    assert len(state.asked) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 302])
def test_an_endpoint_that_refuses_is_not_asked_again(
    endpoint: tuple[str, Endpoint], status: int
) -> None:
    url, state = endpoint
    state.answers = [(status, b"")]
    with (
        sasl(lambda _: {"auth_bytes": b""}) as broker,
        Client(broker.bootstrap, security=credentials(url, 60_000)) as client,
        pytest.raises(NoToken, match=f"answered {status}"),
    ):
        client.metadata()
    assert len(state.asked) == 1


def test_credentials_may_be_encoded_for_the_header(endpoint: tuple[str, Endpoint]) -> None:
    url, state = endpoint
    state.answers = [(200, b'{"access_token": "a.b.c"}')] * 2
    its = credentials(url) | {"sasl.oauthbearer.client.credentials.client.secret": "a:b c/é"}
    with sasl(lambda _: {"auth_bytes": b""}) as broker:
        for encode in ("false", "true"):
            its["sasl.oauthbearer.header.urlencode"] = encode
            with Client(broker.bootstrap, security=its) as client:
                client.metadata()
    sent = [base64.b64decode(asked[0].removeprefix("Basic ")).decode() for asked in state.asked]
    assert sent == ["me:a:b c/é", "me:a%3Ab+c%2F%C3%A9"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b"hush"), "answered 401"),
        ((200, b"no json"), "no access_token"),
        ((200, b'{"token": 1}'), "no access_token"),
        ((200, b"[]"), "no access_token"),
        ((200, b'{"access_token": null}'), "no access_token"),
        ((200, b'{"access_token": "a", "expires_in": 1' + b"0" * 400 + b"}"), "no access_token"),
        ((200, b'{"access_token": "a", "expires_in": NaN}'), "no access_token"),
        ((200, b'{"access_token": "a", "expires_in": 1e999}'), "no access_token"),
        ((200, b"[" * 100_000), "no access_token"),
        ((0, b"hush"), "breaks HTTP"),
        ((0, b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhu"), "breaks HTTP"),
        ((0, b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n"), "breaks HTTP"),
        ((0, b""), "does not answer"),
    ],
)
def test_an_endpoint_without_a_token_is_reported_without_the_secret(
    endpoint: tuple[str, Endpoint], answer: tuple[int, bytes], said: str
) -> None:
    url, state = endpoint
    state.answers = [answer]
    with (
        sasl(lambda _: {"auth_bytes": b""}) as broker,
        Client(broker.bootstrap, security=credentials(url)) as client,
        pytest.raises(NoToken, match=said) as absent,
    ):
        client.metadata()
    assert "hush" not in str(absent.value)


def test_an_endpoint_is_trusted_by_the_options_of_the_login_module(
    certificates: Certificates,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("broker"))
    with running_issuer(tls=context) as issuer, sasl(lambda _: {"auth_bytes": b""}) as broker:
        security = credentials(issuer.token_url) | {
            "sasl.oauthbearer.client.credentials.client.id": "alice"
        }
        with (
            Client(broker.bootstrap, security=security) as client,
            pytest.raises(NoToken, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            client.metadata()
        options = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.authority}"'
        security["sasl.jaas.config"] = (
            f"{MODULE}.oauthbearer.OAuthBearerLoginModule required {options};"
        )
        with Client(broker.bootstrap, security=security) as client:
            client.metadata()
        assert issuer.asked == ["/token"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_secret_is_not_sent_where_a_redirect_leads(
    endpoint: tuple[str, Endpoint], status: int
) -> None:
    url, state = endpoint
    leads_to = url.replace("127.0.0.1", "localhost")
    state.answers = [
        (0, f"HTTP/1.0 {status} Elsewhere\r\nLocation: {leads_to}\r\n\r\n".encode()),
        (200, b'{"access_token": "a.b.c"}'),
    ]
    with (
        sasl(lambda _: {"auth_bytes": b""}) as broker,
        Client(broker.bootstrap, security=credentials(url)) as client,
        pytest.raises(NoToken, match="redirects are not followed"),
    ):
        client.metadata()
    assert len(state.asked) == 1


@pytest.mark.parametrize("start", [b"", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_an_endpoint_that_answers_byte_by_byte_is_left_when_the_clients_time_is_over(
    endpoint: tuple[str, Endpoint], start: bytes
) -> None:
    url, state = endpoint
    is_over = threading.Event()

    def drip() -> Iterator[bytes]:
        yield start
        with contextlib.suppress(OSError):
            while not is_over.wait(0.02):
                yield b"HTTP/1.0 100 Continue\r\n\r\n" if not start else b" "

    state.answers = [(0, drip())]
    try:
        with (
            sasl(lambda _: {"auth_bytes": b""}) as broker,
            Client(broker.bootstrap, security=credentials(url), timeout_ms=300) as client,
            pytest.raises(NoToken, match="does not answer"),
        ):
            client.metadata()
        assert eventually(lambda: not any(t.name == "horolog-token" for t in threading.enumerate()))
    finally:
        is_over.set()


def test_a_password_in_the_url_of_an_endpoint_is_neither_used_nor_shown() -> None:
    with sasl(lambda _: {"auth_bytes": b""}) as broker:
        url = "https://me:hush@nowhere.invalid/token?key=hush"
        with Client(broker.bootstrap, security=credentials(url)) as client:
            assert "hush" not in repr(client.config)
            with pytest.raises(Misconfigured, match=r"https://nowhere\.invalid/token") as refused:
                client.metadata()
            assert "hush" not in str(refused.value)


@pytest.mark.parametrize("claimed_by", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_a_peer_cannot_claim_a_large_answer_before_it_has_authenticated(
    claimed_by: ApiKey,
) -> None:
    script = {
        ApiKey.SASL_HANDSHAKE: {"error_code": 0, "mechanisms": ()},
        ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b""},
        claimed_by: Raw((512 << 20).to_bytes(4, "big")),
    }
    with (
        ScriptedBroker(script) as broker,
        Client(broker.bootstrap, timeout_ms=1_000, security=settings("PLAIN")) as client,
        pytest.raises(NoAnswer, match="announced an answer of 536870912 bytes"),
    ):
        client.metadata()


def test_a_token_in_a_file_is_read_again_for_each_connection(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    security = settings(
        "OAUTHBEARER", None, **{"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    )
    with sasl(lambda _: {"auth_bytes": b""}) as broker:
        with Client(broker.bootstrap, security=security) as client:
            client.metadata()
            file.write_text("two")
            client.close()
            client.metadata()
        sent = [bytes(each.auth_bytes) for each in broker.asked(ApiKey.SASL_AUTHENTICATE)]
    assert [each.split(b"\x01")[1] for each in sent] == [b"auth=Bearer one", b"auth=Bearer two"]


@pytest.mark.parametrize(
    ("security", "said"),
    [
        (settings("OAUTHBEARER", f"{MODULE}.X required;"), "has no unsecuredLoginStringClaim_sub"),
        (
            settings("OAUTHBEARER", None, **{"sasl.oauthbearer.token.endpoint.url": "http://h"}),
            "client.credentials.client.id",
        ),
        *(
            (
                settings("OAUTHBEARER", None, **{"sasl.oauthbearer.token.endpoint.url": url}),
                "expected https",
            )
            for url in (
                "ftp://h",
                "https:me:hush@h",
                "https:///token",
                "https://h:99999/",
                "https://[::1/",
                "https://h/a b",
                "https://h/é",
            )
        ),
        (
            settings("OAUTHBEARER", USER, **{"sasl.login.callback.handler.class": "my.Handler"}),
            "names a class of the JVM",
        ),
        (
            settings("OAUTHBEARER", USER, **{"sasl.oauthbearer.jwt.retriever.class": "my.Class"}),
            "names a class of the JVM",
        ),
        (credentials("https://h/") | {"sasl.login.retry.backoff.ms": "-1"}, "milliseconds"),
    ],
)
def test_a_source_of_tokens_that_is_none_is_refused(security: dict[str, str], said: str) -> None:
    with (
        sasl(lambda _: {"auth_bytes": b""}) as broker,
        Client(broker.bootstrap, security=security) as client,
        pytest.raises(Misconfigured, match=said) as refused,
    ):
        client.metadata()
    assert "hush" not in str(refused.value)


def test_a_client_without_sasl_gets_an_error_that_names_what_may_be_required() -> None:
    with (
        ScriptedBroker({ApiKey.METADATA: HangUp()}) as broker,
        Client(broker.bootstrap) as client,
        pytest.raises(NoAnswer, match=r"require another security\.protocol"),
    ):
        client.metadata()
