"""Mechanisms of a login (SASL), the broker's side, without I/O."""

import hmac
from collections.abc import Mapping
from typing import Final, Protocol

from horolog.errors import HorologError

__all__ = ["LoginFailed", "PlainLogin", "ServerLogin"]


class LoginFailed(HorologError):
    """Raised if a client has not proved who it is; the message is sent to it.

    Attributes:
        why: Reason for the log, where the client is not told all of it.
        answer: Message of the mechanism that tells the client before the login fails; empty
            without one.
    """

    def __init__(self, message: str, *, why: str = "", answer: bytes = b"") -> None:
        super().__init__(message)
        self.why = why or message
        self.answer = answer


class ServerLogin(Protocol):
    """One login. `answer` is called with each message of the client until there is a name."""

    @property
    def name(self) -> str | None:
        """Name of the user; None until the client has proved it."""
        ...

    @property
    def ends_ms(self) -> int | None:
        """End of what proved the name, in milliseconds since the epoch; None if it has none."""
        ...

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message.

        Raises:
            LoginFailed: the client has not proved who it is.
        """
        ...


class PlainLogin:
    """PLAIN (RFC 4616) in Kafka's form: `[authorization id] NUL name NUL password`."""

    ends_ms: Final = None

    def __init__(self, users: Mapping[str, str]) -> None:
        """Begin a login of one of `users`, who are passwords by name."""
        self.name: str | None = None
        self._users = users

    def answer(self, message: bytes) -> bytes:
        """Return nothing if the password is right.

        Raises:
            LoginFailed: the message is of another form, or the password is wrong.
        """
        parts = message.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        wanted, name, password = parts
        if not name or not password:
            what = "password" if name else "username"
            raise LoginFailed(f"Authentication failed: {what} not specified")
        known = self._users.get(name)
        expected = password + "x" if known is None else known  # of a user who is not there
        if not hmac.compare_digest(expected.encode(errors="surrogatepass"), password.encode()):
            raise LoginFailed("Authentication failed: Invalid username or password")
        if wanted not in ("", name):
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.name = name
        return b""


def failed(mechanism: str) -> LoginFailed:
    """Return the error of a message that is not of the mechanism's form."""
    return LoginFailed(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )
