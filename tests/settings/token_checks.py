"""For every broker setting about tokens, the difference it makes."""

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tokens
from patience import eventually
from setting_checks import REFUSED, of_broker
from settings_lab import Lab
from tokens import claims, file_url, first_message, public_jwk, token

from horolog.wire import ApiKey

_DIRECTORY = TemporaryDirectory(prefix="token-checks-")  # until the process ends
KEYS, OTHER_KEYS = (Path(_DIRECTORY.name, f"keys-{number}.json") for number in range(2))
for _number, _path in enumerate((KEYS, OTHER_KEYS)):
    _path.write_bytes(tokens.jwks(public_jwk("one", number=_number)))

with socket.create_server(("127.0.0.1", 0)) as _server:
    PORT = _server.getsockname()[1]


def _listener(url: str, *without: str) -> dict[str, str]:
    """Settings of a listener with tokens; those of all listeners, but for the class."""
    named = {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": tokens.ISSUER,
        "sasl.oauthbearer.expected.audience": tokens.AUDIENCE,
    }
    return {
        "listeners": "TOKENS://127.0.0.1:0",
        "listener.security.protocol.map": "TOKENS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": tokens.VALIDATOR,
        **{name: value for name, value in named.items() if name not in without},
    }


OF_FILE = _listener(file_url(KEYS))
OF_URL = _listener(f"http://127.0.0.1:{PORT}/keys")
NO_AUDIENCE = _listener(file_url(KEYS), "sasl.oauthbearer.expected.audience")
NO_ISSUER = _listener(file_url(KEYS), "sasl.oauthbearer.expected.issuer")
NO_URL = _listener(file_url(KEYS), "sasl.oauthbearer.jwks.endpoint.url")


def name_of(lab: Lab, given: Mapping[str, Any]) -> str | None:
    """Return the user that a token with these claims is of; None if it is refused."""
    with lab.connect() as connection:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        # Another name is refused as such: so the broker tells which one it has read.
        message = first_message(token(given), "nobody")
        answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        if answer.error_code == 0:
            return None
        return str(answer.error_message).rpartition("(")[2].rstrip(")")


@of_broker(
    "sasl.oauthbearer.allow.unverified.audience",
    {"false": REFUSED, "true": "alice"},
    beside=NO_AUDIENCE,
)
def user_of_a_token_without_audience(lab: Lab) -> str | None:
    return name_of(lab, claims(aud=None))


@of_broker(
    "sasl.oauthbearer.allow.unverified.issuer",
    {"false": REFUSED, "true": "alice"},
    beside=NO_ISSUER,
)
def user_of_a_token_without_issuer(lab: Lab) -> str | None:
    return name_of(lab, claims(iss=None))


@of_broker(
    "sasl.oauthbearer.expected.audience",
    {"": REFUSED, "horolog": None, "horolog,other": "alice"},
    beside=NO_AUDIENCE,
)
def user_of_a_token_for_another_audience(lab: Lab) -> str | None:
    return name_of(lab, claims(aud=["other"]))


@of_broker(
    "sasl.oauthbearer.expected.issuer",
    {"": REFUSED, "https://other.example": "alice", tokens.ISSUER: None},
    beside=NO_ISSUER,
)
def user_of_a_token_of_another_issuer(lab: Lab) -> str | None:
    return name_of(lab, claims(iss="https://other.example"))


@of_broker(
    "sasl.oauthbearer.clock.skew.seconds",
    {"30": "alice", "10": None, "-1": REFUSED},
    beside=OF_FILE,
)
def user_of_a_token_that_has_just_ended(lab: Lab) -> str | None:
    return name_of(lab, claims(exp=tokens.NOW_S - 20, iat=1))


@of_broker("sasl.oauthbearer.sub.claim.name", {"sub": "alice", "email": "a@b"}, beside=OF_FILE)
def user_of_a_token_with_two_names(lab: Lab) -> str | None:
    return name_of(lab, claims(email="a@b"))


@of_broker("sasl.oauthbearer.scope.claim.name", {"scope": "alice", "scp": None}, beside=OF_FILE)
def user_of_a_token_with_a_scope_named_twice(lab: Lab) -> str | None:
    return name_of(lab, claims(scp=["log", "log"]))


@of_broker(
    "sasl.oauthbearer.jwks.endpoint.url",
    {"": REFUSED, file_url(KEYS): "alice", file_url(OTHER_KEYS): None},
    beside=NO_URL,
)
def user_of_a_token_of_one_key(lab: Lab) -> str | None:
    return name_of(lab, claims())


def _asked(lab: Lab, *, times: int) -> bool:
    """Return True if the issuer, once it answers, is asked so often soon."""
    with tokens.running_issuer(PORT) as issuer:
        if times > 1:
            assert eventually(lambda: bool(issuer.asked))
        until = time.monotonic() + lab.soon_s
        while len(issuer.asked) < times and time.monotonic() < until:
            time.sleep(0.01)
        return len(issuer.asked) >= times


@of_broker(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    {"1": True, "600000": False},
    beside={**OF_URL, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "600000"},
)
def whether_keys_are_soon_tried_again(lab: Lab) -> bool:
    return _asked(lab, times=1)


@of_broker(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    {"1": True, "600000": False},
    beside={**OF_URL, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "600000"},
)
def whether_a_long_pause_is_cut_short(lab: Lab) -> bool:
    return _asked(lab, times=1)


@of_broker(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    {"1": True, "3600000": False},
    beside={**OF_URL, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "1"},
)
def whether_keys_are_soon_read_again(lab: Lab) -> bool:
    return _asked(lab, times=3)
