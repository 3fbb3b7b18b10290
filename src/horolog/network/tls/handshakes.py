"""Handshakes in threads of their own, each with a selector.

A socket belongs to a thread until its handshake is done, and to the event loop after that: two
threads must not use one. A client that stalls holds a socket and no thread. OpenSSL releases the
interpreter while it computes, so that the event loop runs meanwhile.
"""

import asyncio
import logging
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from threading import Thread
from typing import Any, Final, TypeAlias

from horolog.network.peer import ANONYMOUS
from horolog.security.names import MappingRule, map_name, subject_name

__all__ = ["Handshake", "Handshakes"]

_LOG = logging.getLogger(__name__)

THREADS: Final = 2
_DISCARDED_BYTES: Final = 64 * 1024
_NOT_TLS: Final = frozenset(
    {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG",
     "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "BAD_RECORD_TYPE"}
)  # fmt: skip

_Done: TypeAlias = Callable[["Handshake", ssl.SSLSocket, str], object]
_Failed: TypeAlias = Callable[["Handshake", str], object]


class Handshake:
    """Handshake of a client that has connected to `listener`."""

    __slots__ = ("_thread", "address", "context", "is_cancelled", "listener", "rules", "since")

    def __init__(
        self,
        listener: Any,
        address: Any,
        since: float,
        context: ssl.SSLContext,
        rules: tuple[MappingRule, ...],
    ) -> None:
        self.listener = listener
        self.address = address
        self.since = since
        """When the client connected, by the event loop's clock."""
        self.context = context
        self.rules = rules
        self.is_cancelled = False
        self._thread: _HandshakeThread | None = None

    @property
    def host(self) -> str:
        """Address of the client."""
        return str(self.address[0])

    def close(self) -> None:
        """Give it up; its thread closes the socket."""
        self.is_cancelled = True
        if self._thread is not None:
            self._thread.cancel(self)


class Handshakes:
    """Threads for handshakes; for the event loop's thread only.

    `done` and `failed` are called on the event loop, but for those given up: `done` with the
    socket, which is its own from then on, and the principal, `failed` with the reason.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, done: _Done, failed: _Failed, threads: int = THREADS
    ) -> None:
        self._threads = [_HandshakeThread(loop, done, failed) for _ in range(threads)]
        self._turns = cycle(self._threads)
        for thread in self._threads:
            thread.start()

    def begin(self, sock: socket.socket, handshake: Handshake) -> None:
        """Begin the handshake on a non-blocking socket, which must not be used any more."""
        thread = handshake._thread = next(self._turns)
        thread.begin(sock, handshake)

    async def close(self) -> None:
        """Close the sockets of all handshakes, and wait for the threads."""
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)


class _HandshakeThread(Thread):
    def __init__(self, loop: asyncio.AbstractEventLoop, done: _Done, failed: _Failed) -> None:
        super().__init__(name="horolog-handshakes", daemon=True)
        self._loop = loop
        self._done = done
        self._failed = failed
        self._is_stopping = False
        # Appended by the event loop, taken here; both operations are atomic.
        self._begun: deque[tuple[socket.socket, Handshake]] = deque()
        self._cancelled: deque[Handshake] = deque()
        self._open: dict[Handshake, ssl.SSLSocket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)

    # --- called on the event loop -----------------------------------------------------

    def begin(self, sock: socket.socket, handshake: Handshake) -> None:
        self._begun.append((sock, handshake))
        self._wake()

    def cancel(self, handshake: Handshake) -> None:
        self._cancelled.append(handshake)
        self._wake()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):  # it is awake anyway, or has ended
            self._waker.send(b"\0")

    # --- in the thread ----------------------------------------------------------------

    def run(self) -> None:
        while not self._is_stopping:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._woken.recv(4096)
                elif key.data in self._open:
                    self._step(key.data)
            while self._begun:
                self._wrap(*self._begun.popleft())
            while self._cancelled:
                self._drop(self._cancelled.popleft())
        for sock, _ in self._begun:
            sock.close()
        for handshake in list(self._open):
            self._drop(handshake)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _wrap(self, sock: socket.socket, handshake: Handshake) -> None:
        try:
            self._open[handshake] = handshake.context.wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )
            self._selector.register(self._open[handshake], selectors.EVENT_READ, handshake)
        except (OSError, ValueError) as error:  # the client has gone
            sock.close()
            self._drop(handshake)
            self._report(self._failed, handshake, str(error))
            return
        self._step(handshake)

    def _step(self, handshake: Handshake) -> None:
        sock = self._open[handshake]
        try:
            sock.do_handshake()
            principal = _principal(sock, handshake.rules)
        except ssl.SSLWantReadError:
            self._selector.modify(sock, selectors.EVENT_READ, handshake)
        except ssl.SSLWantWriteError:
            self._selector.modify(sock, selectors.EVENT_WRITE, handshake)
        except Exception as error:  # noqa: BLE001 - a bug ends this handshake, not the thread
            if not isinstance(error, (OSError, ValueError)):
                _LOG.exception("closing the connection of %s: a bug", handshake.host)
            _say_goodbye(sock)
            self._drop(handshake)
            self._report(self._failed, handshake, _reason(error))
        else:
            self._selector.unregister(sock)
            del self._open[handshake]
            if not self._report(self._done, handshake, sock, principal):
                sock.close()

    def _drop(self, handshake: Handshake) -> None:
        sock = self._open.pop(handshake, None)
        if sock is not None:
            with suppress(KeyError, ValueError):  # it was not registered
                self._selector.unregister(sock)
            sock.close()

    def _report(self, call: Callable[..., object], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed
            return False
        return True


def _principal(sock: ssl.SSLSocket, rules: tuple[MappingRule, ...]) -> str:
    """Return the principal of a client.

    Raises:
        ValueError: no rule makes one of its certificate's name.
    """
    certificate = sock.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    name = subject_name(certificate)
    made = map_name(rules, name)
    if made is None:
        raise ValueError(f"no rule of ssl.principal.mapping.rules fits the name {name}")
    return f"User:{made}"


def _reason(error: Exception) -> str:
    if not isinstance(error, ssl.SSLError):
        return f"SSL handshake failed: {error}"
    if error.reason in _NOT_TLS:
        return "SSL handshake failed: it does not speak TLS"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"SSL handshake failed: its certificate is refused, {error.verify_message}"
    reason = (error.reason or "it has disconnected").replace("_", " ").lower()
    return f"SSL handshake failed: {reason}"


def _say_goodbye(sock: ssl.SSLSocket) -> None:
    """Let the client read why: a socket that is closed with unread bytes loses what it has sent."""
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_WR)
        socket.socket.recv(sock, _DISCARDED_BYTES)
