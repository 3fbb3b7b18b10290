"""Client of a connection, as request handlers see it."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from horolog.config import Endpoint

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of unauthenticated clients."""


_MOST_TIMES: Final = 1_024


class Peer:
    """Host and principal of a client, and whether it is still connected.

    `on_authenticated`, `on_refused` and `on_muted` change the connection's state; None for a peer
    without a connection.
    """

    __slots__ = (
        "_on_authenticated",
        "_on_gone",
        "_on_muted",
        "_on_refused",
        "_step_began",
        "_used_s",
        "host",
        "is_gone",
        "last_commit",
        "listener",
        "login",
        "principal",
        "thread_times",
    )

    def __init__(
        self,
        listener: Endpoint,
        host: str = "",
        on_authenticated: Callable[[], None] | None = None,
        on_refused: Callable[[], None] | None = None,
        on_muted: Callable[[float], None] | None = None,
    ) -> None:
        self.listener = listener
        self.host = host
        self.principal: str | None = None
        """Kafka's principal (`User:name`); None until the client has authenticated."""
        self.is_gone = False  # set once, on the event loop; threads may read it
        self.last_commit: object = None
        """State of the handler of commits for the next commit of this connection."""
        self.login: object = None
        """State of the login until the client has authenticated."""
        self.thread_times: deque[float] | None = None
        """Seconds that its requests took of threads, and its responses to be sent; None while these
        are not counted."""
        self._step_began = self._used_s = 0.0
        self._on_authenticated = on_authenticated
        self._on_refused = on_refused
        self._on_muted = on_muted
        self._on_gone: dict[Callable[[], None], None] = {}

    def authenticate(self, principal: str) -> None:
        """Set the client's principal."""
        assert self.principal is None
        self.principal = principal
        if self._on_authenticated is not None and not self.is_gone:
            self._on_authenticated()

    def refuse(self) -> None:
        """Start no more requests, and close the connection after the response in flight."""
        if self._on_refused is not None and not self.is_gone:
            self._on_refused()

    def begin_step(self) -> None:
        """Count the time of the event loop from here on as used by a request of this client."""
        if self.thread_times is None:
            self.thread_times = deque(maxlen=_MOST_TIMES)
        self._step_began = perf_counter()

    def end_step(self) -> None:
        """Count the time since the step began. Within a step, another one begins."""
        now = perf_counter()
        self._used_s += now - self._step_began
        self._step_began = now

    def take_used_s(self) -> float:
        """Return the seconds that were counted, those of threads included, and forget them."""
        used, self._used_s = self._used_s, 0.0
        while self.thread_times:
            used += self.thread_times.popleft()
        return used

    def mute(self, seconds: float) -> None:
        """Read nothing more of the client for so long. The response in flight is sent."""
        if self._on_muted is not None and not self.is_gone:
            self._on_muted(seconds)

    @contextmanager
    def when_gone(self, call: Callable[[], None]) -> Iterator[None]:
        """Call `call` if the client disconnects within the block."""
        self.call_when_gone(call)
        try:
            yield
        finally:
            self.forget_call(call)

    def call_when_gone(self, call: Callable[[], None]) -> None:
        """Call `call` once the client disconnects, unless `forget_call` comes first."""
        self._on_gone[call] = None
        if self.is_gone:
            call()

    def forget_call(self, call: Callable[[], None]) -> None:
        """Do not call `call` any more."""
        self._on_gone.pop(call, None)

    def leave(self) -> None:
        """Note that the client has disconnected, and make the calls registered for that."""
        self.is_gone = True
        self.last_commit = None
        for call in list(self._on_gone):
            call()
