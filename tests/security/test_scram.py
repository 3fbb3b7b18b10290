"""SCRAM, the broker's side: RFC 7677's exchange, our client, and wrong messages at every step."""

import base64
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.client import scram
from horolog.security import (
    LONGEST_MESSAGE,
    Credential,
    LoginFailed,
    ScramLogin,
    ScramMechanism,
    credential_of,
    salt_of,
    salted,
)

SHA_256, SHA_512 = ScramMechanism
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SECRET = b"of the broker"
NAMES = st.text(min_size=1, max_size=12).filter(lambda name: "\0" not in name)


def credential(mechanism: ScramMechanism, password: str) -> Credential:
    return credential_of(mechanism, salted(mechanism, password, SALT, 4096), SALT, 4096)


def login(
    users: dict[str, str], mechanism: ScramMechanism = SHA_256, nonce: str | None = None
) -> ScramLogin:
    known = {name: credential(mechanism, password) for name, password in users.items()}
    return ScramLogin(mechanism, known.get, SECRET, nonce)


def run(server: ScramLogin, name: str, password: str, mechanism: ScramMechanism) -> None:
    exchange = scram(mechanism.digest.upper(), name, password, extensions={})
    message = next(exchange)
    while True:
        try:
            message = exchange.send(server.answer(message))
        except StopIteration:
            return


