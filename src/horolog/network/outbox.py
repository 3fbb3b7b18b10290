"""Send queue of one client: responses in memory, and records still in their file.

The transport buffers little more than the socket accepts. While its buffer is full, the client
does not read, and nothing is handed over. Records are read from their file only when there is room
for them: a slow client holds a file open, not megabytes.

While the transport's buffer is empty, records in the page cache go from the file to the socket
without copying (`sendfile`, which uvloop's transports lack), past the transport. If the socket is
full, the transport gets the next records and reports when they are sent.
"""

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from horolog.buffers import Buffer
from horolog.network.budget import SMALL_BYTES, Account
from horolog.network.reply import PIECE_BYTES, Reply, ReplyPart, SlicedRecords
from horolog.network.tls.transport import TlsTransport

HIGH_WATER_BYTES: Final = 64 * 1024
LOW_WATER_BYTES: Final = 0  # what the socket itself holds keeps the client busy meanwhile
# Bytes per `sendfile`: a socket accepts no more in one call, and other clients wait meanwhile.
DIRECT_BYTES: Final = 1 << 20

# Records of partitions in one turn of the event loop: each takes some 30 microseconds.
MOST_AT_ONCE: Final = 128

_MORE_FOLLOWS: Final[int | None] = getattr(socket, "MSG_MORE", None)
_SHUT: Final[int | None] = getattr(select, "POLLRDHUP", None)
_GOODBYE_BYTES: Final = 48  # less than the smallest request and its record have together
_MOST_PARTS: Final = 1024  # IOV_MAX: one call takes no more
_IN_MEMORY: Final = (bytes, bytearray, memoryview)


class Outbox:
    """Sending half of one connection.

    `on_read` is called after records were read from the disk, with the error or None.
    """

    __slots__ = (
        "_account",
        "_charged",
        "_drained",
        "_held",
        "_on_read",
        "_parts",
        "_readers",
        "_socket_fd",
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
        self._parts: deque[ReplyPart] = deque()
        self._held = 0  # bytes of the parts in memory
        self._charged = 0  # bytes charged to the account
        self._stuck_bytes = 0  # the transport's buffer when it was last full
        self._drained = 0
        self.is_stuck = False
        """True while the transport's buffer is full."""
        self.is_reading_disk = False
        """True while records are read from disk, or wait for the next turn of the event loop."""
        self._socket_fd = _socket_fd(transport)
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES, low=LOW_WATER_BYTES)

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def is_blocked(self) -> bool:
        """True if no more responses should be made until some of these are sent."""
        return self.is_stuck or self.is_reading_disk or self._held > SMALL_BYTES

    @property
    def holds_files(self) -> bool:
        """True if records remain to be read from a file."""
        return any(not isinstance(part, _IN_MEMORY) for part in self._parts)

    @property
    def progress(self) -> tuple[int, int]:
        """Total bytes sent while the transport was full, and bytes held now."""
        left = self._transport.get_write_buffer_size() if self.is_stuck else 0
        return self._drained + self._stuck_bytes - left, self._held + left

    def put(self, reply: Reply) -> None:
        """Queue a reply."""
        parts = self._parts
        for part in reply:
            parts.append(part)
            if isinstance(part, _IN_MEMORY):
                self._held += len(part)

    def send(self) -> None:
        """Hand parts to the transport until it is full; small ones are joined.

        Very many records of partitions are sent in several turns of the event loop.
        """
        transport, parts = self._transport, self._parts
        if transport.is_closing():
            return
        if len(parts) == 1 and type(part := parts[0]) is bytes and not self.is_stuck:
            parts.clear()  # one small response, as nearly always
            self._held = 0
            transport.write(part)
            if self._charged:
                self._charge()
            return
        ready: list[Buffer] = []
        left = MOST_AT_ONCE
        while self._parts and not self.is_stuck and not self.is_reading_disk:
            part = self._parts[0]
            if isinstance(part, _IN_MEMORY):
                self._parts.popleft()
                self._held -= len(part)
                ready.append(part)
                continue
            if not left:
                self.is_reading_disk = True
                asyncio.get_running_loop().call_soon(self._go_on)
                break
            left -= 1
            size = PIECE_BYTES
            if self._socket_fd is not None and not transport.get_write_buffer_size():
                is_full = self._send_direct(self._socket_fd, ready, part)
                ready = []
                if transport.is_closing():
                    break
                if not len(part):
                    self._parts.popleft()
                    continue
                if is_full:
                    size = HIGH_WATER_BYTES + 1  # so much that the transport says when it is sent
            piece = part.take_cached(size)
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

    def _send_direct(self, fd: int, head: Sequence[Buffer], records: SlicedRecords) -> bool:
        """Send `head`, then cached records, to the socket; return whether it is full.

        The part of `head` that the socket does not accept goes to the transport.
        """
        try:
            if head:
                rest = _send_some(fd, head)
                if rest:
                    self._transport.write(rest)
                    return True
            while len(records):
                sent = records.send_cached(fd, DIRECT_BYTES)
                if sent is None:
                    return False
                self._drained += sent
        except BlockingIOError:
            return True
        except ConnectionError:
            self._transport.abort()
        return False

    def on_full(self) -> None:
        """Stop handing over, because the transport's buffer is full."""
        self.is_stuck = True
        self._stuck_bytes = self._transport.get_write_buffer_size()
        self._charge()

    def on_room(self) -> None:
        """Allow handing over again, because the transport's buffer is nearly empty."""
        self.is_stuck = False
        self._drained += self._stuck_bytes
        self._stuck_bytes = 0
        self._charge()

    def close(self) -> None:
        """Drop all parts after the transport is closed; the owner closes the account."""
        self._parts.clear()
        self._held = self._stuck_bytes = self._charged = 0

    def _charge(self) -> None:
        """Update the charge to the account."""
        held = self._held + self._stuck_bytes
        if held > self._charged:
            self._account.force(held - self._charged)
        elif held < self._charged:
            charged, self._charged = self._charged, held
            self._account.give(charged - held)
        self._charged = held

    def _read_disk(self, part: SlicedRecords) -> None:
        """Read the next piece in a thread, because it is not in the page cache."""
        self.is_reading_disk = True
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._readers, part.take, PIECE_BYTES)
        future.add_done_callback(lambda done: self._on_piece(part, done))

    def _go_on(self) -> None:
        self.is_reading_disk = False
        self._on_read(None)

    def _on_piece(self, part: SlicedRecords, done: "asyncio.Future[Buffer]") -> None:
        self.is_reading_disk = False
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None and self._parts and not self._transport.is_closing():
            if not len(part):
                self._parts.popleft()
            self._transport.write(done.result())
        self._on_read(error)


