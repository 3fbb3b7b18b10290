"""Asks a token endpoint for a bearer token with client credentials (RFC 6749, section 4.4)."""

import http.client
import json
import math
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from horolog.client.deadline import Deadline
from horolog.client.security.errors import NoToken
from horolog.errors import Misconfigured

SETTING: Final = "sasl.oauthbearer.token.endpoint.url"

_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_REASON: Final = 200


def checked_url(url: str) -> urllib.parse.SplitResult:
    """Return the parts of the URL of a token endpoint, or of a file with a token.

    Raises:
        Misconfigured: the URL is not usable. Parts that may be secret are not repeated.
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
    """Return the URL without user, password and query, for messages."""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()


def ask_endpoint(
    request: urllib.request.Request, shown: str, deadline: Deadline
) -> tuple[str, float]:
    """Return a token and its lifetime in seconds, 0 where the endpoint gives none.

    A redirect is not followed: it would send the client's secret wherever it leads.

    Raises:
        NoToken: the endpoint refuses, cannot be reached, has not answered by the deadline, or
            its answer has no token.
    """
    answer: Future[tuple[str, float]] = Future()
    handler = _Handler()
    # A timeout of a socket bounds each read, and an answer may come byte by byte. So the answer is
    # read by a thread, which is not waited for beyond the deadline.
    arguments = (request, deadline.left_s(), handler, answer)
    threading.Thread(target=_fetch, args=arguments, name="horolog-token", daemon=True).start()
    try:
        return answer.result(deadline.left_s())
    except urllib.error.HTTPError as error:
        error.close()
        hint = ""
        if error.code in _NoRedirects.CODES:
            hint = "; redirects are not followed: give the address that it leads to"
        reason = str(error.reason)[:_MAX_REASON]
        raise NoToken(f"{shown} answered {error.code} {reason}{hint}") from None
    except OSError as error:
        reason = str(getattr(error, "reason", error))[:_MAX_REASON]
        raise NoToken(f"{shown} does not answer ({reason or 'timed out'})") from None
    except http.client.HTTPException as error:
        raise NoToken(f"{shown} breaks HTTP ({type(error).__name__})") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise NoToken(f"{shown} answered with no access_token in JSON") from None
    finally:
        handler.end()


def _fetch(
    request: urllib.request.Request,
    timeout_s: float,
    handler: "_Handler",
    answer: "Future[tuple[str, float]]",
) -> None:
    try:
        opener = urllib.request.build_opener(handler, _NoRedirects)
        with opener.open(request, timeout=max(timeout_s, 0.001)) as response:
            found = json.loads(response.read(_MAX_ANSWER_BYTES))
        token, lifetime_s = found["access_token"], float(found.get("expires_in", 0))
        if not isinstance(token, str) or not math.isfinite(lifetime_s):
            raise ValueError
    except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
        answer.set_exception(error)
    else:
        answer.set_result((token, lifetime_s))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    CODES: Final = frozenset({301, 302, 303, 307, 308})

    def redirect_request(self, *_: Any) -> None:
        return None  # which makes an error of the redirect


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opener of connections that ends their responses once nobody waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: list[socket.socket] = []
        self._is_over = False

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection(http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection(http.client.HTTPSConnection), request)

    def end(self) -> None:
        """End the responses that are being read, and those that would be."""
        self._is_over = True
        for sock in self._sockets:
            with suppress(OSError):  # it is closed
                sock.shutdown(socket.SHUT_RDWR)

    def _connection(self, kind: type[http.client.HTTPConnection]) -> Any:
        def connect(host: str, **options: Any) -> http.client.HTTPConnection:
            connection = kind(host, **options)
            connection.response_class = self._response  # type: ignore[assignment]
            return connection

        return connect

    def _response(self, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        self._sockets.append(sock)
        if self._is_over:
            raise TimeoutError("timed out")
        return http.client.HTTPResponse(sock, **options)
