"""Client connection: receives requests, and sends the responses in the same order.

A request starts after the response before it is made, as in Apache Kafka. Only
Produce requests start while earlier Produce requests are in flight, because each partition keeps
their order; none starts while a request with very many fields is decoded. Further requests wait
here up to a limit, then in the kernel. No request starts while responses are blocked by the socket.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple, cast

from horolog.buffers import Buffer
from horolog.config import BrokerConfig, Endpoint
from horolog.errors import HorologError
from horolog.network.budget import SMALL_BYTES, ByteBudget
from horolog.network.busy_polling import BusyPolling
from horolog.network.dispatching import Dispatch, Hangup
from horolog.network.framing import Frames
from horolog.network.joint_sends import JointSends
from horolog.network.lifecycle import State
from horolog.network.mappings import Mappings
from horolog.network.outbox import Outbox, is_deserted
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.network.request_times import EVERY, HEAD_BYTES, RequestTimes
from horolog.network.tls.transport import TlsTransport
from horolog.network.turns import Turns
from horolog.wire.codec import MAX_FIELDS, TooManyFields
from horolog.wire.malformed import MalformedRequest

_LOG = logging.getLogger(__name__)

_NO_FILE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})

READ_AHEAD_BYTES: Final = 256 * 1024
# While a request may take long (a delayed fetch) no other starts, and little is read.
READ_AHEAD_OF_WAIT_BYTES: Final = 16 * 1024
# A request of ordinary size waits for memory once, not at each step of its growth.
WAITED_FOR_BYTES: Final = 1 << 20
# A request of so few bytes is quick, and starts a while after others have used up the slice.
QUICK_BYTES: Final = 4 * 1024
IN_FLIGHT_BYTES: Final = 16 << 20
IN_FLIGHT_REQUESTS: Final = 64

# The memory of a decoded request with very many fields: at most a hundred bytes per field.
DECODED_FACTOR: Final = 16
DECODED_MOST_BYTES: Final = 100 * MAX_FIELDS

# A lookup of an enum member takes longer than the rest of a comparison.
_OPEN: Final = State.OPEN
_DRAINING: Final = State.DRAINING
_CLOSING: Final = State.CLOSING

_PRODUCE_KEY = b"\x00\x00"
_NOT_YET: Reply = ()


@dataclass(slots=True, kw_only=True)
class Shared:
    """State that all connections of a server share; only `dispatch` changes.

    `principal_of` is called once there is a transport, after a TLS handshake if any. It returns the
    principal if the listener knows it (an anonymous one, or the name in a certificate), and None if
    the client has to authenticate by requests (SASL).
    """

    loop: asyncio.AbstractEventLoop
    dispatch: Dispatch
    readers: Executor
    budget: ByteBudget
    scratch: memoryview
    mappings: Mappings
    turns: Turns
    polling: BusyPolling
    sends: JointSends
    config_now: Callable[[], BrokerConfig]
    admit: "Callable[[ServerConnection], bool]"
    forget: "Callable[[ServerConnection], None]"
    principal_of: Callable[[Endpoint, asyncio.BaseTransport], str | None]
    await_login: "Callable[[ServerConnection], object]"
    """Called with a connection whose client has to authenticate by requests."""
    end_login: "Callable[[ServerConnection], object]"
    """Called with a connection whose client has authenticated."""
    times: RequestTimes | None = None
    """Collects the times of requests; None if they are not collected."""


class _Exchange:
    """In-flight request, and its reply when ready; None for a request without response."""

    __slots__ = ("head", "is_produce", "reply", "size", "started_at")

    def __init__(
        self,
        is_produce: bool,
        size: int,
        reply: Reply | None = _NOT_YET,
        head: bytes = b"",
        started_at: float = 0.0,
    ) -> None:
        self.is_produce = is_produce
        self.size = size
        self.reply = reply
        self.head = head  # for `RequestTimes`
        self.started_at = started_at


class Progress(NamedTuple):
    """Progress of one direction of a connection, while the client has to act."""

    what: tuple[str, int]
    """Identifies the request or response; `moved` starts at 0 for each."""
    moved: int
    """Bytes transferred so far."""
    held: int
    """Bytes of memory held until completion."""
    total: int
    """Total bytes that the client claims to send, or has to receive."""


class ServerConnection(asyncio.BufferedProtocol):
    """The broker's end of one TCP connection."""

    def __init__(self, shared: Shared, listener: Endpoint) -> None:
        config = shared.config_now()
        self.peer = Peer(
            listener,
            on_authenticated=self._on_authenticated,
            on_refused=self.drain,
            on_muted=self._mute,
        )
        self.last_active = 0.0
        self.since = 0.0
        """When the client connected, by the event loop's clock."""
        self.state = State.CONNECTING
        """Only `_advance` changes it."""
        self._shared = shared
        self._loop = shared.loop
        self._budget = shared.budget
        self._times = shared.times
        # Counted here, so that a request touches nothing else for it: how many requests are left
        # up to one that is timed (0: none are counted), when these were given, and their API.
        self._left = self._given = 0 if shared.times is None else 1
        self._api = self._version = -1
        self._account = shared.budget.account()
        self._frames = Frames(
            shared.scratch,
            config.socket_request_max_bytes,
            self._on_frame,
            self._may_grow,
            shared.mappings.lend,
        )
        self.transport: asyncio.Transport | None = None
        """Set while the client is connected."""
        self._outbox: Outbox | None = None  # set while there is a transport
        self._waiting: deque[Buffer] = deque()  # complete requests, not started
        self._waiting_bytes = 0
        self._in_flight: deque[_Exchange] = deque()  # started, in the order of their responses
        self._in_flight_bytes = 0
        self._growing_bytes = 0  # charged for the incomplete request
        self._waits_for_turn = False  # a large request is received only at its turn
        self._reading_paused = False
        self._receiving = False
        self._begun = 0  # requests, since the event loop called
        self._is_held = False  # others receive and start requests first, or it is muted
        self._muted: asyncio.TimerHandle | None = None  # ends the mute
        self._is_its_turn = False

    # --- called by the event loop -----------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve a client that has connected."""
        # uvloop's transports do not inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(
            self.transport, self._account, self._shared.readers, self._on_disk_read
        )
        address = transport.get_extra_info("peername")
        self.peer.host = str(address[0]) if isinstance(address, tuple) else ""
        self.last_active = self._loop.time()
        self.since = self.since or self.last_active
        self._advance(State.AUTHENTICATING)
        if self._times is not None:
            self._times.connections.add(self)
        if not self._shared.admit(self):
            self.close()
            return
        principal = self._shared.principal_of(self.peer.listener, transport)
        if principal is not None:
            self.peer.authenticate(principal)
        else:
            self._frames.max_bytes = self._shared.config_now().sasl_server_max_receive_size
            self._shared.await_login(self)

    def _on_authenticated(self) -> None:
        self._advance(State.OPEN)
        self._frames.max_bytes = self._shared.config_now().socket_request_max_bytes
        self._shared.end_login(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything, because the client or the broker closed the connection."""
        self._advance(State.CLOSED)
        self.transport = None
        if self._outbox is not None:
            self._outbox.close()
        self._shared.forget(self)
        if self._muted is not None:
            self._muted.cancel()
        self.give_counts()
        if self._times is not None:
            self._times.connections.discard(self)
        self._growing_bytes = self._waiting_bytes = self._in_flight_bytes = 0
        # Now, not when the collector comes to the cycles of a connection: the budget has them back.
        self._waiting.clear()
        self._frames.forget()
        self._account.close()
        self.peer.leave()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that the event loop receives into."""
        frames, turns = self._frames, self._shared.turns
        room = frames.room()
        if frames.buffer is not None:
            return room[:READ_AHEAD_OF_WAIT_BYTES] if turns.is_over() else room
        if turns.waiting or (self._in_flight and not self._in_flight[-1].is_produce):
            return room[:READ_AHEAD_OF_WAIT_BYTES]
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle `nbytes` that were received into the buffer."""
        self.last_active = self._loop.time()
        shared, frames = self._shared, self._frames
        shared.polling.received()
        self._receiving = True
        self._begun = 0
        is_quick = nbytes <= QUICK_BYTES
        if not is_quick:
            shared.sends.flush()
        try:
            frames.received(nbytes)
        except (MalformedRequest, MemoryError) as error:
            self._hang_up(error)
        self._receiving = False
        if (
            is_quick
            and self._begun == 1
            and self.state is _OPEN
            and frames.buffer is None
            and not (self._in_flight or self._waiting or self._waits_for_turn)
            and not (self._reading_paused or self._account.requested)
        ):  # nearly always: one small request, which is answered
            outbox = self._outbox
            assert outbox is not None
            if shared.polling.is_behind and not outbox.is_blocked:
                shared.sends.add(self._send_late)
            else:
                self._send(outbox)
            shared.polling.answered()
            return
        if frames.buffer is not None and nbytes >= READ_AHEAD_OF_WAIT_BYTES:
            self._receive_in_turn()
        self._pump()
        self._steer_reading()

    def eof_received(self) -> None:
        """Close, as Kafka does, because the client has shut down its side."""
        self._pump()

    def pause_writing(self) -> None:
        """Stop sending, because the transport's buffer is full."""
        if self._outbox is not None:
            self._outbox.on_full()

    def resume_writing(self) -> None:
        """Continue to send, because the transport's buffer has room again."""
        if self._outbox is not None:
            self._outbox.on_room()
        self.last_active = self._loop.time()
        self._go_on()

    # --- called by the server ---------------------------------------------------------

    def is_idle(self, since: float) -> bool:
        """True if no bytes were transferred since then and no request is in flight."""
        if self.last_active > since:
            return False
        return not self._in_flight or (
            self._outbox is not None and (bool(self._outbox) or self._outbox.is_stuck)
        )

    @property
    def receiving(self) -> Progress | None:
        """Progress of a partially received request, if any."""
        if not self._growing_bytes or self._reading_paused:
            return None
        frames = self._frames
        return Progress(
            ("request", frames.count), frames.arrived, self._growing_bytes, frames.length
        )

    @property
    def sending(self) -> Progress | None:
        """Progress of responses that the client has not read, if any."""
        if self._outbox is None or not self._outbox.is_stuck:
            return None
        moved, held = self._outbox.progress
        return Progress(("answer", 0), moved, held, held)

    @property
    def has_left(self) -> bool:
        """True if the client has disconnected, and nothing that it has sent is left to be done.

        Nothing else notices it while its connection is not read, as while it is muted.
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        if self._reading_paused:
            return not self._waiting and is_deserted(transport)
        return isinstance(transport, TlsTransport) and transport.is_broken

    @property
    def holds_files(self) -> bool:
        """True if a response holds segments open."""
        return self._outbox is not None and self._outbox.holds_files

    def drain(self) -> None:
        """Start no more requests, and close after the responses of those in flight."""
        self._advance(State.DRAINING)
        self._steer_reading()
        self._pump()

    def close(self) -> None:
        """Close immediately."""
        self._advance(State.CLOSING)
        if self.transport is not None:
            self.transport.abort()

    def _advance(self, state: State) -> None:
        self.state = max(self.state, state)

    # --- requests ---------------------------------------------------------------------

    def _may_grow(self, size: int) -> bool:
        """Charge a buffer of `size` bytes in total, or wait until they are granted."""
        account, more = self._account, size - self._growing_bytes
        if self._frames.length <= SMALL_BYTES:
            account.force(more)
        elif self._is_turn_of_large() and account.take(more):
            pass
        else:
            arrived = self._frames.arrived
            if arrived > self._growing_bytes:  # already allocated
                account.force(arrived - self._growing_bytes)
                self._growing_bytes = arrived
            self._grow_in_turn()
            return False
        self._growing_bytes = size
        return True

    def _is_turn_of_large(self) -> bool:
        """True if a large request would start soon after it is complete."""
        return not self._waiting and (not self._in_flight or self._in_flight[-1].is_produce)

    def _grow_in_turn(self) -> None:
        self._waits_for_turn = not self._is_turn_of_large()
        if not self._waits_for_turn:
            frames = self._frames
            frames.next_size = min(frames.length, max(frames.next_size, WAITED_FOR_BYTES))
            self._account.wait(frames.next_size - self._growing_bytes, self._on_granted)

    def _on_granted(self) -> None:
        self._growing_bytes = self._frames.next_size
        try:
            self._frames.resume()
        except MemoryError as error:
            self._hang_up(error)
        self._steer_reading()

    def _on_frame(self, frame: Buffer) -> None:
        is_accounted = self._growing_bytes > 0
        if is_accounted:
            self._growing_bytes = 0  # these bytes now belong to a complete request
            self._account.finish_request()
        if not self._waiting and self._may_begin(frame):
            self._begin(frame, is_accounted)
            return
        size = len(frame)
        if not is_accounted:
            self._account.force(size)
        self._waiting.append(frame)
        self._waiting_bytes += size

    def _may_begin(self, frame: Buffer) -> bool:
        """Return True if a request may start now. Otherwise it starts later, possibly at a turn."""
        outbox = self._outbox
        if self.state > _OPEN or outbox is None or outbox.is_blocked:
            return False
        if self._in_flight and not (
            self._in_flight[-1].is_produce
            and frame[:2] == _PRODUCE_KEY
            and len(self._in_flight) < IN_FLIGHT_REQUESTS
            and self._in_flight_bytes < IN_FLIGHT_BYTES
        ):
            return False
        if self._is_held:
            return False
        if self.peer.principal is None:
            return True  # few requests, and what is behind them may be larger than before
        if self._is_its_turn and not self._begun:
            return True
        turns = self._shared.turns
        is_quick = len(frame) <= QUICK_BYTES and not self._begun
        if turns.is_over_for_quick() if is_quick else turns.is_over():
            self._is_held = True
            turns.wait(self._on_turn)
            return False
        return True

    def _receive_in_turn(self) -> None:
        """Pause receiving a large request until other connections have had their turn."""
        if not self._is_held and self._shared.turns.is_over():
            self._is_held = True
            self._shared.turns.wait(self._on_turn)

    def _on_turn(self) -> None:
        if self._muted is not None:
            return
        self._is_held = False
        self._is_its_turn = True
        self._go_on()
        self._is_its_turn = False

    def _mute(self, seconds: float) -> None:
        """Start no request, and read nothing more, for so long. The longer of two mutes counts."""
        until = self._loop.time() + seconds
        if self._muted is not None:
            until = max(until, self._muted.when())
            self._muted.cancel()
        self._muted = self._loop.call_at(until, self._unmute)
        self._is_held = True
        self._steer_reading()

    def _unmute(self) -> None:
        self._muted = None
        self._is_held = False
        self._go_on()

    def _begin(self, frame: Buffer, is_accounted: bool) -> None:
        """Start a request. A request that is answered immediately is not charged."""
        size = held = len(frame)
        self._begun += 1
        dispatch, left = self._shared.dispatch, self._left
        started_at = perf_counter() if left == 1 else 0.0
        is_large = False
        answer: Reply | asyncio.Future[Reply | None] | None
        try:
            answer = dispatch(frame, self.peer)
        except TooManyFields:
            held += min(DECODED_FACTOR * size, DECODED_MOST_BYTES)
            answer = dispatch.slowly(frame, self.peer)
            is_large = True
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
            self._hang_up(error)
            return
        if isinstance(answer, asyncio.Future):
            head = bytes(frame[:HEAD_BYTES])
            # After a large one later requests must not be appended before it.
            is_produce = not is_large and head[:2] == _PRODUCE_KEY
            # What takes long is timed by the loop's clock, which is the same one, but coarse.
            exchange = _Exchange(is_produce, held, _NOT_YET, head, started_at or self.last_active)
            answer.add_done_callback(partial(self._on_answer, exchange))
        else:
            if left:
                if frame[3] != self._version or frame[1] != self._api:
                    self.give_counts()
                    self._api, self._version = frame[1], frame[3]
                self._left = left - 1
                if started_at:
                    self._time(started_at)
            if not self._in_flight:
                if is_accounted:
                    self._account.give(size)
                if answer is not None and self._outbox is not None:
                    self._outbox.put(answer)
                return
            exchange = _Exchange(True, held, answer)
        self._account.force(held - size if is_accounted else held)
        self._in_flight_bytes += held
        self._in_flight.append(exchange)

    def give_counts(self) -> None:
        """Add the requests counted by this connection to `RequestTimes`."""
        times, count = self._times, self._given - self._left
        if times is not None and count:
            times.counts[self._api][self._version] += count
            self._given = self._left

    def _time(self, started_at: float) -> None:
        """Time the last counted request, and schedule the next timed one."""
        self.give_counts()
        self._left = self._given = EVERY
        if self._times is not None:
            self._times.time(self._api, started_at)

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
        if self._times is not None:
            self._times.note(exchange.head, exchange.started_at)
        self._go_on()
        if not self._in_flight and exchange.size <= QUICK_BYTES:
            self._shared.polling.answered()

    # --- responses --------------------------------------------------------------------

    def _go_on(self) -> None:
        self._begun = 0
        self._pump()
        self._steer_reading()

    def _pump(self) -> None:
        """Send responses and start requests until neither is possible."""
        outbox = self._outbox
        if self._receiving or self.state >= _CLOSING or outbox is None:
            return
        while True:
            while self._in_flight and self._in_flight[0].reply is not _NOT_YET:
                exchange = self._in_flight.popleft()
                self._in_flight_bytes -= exchange.size
                self._account.give(exchange.size)
                if exchange.reply is not None:
                    outbox.put(exchange.reply)
            if self._waiting and self._may_begin(self._waiting[0]):
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._begin(frame, True)
                continue
            if not outbox:
                break
            self._send(outbox)
            if not self._waiting or not self._may_begin(self._waiting[0]):
                break
        if self._waits_for_turn and self._is_turn_of_large():
            self._grow_in_turn()
        transport = self.transport
        if self.state is _DRAINING and not (self._in_flight or outbox) and transport is not None:
            self._advance(State.CLOSING)
            transport.close()

    def _send(self, outbox: Outbox) -> None:
        """Send queued responses, and count the time where the client has a share of it."""
        times = self.peer.thread_times
        if times is None:
            outbox.send()
            return
        began = perf_counter()
        outbox.send()
        times.append(perf_counter() - began)

    def _send_late(self) -> None:
        """Send queued responses. An error closes this connection only."""
        try:
            if self._outbox is not None:
                self._send(self._outbox)
        except Exception:  # noqa: BLE001 - a bug ends this connection, not the broker
            _LOG.exception("closing the connection of %s: a bug", self.peer.host)
            self.close()

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
        self._go_on()

    # --- back-pressure ----------------------------------------------------------------

    def _steer_reading(self) -> None:
        """Resume or pause reading, depending on the room for further requests."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        pause = (
            self.state > _OPEN
            or self._account.requested > 0
            or self._waits_for_turn
            or self._is_held
            or self._waiting_bytes >= READ_AHEAD_BYTES
            or (len(self._in_flight) > 0 and self._has_read_enough_behind())
        )
        if pause and not self._reading_paused:
            transport.pause_reading()
        elif self._reading_paused and not pause:
            transport.resume_reading()
        self._reading_paused = pause

    def _has_read_enough_behind(self) -> bool:
        """True if enough requests wait behind those in flight."""
        # Complete requests are always taken, but one by one if memory is short.
        return self._budget.is_spent or (
            self._waiting_bytes >= READ_AHEAD_OF_WAIT_BYTES and not self._in_flight[-1].is_produce
        )

    def _hang_up(self, error: BaseException) -> None:
        """Log the reason and close, after the responses already made.

        A bug is logged with its traceback.
        """
        if self.state >= _CLOSING or self.transport is None:
            return
        if isinstance(error, (HorologError, MemoryError)) or (
            # A module that a request is the first to need cannot be loaded without a file.
            isinstance(error, OSError) and error.errno in _NO_FILE_LEFT
        ):
            _LOG.warning("closing the connection of %s: %s", self.peer.host, error)
        else:
            _LOG.error("closing the connection of %s: a bug", self.peer.host, exc_info=error)
        if self._outbox:
            self._outbox.send()
        self._advance(State.CLOSING)
        self.transport.close()
