"""HttpExchange: a request over HTTP whose time and answer are bounded, in a thread of its own.

A timeout of a socket bounds each read, and an answer may come byte by byte. So a thread reads the
answer, and is not waited for beyond a limit. No redirect is followed: it would send secrets, and
trust, wherever it leads. Nor is a proxy of the environment asked for addresses of this machine:
they may be plain http only because nothing leaves the machine.
"""

import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from horolog.security.urls import is_loopback

__all__ = ["HttpExchange", "failure"]

_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_REASON: Final = 200


class HttpExchange:
    """A request that was sent, and its answer."""

    def __init__(
        self,
        request: urllib.request.Request,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Begin the request; without `tls`, the system's authorities are trusted."""
        self.answer: Future[bytes] = Future()
        """Body of the answer. OSError, HTTPException: none came, which `failure` explains."""
        self._handler = _Handler(tls)
        arguments = (request, max(timeout_s, 0.001))
        threading.Thread(target=self._run, args=arguments, name="horolog-http", daemon=True).start()

    def end(self) -> None:
        """End the exchange; without an answer so far there will be none."""
        self._handler.end()

    def _run(self, request: urllib.request.Request, timeout_s: float) -> None:
        try:
            opener = urllib.request.build_opener(self._handler, _NoRedirects, *_proxies(request))
            with opener.open(request, timeout=timeout_s) as response:
                body = response.read(_MAX_ANSWER_BYTES + 1)
            if len(body) > _MAX_ANSWER_BYTES:
                raise OSError("a longer answer than a megabyte")
        except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
            self._resolve(error)
        else:
            self._resolve(body)

    def _resolve(self, outcome: bytes | Exception) -> None:
        if self.answer.set_running_or_notify_cancel():
            if isinstance(outcome, bytes):
                self.answer.set_result(outcome)
            else:
                self.answer.set_exception(outcome)


def failure(error: OSError | http.client.HTTPException) -> str:
    """Return what went wrong, to follow the address."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        hint = ""
        if error.code in _NoRedirects.CODES:
            hint = "; redirects are not followed: give the address that it leads to"
        return f"answered {error.code} {str(error.reason)[:_MAX_REASON]}{hint}"
    if isinstance(error, OSError):
        reason = str(getattr(error, "reason", error))[:_MAX_REASON]
        return f"does not answer ({reason or 'timed out'})"
    return f"breaks HTTP ({type(error).__name__})"


def _proxies(request: urllib.request.Request) -> tuple[urllib.request.ProxyHandler, ...]:
    """Return a handler that asks no proxy for an address of this machine; none for others."""
    host = urllib.parse.urlsplit(request.full_url).hostname or ""
    return (urllib.request.ProxyHandler({}),) if is_loopback(host) else ()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    CODES: Final = frozenset({301, 302, 303, 307, 308})

    def redirect_request(self, *_: Any) -> None:
        return None  # which makes an error of the redirect


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opener of connections that ends their responses once nobody waits for them."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._is_over = False

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection(http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        factory = self._connection(partial(http.client.HTTPSConnection, context=self._tls))
        return self.do_open(factory, request)

    def end(self) -> None:
        """End the responses that are being read, and those that would be."""
        self._is_over = True
        for sock in self._sockets:
            with suppress(OSError):  # it is closed
                sock.shutdown(socket.SHUT_RDWR)

    def _connection(self, kind: Callable[..., http.client.HTTPConnection]) -> Any:
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
