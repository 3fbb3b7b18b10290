"""Fail, delay or lose requests on demand, for tests of clients (docs/testing.md).

`FaultyDispatch` stands between the connections and the dispatch of a broker that tests have
started. While no fault is set it costs one comparison a request; other brokers do not have it.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import HANDLERS, Request, kept_task, packed, refuse_version
from horolog.broker.faults import Faults, RequestFault
from horolog.broker.logins import OF_LOGINS, has_raw_login
from horolog.buffers import Buffer
from horolog.errors import ErrorCode
from horolog.network.dispatching import Dispatch, Hangup
from horolog.network.peer import Peer
from horolog.network.reply import PIECE_BYTES, Reply, ReplyPart, SlicedRecords
from horolog.wire.api import SUPPORTED, ApiKey
from horolog.wire.codec import TooManyFields, decode_request
from horolog.wire.config_resources import ResourceType
from horolog.wire.error_responses import error_response, topics_named
from horolog.wire.frame import RequestHeader, parse_request_header
from horolog.wire.questions import FAULT

_ON_PURPOSE: Final = "failed on purpose, by a fault that a test has set"
_ALTERATIONS: Final = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
_SESSIONS_SINCE: Final = 7  # of Fetch

_Answer: TypeAlias = "Reply | asyncio.Future[Reply | None] | None"


class FaultyDispatch:
    """The `Dispatch` of a broker whose requests may fail on purpose."""

    def __init__(self, dispatcher: Dispatch, broker: BrokerParts, faults: Faults) -> None:
        self._dispatcher = dispatcher
        self._broker = broker
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._tasks: set[asyncio.Task[Reply | None]] = set()

    def __call__(self, frame: Buffer, peer: Peer, /) -> _Answer:
        """Answer a request as `Dispatcher` does, unless a fault applies to it."""
        if not self._faults or has_raw_login(peer):
            return self._dispatcher(frame, peer)
        header = parse_request_header(frame)
        if peer.principal is None and header.api_key not in OF_LOGINS:
            return self._dispatcher(frame, peer)
        served = SUPPORTED.get(header.api_key)
        if served is None or not served.min <= header.api_version <= served.max:
            return self._dispatcher(frame, peer)
        if header.api_key in _ALTERATIONS and _sets_faults(_body(header, frame)):
            return self._dispatcher(frame, peer)  # a test has to be able to end its faults
        if self._faults.is_paused:
            held: asyncio.Future[Reply | None] = self._loop.create_future()
            self._faults.hold(partial(self._begin_held, header, frame, peer, held))
            return held
        return self._begin(header, frame, peer)

    def slowly(self, frame: Buffer, peer: Peer, /) -> "asyncio.Future[Reply | None]":
        """Answer a request of many fields to which no fault applies."""
        return self._dispatcher.slowly(frame, peer)

    def end(self) -> None:
        """Answer what waits at once, because the broker stops."""
        self._ending.set()
        self._faults.resume()

    def kill(self) -> None:
        """Drop what waits, because the connections are closed."""
        self._ending.set()
        self._faults.drop_held()

    def _begin_held(
        self, header: RequestHeader, frame: Buffer, peer: Peer, held: "asyncio.Future[Reply | None]"
    ) -> None:
        """Begin a request that has waited for the end of a pause, if its client is connected."""
        if held.done():
            return
        if peer.is_gone:
            held.set_result(None)
            return
        try:
            answer = self._begin(header, frame, peer)
        except TooManyFields:
            answer = self._dispatcher.slowly(frame, peer)
        except Exception as error:  # noqa: BLE001 - the connection reports it, as at once
            held.set_exception(error)
            return
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(_hand_over, held))
        else:
            held.set_result(answer)

    def _begin(self, header: RequestHeader, frame: Buffer, peer: Peer) -> _Answer:
        faults = self._faults.of(header.api_key)
        if not faults:
            return self._dispatcher(frame, peer)
        body = _body(header, frame)
        fault = next((fault for fault in faults if self._applies(fault, body)), None)
        if fault is None:
            return self._dispatcher(frame, peer)
        if header.api_key is ApiKey.FETCH and _is_incremental(header, body):
            # It does not name its partitions. The client asks again, and names all of them.
            self._broker.fetch_sessions.end(body.session_id)
            code = ErrorCode.fetch_session_id_not_found
            return packed(header, {"error_code": code, "session_id": 0, "responses": []})
        self._faults.use_up(fault)
        if fault.error is not None:
            return self._task(self._fail(header, body, frame, peer, fault.error))
        try:
            answer = self._dispatcher(frame, peer)
        except TooManyFields:
            answer = self._dispatcher.slowly(frame, peer)
        if fault.after_bytes is not None:
            return self._task(self._cut(answer, fault.after_bytes))
        return self._task(self._late(answer, fault.delay_s))

    def _applies(self, fault: RequestFault, body: Any) -> bool:
        if fault.topic is None and fault.partition is None:
            return True
        if getattr(body, "session_epoch", 0) > 0:
            return True
        for named in topics_named(body):
            if named is None:
                return True
            topic, partitions = named
            if topic is not None and not isinstance(topic, str):
                known = self._broker.topics.find_id(topic)
                topic = None if known is None else known.name
            if fault.topic in (None, topic) and (
                fault.partition is None or partitions is None or fault.partition in partitions
            ):
                return True
        return False

    def _task(self, answering: Coroutine[Any, Any, Reply | None]) -> _Answer:
        return kept_task(self._tasks, answering)

    async def _fail(
        self, header: RequestHeader, body: Any, frame: Buffer, peer: Peer, error: ErrorCode
    ) -> Reply | None:
        key, version = header.api_key, header.api_version
        if key is ApiKey.PRODUCE and body.acks == 0:
            raise Hangup(_ON_PURPOSE)  # as Kafka does, because there is no answer
        if key is ApiKey.API_VERSIONS and error is ErrorCode.unsupported_version:
            return refuse_version(header)
        response = error_response(key, version, body, error, _ON_PURPOSE)
        if key is ApiKey.METADATA:  # without brokers a client would have nobody to ask again
            asked = body._replace(topics=())
            request = Request(version, asked, header.client_id or "", peer, frame)
            answer: Any = HANDLERS[key](request, self._broker)
            answer = await answer if isawaitable(answer) else answer
            if isinstance(answer, dict):
                known = ("brokers", "cluster_id", "controller_id")
                response |= {name: answer[name] for name in known if name in answer}
        return packed(header, response)

    async def _late(self, answer: _Answer, delay_s: float) -> Reply | None:
        try:
            async with asyncio.timeout(delay_s):
                await self._ending.wait()
        except TimeoutError:
            pass
        return await answer if isinstance(answer, asyncio.Future) else answer

    async def _cut(self, answer: _Answer, after_bytes: int) -> Reply | None:
        reply = await answer if isinstance(answer, asyncio.Future) else answer
        begun: list[ReplyPart] = []
        for part in reply or ():
            while after_bytes and len(part):
                if isinstance(part, (bytes, bytearray, memoryview)):
                    piece: Buffer = part[:after_bytes]
                    part = part[after_bytes:]
                else:
                    size = min(after_bytes, PIECE_BYTES)
                    piece = await self._loop.run_in_executor(self._broker.readers, part.take, size)
                begun.append(piece)
                after_bytes -= len(piece)
        if not begun:
            raise Hangup(_ON_PURPOSE)
        return [*begun, _CutOff()]


class _CutOff(SlicedRecords):
    """Closes the connection in place of a part of a reply, after the parts before it."""

    def __init__(self) -> None:
        """Hold no file."""

    def __del__(self) -> None:
        """Release nothing."""

    def __len__(self) -> int:
        return 1

    def take_cached(self, max_bytes: int) -> Buffer | None:
        """Defer to `take`."""
        return None

    def send_cached(self, socket_fd: int, max_bytes: int) -> int | None:
        """Defer to `take`."""
        return None

    def take(self, max_bytes: int) -> Buffer:
        """Have the connection closed.

        Raises:
            Hangup: always.
        """
        raise Hangup(_ON_PURPOSE)


def _body(header: RequestHeader, frame: Buffer) -> Any:
    return decode_request(header.api_key, header.api_version, frame, header.body_position)


def _is_incremental(header: RequestHeader, body: Any) -> bool:
    return header.api_version >= _SESSIONS_SINCE and body.session_epoch > 0


def _sets_faults(body: Any) -> bool:
    return any(
        resource.resource_type == ResourceType.BROKER
        and any(config.name == FAULT.name for config in resource.configs)
        for resource in body.resources
    )


def _hand_over(held: "asyncio.Future[Reply | None]", done: "asyncio.Future[Reply | None]") -> None:
    """Give a result to the future that a connection waits for."""
    if held.done():
        return
    if done.cancelled():
        held.cancel()
    elif (error := done.exception()) is not None:
        held.set_exception(error)
    else:
        held.set_result(done.result())
