"""Keys that check passwords, and logins by them: the broker's side of SCRAM (RFC 5802, RFC 7677).

A password is never known here: clients send it salted, and a login costs three HMACs. A user that
is not there gets a salt and fails at the last message, as with a wrong password, so that nobody
learns who exists. Apache Kafka fails at the first.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from horolog.security.logins import LoginFailed, failed

__all__ = [
    "LEAST_ITERATIONS",
    "LONGEST_MESSAGE",
    "MOST_ITERATIONS",
    "Credential",
    "ScramLogin",
    "ScramMechanism",
    "credential_of",
    "new_credential",
    "new_salted",
    "salt_of",
    "salted",
]

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384
LONGEST_MESSAGE: Final = 16_384
"""Most bytes of a client's message. The first is kept until the second comes."""

_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_NAME: Final = r"(?:[^,=]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<wanted>{_NAME}))?,(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+)"
    r"(?P<more>(?:,[A-Za-z]+=[^,]+)*))"
)
_FINAL: Final = re.compile(
    r"(?P<signed>c=(?P<binding>[A-Za-z0-9+/=]*),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramMechanism(IntEnum):
    """Mechanisms with Kafka's numbers."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def title(self) -> str:
        """Name of the mechanism: `SCRAM-SHA-256`."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def digest(self) -> str:
        """Name of the hash function in `hashlib`."""
        return self.name.replace("_", "").lower()

    @classmethod
    def titled(cls, title: str) -> "ScramMechanism | None":
        """Return the mechanism of a name; None if it is another one."""
        return next((mechanism for mechanism in cls if mechanism.title == title), None)


class Credential(NamedTuple):
    """Keys that check a password. The `repr` has none of them."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return a salted password. It takes milliseconds, so brokers never call it."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def salt_of(number: int) -> bytes:
    """Return a salt of 130 bits of a number, in the form of Kafka's tools: digits to base 36.

    A salt of another form would tell users that are not there from those that Kafka's tools made.
    """
    number &= (1 << 130) - 1
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(digits[::-1])


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> Credential:
    """Return the keys that check a salted password."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    server_key = hmac.digest(salted_password, b"Server Key", mechanism.digest)
    return Credential(salt, stored_key, server_key, iterations)


def new_salted(mechanism: ScramMechanism, password: str) -> tuple[bytes, bytes]:
    """Return a random salt, and a password salted with it in `LEAST_ITERATIONS`."""
    salt = salt_of(secrets.randbits(130))
    return salt, salted(mechanism, password, salt, LEAST_ITERATIONS)


def new_credential(mechanism: ScramMechanism, password: str) -> Credential:
    """Return the keys that check a new password."""
    salt, key = new_salted(mechanism, password)
    return credential_of(mechanism, key, salt, LEAST_ITERATIONS)


class ScramLogin:
    """One login by SCRAM."""

    ends_ms: Final = None

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], Credential | None],
        secret: bytes,
        nonce: str | None = None,
    ) -> None:
        """Begin a login.

        Args:
            find: returns the credential of a user; None if there is none.
            secret: of the broker, for the salts of users that are not there.
            nonce: the broker's part; None: a random one.
        """
        self.name: str | None = None
        self._mechanism = mechanism
        self._find = find
        self._secret = secret
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._user: str | None = None  # after the first message
        self._credential = Credential(b"", b"", b"", 0)
        self._begun = ""
        self._header = ""

    def answer(self, message: bytes) -> bytes:
        """Return the answer to the first or the final message.

        Raises:
            LoginFailed: the message is of another form, or the password is wrong.
        """
        if len(message) > LONGEST_MESSAGE:
            raise failed(self._mechanism.title)
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise failed(self._mechanism.title) from None
        return self._first(text) if self._user is None else self._final(self._user, text)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None or ",tokenauth=true" in match["more"].lower():
            raise failed(self._mechanism.title)
        user = _unescaped(match["name"])
        if match["wanted"] is not None and _unescaped(match["wanted"]) != user:
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self._credential = self._find(user) or self._of_nobody(user)
        self._user, self._nonce = user, match["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._header = text[: match.start("bare")]
        self._begun = f"{match['bare']},{first}"
        return first.encode()

    def _of_nobody(self, user: str) -> Credential:
        """Return a credential that no password fits, always the same for a name."""
        digest = self._mechanism.digest
        number = int.from_bytes(hmac.digest(self._secret, user.encode(), digest))
        size = hashlib.new(digest).digest_size
        return Credential(
            salt_of(number), secrets.token_bytes(size), secrets.token_bytes(size), LEAST_ITERATIONS
        )

    def _final(self, user: str, text: str) -> bytes:
        match = _FINAL.fullmatch(text)
        # Clients of Apache Kafka, which does not look at it, leave an authorization id out.
        bound = {base64.b64encode(header.encode()).decode() for header in (self._header, "n,,")}
        if match is None or match["nonce"] != self._nonce or match["binding"] not in bound:
            raise failed(self._mechanism.title)
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except ValueError:
            raise failed(self._mechanism.title) from None
        digest, stored_key = self._mechanism.digest, self._credential.stored_key
        signed = f"{self._begun},{match['signed']}".encode()
        signature = hmac.digest(stored_key, signed, digest)
        if len(proof) != len(signature):
            raise failed(self._mechanism.title)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), stored_key):
            raise failed(self._mechanism.title)
        self.name = user
        proven = hmac.digest(self._credential.server_key, signed, digest)
        return b"v=" + base64.b64encode(proven)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
