"""One client: bytes in, answers out, in the order asked.

A request is begun when the answer before it is on its way, as in Apache Kafka; only
produce requests are begun while earlier produce requests are still in work, for their
order is kept per partition; none while one of very many fields is being decoded. What the
client sends meanwhile waits here up to a limit, then in the kernel. Nothing is begun while
an answer is stuck in the socket.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from horolog.config import Endpoint
from horolog.errors import HorologError
from horolog.network.budget import SMALL_BYTES
from horolog.network.framing import Frames
from horolog.network.reply import PIECE_BYTES, FileRecords, Part, Reply, held_bytes
from horolog.wire.codec import TooManyFields
from horolog.wire.malformed import MalformedRequest
from horolog.wire.packing import Bytes

if TYPE_CHECKING:
    from horolog.network.server import Server

_LOG = logging.getLogger(__name__)

READ_AHEAD_BYTES: Final = 256 * 1024
IN_WORK_BYTES: Final = 16 << 20
IN_WORK_REQUESTS: Final = 64

_PRODUCE_KEY = b"\x00\x00"
_NOT_YET: Reply = ()


class Hangup(HorologError):  # noqa: N818 - the house names errors by what happened
    """The only answer that the protocol leaves is to close the connection; says why."""


class _Exchange:
    """A request in work: its reply once it has one; None is a request without answer."""

    __slots__ = ("is_produce", "reply", "size")

    def __init__(self, is_produce: bool, size: int, reply: Reply | None = _NOT_YET) -> None:
        self.is_produce = is_produce
        self.size = size
        self.reply = reply


class Connection(asyncio.BufferedProtocol):
    """The broker's end of one TCP connection."""

    def __init__(self, server: "Server", listener: Endpoint) -> None:
        self.listener = listener
        self.client_host = ""
        self.last_active = 0.0
        self.on_lost: Callable[[], None] | None = None
        self._server = server
        self._loop = server.loop
        self._budget = server.budget
        self._frames = Frames(
            server.scratch, server.config.socket_request_max_bytes, self._on_frame, self._may_grow
        )
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Bytes] = deque()
        self._waiting_bytes = 0
        self._in_work: deque[_Exchange] = deque()
        self._in_work_bytes = 0
        self._outbox: deque[Part] = deque()
        self._outbox_bytes = 0  # of the outbox and the socket's buffer together, files apart
        self._growing_bytes = 0
        self._waits_for_budget = False
        self._reading_paused = False
        self._writing_paused = False
        self._reading_disk = False
        self._receiving = False
        self._draining = False
        self._closing = False

    # --- what the loop calls ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        # uvloop's transports are such by their methods, not by inheritance.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if isinstance(peer, tuple) else ""
        self.last_active = self._loop.time()
        self._transport.set_write_buffer_limits(high=PIECE_BYTES, low=PIECE_BYTES // 4)
        if not self._server.admit(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or we closed."""
        self._transport = None
        self._server.forget(self)
        if self._waits_for_budget:
            self._budget.cancel(self._on_budget)
        self._closing = True
        held = self._growing_bytes + self._waiting_bytes + self._in_work_bytes + self._outbox_bytes
        self._growing_bytes = self._waiting_bytes = self._in_work_bytes = self._outbox_bytes = 0
        self._waiting.clear()
        self._outbox.clear()
        self._budget.give(held)
        if self.on_lost is not None:
            self.on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop is to receive into."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self.last_active = self._loop.time()
        self._receiving = True
        try:
            self._frames.received(nbytes)
        except MalformedRequest as error:
            self._hang_up(error)
        self._receiving = False
        self._pump()
        self._steer_reading()

    def eof_received(self) -> None:
        """The client will send no more: closes, as Kafka does."""

    def pause_writing(self) -> None:
        """The socket is full."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """The socket has room again."""
        self._writing_paused = False
        self.last_active = self._loop.time()
        self._pump()
        self._steer_reading()

    # --- what the server calls --------------------------------------------------------

    def is_idle(self, since: float) -> bool:
        """Whether nothing has moved since then, and no request is being worked on."""
        if self.last_active > since:
            return False
        return not self._in_work or bool(self._outbox) or self._writing_paused

    @property
    def stalls_others(self) -> bool:
        """Whether it holds bytes of a request that is not whole."""
        return self._growing_bytes > 0

    def drain(self) -> None:
        """Begin nothing new; close when what is in work is answered."""
        self._draining = self._closing = True
        self._steer_reading()
        self._close_if_drained()

    def close(self) -> None:
        """Close at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # --- requests ---------------------------------------------------------------------

    def _may_grow(self, size: int) -> bool:
        if size > SMALL_BYTES and not self._budget.take(size):
            self._waits_for_budget = True
            self._budget.wait(size, self._on_budget)
            return False
        if size <= SMALL_BYTES:
            self._budget.force(size)
        self._growing_bytes = size
        return True

    def _on_budget(self) -> None:
        self._waits_for_budget = False
        self._growing_bytes = self._frames.length
        self._frames.resume()
        self._steer_reading()

    def _on_frame(self, frame: Bytes) -> None:
        size = len(frame)
        if self._growing_bytes:
            self._growing_bytes = 0  # the same bytes, now of a whole request
        else:
            self._budget.force(size)
        if not self._waiting and self._may_begin(frame):
            self._begin(frame)
        else:
            self._waiting.append(frame)
            self._waiting_bytes += size

    def _may_begin(self, frame: Bytes) -> bool:
        if self._closing or self._writing_paused or self._outbox_bytes > SMALL_BYTES:
            return False
        if not self._in_work:
            return True
        return (
            self._in_work[-1].is_produce
            and frame[:2] == _PRODUCE_KEY
            and len(self._in_work) < IN_WORK_REQUESTS
            and self._in_work_bytes < IN_WORK_BYTES
        )

    def _begin(self, frame: Bytes) -> None:
        size = len(frame)
        self._in_work_bytes += size
        is_produce = frame[:2] == _PRODUCE_KEY
        answer: Reply | asyncio.Future[Reply | None] | None
        try:
            answer = self._server.dispatch(frame, self)
        except TooManyFields:
            answer = self._server.dispatch.slowly(frame, self)
            is_produce = False  # what comes behind it shall not be appended first
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
            self._hang_up(error)
            return
        if not isinstance(answer, asyncio.Future):
            if self._in_work:
                self._in_work.append(_Exchange(True, size, answer))
            else:
                self._settle(size, answer)
            return
        exchange = _Exchange(is_produce, size)
        self._in_work.append(exchange)
        answer.add_done_callback(lambda done: self._on_answer(exchange, done))

    def _on_answer(self, exchange: _Exchange, done: "asyncio.Future[Reply | None]") -> None:
        if done.cancelled():
            self.close()
            return
        error = done.exception()
        if self._transport is None:
            return
        if error is not None:
            self._hang_up(error)
            return
        exchange.reply = done.result()
        self._pump()
        self._steer_reading()

    def _settle(self, size: int, reply: Reply | None) -> None:
        """The request is done: its bytes are free, its reply goes out."""
        self._in_work_bytes -= size
        self._budget.give(size)
        if reply is None:
            return
        self._outbox.extend(reply)
        held = held_bytes(reply)
        self._outbox_bytes += held
        self._budget.force(held)

    # --- answers ----------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what can be sent, and begin what may be begun, until neither is possible."""
        if self._receiving or self._transport is None:
            return
        while True:
            while self._in_work and self._in_work[0].reply is not _NOT_YET:
                exchange = self._in_work.popleft()
                self._settle(exchange.size, exchange.reply)
            if self._waiting and self._may_begin(self._waiting[0]):
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._begin(frame)
                continue
            if not self._outbox_bytes and not self._outbox:
                break
            self._send()
            if not self._waiting or not self._may_begin(self._waiting[0]):
                break
        self._close_if_drained()

    def _send(self) -> None:
        """Hand the socket as much as it takes; small parts together."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        ready: list[Bytes] = []
        while self._outbox and not self._writing_paused and not self._reading_disk:
            part = self._outbox[0]
            if isinstance(part, (bytes, bytearray, memoryview)):
                self._outbox.popleft()
                ready.append(part)
                continue
            piece = part.take_cached(PIECE_BYTES)
            if piece is None:
                self._read_disk(part)
                break
            if not len(part):
                self._outbox.popleft()
            ready.append(piece)
            transport.writelines(ready)
            ready = []
        if ready:
            transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
        if self._outbox_bytes and not self._outbox and not self._writing_paused:
            self._budget.give(self._outbox_bytes)
            self._outbox_bytes = 0

    def _read_disk(self, part: FileRecords) -> None:
        """The next piece is not in memory: a thread fetches it."""
        self._reading_disk = True
        future = self._loop.run_in_executor(self._server.readers, part.take, PIECE_BYTES)
        future.add_done_callback(lambda done: self._on_piece(part, done))

    def _on_piece(self, part: FileRecords, done: "asyncio.Future[Bytes]") -> None:
        self._reading_disk = False
        error = Hangup("stopped while reading records") if done.cancelled() else done.exception()
        if self._transport is None:
            return
        if error is not None:
            self._hang_up(error)
            return
        if not len(part):
            self._outbox.popleft()
        self._transport.write(done.result())
        self._pump()
        self._steer_reading()

    # --- steering ---------------------------------------------------------------------

    def _steer_reading(self) -> None:
        """Read on while there is room for more, else leave it to the kernel."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        pause = (
            self._draining
            or self._waits_for_budget
            or self._waiting_bytes >= READ_AHEAD_BYTES
            # What came whole is taken in any case; but one after the other where memory is short.
            or (bool(self._in_work) and self._budget.is_spent)
        )
        if pause and not self._reading_paused:
            transport.pause_reading()
        elif self._reading_paused and not pause:
            transport.resume_reading()
        self._reading_paused = pause

    def _close_if_drained(self) -> None:
        if self._draining and not self._in_work and not self._outbox and self._transport:
            self._transport.close()

    def _hang_up(self, error: BaseException) -> None:
        """Close after what was answered already, and say why; a bug with its traceback."""
        if self._transport is None or self._transport.is_closing():
            return
        self._closing = True
        if isinstance(error, HorologError):
            _LOG.warning("closing the connection of %s: %s", self.client_host, error)
        else:
            _LOG.error("closing the connection of %s: a bug", self.client_host, exc_info=error)
        self._send()
        self._transport.close()
