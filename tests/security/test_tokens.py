"""Tokens and the messages that bring them: what counts, and what is refused whatever it is."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
import tokens
from hypothesis import given
from hypothesis import strategies as st
from tokens import CURVES, NOW_S, claims, first_message, joined, jwks, public_jwk, token

from horolog.errors import HorologError
from horolog.security import LoginFailed, SigningKeys, TokenLogin, TokenRules, UnknownKey

RULES = TokenRules(tokens.ISSUER, frozenset({tokens.AUDIENCE, "others"}))
ALGORITHMS = [
    *(f"{kind}{bits}" for kind in ("RS", "PS") for bits in (256, 384, 512)),
    *CURVES,
    "EdDSA",
]
KEYS = SigningKeys.read(jwks(public_jwk("one"), public_jwk("rsa", "RS256")))


def login(rules: TokenRules = RULES, keys: SigningKeys = KEYS) -> TokenLogin:
    return TokenLogin(rules, lambda: keys, lambda: 1000 * NOW_S)


def why_not(value: str, rules: TokenRules = RULES, keys: SigningKeys = KEYS) -> str:
    """Return why a token is refused; empty if it counts."""
    its, message = login(rules, keys), first_message(value)
    try:
        with suppress(UnknownKey):
            assert its.answer(message) == b""
            return ""
        its.answer(message)
        raise AssertionError("new keys were not waited for")
    except LoginFailed as error:
        refused = error
    assert its.name is None
    assert str(refused) == '{"status":"invalid_token"}'
    assert refused.answer == str(refused).encode()
    assert value not in refused.why
    return refused.why


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_counts_by_its_key_alone(algorithm: str) -> None:
    own, other = (
        SigningKeys.read(jwks(public_jwk("one", algorithm, number))) for number in range(2)
    )
    value = token(algorithm=algorithm)
    assert why_not(value, keys=own) == ""
    assert "not signed with the key" in why_not(value, keys=other)


def test_both_curves_of_eddsa_count() -> None:
    keys = SigningKeys.read(jwks(public_jwk("one", "EdDSA", 2)))
    assert why_not(token(algorithm="EdDSA", number=2), keys=keys) == ""
    assert "not signed with the key" in why_not(token(algorithm="EdDSA"), keys=keys)


def test_a_login_has_the_name_and_the_end_of_its_token() -> None:
    its = login()
    assert (its.name, its.ends_ms) == (None, None)
    its.answer(first_message(token(claims(sub=" alice\t"))))
    assert (its.name, its.ends_ms) == ("alice", 1000 * (NOW_S + 3600))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"aud": ["x", "others"]},
        {"scope": "one two"},
        {"scope": []},
        {"scope": {"a": 1}},
        {"scope": None},
        {"nbf": NOW_S + 30},
        {"exp": NOW_S - 29, "iat": 0},
        {"exp": NOW_S + 0.9},
        {"iat": NOW_S + 3600},
        {"jti": "x"},
        {"sub": "a=b,c d"},
    ],
)
def test_claims_that_count(changed: dict[str, Any]) -> None:
    assert why_not(token(claims(**changed))) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"exp": None}, "no time of its end"),
        ({"iat": None}, "no time of its end"),
        ({"exp": NOW_S - 30, "iat": 0}, "has expired"),
        ({"exp": str(NOW_S + 60)}, "exp that is no number"),
        ({"exp": True}, "exp that is no number"),
        ({"exp": 10_000_000_000}, "beyond what can be"),
        ({"exp": 1e300}, "beyond what can be"),
        ({"iat": -1}, "beyond what can be"),
        ({"iat": NOW_S + 3601}, "ends before it begins"),
        ({"nbf": NOW_S + 3601}, "ends before it begins"),
        ({"nbf": NOW_S + 31}, "is not valid yet"),
        ({"iss": None}, "another issuer"),
        ({"iss": "https://issuer.example/"}, "another issuer"),
        ({"iss": [tokens.ISSUER]}, "iss that is no text"),
        ({"aud": None}, "no audience"),
        ({"aud": "other"}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": ["horolog", 1]}, "no audience"),
        ({"aud": {"horolog": 1}}, "no audience"),
        ({"sub": None}, "names no user (sub)"),
        ({"sub": ""}, "names no user (sub)"),
        ({"sub": " \t"}, "names no user (sub)"),
        ({"sub": 1}, "sub that is no text"),
        ({"jti": 1}, "jti that is no text"),
        ({"scope": ""}, "a scope that is blank"),
        ({"scope": ["a", " "]}, "a scope that is blank"),
        ({"scope": ["a", None]}, "a scope that is blank, no text"),
        ({"scope": ["a", "a "]}, "named twice"),
    ],
)
def test_claims_that_do_not_count(changed: dict[str, Any], why: str) -> None:
    assert why in why_not(token(claims(**changed)))


def signed(payload: bytes, header: bytes = b'{"alg":"ES256","kid":"one"}') -> str:
    """Return a token of any bytes whose signature is right."""
    return tokens.signed(header, payload, tokens.private_key("ES256"), "ES256")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a.b", "three parts"),
        ("a.b.c.d", "three parts"),
        ("....", "three parts"),
        (joined({"alg": "none"}, claims()), "algorithm that counts"),
        (joined({"alg": "None"}, claims(), b"x"), "algorithm that counts"),
        (joined({"alg": "HS256", "kid": "one"}, claims(), b"x"), "algorithm that counts"),
        (joined({"kid": "one"}, claims(), b"x"), "algorithm that counts"),
        (joined({"alg": ["ES256"]}, claims(), b"x"), "algorithm that counts"),
        (joined({"alg": "ES256", "kid": 1}, claims(), b"x"), "names its key by no text"),
        (joined({"alg": "ES256", "kid": "two"}, claims(), b"x"), "does not publish"),
        (joined({"alg": "RS256", "kid": "one"}, claims(), b"x"), "does not publish"),
        (joined({"alg": "ES256", "kid": "one"}, claims()), "not signed with the key"),
        (joined({"alg": "ES256", "kid": "one"}, claims(), b"x" * 64), "not signed with the key"),
        (joined([], claims(), b"x"), "no object in JSON"),
        (joined(b"[" * 5_000, claims(), b"x"), "no object in JSON"),
        (joined(b"\xff", claims(), b"x"), "no object in JSON"),
        ("a.b.c", "no readable header"),
        (signed(b"[]"), "no object in JSON"),
        (signed(b'{"sub": NaN}'), "no object in JSON"),
        (signed(b'{"exp": ' + b"9" * 5_000 + b"}"), "no object in JSON"),
        (signed(json.dumps(claims()).encode()[:-1] + b', "sub": "b"}'), "no object in JSON"),
        (signed(b"{}", b'{"alg":"ES256","alg":"ES256","kid":"one"}'), "no object in JSON"),
        (signed(b"{}", b'{"alg":"ES256","kid":"one","crit":["exp"]}'), "not signed"),
        (signed(b"", b'{"alg":"ES256","kid":"one","b64":false,"crit":["b64"]}'), "not signed"),
    ],
)
def test_tokens_of_another_form_do_not_count(value: str, why: str) -> None:
    assert why in why_not(value)


@pytest.mark.parametrize(
    ("count", "counts"), [(0, True), (99, True), (100, False), (16_000, False)]
)
def test_a_message_has_a_hundred_values_at_most(count: int, counts: bool) -> None:
    """Reading thousands of them took a tenth of a second of the event loop."""
    its, message = login(), first_message(token(), more="a=b\1" * count)
    if counts:
        assert its.answer(message) == b""
    else:
        with pytest.raises(LoginFailed, match="invalid credentials"):
            its.answer(message)


def test_a_long_header_is_not_read() -> None:
    """Thousands of members took a twentieth of a second, before any signature was checked."""
    assert why_not(token(more="x" * 6_000)) == ""
    assert "header that is too long" in why_not(token(more="x" * 9_000))


def test_the_public_key_is_no_secret_to_sign_with() -> None:
    """Some libraries take a public key for the secret of an HMAC."""
    pem = tokens.public_pem("RS256")
    for key in (pem, pem.strip()):
        value = tokens.hmac_token({"alg": "HS256", "kid": "rsa"}, claims(), key)
        assert "algorithm that counts" in why_not(value)


def test_a_symmetric_key_in_the_set_is_not_used() -> None:
    secret = {"kty": "oct", "k": base64.urlsafe_b64encode(b"s" * 32).decode(), "kid": "oct"}
    with pytest.raises(ValueError, match="no key of RSA"):
        SigningKeys.read(jwks(secret))
    keys = SigningKeys.read(jwks(secret, public_jwk("one")))
    assert len(keys) == 1


def test_rules_may_leave_issuer_and_audience_open() -> None:
    rules = TokenRules(None, frozenset())
    assert why_not(token(claims(iss=None, aud=None)), rules) == ""
    assert why_not(token(claims(iss="x", aud=["y"])), rules) == ""


def test_other_claims_may_name_user_and_scope() -> None:
    rules = TokenRules(None, frozenset(), "email", "scp")
    its = login(rules)
    its.answer(first_message(token(claims(email="a@b", sub="x", scope=["a", "a"]))))
    assert its.name == "a@b"
    assert "named twice" in why_not(token(claims(email="a@b", scp=["a", "a"])), rules)


@pytest.mark.parametrize(
    ("members", "kid", "counts"),
    [
        ([public_jwk(None)], None, True),
        ([public_jwk("one")], None, True),
        ([public_jwk(None)], "one", False),
        ([public_jwk("one", number=1), public_jwk("two")], None, False),  # the first counts
        ([{**public_jwk("one"), "use": "enc"}, public_jwk("one")], "one", True),
        ([{**public_jwk("one"), "use": "sig", "key_ops": ["verify"], "alg": "ES256"}], "one", True),
        ([{**public_jwk("one"), "key_ops": ["sign"]}, public_jwk("two")], "one", False),
        ([{**public_jwk("one"), "alg": "ES384"}, public_jwk("two")], "one", False),
        ([{**public_jwk("one"), "x": "!"}, public_jwk("two")], "one", False),
        ([{**public_jwk("one"), "x": 1}, public_jwk("two")], "one", False),
        ([{**public_jwk("one"), "key_ops": 1}, public_jwk("two")], "one", False),
        ([{**public_jwk("one"), "alg": []}, public_jwk("two")], "one", False),
        ([{**public_jwk("one"), "kid": 1}, public_jwk("two")], "one", False),
    ],
)
def test_the_key_of_a_token_is_chosen_as_by_kafka(
    members: list[dict[str, Any]], kid: str | None, counts: bool
) -> None:
    keys = SigningKeys.read(jwks(*members))
    assert (why_not(token(kid=kid), keys=keys) == "") == counts


def test_a_key_of_rsa_that_is_short_does_not_count() -> None:
    keys = SigningKeys.read(jwks(tokens.short_rsa_jwk("one")))
    assert "not signed with the key" in why_not(tokens.short_rsa_token("one"), keys=keys)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b"null", b'{"keys": {}}', b'{"keys": ["x", null]}', b"[" * 99_999]
)
def test_what_is_no_set_of_keys_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        SigningKeys.read(text)


def test_a_login_waits_for_new_keys_once() -> None:
    its = login()
    message = first_message(token(kid="new", number=1))
    with pytest.raises(UnknownKey):
        its.answer(message)
    with pytest.raises(LoginFailed) as refused:
        its.answer(message)
    assert "does not publish" in refused.value.why


GOOD = token()


@given(st.binary(max_size=200) | st.text(max_size=50).map(first_message))
def test_a_message_of_any_bytes_logs_nobody_in(message: bytes) -> None:
    its = login()
    with pytest.raises(HorologError):
        its.answer(message)
    assert its.name is None


@given(
    st.integers(0, len(GOOD) - 1),
    st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+/~"),
)
def test_a_token_with_another_character_does_not_count(place: int, character: str) -> None:
    changed = GOOD[:place] + character + GOOD[place + 1 :]
    assert (why_not(changed) == "") == (changed == GOOD)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["exp", "iat", "nbf", "iss", "aud", "sub", "scope"]), JSON))
def test_claims_of_any_kind_are_refused_or_name_a_user(changed: dict[str, Any]) -> None:
    payload = json.dumps(claims() | changed).encode()
    its = login(TokenRules(None, frozenset()))
    try:
        its.answer(first_message(signed(payload)))
    except LoginFailed:
        assert its.name is None
    else:
        assert its.name
        assert its.ends_ms is not None
        assert its.ends_ms > 1000 * (NOW_S - 30)


@given(JSON, st.binary(max_size=20), st.binary(max_size=20))
def test_headers_of_any_kind_are_refused(header: Any, payload: bytes, signature: bytes) -> None:
    assert why_not(joined(header, payload, signature))


@given(
    st.dictionaries(
        st.sampled_from(["kty", "kid", "use", "alg", "crv", "x", "y", "n", "e", "key_ops"]), JSON
    )
)
def test_a_set_of_keys_of_any_kind_is_read_or_refused(changed: dict[str, Any]) -> None:
    text = json.dumps({"keys": [public_jwk("one") | changed]}, allow_nan=True).encode()
    with suppress(ValueError):
        assert len(SigningKeys.read(text)) == 1
