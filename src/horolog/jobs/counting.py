"""Progress counts that running tasks send to the driver.

    driver    with listening(on_count): ...     the sum of what all tasks count
    tasks     with counted(counts, place): ...  around a unit of work, and in it count(records)

Counts are datagrams to the driver's host. They are only shown: a lost one changes nothing else.
"""

import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

_MESSAGE: Final = struct.Struct("!16sQQQ")  # token, wave, place, how much
_SEND_EVERY_S: Final = 0.5
_LISTEN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class CountReceiver:
    """Address and token with which the tasks of a wave send their counts."""

    address: tuple[str, int]
    token: bytes
    wave: int


class _Listener:
    """Receives the counts of tasks, and adds them up."""

    def __init__(self, on_count: Callable[[int], None]) -> None:
        self._on_count = on_count
        self._token = secrets.token_bytes(16)
        self._socket: socket.socket | None = None
        self._waves = 0
        self._counts: dict[tuple[int, int], int] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def wave(self, host: str | None) -> CountReceiver | None:
        """Return the address for the next wave of tasks; None if the driver has no address."""
        if self._socket is None and host is not None:
            with suppress(OSError):
                self._open(host)
        if self._socket is None:
            return None
        self._waves += 1
        return CountReceiver(self._socket.getsockname()[:2], self._token, self._waves)

    def close(self) -> None:
        self._is_closed = True
        if self._thread is not None and self._socket is not None:
            self._thread.join()
            self._socket.close()

    def _open(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_DGRAM)
        try:
            opened.bind((host.strip("[]"), 0))
        except OSError:
            opened.close()
            raise
        opened.settimeout(_LISTEN_S)
        self._socket = opened
        self._thread = threading.Thread(target=self._listen, name="counts", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._socket is not None
        total = 0
        while not self._is_closed:
            try:
                token, wave, place, count = _MESSAGE.unpack(self._socket.recv(_MESSAGE.size + 1))
            except (OSError, struct.error):  # nothing came, or something of others
                continue
            if not secrets.compare_digest(token, self._token):
                continue
            news = count - self._counts.get((wave, place), 0)
            if news > 0:
                self._counts[wave, place] = count
                total += news
                self._on_count(total)


class _Counter:
    """Sends the count of one unit of work to the driver, at most twice a second."""

    def __init__(self, counts: CountReceiver, place: int) -> None:
        self._counts, self._place = counts, place
        self._sum = 0
        self._sent_s = time.monotonic()
        family = socket.AF_INET6 if ":" in counts.address[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def add(self, count: int) -> None:
        self._sum += count
        if time.monotonic() - self._sent_s >= _SEND_EVERY_S:
            self.send()

    def send(self) -> None:
        counts = self._counts
        message = _MESSAGE.pack(counts.token, counts.wave, self._place, self._sum)
        with suppress(OSError):
            self._socket.sendto(message, counts.address)
        self._sent_s = time.monotonic()

    def close(self) -> None:
        self.send()
        self._socket.close()


_listener: _Listener | None = None  # of the driver
_counter: _Counter | None = None  # of the unit that this process works on


@contextmanager
def listening(on_count: Callable[[int], None]) -> Iterator[None]:
    """Call back with the sum of all tasks' counts, in a thread, until the context ends."""
    global _listener  # noqa: PLW0603 - jobs do not pass it on to each of their tasks
    _listener = listener = _Listener(on_count)
    try:
        yield
    finally:
        _listener = None
        listener.close()


def counts_of(spark: SparkSession) -> CountReceiver | None:
    """Return the address for the counts of the next wave; None if the driver does not listen."""
    return None if _listener is None else _listener.wave(spark.conf.get("spark.driver.host", None))


@contextmanager
def counted(counts: CountReceiver | None, place: int) -> Iterator[None]:
    """Send the counts of one unit of work to the driver; entered in its task."""
    global _counter  # noqa: PLW0603 - a task counts far below of where it begins
    if counts is None:
        yield
        return
    _counter = counter = _Counter(counts, place)
    try:
        yield
    finally:
        _counter = None
        counter.close()


def count(done: int) -> None:
    """Add to the count of the current unit of work; called in its task."""
    if _counter is not None:
        _counter.add(done)
