"""Logins by signed tokens: the broker's side of OAUTHBEARER (RFC 7628, KIP-255, KIP-768).

    n,[a=NAME],^A auth=Bearer TOKEN ^A [KEY=VALUE ^A]* ^A      ^A: the byte 1, without the spaces

A token is a JWT, signed by a key of a set (JWKS, RFC 7517). Only signatures by private keys count:
neither `none`, nor HMAC, whose key the broker would have to know. A refused token is answered with
an error in JSON, which the client acknowledges before the login fails.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt

from horolog.json_text import from_json
from horolog.security.claims import BadToken, TokenOwner, TokenRules, UnknownKey
from horolog.security.logins import LoginFailed, failed

__all__ = ["LONGEST_FIRST_MESSAGE", "SigningKeys", "TokenLogin"]

MECHANISM: Final = "OAUTHBEARER"
LONGEST_FIRST_MESSAGE: Final = 65_536
"""Most bytes of a client's message: checking one takes a few milliseconds of the event loop."""

_LONGEST_HEADER: Final = 8_192

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE: Final = {
    "P-256": "ES256",
    "P-384": "ES384",
    "P-521": "ES512",
    "Ed25519": "EdDSA",
    "Ed448": "EdDSA",
}
_ALGORITHMS: Final = frozenset({*_RSA, *_BY_CURVE.values()})
_PUBLIC: Final = frozenset({"kty", "n", "e", "crv", "x", "y"})

_NAME: Final = r"(?:[^\x00=,\x80-\xff]|=2C|=3D)+"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<wanted>{_NAME}))?,\x01(?P<pairs>.*)\x01", re.DOTALL)
_PAIR: Final = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[!-~ \t\r\n]+)")
_MOST_PAIRS: Final = 100
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_REFUSED: Final = '{"status":"invalid_token"}'


class _Key(NamedTuple):
    kid: str | None
    algorithms: frozenset[str]
    """Those whose signatures it checks."""
    key: Any


class SigningKeys:
    """Public keys of an issuer, for the algorithms that count."""

    def __init__(self, keys: Sequence[_Key] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def read(cls, text: bytes) -> "SigningKeys":
        """Return the keys of a set (JWKS). Those for other purposes are left out, as by Kafka.

        Raises:
            ValueError: it is no set, or has no key that can be used.
        """
        document = from_json(text)
        members = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(members, list):
            raise ValueError("it has no list of keys")
        keys = [key for member in members if (key := _key_of(member)) is not None]
        if not keys:
            raise ValueError("it has no key of RSA, EC or EdDSA that checks signatures")
        return cls(keys)

    def find(self, kid: str | None, algorithm: str) -> Any:
        """Return the first key for an algorithm that has this id; None if there is none.

        A token without an id is checked by the first key for its algorithm.
        """
        for key in self._keys:
            if algorithm in key.algorithms and kid in (None, key.kid):
                return key.key
        return None


def _key_of(member: Any) -> _Key | None:
    if not isinstance(member, dict) or member.get("use", "sig") != "sig":
        return None
    kid, operations = member.get("kid"), member.get("key_ops", ["verify"])
    if not isinstance(kid, str | None) or not isinstance(operations, list):
        return None
    algorithms = frozenset(_RSA)
    if member.get("kty") != "RSA":
        algorithms = frozenset({_BY_CURVE.get(str(member.get("crv")), "")})
    if "alg" in member:
        algorithms &= {str(member["alg"])}
    if "verify" not in operations or not algorithms or not algorithms <= _ALGORITHMS:
        return None
    public = {name: value for name, value in member.items() if name in _PUBLIC}
    try:
        return _Key(kid, algorithms, jwt.PyJWK(public, min(algorithms)).key)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


class TokenLogin:
    """One login by a token."""

    def __init__(
        self, rules: TokenRules, keys: Callable[[], SigningKeys], now_ms: Callable[[], int]
    ) -> None:
        """Begin a login; `keys` returns those of the moment."""
        self.name: str | None = None
        self.ends_ms: int | None = None
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms
        self._has_asked_for_keys = False

    def answer(self, message: bytes) -> bytes:
        """Return nothing if the token is right.

        Raises:
            LoginFailed: the message is of another form, or the token proves nothing.
            UnknownKey: once, if the token's key is unknown: the message may be given again.
        """
        wanted, token = _parse_first(message)
        try:
            owner = _owner(token, self._keys(), self._rules, self._now_ms())
        except UnknownKey:
            if not self._has_asked_for_keys:
                self._has_asked_for_keys = True
                raise
            raise _refused("is signed with a key that the issuer does not publish") from None
        except BadToken as error:
            raise _refused(str(error)) from None
        if wanted not in ("", owner.name):
            raise LoginFailed(
                f"Authentication failed: Client requested an authorization id ({wanted}) that is "
                f"different from the token's principal name ({owner.name})"
            )
        self.name, self.ends_ms = owner
        return b""


def _refused(why: str) -> LoginFailed:
    return LoginFailed(_REFUSED, why=f"the token {why}", answer=_REFUSED.encode())


def _parse_first(message: bytes) -> tuple[str, str]:
    """Return the authorization id, empty without one, and the token.

    Raises:
        LoginFailed: the message is of another form, or too long.
    """
    if len(message) > LONGEST_FIRST_MESSAGE:
        raise failed(MECHANISM)
    match = _FIRST.fullmatch(message.decode("latin-1"))
    if match is None:
        raise failed(MECHANISM)
    *texts, end = match["pairs"].split("\x01", _MOST_PAIRS)
    pairs = [_PAIR.fullmatch(text) for text in texts]
    values = {pair["key"]: pair["value"] for pair in pairs if pair is not None}
    auth = _AUTH.fullmatch(values.get("auth", ""))
    if end or None in pairs or auth is None or auth["scheme"].lower() != "bearer":
        raise failed(MECHANISM)
    return match["wanted"] or "", auth["token"]


def _owner(token: str, keys: SigningKeys, rules: TokenRules, now_ms: int) -> TokenOwner:
    """Return the owner of a token.

    Raises:
        BadToken: it proves nothing.
        UnknownKey: none of the keys is that of the token.
    """
    if token.count(".") != 2:
        raise BadToken("has not three parts")
    header = _header(token.partition(".")[0])
    algorithm, kid = str(header.get("alg")), header.get("kid")
    if algorithm not in _ALGORITHMS:
        raise BadToken("is not signed by an algorithm that counts (alg)")
    if not isinstance(kid, str | None):
        raise BadToken("names its key by no text (kid)")
    key = keys.find(kid, algorithm)
    if key is None:
        raise UnknownKey("the token's key is unknown")
    try:
        payload = _JWS.decode(token, key, algorithms=[algorithm])
    except jwt.PyJWTError:
        raise BadToken("is not signed with the key that it names") from None
    return rules.owner(_object(payload), now_ms)


_JWS: Final = jwt.PyJWS(sorted(_ALGORITHMS), {"enforce_minimum_key_length": True})


def _header(part: str) -> Mapping[str, Any]:
    if len(part) > _LONGEST_HEADER:
        raise BadToken("has a header that is too long")
    try:
        return _object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        raise BadToken("has no readable header") from None


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        members = from_json(text, distinct=True)
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise BadToken("has a part that is no object in JSON")
    return members
