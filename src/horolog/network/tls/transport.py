"""TlsTransport: the event loop's end of an encrypted connection, with asyncio's methods.

In a turn of the event loop it decrypts at most what fits the protocol's buffer, and sends at most
`WRITE_BYTES`. OpenSSL gets whole records, so that none waits in it that no selector tells of, and
only so many: updates of keys cost most, are tiny, and it does not return before it has done all.
"""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from horolog.buffers import Buffer
from horolog.network.tls.handshakes import TlsSession

__all__ = ["TlsTransport"]

_LOG = logging.getLogger(__name__)

READ_BYTES: Final = 256 * 1024
WRITE_BYTES: Final = 1 << 20
RECORDS: Final = 128
"""Most records that are decrypted in a turn of the event loop."""
RECEIVED_BYTES: Final = 32 * 1024
"""Most encrypted bytes that are received at a time."""
_HEADER_BYTES: Final = 5  # the last two have the size of what follows
_LARGEST_RECORD: Final = _HEADER_BYTES + 16 * 1024 + 2048  # of any version; larger ones are invalid
_ENCRYPTED_AT_ONCE: Final = 32 * 1024  # the memory between OpenSSL and the socket stays small


class TlsTransport(asyncio.Transport):
    """Transport over a non-blocking socket, in a session whose handshake is done."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        session: TlsSession,
        protocol: asyncio.BufferedProtocol,
        extra: Mapping[str, Any],
    ) -> None:
        """Serve a protocol; `extra` is what `get_extra_info` returns, too."""
        sock, tls = session.sock, session.tls
        super().__init__({"socket": sock, "sslcontext": tls.context, **extra})
        self._loop = loop
        self._sock, self._tls = sock, tls
        self._incoming, self._outgoing = session.incoming, session.outgoing
        self._received = session.incoming.read()  # the handshake may read too much
        self._fd = sock.fileno()
        self._protocol = protocol
        self._queue: deque[memoryview] = deque()  # encrypted
        self._queued = 0
        self._high, self._low = 64 * 1024, 0
        self._sent = 0  # bytes since the event loop called
        self._is_closing = self._is_lost = False
        self._is_paused = False  # reading is
        self._is_full = False  # the protocol was told to pause writing
        self._has_ended = False  # the client has, and the protocol does not know
        self._has_more = len(self._received) > 0  # to decrypt, of which no selector tells
        self._has_rest = False  # OpenSSL may have the rest of a record
        self._is_drained = False  # the socket was, in this turn
        self._is_reader = self._is_writer = False  # what the event loop watches
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol.connection_made(self)
        self._watch()
        self._read_pending()

    # --- asyncio's methods ------------------------------------------------------------

    def is_closing(self) -> bool:
        """Return True if it is closed, or closes once all is sent."""
        return self._is_closing

    def close(self) -> None:
        """Read nothing more, and close once all is sent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._watch()
        if not self._queue:
            self._loop.call_soon(self._end)

    def abort(self) -> None:
        """Close now; what is not sent is dropped."""
        self._fail(None)

    def pause_reading(self) -> None:
        """Call the protocol with no bytes until reading is resumed."""
        self._is_paused = True
        self._watch()

    def resume_reading(self) -> None:
        """Read again."""
        self._is_paused = False
        self._watch()
        self._read_pending()

    def is_reading(self) -> bool:
        """Return True if bytes are received."""
        return not self._is_paused and not self._is_closing

    @property
    def undelivered(self) -> int:
        """Number of bytes that were received, and that the protocol has not got."""
        return self._tls.pending() + self._incoming.pending + len(self._received)

    @property
    def is_broken(self) -> bool:
        """True if the client has reset the connection, and nothing has told so.

        uvloop tells once, and what is read then may be bytes that came before (libuv #3796).
        """
        return bool(self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set at how many bytes the protocol stops writing, and may continue."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._queued

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send buffers as one, so that small ones share a record."""
        self.write(b"".join(list_of_data))

    def write(self, data: Buffer) -> None:
        """Encrypt and send a buffer."""
        rest = memoryview(data)
        try:
            while rest and not self._is_lost:
                count = 0
                while count < min(len(rest), _ENCRYPTED_AT_ONCE):
                    count += self._tls.write(rest[count:_ENCRYPTED_AT_ONCE])
                rest = rest[count:]
                self._send_encrypted()
        except ssl.SSLError as error:
            self._fail(error)
        self._note_full()

    # --- sending ----------------------------------------------------------------------

    def _send_encrypted(self) -> None:
        """Send what OpenSSL has encrypted, or queue it."""
        rest = memoryview(self._outgoing.read())
        if not self._queue:
            rest = self._send(rest)
        if not rest or self._is_lost:
            return
        self._queue.append(rest)
        self._queued += len(rest)
        self._watch()

    def _note_full(self) -> None:
        """Let the protocol pause if too much is queued. All of a buffer counts for its budget."""
        if self._queued > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def _send(self, data: memoryview) -> memoryview:
        """Send; return the rest."""
        try:
            while data and self._sent < WRITE_BYTES:
                sent = self._sock.send(data)
                self._sent += sent
                data = data[sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
        return data

    def _on_writable(self) -> None:
        self._sent = 0
        while self._queue:
            head = self._queue[0]
            rest = self._send(head)
            if self._is_lost:
                return
            self._queued -= len(head) - len(rest)
            if rest:
                self._queue[0] = rest
                break
            self._queue.popleft()
        if self._is_full and self._queued <= self._low:
            self._is_full = False
            self._protocol.resume_writing()
        if self._is_closing and not self._queue:
            self._end()
        self._watch()

    # --- receiving --------------------------------------------------------------------

    def _read(self) -> None:
        """Decrypt what has arrived into the protocol's buffer, once."""
        if self._is_paused or self._is_closing:
            return
        if self._has_ended:
            self._protocol.eof_received()
            self.close()
            return
        failure: OSError | None = None
        size = 0
        try:
            buffer = memoryview(self._protocol.get_buffer(-1))[:READ_BYTES]
            size, failure = self._decrypt(buffer)
            if size:
                self._protocol.buffer_updated(size)
            if self._outgoing.pending and not self._is_lost:
                self._answer()
        except Exception:  # noqa: BLE001 - a bug ends this connection, not the broker
            _LOG.exception("closing a connection: a bug")
            self.abort()
        if failure is not None:
            self._fail(failure)
        else:
            self._read_pending()

    def _answer(self) -> None:
        """Send OpenSSL's own answers, as to a wish to renegotiate.

        A client that asks for them and reads nothing is closed, because its queue would grow.
        """
        if self._is_full:
            self._fail(ConnectionError("it does not read what it asks for"))
            return
        self._send_encrypted()
        self._note_full()

    def _decrypt(self, buffer: memoryview) -> tuple[int, OSError | None]:
        """Fill a buffer; return how many bytes it got, and why no more come."""
        incoming, read = self._incoming, self._tls.read
        size, room, left = 0, len(buffer), RECORDS
        self._has_more = self._is_drained = False
        try:
            while size < room:
                if not (incoming.pending or self._has_rest):
                    left -= self._feed(left)
                    if not incoming.pending:
                        self._has_more = not left
                        return size, None
                try:
                    count = int(read(room - size, buffer[size:]))
                except ssl.SSLWantReadError:  # the records concerned OpenSSL alone
                    self._has_rest = False
                    continue
                if not count:
                    self._has_ended = True
                    return size, None
                size += count
        except OSError as error:
            return size, error
        self._has_more = self._has_rest = True
        return size, None

    def _feed(self, most: int) -> int:
        """Give OpenSSL records that have arrived in whole; return their number."""
        while True:
            received, end, records = self._received, 0, 0
            while records < most and end + _HEADER_BYTES <= len(received):
                size = _HEADER_BYTES + (received[end + 3] << 8 | received[end + 4])
                if size > len(received) - end and size <= _LARGEST_RECORD:
                    break
                end += size
                records += 1
            if records or not most or self._is_drained or self._has_ended:
                self._incoming.write(memoryview(received)[:end])
                self._received = received[end:]
                return records
            self._receive()

    def _receive(self) -> None:
        """Receive once."""
        try:
            received = self._sock.recv(RECEIVED_BYTES)
        except BlockingIOError:
            self._is_drained = True
            return
        self._received += received
        self._has_ended = not received
        self._is_drained = len(received) < RECEIVED_BYTES

    def _read_pending(self) -> None:
        """Read in a later turn what OpenSSL holds: no selector tells of it."""
        if self.is_reading() and (self._has_ended or self._has_more):
            self._loop.call_soon(self._read)

    # --- the end ----------------------------------------------------------------------

    def _fail(self, error: Exception | None) -> None:
        """Close without sending what waits."""
        if self._is_lost:
            return
        self._is_closing = self._is_lost = True
        self._queue.clear()
        self._queued = 0
        self._watch()
        self._loop.call_soon(self._lose, error)

    def _end(self) -> None:
        """Close, because all is sent."""
        if self._is_lost:
            return
        with suppress(OSError):  # it wants the client's answer, and does not get it
            self._tls.unwrap()
        with suppress(OSError):
            self._sock.send(self._outgoing.read())
        self._fail(None)

    def _lose(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()

    def _watch(self) -> None:
        """Watch the socket for what is waited for."""
        loop, fd = self._loop, self._fd
        reads = self.is_reading()
        writes = bool(self._queue)
        if reads is not self._is_reader:
            self._is_reader = reads
            if reads:
                loop.add_reader(fd, self._read)
            else:
                loop.remove_reader(fd)
        if writes is not self._is_writer:
            self._is_writer = writes
            if writes:
                loop.add_writer(fd, self._on_writable)
            else:
                loop.remove_writer(fd)
