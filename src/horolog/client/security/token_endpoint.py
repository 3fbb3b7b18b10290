"""Asks a token endpoint for a bearer token with client credentials (RFC 6749, section 4.4)."""

import functools
import http.client
import io
import json
import math
import socket
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from horolog.client.deadline import Deadline
from horolog.client.security.errors import NoToken
from horolog.errors import Misconfigured

__all__ = ["SETTING", "ask_endpoint", "checked_url", "without_secrets"]

SETTING: Final = "sasl.oauthbearer.token.endpoint.url"

_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_REASON: Final = 200


def checked_url(url: str) -> urllib.parse.SplitResult:
    """The parts of the URL of a token endpoint, or of a file that holds a token.

    Raises:
        Misconfigured: it is none; without what may be a secret in it.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_complete = parts.scheme == "file" or (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:  # brackets that do not close, a port beyond 65535
        is_complete = False
    if not is_complete:
        raise Misconfigured(
            f"{SETTING} is not usable: expected https://host/..., http://host/... or file:///..."
        )
    if "@" in parts.netloc:
        raise Misconfigured(
            f"{SETTING}={without_secrets(parts)} has a user in it, which would not be sent: give "
            "sasl.oauthbearer.client.credentials.client.id and .secret"
        )
    return parts


def without_secrets(parts: urllib.parse.SplitResult) -> str:
    """The URL for a message: without a user, a password and a query."""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()


def ask_endpoint(
    request: urllib.request.Request, shown: str, deadline: Deadline
) -> tuple[str, float]:
    """A token, and the seconds for which it is valid (0 where the endpoint does not say).

    A redirect is not followed: it would send the client's secret wherever it leads.

    Raises:
        NoToken: the endpoint refuses, cannot be reached, has not answered by the deadline, or
            answers with something else.
    """
    opener = urllib.request.build_opener(_Handler(deadline), _NoRedirects)
    try:
        with opener.open(request, timeout=max(deadline.left_s(), 0.001)) as answer:
            found = json.loads(answer.read(_MAX_ANSWER_BYTES))
        token, lifetime_s = found["access_token"], float(found.get("expires_in", 0))
        if not isinstance(token, str) or not math.isfinite(lifetime_s):
            raise ValueError
    except urllib.error.HTTPError as error:
        error.close()
        hint = ""
        if error.code in _NoRedirects.CODES:
            hint = "; redirects are not followed: give the address that it leads to"
        reason = str(error.reason)[:_MAX_REASON]
        raise NoToken(f"{shown} answered {error.code} {reason}{hint}") from None
    except OSError as error:
        reason = str(getattr(error, "reason", error))[:_MAX_REASON]
        raise NoToken(f"{shown} does not answer ({reason})") from None
    except http.client.HTTPException as error:
        raise NoToken(f"{shown} breaks HTTP ({type(error).__name__})") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise NoToken(f"{shown} answered with no access_token in JSON") from None
    return token, lifetime_s


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    CODES: Final = frozenset({301, 302, 303, 307, 308})

    def redirect_request(self, *_: Any) -> None:
        return None  # which makes an error of the redirect


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Connections whose answers are read up to a deadline as a whole.

    A timeout of a socket is that of each read, and an answer may come byte by byte.
    """

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection(http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection(http.client.HTTPSConnection), request)

    def _connection(self, kind: type[http.client.HTTPConnection]) -> Any:
        def connect(host: str, **options: Any) -> http.client.HTTPConnection:
            connection = kind(host, **options)
            connection.response_class = functools.partial(_Answer, self._deadline)  # type: ignore[assignment]
            return connection

        return connect


class _Answer(http.client.HTTPResponse):
    def __init__(self, deadline: Deadline, sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_TimedReads(self.fp.detach(), sock, deadline))


class _TimedReads(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline.left_s()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
