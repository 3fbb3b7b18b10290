"""Handshakes in threads of their own, each with a selector.

A session belongs to a thread until its handshake is done, and to the event loop after that: two
threads must not use one. A client that stalls holds a socket and no thread. OpenSSL releases the
interpreter while it computes, so that the event loop runs meanwhile.

OpenSSL never reads from the socket itself: it would not return while messages come that only
concern it, as updates of keys, and hold up whoever waits.
"""

import asyncio
import logging
import selectors
import socket
import ssl
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from threading import Thread
from typing import Any, Final, TypeAlias

from horolog.network.peer import ANONYMOUS
from horolog.security.names import MappingRule, map_name, subject_name

__all__ = ["HANDSHAKE_BOUNDS_MS", "Handshake", "HandshakeTimes", "Handshakes", "TlsSession"]

_LOG = logging.getLogger(__name__)

THREADS: Final = 2
FED_BYTES: Final = 32 * 1024
"""Most encrypted bytes that OpenSSL is given at a time."""
HANDSHAKE_BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
"""Upper bounds of the buckets of `HandshakeTimes`; one more bucket has the rest."""
_FEEDS: Final = 4  # of a client, until others have their turn
_NOT_TLS: Final = frozenset(
    {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG",
     "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "BAD_RECORD_TYPE"}
)  # fmt: skip

_Done: TypeAlias = Callable[["Handshake", "TlsSession", str], object]
_Failed: TypeAlias = Callable[["Handshake", str], object]


class HandshakeTimes:
    """How handshakes ended since the broker was started, by listener, for metrics."""

    __slots__ = ("done", "failed")

    def __init__(self) -> None:
        self.done: defaultdict[str, list[int]] = defaultdict(
            lambda: [0] * (len(HANDSHAKE_BOUNDS_MS) + 1)
        )
        """Those that are done, by buckets of the time since the client connected."""
        self.failed: Counter[str] = Counter()
        """Those that failed or took too long, or lost their place to another client."""

    def note_done(self, handshake: "Handshake", now: float) -> None:
        """Count a handshake that is done at a time of the event loop's clock."""
        bucket = bisect_left(HANDSHAKE_BOUNDS_MS, 1000 * (now - handshake.since))
        self.done[handshake.listener.name][bucket] += 1


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


class TlsSession:
    """Socket of a client, and OpenSSL's end of its session, with the bytes between them."""

    __slots__ = ("_is_done", "_unsent", "incoming", "outgoing", "sock", "tls")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self._is_done = False
        self._unsent = b""

    @property
    def waits_for(self) -> int:
        """Event of a selector that the handshake waits for."""
        return selectors.EVENT_WRITE if self._unsent else selectors.EVENT_READ

    def advance(self) -> bool:
        """Go on with the handshake; return True once it is done and all is sent.

        Raises:
            OSError: it has failed, or the client has disconnected.
        """
        with suppress(BlockingIOError):
            for _ in range(_FEEDS):
                self._shake()
                while self._unsent:
                    self._unsent = self._unsent[self.sock.send(self._unsent) :]
                if self._is_done:
                    return True
                received = self.sock.recv(FED_BYTES)
                if not received:
                    raise ConnectionResetError("it has disconnected")
                self.incoming.write(received)
        return False

    def _shake(self) -> None:
        if not self._is_done:
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                self._is_done = True
            self._unsent += self.outgoing.read()

    def say_goodbye(self) -> None:
        """Send the client why: what is sent is lost if unread bytes are there at the close."""
        with suppress(OSError):
            self.sock.send(self._unsent + self.outgoing.read())
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.recv(FED_BYTES)


class Handshakes:
    """Threads for handshakes; for the event loop's thread only.

    `done` and `failed` are called on the event loop: `done` with the session, which is its own from
    then on, and the principal, `failed` with the reason.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, done: _Done, failed: _Failed, threads: int = THREADS
    ) -> None:
        self._loop = loop
        self._threads = [_HandshakeThread(loop, done, failed) for _ in range(threads)]
        self._turns = cycle(self._threads)
        for thread in self._threads:
            thread.start()

    def begin(
        self,
        sock: socket.socket,
        listener: Any,
        context: ssl.SSLContext,
        rules: tuple[MappingRule, ...],
    ) -> Handshake | None:
        """Begin the handshake on a non-blocking socket, which must not be used any more.

        None if the client has disconnected.
        """
        try:
            address = sock.getpeername()
        except OSError:
            sock.close()
            return None
        handshake = Handshake(listener, address, self._loop.time(), context, rules)
        thread = handshake._thread = next(self._turns)
        thread.begin(sock, handshake)
        return handshake

    def stop(self) -> None:
        """Let the threads close the sockets of all handshakes, and end."""
        for thread in self._threads:
            thread.stop()

    async def close(self) -> None:
        """Close the sockets of all handshakes, and wait for the threads."""
        self.stop()
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
        self._open: dict[Handshake, TlsSession] = {}
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
                self._begin(*self._begun.popleft())
            while self._cancelled:
                self._drop(self._cancelled.popleft())
        for sock, _ in self._begun:
            sock.close()
        for handshake in list(self._open):
            self._drop(handshake)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _begin(self, sock: socket.socket, handshake: Handshake) -> None:
        try:
            session = TlsSession(sock, handshake.context)
            self._selector.register(sock, selectors.EVENT_READ, handshake)
        except Exception as error:  # noqa: BLE001 - ends this handshake, not the thread
            _LOG.exception("closing the connection of %s: a bug", handshake.host)
            sock.close()
            self._report(self._failed, handshake, _reason(error))
            return
        self._open[handshake] = session
        self._step(handshake)

    def _step(self, handshake: Handshake) -> None:
        session = self._open[handshake]
        try:
            if not session.advance():
                self._selector.modify(session.sock, session.waits_for, handshake)
                return
            principal = _principal(session.tls, handshake.rules)
        except Exception as error:  # noqa: BLE001 - a bug ends this handshake, not the thread
            if not isinstance(error, (OSError, ValueError)):
                _LOG.exception("closing the connection of %s: a bug", handshake.host)
            session.say_goodbye()
            self._drop(handshake)
            self._report(self._failed, handshake, _reason(error))
            return
        self._selector.unregister(session.sock)
        del self._open[handshake]
        if not self._report(self._done, handshake, session, principal):
            session.sock.close()

    def _drop(self, handshake: Handshake) -> None:
        session = self._open.pop(handshake, None)
        if session is not None:
            self._selector.unregister(session.sock)
            session.sock.close()

    def _report(self, call: Callable[..., object], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed
            return False
        return True


def _principal(tls: ssl.SSLObject, rules: tuple[MappingRule, ...]) -> str:
    """Return the principal of a client.

    Raises:
        ValueError: no rule makes one of its certificate's name.
    """
    certificate = tls.getpeercert(binary_form=True)
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
