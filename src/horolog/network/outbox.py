"""Answers on their way to one client: what is made, what the transport holds, what is on disk.

The transport takes what it can send at once and a little more. While it holds more than that,
the client does not read, and nothing is handed over. Records are read from their file when
there is room for them: a slow client holds a file open, not megabytes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from horolog.network.budget import SMALL_BYTES, Account
from horolog.network.reply import PIECE_BYTES, FileRecords, Part, Reply, held_bytes
from horolog.wire.packing import Bytes

HIGH_WATER_BYTES: Final = 64 * 1024
LOW_WATER_BYTES: Final = 16 * 1024


class Outbox:
    """The sending half of one connection.

    `on_read` is called when records that had to be read from the disk are handed over, with the
    error where they could not be.
    """

    __slots__ = (
        "_account",
        "_charged",
        "_drained",
        "_held",
        "_on_read",
        "_parts",
        "_readers",
        "_stuck_bytes",
        "_transport",
        "is_reading_disk",
        "is_stuck",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        account: Account,
        readers: Executor,
        on_read: Callable[[BaseException | None], None],
    ) -> None:
        self._transport = transport
        self._account = account
        self._readers = readers
        self._on_read = on_read
        self._parts: deque[Part] = deque()
        self._held = 0  # bytes of parts in memory
        self._charged = 0  # what the account holds for this outbox
        self._stuck_bytes = 0  # what the transport held when it was last full
        self._drained = 0
        self.is_stuck = False
        """Whether the transport is full."""
        self.is_reading_disk = False
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES, low=LOW_WATER_BYTES)

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def is_blocked(self) -> bool:
        """Whether no more answers should be made until some of these are sent."""
        return self.is_stuck or self.is_reading_disk or self._held > SMALL_BYTES

    @property
    def holds_files(self) -> bool:
        """Whether records are yet to be read from a file."""
        return any(not isinstance(part, (bytes, bytearray, memoryview)) for part in self._parts)

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that a full transport has sent since the beginning; bytes held now."""
        left = self._transport.get_write_buffer_size() if self.is_stuck else 0
        return self._drained + self._stuck_bytes - left, self._held + left

    def put(self, reply: Reply) -> None:
        """Send this after what is here."""
        self._parts.extend(reply)
        self._held += held_bytes(reply)

    def send(self) -> None:
        """Hand the transport as much as it takes; small parts together."""
        transport = self._transport
        if transport.is_closing():
            return
        ready: list[Bytes] = []
        while self._parts and not self.is_stuck and not self.is_reading_disk:
            part = self._parts[0]
            if isinstance(part, (bytes, bytearray, memoryview)):
                self._parts.popleft()
                self._held -= len(part)
                ready.append(part)
                continue
            piece = part.take_cached(PIECE_BYTES)
            if piece is None:
                self._read_disk(part)
                break
            if not len(part):
                self._parts.popleft()
            ready.append(piece)
            transport.writelines(ready)
            ready = []
        if ready:
            transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
        if self._held or self._charged:
            self._charge()

    def on_full(self) -> None:
        """The transport holds more than it sends at once."""
        self.is_stuck = True
        self._stuck_bytes = self._transport.get_write_buffer_size()
        self._charge()

    def on_room(self) -> None:
        """The transport has sent nearly all that it held."""
        self.is_stuck = False
        self._drained += self._stuck_bytes
        self._stuck_bytes = 0
        self._charge()

    def close(self) -> None:
        """The transport is gone; the account is closed by its owner."""
        self._parts.clear()
        self._held = self._stuck_bytes = self._charged = 0

    def _charge(self) -> None:
        """Account for what this holds."""
        held = self._held + self._stuck_bytes
        if held > self._charged:
            self._account.force(held - self._charged)
        elif held < self._charged:
            charged, self._charged = self._charged, held
            self._account.give(charged - held)
        self._charged = held

    def _read_disk(self, part: FileRecords) -> None:
        """The next piece is not in the page cache: a thread reads it."""
        self.is_reading_disk = True
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._readers, part.take, PIECE_BYTES)
        future.add_done_callback(lambda done: self._on_piece(part, done))

    def _on_piece(self, part: FileRecords, done: "asyncio.Future[Bytes]") -> None:
        self.is_reading_disk = False
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None and self._parts and not self._transport.is_closing():
            if not len(part):
                self._parts.popleft()
            self._transport.write(done.result())
        self._on_read(error)
