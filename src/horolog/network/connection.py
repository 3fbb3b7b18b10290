"""One client: bytes in, answers out, in the order asked.

A request is begun when the answer before it is on its way, as in Apache Kafka; only
produce requests are begun while earlier produce requests are still in flight, for their
order is kept per partition; none while one of very many fields is being decoded. What the
client sends meanwhile waits here up to a limit, then in the kernel. Nothing is begun while
an answer is stuck in the socket.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, cast

from horolog.config import BrokerConfig, Endpoint
from horolog.errors import HorologError
from horolog.network.budget import SMALL_BYTES, ByteBudget
from horolog.network.dispatching import Dispatch, Hangup, anonymous
from horolog.network.framing import Frames
from horolog.network.lifecycle import Event, State, next_state
from horolog.network.outbox import Outbox
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.codec import MAX_FIELDS, TooManyFields
from horolog.wire.malformed import MalformedRequest
from horolog.wire.packing import Bytes

_LOG = logging.getLogger(__name__)

READ_AHEAD_BYTES: Final = 256 * 1024
# Behind a request that may take its time (a fetch that waits) nothing is begun, and little read.
READ_AHEAD_OF_WAIT_BYTES: Final = 16 * 1024
# A request of usual size waits for memory once, not at each step of its growth.
WAITED_FOR_BYTES: Final = 1 << 20
IN_FLIGHT_BYTES: Final = 16 << 20
IN_FLIGHT_REQUESTS: Final = 64

# What a request of very many fields takes once it is decoded: a field has a hundred bytes at most.
DECODED_FACTOR: Final = 16
DECODED_MOST_BYTES: Final = 100 * MAX_FIELDS

# To look a member up in its enumeration takes longer than the rest of a comparison.
_OPEN: Final = State.OPEN
_DRAINING: Final = State.DRAINING
_CLOSING: Final = State.CLOSING

_PRODUCE_KEY = b"\x00\x00"
_NOT_YET: Reply = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What every connection of a server works with.

    `principal_of` is asked once a transport is there, after a TLS handshake where one takes
    place. It returns the principal where the listener knows it (an anonymous one, or the name in a
    certificate), and None where the client has to authenticate by requests (SASL) first.
    """

    loop: asyncio.AbstractEventLoop
    dispatch: Dispatch
    readers: Executor
    budget: ByteBudget
    scratch: memoryview
    config_now: Callable[[], BrokerConfig]
    admit: "Callable[[ServerConnection], bool]"
    forget: "Callable[[ServerConnection], None]"
    principal_of: Callable[[Endpoint, asyncio.BaseTransport], str | None] = anonymous


class _Exchange:
    """A request in flight: its reply once it has one; None is a request without answer."""

    __slots__ = ("is_produce", "reply", "size")

    def __init__(self, is_produce: bool, size: int, reply: Reply | None = _NOT_YET) -> None:
        self.is_produce = is_produce
        self.size = size
        self.reply = reply


class Progress(NamedTuple):
    """How far one direction of a connection has come, where it is the client that has to act."""

    what: tuple[str, int]
    """What is moving: within another request or answer the count of bytes begins anew."""
    moved: int
    """Bytes that have moved so far."""
    held: int
    """Bytes of memory that are held until it is done."""
    total: int
    """Bytes that the client claims, or is to take, in all."""


