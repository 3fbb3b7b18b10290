"""Accepts connections from a listening socket, and pauses at the limit of open files.

Event loops can accept by themselves, but not well at that limit: asyncio (CPython 3.11) logs a
traceback per second for every client in the backlog; uvloop (0.22) closes connections silently,
and busy-loops if it cannot even do that.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

_LOG = logging.getLogger(__name__)

# How many are taken before others get their turn; their files come out of what is reserved.
AT_ONCE: Final = 16
RETRY_SECONDS: Final = 1.0
_MOST_HELD: Final = 1_000
"""Connections over a quota that wait at a time; further ones are closed at once."""


class AcceptLimits(NamedTuple):
    """Limits on the clients of a socket."""

    wait_s: Callable[[str], float] | None = None
    """Returns for how many seconds the connection of an address is not read, and closed then,
    because it is over a quota; 0 for others."""
    pause_s: Callable[[], float] | None = None
    """Called with each other client; returns for how many seconds none is accepted after it."""
    is_full: Callable[[], bool] | None = None
    """Returns whether none is accepted until `reconsider` finds room."""


class Acceptor:
    """Accepts the clients of a bound socket; they stay in the backlog at the file limit."""

    def __init__(
        self,
        sock: socket.socket,
        backlog: int,
        connect: Callable[[], asyncio.BaseProtocol],
        at_once: int = AT_ONCE,
        hand_over: Callable[[socket.socket], object] | None = None,
        limits: AcceptLimits = AcceptLimits(),  # noqa: B008 - immutable
    ) -> None:
        """Accept clients; `hand_over` gets their sockets if something comes before `connect`."""
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._connect = connect
        self._hand_over = hand_over
        self._wait_s, self._pause_s, self._is_full = limits
        self._is_held_up = False  # until there is room
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self._at_once = at_once
        self._connecting: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._is_short = False
        sock.listen(backlog)
        self._loop.add_reader(sock, self._on_clients)

    def close(self) -> None:
        """Stop accepting; connections in the backlog are closed."""
        self._loop.remove_reader(self._socket)
        self._is_held_up = False
        if self._retry is not None:
            self._retry.cancel()
        self._socket.close()
        for client, end in self._held.items():
            end.cancel()
            client.close()
        self._held.clear()

    def _on_clients(self) -> None:
        for _ in range(self._at_once):
            if self._is_full is not None and self._is_full():
                self._is_held_up = True
                self._loop.remove_reader(self._socket)
                return
            try:
                client, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            self._is_short = False
            client.setblocking(False)
            wait_s = self._wait_s(address[0]) if self._wait_s is not None else 0
            if wait_s:
                self._hold(client, wait_s)
                continue
            if self._hand_over is not None:
                self._hand_over(client)
            else:
                task = self._loop.create_task(self._serve(client))
                self._connecting.add(task)
                task.add_done_callback(self._on_connected)
            pause_s = self._pause_s() if self._pause_s is not None else 0
            if pause_s:
                self._pause(pause_s)
                return

    @property
    def connecting(self) -> int:
        """How many accepted clients are not connected yet."""
        return len(self._connecting)

    def reconsider(self) -> None:
        """Accept clients again if there is room."""
        if self._is_held_up and self._is_full is not None and not self._is_full():
            self._is_held_up = False
            self._loop.add_reader(self._socket, self._on_clients)

    def _on_connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        self.reconsider()

    def _hold(self, client: socket.socket, wait_s: float) -> None:
        """Read nothing of a client, and close it later."""
        if len(self._held) >= _MOST_HELD:
            client.close()
            return
        self._held[client] = self._loop.call_later(wait_s, self._let_go, client)

    def _let_go(self, client: socket.socket) -> None:
        del self._held[client]
        client.close()

    def _rest(self, error: OSError) -> None:
        """Pause accepting, because the process is at its limit of open files."""
        if not self._is_short:
            _LOG.warning(
                "clients wait to be connected: %s; raise the limit of open files (ulimit -n) or "
                "close connections",
                error.strerror,
            )
        self._is_short = True
        self._pause(RETRY_SECONDS)

    def _pause(self, seconds: float) -> None:
        """Accept nobody for so long; clients wait in the backlog."""
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(
            seconds, self._loop.add_reader, self._socket, self._on_clients
        )

    async def _serve(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connect, client)
        except OSError as error:
            _LOG.debug("a client was gone before it was connected: %s", error)
            client.close()