def _socket_fd(transport: asyncio.Transport) -> int | None:
    """Return the socket for direct writes; None if there is none, as with TLS."""
    if _MORE_FOLLOWS is None or transport.get_extra_info("sslcontext") is not None:
        return None
    sock = transport.get_extra_info("socket")
    return None if sock is None else sock.fileno()


def is_deserted(transport: asyncio.Transport) -> bool:
    """Return True if the client of a socket that is not read has disconnected after its last bytes.

    With TLS it has said goodbye, in a record that is too small for a request.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return False
    is_encrypted = isinstance(transport, TlsTransport)
    held = transport.undelivered if isinstance(transport, TlsTransport) else 0
    borrowed = socket.socket(fileno=sock.fileno())  # the transport's: never closed here
    try:
        unread = held + len(borrowed.recv(_GOODBYE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return not unread or (is_encrypted and unread < _GOODBYE_BYTES and _is_shut(borrowed))
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        borrowed.detach()


def _is_shut(sock: socket.socket) -> bool:
    """Return True if the other end sends nothing more; always False where no system call tells."""
    if _SHUT is None:
        return False
    looking = select.poll()
    looking.register(sock, _SHUT)
    return bool(looking.poll(0))


def _send_some(fd: int, parts: Sequence[Buffer]) -> bytes:
    """Send buffers to the socket, and return the unsent bytes.

    More data follows immediately, so MSG_MORE lets both share a packet.
    """
    assert _MORE_FOLLOWS is not None
    borrowed = socket.socket(fileno=fd)  # the transport's: never closed here
    try:
        sent = borrowed.sendmsg(parts[:_MOST_PARTS], (), _MORE_FOLLOWS)
    except BlockingIOError:
        sent = 0
    finally:
        borrowed.detach()
    return b"".join(parts)[sent:]