def test_the_exchange_is_that_of_rfc_7677() -> None:
    server = login({"user": "pencil"}, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.name is None
    final = server.answer(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.name == "user"


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@given(name=NAMES, password=st.text(max_size=12))
def test_our_client_logs_in_with_any_name_and_password(
    mechanism: ScramMechanism, name: str, password: str
) -> None:
    try:
        name.encode()
        password.encode()
    except UnicodeEncodeError:
        return
    server = login({name: password}, mechanism)
    run(server, name, password, mechanism)
    assert server.name == name


@pytest.mark.parametrize("name", ["user", "nobody"])
def test_a_wrong_password_and_a_user_that_is_not_there_fail_alike(name: str) -> None:
    server = login({"user": "pencil"})
    with pytest.raises(LoginFailed, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        run(server, name, "wrong", SHA_256)
    assert server.name is None


def test_salts_have_the_form_of_kafka_s_tools() -> None:
    """As `new BigInteger(130, random).toString(36)`: a number is the same in Python's `int`."""
    for number in (1, 35, 36, 2**130 - 1, 2**130 + 7):
        assert int(salt_of(number), 36) == number % 2**130
    fake = login({}).answer(b"n,,n=nobody,r=x").decode()
    salt = base64.b64decode(fake.split(",")[1].removeprefix("s="))
    assert re.fullmatch(rb"[0-9a-z]{20,26}", salt)


def test_the_salt_of_a_user_that_is_not_there_is_always_the_same() -> None:
    message = b"n,,n=nobody,r=mine"
    answers = [login({}, nonce="x").answer(message) for _ in range(2)]
    assert answers[0] == answers[1]
    assert login({}, nonce="x").answer(b"n,,n=somebody,r=mine") != answers[0]
    assert ScramLogin(SHA_256, lambda _: None, b"other", "x").answer(message) != answers[0]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"y,,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=user",
        b"n,,n=,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=x,tokenauth=true",
        b"n,,n=user,r=x,=y",
        b"n,,m=ext,n=user,r=x",
        b"\xff\xfe",
        b"n,x=user,n=user,r=x",
        b"n,,n=user,r=x,ext1=value",
        b"n,,n=user,r=x,ext",
        b"n,,n=user,r=x,ext=value1,value2",
        b"n,,n=user,r=x,ext=,",
        b"n,,n=user,r=x,ext =value",
        b"n,,n=user,r=x,TokenAuth=TRUE",
        b"n,,n=user,r=x" + b",a=b" * 50_000 + b",",
        b"n,,n=user,r=" + b"x" * LONGEST_MESSAGE,  # it would be kept for the second one
    ],
)
def test_a_first_message_of_another_form_fails(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        login({"user": "pencil"}).answer(message)


@pytest.mark.parametrize(
    "extensions",
    [
        {"b": "2", "a": "1"},
        {"other": "name1=value1 name2=another \"'!$[]()"},
        {"first": "1", "second": "name1 = value ", "third": "123"},
    ],
)
def test_extensions_are_signed_as_they_came(extensions: dict[str, str]) -> None:
    server = login({"user": "pencil"})
    exchange = scram("SHA256", "user", "pencil", extensions=extensions)
    final = exchange.send(server.answer(next(exchange)))
    assert server.answer(final).startswith(b"v=")


@pytest.mark.parametrize(
    ("escaped", "name"),
    [
        ("user1", "user1"),
        ("123", "123"),
        ("1=2C2", "1,2"),
        ("user=3DA", "user=A"),
        ("user=3D=3DB", "user==B"),
        ("user=2C1", "user,1"),
        ("user 1", "user 1"),
        ("=2C", ","),
        ("=3D", "="),
        ("=2C=3D", ",="),
        ("=3D=3D", "=="),
        ("=3D2C", "=2C"),
        ("U\u017fer\u2163", "U\u017fer\u2163"),  # as it is: no SASLprep
    ],
)
def test_commas_and_equals_signs_of_a_name_are_escaped(escaped: str, name: str) -> None:
    server = login({name: "pencil"})
    exchange = scram("SHA256", name, "pencil", extensions={})
    first = next(exchange)
    assert first.decode().split(",")[2] == f"n={escaped}"
    assert server.answer(exchange.send(server.answer(first))).startswith(b"v=")
    assert server.name == name


def signed_with(first: str, server: ScramLogin, nonce: str, binding: str = "biws") -> bytes:
    """The final message of one who knows the password."""
    told = server.answer(first.encode()).decode()
    end = f"c={binding},r={nonce or told.split(',')[0][2:]}"
    key = salted(SHA_256, "pencil", SALT, 4096)
    client_key = hmac.digest(key, b"Client Key", "sha256")
    text = f"{first.split(',', 2)[2]},{told},{end}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), text, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{end},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("nonce", "is_taken"), [("", True), ("yours", False), ("xyours", False), ("yyours", False)]
)
def test_the_nonce_is_compared_whole(nonce: str, is_taken: bool) -> None:
    """Apache Kafka is satisfied with one that ends with its own part."""
    server = login({"user": "pencil"}, nonce="yours")
    final = signed_with("n,,n=user,r=mine", server, nonce)
    if is_taken:
        assert server.answer(final).startswith(b"v=")
        return
    with pytest.raises(LoginFailed):
        server.answer(final)


@pytest.mark.parametrize(
    ("binding", "is_taken"),
    [("biws", True), ("bixhPXVzZXIs", True), ("eSws", False), ("", False), ("biw=", False)],
)
def test_the_header_is_repeated_or_that_without_an_authorization_id(
    binding: str, is_taken: bool
) -> None:
    server = login({"user": "pencil"})
    final = signed_with("n,a=user,n=user,r=mine", server, "", binding)
    if is_taken:
        assert server.answer(final).startswith(b"v=")
        return
    with pytest.raises(LoginFailed):
        server.answer(final)


def test_the_authorization_id_is_the_name() -> None:
    assert login({"user": "pencil"}).answer(b"n,a=user,n=user,r=x")
    with pytest.raises(LoginFailed, match="authorization id that is different from username"):
        login({"user": "pencil"}).answer(b"n,a=other,n=user,r=x")


def test_a_final_message_of_another_exchange_fails() -> None:
    users, finals = {"user": "pencil"}, []
    for _ in range(2):
        exchange = scram("SHA256", "user", "pencil", extensions={}, nonce="same")
        finals.append(exchange.send(login(users).answer(next(exchange))))
    server = login(users)
    server.answer(b"n,,n=user,r=same")
    for wrong in (
        *finals,
        b"",
        finals[0].replace(b"c=biws", b"c=eSws"),
        finals[0].replace(b",p=", b",p=!"),
        finals[0][:-8],
    ):
        with pytest.raises(LoginFailed):
            server.answer(wrong)
    assert server.name is None


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_bytes_do_more_than_fail(first: bytes, final: bytes) -> None:
    server = login({"user": "pencil"})
    for message in (first, b"n,,n=user,r=x", final):
        try:
            server.answer(message)
        except LoginFailed:
            assert server.name is None
    assert server.name is None