class ServerConnection(asyncio.BufferedProtocol):
    """The broker's end of one TCP connection."""

    def __init__(self, shared: Shared, listener: Endpoint) -> None:
        config = shared.config_now()
        self.peer = Peer(listener, on_authenticated=lambda: self._on(Event.AUTHENTICATED))
        self.last_active = 0.0
        self.state = State.CONNECTING
        """See `lifecycle`; changed by `_on` alone."""
        self._shared = shared
        self._loop = shared.loop
        self._budget = shared.budget
        self._account = shared.budget.account()
        self._frames = Frames(
            shared.scratch, config.socket_request_max_bytes, self._on_frame, self._may_grow
        )
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None  # there is one while there is a transport
        self._waiting: deque[Bytes] = deque()  # whole requests, not begun
        self._waiting_bytes = 0
        self._in_flight: deque[_Exchange] = deque()  # begun, in the order of their answers
        self._in_flight_bytes = 0
        self._growing_bytes = 0  # accounted for a request that is not whole
        self._waits_for_turn = False  # a large request is not received before its turn
        self._reading_paused = False
        self._receiving = False

    # --- what the loop calls ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        # uvloop's transports are such by their methods, not by inheritance.
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(
            self._transport, self._account, self._shared.readers, self._on_disk_read
        )
        address = transport.get_extra_info("peername")
        self.peer.host = str(address[0]) if isinstance(address, tuple) else ""
        self.last_active = self._loop.time()
        self._on(Event.CONNECTED)
        if not self._shared.admit(self):
            self.close()
            return
        principal = self._shared.principal_of(self.peer.listener, transport)
        if principal is not None:
            self.peer.authenticate(principal)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or we closed."""
        self._on(Event.LOST)
        self._transport = None
        if self._outbox is not None:
            self._outbox.close()
        self._shared.forget(self)
        self._growing_bytes = self._waiting_bytes = self._in_flight_bytes = 0
        self._waiting.clear()
        self._account.close()
        self.peer.leave()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop is to receive into."""
        room = self._frames.room()
        if self._in_flight and not self._in_flight[-1].is_produce:
            return room[:READ_AHEAD_OF_WAIT_BYTES]
        return room

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
        """The transport is full."""
        if self._outbox is not None:
            self._outbox.on_full()

    def resume_writing(self) -> None:
        """The transport has room again."""
        if self._outbox is not None:
            self._outbox.on_room()
        self.last_active = self._loop.time()
        self._pump()
        self._steer_reading()

    # --- what the server calls --------------------------------------------------------

    def is_idle(self, since: float) -> bool:
        """Whether nothing has moved since then, and no request is being worked on."""
        if self.last_active > since:
            return False
        return not self._in_flight or (
            self._outbox is not None and (bool(self._outbox) or self._outbox.is_stuck)
        )

    @property
    def receiving(self) -> Progress | None:
        """How far a request has come that the client is to send on, if there is one."""
        if not self._growing_bytes or self._reading_paused:
            return None
        frames = self._frames
        return Progress(
            ("request", frames.count), frames.arrived, self._growing_bytes, frames.length
        )

    @property
    def sending(self) -> Progress | None:
        """How far the client has read its answers, if it has to read on."""
        if self._outbox is None or not self._outbox.is_stuck:
            return None
        moved, held = self._outbox.progress
        return Progress(("answer", 0), moved, held, held)

    @property
    def holds_files(self) -> bool:
        """Whether an answer holds segments open."""
        return self._outbox is not None and self._outbox.holds_files

    def drain(self) -> None:
        """Begin nothing new; close when what is in flight is answered."""
        self._on(Event.DRAIN)
        self._steer_reading()
        self._close_if_drained()

    def close(self) -> None:
        """Close at once."""
        self._on(Event.CLOSE)
        if self._transport is not None:
            self._transport.abort()

    def _on(self, event: Event) -> None:
        self.state = next_state(self.state, event)

    # --- requests ---------------------------------------------------------------------

    def _may_grow(self, size: int) -> bool:
        """Account for a buffer of so many bytes in all, or wait until it may be."""
        account, more = self._account, size - self._growing_bytes
        if self._frames.length <= SMALL_BYTES:
            account.force(more)
        elif self._is_turn_of_large() and account.take(more):
            pass
        else:
            arrived = self._frames.arrived
            if arrived > self._growing_bytes:  # it is there already
                account.force(arrived - self._growing_bytes)
                self._growing_bytes = arrived
            self._grow_in_turn()
            return False
        self._growing_bytes = size
        return True

    def _is_turn_of_large(self) -> bool:
        """Whether a large request would be begun once it is whole, or soon after."""
        return not self._waiting and (not self._in_flight or self._in_flight[-1].is_produce)

    def _grow_in_turn(self) -> None:
        self._waits_for_turn = not self._is_turn_of_large()
        if not self._waits_for_turn:
            frames = self._frames
            frames.wanted = min(frames.length, max(frames.wanted, WAITED_FOR_BYTES))
            self._account.wait(frames.wanted - self._growing_bytes, self._on_granted)

    def _on_granted(self) -> None:
        self._growing_bytes = self._frames.wanted
        self._frames.resume()
        self._steer_reading()

    def _on_frame(self, frame: Bytes) -> None:
        is_accounted = self._growing_bytes > 0
        if is_accounted:
            self._growing_bytes = 0  # the same bytes, now of a whole request
            self._account.finish_request()
        if not self._waiting and self._may_begin(frame):
            self._begin(frame, is_accounted)
            return
        size = len(frame)
        if not is_accounted:
            self._account.force(size)
        self._waiting.append(frame)
        self._waiting_bytes += size

    def _may_begin(self, frame: Bytes) -> bool:
        outbox = self._outbox
        if self.state > _OPEN or outbox is None or outbox.is_blocked:
            return False
        if not self._in_flight:
            return True
        return (
            self._in_flight[-1].is_produce
            and frame[:2] == _PRODUCE_KEY
            and len(self._in_flight) < IN_FLIGHT_REQUESTS
            and self._in_flight_bytes < IN_FLIGHT_BYTES
        )

    def _begin(self, frame: Bytes, is_accounted: bool) -> None:
        """Have a request answered; one that is answered at once is not accounted for here."""
        size = held = len(frame)
        is_produce = frame[:2] == _PRODUCE_KEY
        dispatch = self._shared.dispatch
        answer: Reply | asyncio.Future[Reply | None] | None
        try:
            answer = dispatch(frame, self.peer)
        except TooManyFields:
            held += min(DECODED_FACTOR * size, DECODED_MOST_BYTES)
            answer = dispatch.slowly(frame, self.peer)
            is_produce = False  # what comes behind it shall not be appended first
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
            self._hang_up(error)
            return
        if isinstance(answer, asyncio.Future):
            exchange = _Exchange(is_produce, held)
            answer.add_done_callback(partial(self._on_answer, exchange))
        elif self._in_flight:
            exchange = _Exchange(True, held, answer)
        else:
            if is_accounted:
                self._account.give(size)
            if answer is not None and self._outbox is not None:
                self._outbox.put(answer)
            return
        self._account.force(held - size if is_accounted else held)
        self._in_flight_bytes += held
        self._in_flight.append(exchange)

    def _on_answer(self, exchange: _Exchange, done: "asyncio.Future[Reply | None]") -> None:
        if done.cancelled():
            self.close()
            return
        error = done.exception()
        if self.state is State.CLOSED:
            return
        if error is not None:
            self._hang_up(error)
            return
        exchange.reply = done.result()
        self._pump()
        self._steer_reading()

    def _settle(self, size: int, reply: Reply | None) -> None:
        """The request is done: its bytes are free, its reply goes out."""
        self._in_flight_bytes -= size
        self._account.give(size)
        if reply is not None and self._outbox is not None:
            self._outbox.put(reply)

    # --- answers ----------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what can be sent, and begin what may be begun, until neither is possible."""
        outbox = self._outbox
        if self._receiving or self.state >= _CLOSING or outbox is None:
            return
        while True:
            while self._in_flight and self._in_flight[0].reply is not _NOT_YET:
                exchange = self._in_flight.popleft()
                self._settle(exchange.size, exchange.reply)
            if self._waiting and self._may_begin(self._waiting[0]):
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._begin(frame, True)
                continue
            if not outbox:
                break
            outbox.send()
            if not self._waiting or not self._may_begin(self._waiting[0]):
                break
        if self._waits_for_turn and self._is_turn_of_large():
            self._grow_in_turn()
        if self.state is _DRAINING:
            self._close_if_drained()

    def _on_disk_read(self, error: BaseException | None) -> None:
        if self.state is State.CLOSED:
            return
        if error is not None:
            self._hang_up(
                Hangup("stopped while reading records")
                if isinstance(error, asyncio.CancelledError)
                else error
            )
            return
        self._pump()
        self._steer_reading()

    # --- steering ---------------------------------------------------------------------

    def _steer_reading(self) -> None:
        """Read on while there is room for more, else leave it to the kernel."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        pause = (
            self.state > _OPEN
            or self._account.wanted > 0
            or self._waits_for_turn
            or self._waiting_bytes >= READ_AHEAD_BYTES
            or (len(self._in_flight) > 0 and self._has_read_enough_behind())
        )
        if pause and not self._reading_paused:
            transport.pause_reading()
        elif self._reading_paused and not pause:
            transport.resume_reading()
        self._reading_paused = pause

    def _has_read_enough_behind(self) -> bool:
        """Whether what waits behind a request in flight is enough."""
        # What came whole is taken in any case; but one after the other where memory is short.
        return self._budget.is_spent or (
            self._waiting_bytes >= READ_AHEAD_OF_WAIT_BYTES and not self._in_flight[-1].is_produce
        )

    def _close_if_drained(self) -> None:
        if (
            self.state is _DRAINING
            and not self._in_flight
            and not self._outbox
            and self._transport is not None
        ):
            self._on(Event.CLOSE)
            self._transport.close()

    def _hang_up(self, error: BaseException) -> None:
        """Close after what was answered already, and say why; a bug with its traceback."""
        if self.state >= _CLOSING or self._transport is None:
            return
        if isinstance(error, HorologError):
            _LOG.warning("closing the connection of %s: %s", self.peer.host, error)
        else:
            _LOG.error("closing the connection of %s: a bug", self.peer.host, exc_info=error)
        if self._outbox:
            self._outbox.send()
        self._on(Event.CLOSE)
        self._transport.close()
