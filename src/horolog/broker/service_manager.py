"""Reports the broker's state to the service manager that started it, such as systemd.

The protocol is that of sd_notify(3), which systemd promises to keep: datagrams of lines. These
variables of the environment ask for it:

    NOTIFY_SOCKET   the socket that takes them: a path, or @ and an abstract name
    WATCHDOG_USEC   a service that sends no WATCHDOG=1 for so long is stuck, and is restarted
    WATCHDOG_PID    the process that is watched; any if it is missing
"""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import MutableMapping
from typing import Final

_LOG = logging.getLogger(__name__)

PINGS_IN_INTERVAL: Final = 3  # so that one may be lost, or late
_RETRY_S: Final = 0.1
MOST_CHARACTERS: Final = 500  # of a line; systemd reads 4096 bytes of a datagram


class ServiceManager:
    """The manager, if one asked for reports; otherwise reports go nowhere.

    For the event loop's thread only: pings come from the loop, so that they end if it is stuck.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Take the variables out of the environment: processes started from here have others."""
        address = environment.pop("NOTIFY_SOCKET", "")
        interval_us = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", str(os.getpid()))
        self._loop = asyncio.get_running_loop()
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._unsent: deque[bytes] = deque()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ping_s = 0.0
        if not address:
            return
        if not address.startswith(("/", "@")):
            _LOG.warning("NOTIFY_SOCKET=%s is no path: nothing is reported there", address)
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        if interval_us.isascii() and interval_us.isdigit() and pid == str(os.getpid()):
            self._ping_s = int(interval_us) / 1e6 / PINGS_IN_INTERVAL

    def report(self, *lines: str) -> None:
        """Send lines such as `STATUS=...` as one datagram, in the order of the calls."""
        if self._socket is None:
            return
        text = "\n".join(line.replace("\n", " ")[:MOST_CHARACTERS] for line in lines)
        self._unsent.append(text.encode())
        if "retry" not in self._timers:
            self._send()

    def ready(self, status: str) -> None:
        """Report that the service has started, and ping from now on."""
        self.report("READY=1", f"STATUS={status}")
        if self._ping_s:
            self._ping()

    def close(self) -> None:
        """Report nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ping(self) -> None:
        if not self._unsent:
            self.report("WATCHDOG=1")
        self._timers["ping"] = self._loop.call_later(self._ping_s, self._ping)

    def _send(self) -> None:
        """Send what is unsent; again a little later while the manager's queue is full."""
        self._timers.pop("retry", None)
        while self._socket is not None and self._unsent:
            try:
                self._socket.sendto(self._unsent[0], self._address)
                self._unsent.popleft()
            except BlockingIOError:
                self._timers["retry"] = self._loop.call_later(_RETRY_S, self._send)
                return
            except OSError as error:
                _LOG.warning(
                    "the service manager at NOTIFY_SOCKET=%s takes no reports: %s",
                    self._address.replace("\0", "@"),
                    error.strerror or error,
                )
                self.close()
