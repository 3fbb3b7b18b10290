"""SASL mechanisms of a client (KIP-43, KIP-152), without I/O.

An exchange is a generator: it yields the client's messages and is sent the broker's answers. It
ends when the broker is proved to be the one it claims to be, as far as the mechanism can.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from horolog.client.deadline import Deadline
from horolog.client.security.errors import AuthenticationFailed
from horolog.client.security.settings import Security
from horolog.security.jaas import parse_jaas

if TYPE_CHECKING:
    from horolog.client.security.tokens import Token

Exchange: TypeAlias = Generator[bytes, bytes, None]

_MIN_ITERATIONS: Final = 4096  # RFC 7677, and what Kafka stores
_MAX_ITERATIONS: Final = 1_000_000  # a broker must not keep a client busy for minutes


class Sasl:
    """Credentials of one client."""

    def __init__(self, security: Security, oauth_token: Callable[[], str] | None) -> None:
        """Read credentials that `Security.check_sasl` has checked.

        Raises:
            Misconfigured: the settings name no source of tokens, or one that is not supported.
        """
        self.mechanism = security.mechanism
        if self.mechanism == "OAUTHBEARER":
            from horolog.client.security.tokens import Tokens  # noqa: PLC0415 - imports HTTP

            self._tokens = Tokens(security, oauth_token)
        else:
            self._options = parse_jaas(security.get("sasl.jaas.config") or "").options

    def exchange(self, deadline: Deadline) -> Exchange:
        """Return the messages for authenticating a new connection.

        Raises:
            NoToken: OAUTHBEARER, and its token cannot be had by the deadline.
        """
        if self.mechanism == "OAUTHBEARER":
            return oauthbearer(self._tokens.current(deadline))
        username, password = self._options["username"], self._options["password"]
        if self.mechanism == "PLAIN":
            return plain(username, password)
        is_token = self._options.get("tokenauth", "false").lower() == "true"
        return scram(
            self.mechanism.removeprefix("SCRAM-").replace("-", ""),
            username,
            password,
            extensions={"tokenauth": "true"} if is_token else {},
        )


def plain(username: str, password: str) -> Exchange:
    """Yield the message of PLAIN (RFC 4616), in Kafka's form."""
    yield b"\0" + username.encode() + b"\0" + password.encode()


def scram(
    algorithm: str,
    username: str,
    password: str,
    *,
    extensions: Mapping[str, str],
    nonce: str | None = None,
) -> Exchange:
    """Yield the messages of SCRAM (RFC 5802) with `SHA256` or `SHA512`.

    Texts are sent as UTF-8.

    Raises:
        AuthenticationFailed: the broker does not know the password's keys, or breaks the protocol.
    """
    nonce = nonce or secrets.token_urlsafe(24)
    name = username.replace("=", "=3D").replace(",", "=2C")
    more = "".join(f",{key}={value}" for key, value in extensions.items())
    first_bare = f"n={name},r={nonce}{more}"
    server_first = _text((yield f"n,,{first_bare}".encode()))
    fields = _fields(server_first)
    their_nonce, salt = fields.get("r", ""), _decoded(fields.get("s"))
    if not their_nonce.startswith(nonce) or their_nonce == nonce or not salt:
        raise AuthenticationFailed("the broker's first SCRAM message does not answer this client's")
    iterations = _iterations(fields.get("i", "no"))
    digest = algorithm.lower()
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    final_bare = f"c=biws,r={their_nonce}"
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
    fields = _fields(_text(answer))
    if "e" in fields:
        raise AuthenticationFailed(f"the broker refused the SCRAM exchange: {fields['e'][:200]}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(_decoded(fields.get("v")), expected):
        raise AuthenticationFailed("the broker did not prove that it knows this user (SCRAM)")


def oauthbearer(token: "Token") -> Exchange:
    """Yield the messages of OAUTHBEARER (RFC 7628, KIP-255).

    Raises:
        AuthenticationFailed: the broker's reason, where it gives one.
    """
    more = "".join(f"{key}={value}\x01" for key, value in token.extensions.items())
    answer = yield f"n,,\x01auth=Bearer {token.value}\x01{more}\x01".encode()
    if answer:
        yield b"\x01"  # an error in JSON waits for this, and the failure follows
        raise AuthenticationFailed(f"the broker refused the token: {_text(answer)[:500]}")


def _iterations(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_ITERATIONS))
    if not is_number or not _MIN_ITERATIONS <= int(text) <= _MAX_ITERATIONS:
        raise AuthenticationFailed(
            f"the broker asks for SCRAM with {text[:20]} iterations; accepted are "
            f"{_MIN_ITERATIONS} to {_MAX_ITERATIONS}"
        )
    return int(text)


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except ValueError:
        return b""


def _text(message: bytes) -> str:
    return bytes(message).decode("utf-8", "replace")
