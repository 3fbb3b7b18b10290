"""A connection on a transport in memory and a dispatch of the test's own: no broker, no socket."""

import asyncio
import errno
import gc
import logging
import resource
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from faulty_calls import failing
from overrides import override

from horolog.buffers import Buffer
from horolog.config import Endpoint, Settings
from horolog.network import (
    ANONYMOUS,
    IN_FLIGHT_REQUESTS,
    MOST,
    PIECE_BYTES,
    QUICK_BYTES,
    READ_AHEAD_BYTES,
    READ_AHEAD_OF_WAIT_BYTES,
    SCRATCH_BYTES,
    BusyPolling,
    ByteBudget,
    JointSends,
    Mappings,
    Peer,
    Reply,
    ServerConnection,
    Shared,
    State,
    Turns,
    mappings,
)

LISTENER = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
PRODUCE, FETCH = 0, 1


class MemoryTransport(asyncio.Transport):
    """Takes what is written while it has room; the test reads it and makes room."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.1.2.3", 4567)})
        self.protocol: Any = None
        self.sent = bytearray()
        self.room = 1 << 30
        self.buffered = bytearray()
        self.high = self.low = 0
        self.is_reading = True
        self.closed: str | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high, self.low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def write(self, data: Any) -> None:
        self.buffered += data
        self._flush()
        if len(self.buffered) > self.high:
            self.protocol.pause_writing()

    def _flush(self) -> None:
        part = self.buffered[: self.room]
        self.sent += part
        self.room -= len(part)
        del self.buffered[: len(part)]

    def take(self, room: int) -> None:
        """The client reads this number of bytes."""
        self.room += room
        was_full = len(self.buffered) > self.low
        self._flush()
        if was_full and len(self.buffered) <= self.low:
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.closed is not None

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def abort(self) -> None:
        self.closed = "aborted"


class Stage:
    """A connection with what it needs around it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit: int = 1 << 20,
        principal_of: Callable[[Endpoint, asyncio.BaseTransport], str | None] = lambda *_: (
            ANONYMOUS
        ),
    ) -> None:
        self.asked: list[bytes] = []
        self.answers: dict[bytes, asyncio.Future[Reply | None]] = {}
        self.readers = ThreadPoolExecutor(1)
        self.admits = True
        self.forgotten = 0
        self.budget = ByteBudget(limit)
        self.loop = loop
        self.now_s = 0.0
        self.step_s = 1.0
        """How much later each look at the clock is."""
        stage = self

        class Dispatch:
            def __call__(self, frame: Buffer, peer: Peer) -> Any:
                name = bytes(frame[8:])
                stage.asked.append(name)
                if name.startswith(b"later"):
                    stage.answers[name] = loop.create_future()
                    return stage.answers[name]
                if name.startswith(b"none"):
                    return None
                if name.startswith(b"files"):
                    raise OSError(errno.EMFILE, "Too many open files", "module.py")
                if name.startswith(b"bug"):
                    raise KeyError(name)
                if name.startswith(b"wide"):
                    return (name + bytes(500_000),)
                return (name,)

            def slowly(self, frame: Buffer, peer: Peer) -> Any:
                raise AssertionError

        config = Settings({}).broker_config()
        self.shared = Shared(
            loop=loop,
            dispatch=Dispatch(),
            readers=self.readers,
            budget=self.budget,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            mappings=Mappings(),
            turns=Turns(loop),
            polling=BusyPolling(loop, 0.0, now=self._now),
            sends=JointSends(loop),
            config_now=lambda: config,
            admit=lambda connection: self.admits,
            forget=self._forget,
            principal_of=principal_of,
            await_login=lambda _: None,
            end_login=lambda _: None,
        )
        self.connection = ServerConnection(self.shared, LISTENER)
        self.transport = MemoryTransport()
        self.transport.protocol = self.connection

    def _now(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def _forget(self, connection: ServerConnection) -> None:
        self.forgotten += 1

    def connect(self) -> "Stage":
        self.connection.connection_made(self.transport)
        return self

    def join(self) -> "Stage":
        """Another client of the same server."""
        other = copy(self)
        other.connection = ServerConnection(self.shared, LISTENER)
        other.transport = MemoryTransport()
        other.transport.protocol = other.connection
        return other.connect()

    def feed(self, data: Buffer) -> int:
        """As the loop does: only while the connection reads; how many bytes it has read."""
        fed = 0
        while fed < len(data) and self.transport.is_reading:
            room = self.connection.get_buffer(-1)
            part = data[fed : fed + len(room)]
            room[: len(part)] = part
            self.connection.buffer_updated(len(part))
            fed += len(part)
        return fed

    def feed_in_turns(self, data: bytes) -> None:
        """As `feed`, and again at the connection's turns, as long as it gets any."""
        left, fed = memoryview(data), 1
        while left and fed:
            fed = self.feed(left)
            left = left[fed:]
            self.turn()

    def answer(self, name: bytes, reply: Reply | None) -> None:
        self.answers[name].set_result(reply)
        self.turn()

    def turn_once(self) -> None:
        """Let the loop call back in one iteration."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def turn(self) -> None:
        """Let the loop call back."""
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def lose(self) -> None:
        self.connection.connection_lost(None)


def request(name: bytes, key: int = FETCH, size: int = 0) -> bytes:
    body = struct.pack(">hhi", key, 0, 1) + name
    body += bytes(max(size - len(body), 0))
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Slices last as long as a test takes, however slow the machine, unless it sets them."""
    loop = asyncio.new_event_loop()
    with pytest.MonkeyPatch.context() as patch:
        override(patch, "horolog.network", SLICE_SECONDS=3600.0)
        yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_a_connection_opens_with_a_principal_and_gives_everything_back(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop)
    connection = stage.connection
    assert connection.state is State.CONNECTING
    stage.connect()
    assert connection.state is State.OPEN
    assert (connection.peer.principal, connection.peer.host) == (ANONYMOUS, "10.1.2.3")
    stage.feed(request(b"one") + request(b"later") + request(b"two")[:9])
    assert stage.transport.sent == b"one"
    assert stage.budget.used > 0
    stage.lose()
    assert connection.state is State.CLOSED
    assert connection.peer.is_gone
    assert (stage.budget.used, stage.forgotten) == (0, 1)
    stage.answer(b"later", (b"too late",))
    assert stage.transport.sent == b"one"
    assert stage.budget.used == 0


def arrived_at_once(stage: Stage, count: int) -> list[Stage]:
    """Clients whose requests have arrived before the first of them is answered."""
    clients = [stage, *(stage.join() for _ in range(count - 1))]
    stage.step_s = 1e-6
    for client in clients:
        client.feed(request(b"one"))
    stage.step_s = 1.0
    return clients


def answered(clients: list[Stage]) -> int:
    return sum(client.transport.sent == b"one" for client in clients)


def test_responses_to_what_has_arrived_at_once_are_sent_together(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop).connect()
    clients = arrived_at_once(stage, 5)
    assert stage.asked == [b"one"] * 5
    assert answered(clients[:1]) == 1  # nobody had come before it
    assert answered(clients) == 1
    stage.turn_once()
    assert answered(clients) == 5
    clients[1].feed(request(b"two"))
    assert clients[1].transport.sent == b"onetwo"


def test_a_response_does_not_wait_for_many_requests(loop: asyncio.AbstractEventLoop) -> None:
    clients = arrived_at_once(Stage(loop).connect(), MOST + 2)
    assert answered(clients) == MOST + 1
    clients[0].turn_once()
    assert answered(clients) == MOST + 2


def test_a_response_does_not_wait_for_a_large_request(loop: asyncio.AbstractEventLoop) -> None:
    clients = arrived_at_once(Stage(loop).connect(), 3)
    clients[0].feed(request(b"large", size=QUICK_BYTES + 1)[:-1])
    assert answered(clients) == 3


def test_a_response_that_waits_is_sent_before_later_ones_of_its_connection(
    loop: asyncio.AbstractEventLoop,
) -> None:
    clients = arrived_at_once(Stage(loop).connect(), 2)
    clients[1].feed(request(b"later") + request(b"two"))
    clients[1].answer(b"later", (b"late",))
    assert clients[1].transport.sent == b"onelatetwo"


def test_a_client_that_sends_no_more_gets_the_response_that_waits(
    loop: asyncio.AbstractEventLoop,
) -> None:
    clients = arrived_at_once(Stage(loop).connect(), 2)
    clients[1].connection.eof_received()
    assert answered(clients) == 2


def test_a_response_that_cannot_be_sent_does_not_keep_others_from_theirs(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(loop).connect()
    clients = [stage, *(stage.join() for _ in range(3))]
    failing(monkeypatch, clients[1].transport, "write", MemoryError())
    stage.step_s = 1e-6
    for client in clients:
        client.feed(request(b"one"))
    stage.turn_once()
    assert clients[1].transport.closed == "aborted"
    assert answered(clients) == 3


@pytest.mark.parametrize("how", ["drain", "close", "lose"])
def test_a_connection_may_end_while_its_response_waits(
    loop: asyncio.AbstractEventLoop, how: str
) -> None:
    clients = arrived_at_once(Stage(loop).connect(), 3)
    end = clients[1].lose if how == "lose" else getattr(clients[1].connection, how)
    end()
    clients[0].turn_once()
    assert (clients[1].transport.sent, clients[1].transport.closed) == {
        "drain": (b"one", "closed"),
        "close": (b"", "aborted"),
        "lose": (b"", None),
    }[how]
    assert answered(clients[2:]) == 1


def resident_bytes() -> int:
    """Memory of this process; buffers of large requests are not on the heap."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is not known")
def test_what_a_client_has_sent_is_freed_when_it_leaves_without_the_collector(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Accounts would be right, and memory keep growing."""
    stage = Stage(loop, limit=1 << 30).connect()
    part = request(b"never whole", size=96 << 20)[: 64 << 20]
    gc.disable()
    try:
        before = resident_bytes()
        stage.feed_in_turns(part)
        assert resident_bytes() - before >= 60 << 20
        stage.lose()
        assert resident_bytes() - before < 16 << 20
    finally:
        gc.enable()


def test_what_is_freed_is_on_the_heap_while_it_is_small(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage(loop).connect()
    part = request(b"never whole", size=1 << 20)[: 60 << 10]
    gc.disable()
    tracemalloc.start()
    try:
        stage.feed_in_turns(part)
        assert tracemalloc.get_traced_memory()[0] >= 60 << 10
        stage.lose()
        assert tracemalloc.get_traced_memory()[0] < 30 << 10
    finally:
        tracemalloc.stop()
        gc.enable()


def test_large_requests_are_received_in_slices_and_connections_take_turns(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(loop, limit=1 << 30).connect()
    others = [stage.join() for _ in range(2)]
    sent = request(b"large", size=2 << 20)
    for each in (stage, *others):
        each.feed_in_turns(sent[: 1 << 20])
    override(monkeypatch, "horolog.network", SLICE_SECONDS=-1.0)  # over at once
    first = stage.feed(sent[1 << 20 :])
    assert first <= PIECE_BYTES
    for other in others:  # the slice is over: a little, and then none
        assert 0 < other.feed(sent[1 << 20 :]) <= READ_AHEAD_OF_WAIT_BYTES
    assert not any(each.transport.is_reading for each in (stage, *others))
    served = []
    for _ in range(3):
        stage.turn_once()
        served += [each for each in (stage, *others) if each.transport.is_reading]
    assert served[0] is stage
    assert all(each.transport.is_reading for each in (stage, *others))
    monkeypatch.undo()
    stage.feed_in_turns(sent[(1 << 20) + first :])
    assert stage.transport.sent.startswith(b"large")


def test_requests_of_many_bytes_start_in_slices_on_any_connection(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take milliseconds: forty connections with one each, and others waited for all."""
    stage = Stage(loop).connect()
    override(monkeypatch, "horolog.network", SLICE_SECONDS=-1.0)  # over at once
    override(monkeypatch, "horolog.network", QUICK_SECONDS=60.0)
    clients = [stage, *(stage.join() for _ in range(5))]
    for n, client in enumerate(clients):
        client.feed(request(b"many%d" % n, size=QUICK_BYTES + 1))
    assert [name[:5] for name in stage.asked] == [b"many0"]
    quick = stage.join()
    quick.feed(request(b"quick"))
    assert quick.transport.sent == b"quick"
    for n in range(2, 7):
        stage.turn_once()
        assert len(stage.asked) == n + 1
    assert all(client.transport.sent for client in clients)


def test_quick_requests_of_many_connections_start_in_slices_too(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may be answered with a megabyte: hundreds at once held up the event loop."""
    stage = Stage(loop).connect()
    override(monkeypatch, "horolog.network", SLICE_SECONDS=-1.0)  # over at once
    override(monkeypatch, "horolog.network", QUICK_SECONDS=0.0)
    clients = [stage, *(stage.join() for _ in range(5))]
    for n, client in enumerate(clients):
        client.feed(request(b"quick%d" % n))
    assert stage.asked == [b"quick0"]
    for n in range(2, 7):
        stage.turn_once()
        assert len(stage.asked) == n
    assert all(client.transport.sent for client in clients)


def test_a_connection_without_memory_for_its_request_is_closed_and_no_other(
    loop: asyncio.AbstractEventLoop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(loop, limit=(12 << 20) + (200 << 10)).connect()
    other = stage.join()
    large, larger = request(b"large", size=12 << 20), request(b"larger", size=14 << 20)
    other.feed_in_turns(larger[: 32 << 10])
    stage.feed_in_turns(large[:-1])
    other.feed_in_turns(larger[32 << 10 : 1 << 20])
    assert not other.transport.is_reading  # it waits for more memory

    failing(monkeypatch, mappings.mmap, "mmap", OSError(errno.ENOMEM, "Cannot allocate memory"))
    stage.feed_in_turns(large[-1:])  # what it gives back is granted to the other
    assert stage.transport.sent.startswith(b"large")
    assert other.transport.closed
    assert not stage.transport.closed
    assert "no memory for a request of 14680064 bytes" in caplog.text
    other.lose()
    assert stage.budget.used == 0


def test_requests_that_came_together_are_begun_in_slices_and_connections_take_turns(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(loop).connect()
    override(monkeypatch, "horolog.network", SLICE_SECONDS=-1.0)  # over at once
    override(monkeypatch, "horolog.network", QUICK_SECONDS=60.0)
    stage.feed(b"".join(request(b"<%03d>" % n) for n in range(6)))
    assert stage.transport.sent == b"<000>"
    assert not stage.transport.is_reading
    other = MemoryTransport()
    other.protocol = connection = ServerConnection(stage.shared, LISTENER)
    connection.connection_made(other)
    for number in (b"first", b"second"):
        data = request(number)
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        assert other.sent.endswith(number), "one is begun while others wait"
    for _ in range(6):
        stage.turn()
    assert stage.transport.sent == b"".join(b"<%03d>" % n for n in range(6))
    assert stage.transport.is_reading


def test_a_client_that_has_to_authenticate_does_so_on_the_same_connection(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop, principal_of=lambda listener, transport: None).connect()
    connection = stage.connection
    assert connection.state is State.AUTHENTICATING
    assert connection.peer.principal is None
    stage.feed(request(b"hello"))
    assert stage.transport.sent == b"hello", "what may be asked, dispatch decides"
    connection.peer.authenticate("User:alice")
    assert connection.state is State.OPEN
    assert connection.peer.principal == "User:alice"


def test_a_client_that_leaves_while_it_is_authenticated_stays_gone(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop, principal_of=lambda listener, transport: None).connect()
    stage.lose()
    stage.connection.peer.authenticate("User:alice")
    assert stage.connection.state is State.CLOSED


def test_a_connection_too_many_is_closed_and_asks_nothing(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop)
    stage.admits = False
    stage.connect()
    assert stage.connection.state is State.CLOSING
    assert stage.transport.closed == "aborted"
    stage.feed(request(b"one"))
    assert stage.asked == []


def test_draining_answers_what_is_in_flight_begins_nothing_and_closes(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop).connect()
    stage.feed(request(b"later") + request(b"waiting"))
    stage.connection.drain()
    assert stage.connection.state is State.DRAINING
    assert not stage.transport.is_reading
    assert stage.transport.closed is None
    stage.answer(b"later", (b"answer",))
    assert stage.transport.sent == b"answer"
    assert stage.asked == [b"later"]
    assert (stage.connection.state, stage.transport.closed) == (State.CLOSING, "closed")


def test_nonsense_closes_after_what_was_answered(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage(loop).connect()
    stage.feed(request(b"one") + struct.pack(">i", -1))
    assert stage.transport.sent == b"one"
    assert (stage.connection.state, stage.transport.closed) == (State.CLOSING, "closed")


@pytest.mark.parametrize(("name", "level"), [(b"files", logging.WARNING), (b"bug", logging.ERROR)])
def test_a_lack_of_files_is_no_bug(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture, name: bytes, level: int
) -> None:
    stage = Stage(loop).connect()
    stage.feed(request(b"one") + request(name))
    assert stage.transport.sent == b"one"
    assert (stage.connection.state, stage.transport.closed) == (State.CLOSING, "closed")
    (record,) = caplog.records
    assert (record.levelno, record.exc_info is None) == (level, level == logging.WARNING)


def test_produce_requests_are_in_flight_together_and_others_wait(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop).connect()
    names = [b"later%d" % n for n in range(3)]
    stage.feed(b"".join(request(name, PRODUCE) for name in names) + request(b"fetch"))
    assert stage.asked == names
    stage.answer(names[1], (b"1",))
    assert stage.transport.sent == b"", "answers keep their order"
    stage.answer(names[0], (b"0",))
    assert stage.transport.sent == b"01"
    stage.answer(names[2], None)
    assert stage.transport.sent == b"01fetch"
    assert stage.budget.used == 0


def test_requests_in_flight_are_bounded(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage(loop).connect()
    stage.feed(b"".join(request(b"later%d" % n, PRODUCE) for n in range(200)))
    assert len(stage.asked) == IN_FLIGHT_REQUESTS


def test_nothing_is_begun_while_an_answer_is_stuck(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage(loop).connect()
    stage.transport.room = 1000
    stage.feed(request(b"wide") + request(b"two") + request(b"three"))
    assert stage.asked == [b"wide"]
    progress = stage.connection.sending
    assert progress is not None
    assert progress.held == stage.budget.used - len(request(b"two") + request(b"three")) + 8
    before = progress.moved
    stage.transport.take(100_000)
    progress = stage.connection.sending
    assert progress is not None
    assert progress.moved == before + 100_000
    stage.transport.take(1 << 20)
    assert stage.connection.sending is None
    assert stage.asked == [b"wide", b"two", b"three"]
    assert stage.transport.sent[-8:] == b"twothree"
    assert stage.budget.used == 0


def test_little_is_read_behind_a_request_that_waits(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage(loop).connect()
    stage.feed(request(b"later"))
    stage.feed(b"".join(request(b"next", size=1000) for _ in range(500)))
    assert not stage.transport.is_reading
    assert stage.budget.used < READ_AHEAD_BYTES // 4
    stage.answer(b"later", None)
    assert stage.transport.is_reading


def test_a_large_request_is_not_received_before_its_turn(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop).connect()
    large = request(b"large", size=500_000)
    stage.feed(request(b"later") + large[:1000])
    assert not stage.transport.is_reading
    assert stage.connection.receiving is None, "the client is not to blame"
    assert stage.budget.used < 2000
    stage.answer(b"later", (b"first",))
    assert stage.transport.is_reading
    assert stage.connection.receiving is not None
    stage.feed(large[1000:])
    assert stage.transport.sent.startswith(b"firstlarge")
    assert stage.budget.used == 0


def test_a_request_is_accounted_for_by_what_has_arrived(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop).connect()
    large = request(b"large", size=50_000_000)
    stage.feed(large[:4])
    assert stage.budget.used <= 4096
    stage.feed(large[4:50_000])
    assert stage.budget.used <= 4 * 50_000
    progress = stage.connection.receiving
    assert progress is not None
    assert (progress.moved, progress.total) == (50_000 - 4, 50_000_000)


def test_a_request_waits_for_memory_and_goes_on_when_there_is_some(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop, limit=200_000).connect()
    other = stage.budget.account()
    other.force(190_000)
    large = request(b"large", size=150_000)
    stage.feed(large[:20_000])
    assert not stage.transport.is_reading
    assert stage.connection.receiving is None
    other.give(190_000)
    assert stage.transport.is_reading
    stage.feed(large[20_000:])
    assert stage.transport.sent.startswith(b"large")
    assert stage.budget.used == 0


def test_what_cannot_be_received_for_now_is_given_back_when_its_client_leaves(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stage = Stage(loop, limit=200_000).connect()
    other = stage.budget.account()
    other.force(190_000)
    stage.feed(request(b"large", size=150_000)[:20_000])
    stage.lose()
    assert stage.budget.used == 190_000
    assert not stage.budget.is_under_pressure
