"""Taking connections from a listening socket, and waiting when there is no file for one.

Loops do this by themselves, but badly where the process may open no more files: asyncio
(CPython 3.11) writes a traceback for every client of the backlog each second; uvloop (0.22)
hangs up on clients without a word, and spins when it cannot even do that.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)

# How many are taken before others get their turn; their files come out of what is reserved.
AT_ONCE: Final = 16
RETRY_SECONDS: Final = 1.0


class Acceptor:
    """Gives every client of a bound socket a connection; clients wait where that cannot be."""

    def __init__(
        self, sock: socket.socket, backlog: int, connect: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._connect = connect
        self._connecting: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._is_short = False
        sock.listen(backlog)
        self._loop.add_reader(sock, self._on_clients)

    def close(self) -> None:
        """Take no more; who still waits is hung up on."""
        self._loop.remove_reader(self._socket)
        if self._retry is not None:
            self._retry.cancel()
        self._socket.close()

    def _on_clients(self) -> None:
        for _ in range(AT_ONCE):
            try:
                client, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            self._is_short = False
            client.setblocking(False)
            task = self._loop.create_task(self._serve(client))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _rest(self, error: OSError) -> None:
        """The process may have no more files open: leave clients in the backlog for a while."""
        if not self._is_short:
            _LOG.warning(
                "clients wait to be connected: %s; raise the limit of open files (ulimit -n) or "
                "close connections",
                error.strerror,
            )
        self._is_short = True
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(RETRY_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._loop.add_reader(self._socket, self._on_clients)

    async def _serve(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connect, client)
        except OSError as error:
            _LOG.debug("a client was gone before it was connected: %s", error)
            client.close()
