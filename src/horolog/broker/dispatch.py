"""Answers requests: decodes a frame, calls its handler, and encodes the response.

A handler gets a `Request` and the broker, and returns one of

- a dict in Kafka's field names, newest first, which is shaped for the version asked;
- a list of buffers, for the two APIs that pack their own answers;
- an `Apart`, which makes one of these in a thread, where that takes long;
- None, where the protocol has no answer (acks=0);

or a coroutine that returns one of these. A coroutine is begun at once and becomes a task only if it
has to wait, so that most requests are answered without a task. It is never cancelled. A long one
calls `request.checkpoint()`, which yields to other requests and ends it if its client has gone.

What a client got wrong about one topic, partition or group is answered there by the handler; an
error that reaches this module ends the connection.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from itertools import groupby
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from horolog.broker.authorisation import Authorise, authorise
from horolog.broker.broker import BrokerParts
from horolog.broker.scheduling.begun import rest_of, resumed, timed
from horolog.broker.scheduling.codec_threads import Checkpoint, CodecThreads
from horolog.broker.scheduling.turns import TimeSlice, next_turn
from horolog.broker.throttling import with_throttle_time
from horolog.buffers import Buffer
from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.network.reply import Reply, ReplyPart
from horolog.wire.api import SUPPORTED, ApiKey, Versions
from horolog.wire.codec import MAX_FIELDS, decode_request, encode_response
from horolog.wire.frame import (
    RequestHeader,
    parse_request_header,
    response_prefix,
    unsupported_api_versions,
)

if TYPE_CHECKING:
    from horolog.broker.cluster.relaying import Relay

BodyT = TypeVar("BodyT")


class Request(Generic[BodyT]):
    """One request: the client, the version, and the decoded body, a view of `wire.requests`."""

    __slots__ = ("_slice", "body", "client_id", "frame", "is_large", "peer", "version")

    def __init__(
        self,
        version: int,
        body: BodyT,
        client_id: str,
        peer: Peer,
        frame: Buffer,
        *,
        is_large: bool = False,
    ) -> None:
        self.version = version
        self.body = body
        self.client_id = client_id
        self.peer = peer
        self.frame = frame
        """The request as it was received, header included."""
        self.is_large = is_large
        """Whether it has very many fields. The requests behind it wait for its end."""
        self._slice: TimeSlice | None = None

    async def checkpoint(self) -> None:
        """Yield to other requests, if this one has used up its time slice.

        Raises:
            ClientGone: the client has disconnected; not to be caught by a handler.
        """
        if self._slice is None:
            self._slice = TimeSlice(self.peer)
        await self._slice.checkpoint()

    def has_waited(self) -> None:
        """Begin a new time slice, because others ran while this request waited."""
        self._slice = None

    async def pause(self) -> None:
        """Yield like `checkpoint`, for work that is finished even if the client disconnects."""
        if self._slice is None:
            self._slice = TimeSlice(self.peer)
        await self._slice.pause()

    @property
    def is_long(self) -> bool:
        """True if it has taken more than a time slice so far."""
        return self.is_large or (self._slice is not None and self._slice.is_long)


class Apart(NamedTuple):
    """A response that is made and encoded in a thread; `make` changes nothing.

    It calls the checkpoint between its steps, where they are many.
    """

    make: Callable[[Checkpoint], Mapping[str, Any] | Reply]


Response: TypeAlias = "dict[str, Any] | Reply | Apart | None"
Handler: TypeAlias = (
    "Callable[[Request[Any], BrokerParts], Response | Coroutine[Any, Any, Response]]"
)
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

Shortcut: TypeAlias = Callable[
    [BrokerParts, Peer, bytes], "Reply | asyncio.Future[Reply] | Coroutine[Any, Any, Reply] | None"
]
"""Answers an authorised frame without decoding it; None without an effect if it cannot."""

KEY_BYTES: Final = 2
"""Size of an API's key, with which a request begins."""

HANDLERS: dict[ApiKey, Handler] = {}
_Shortcuts: TypeAlias = dict[bytes, tuple[ApiKey, Shortcut]]
_SHORTCUTS: _Shortcuts = {}  # by the bytes of an API's key
SHORTCUTS_IN_CLUSTER: _Shortcuts = {}
"""Further shortcuts of a broker of a cluster."""

# A request of more fields is decoded, and its answer packed, in a thread: some 5 ms of work.
FIELDS_AT_ONCE: Final = 2_000
_BYTES = (bytes, bytearray, memoryview)
_SMALL_BODY_BYTES: Final = 4096  # copying it costs less than handling two parts


def api(key: ApiKey) -> Callable[[HandlerT], HandlerT]:
    """Decorate the handler of an API, which the broker advertises from then on."""

    def enter(handler: HandlerT) -> HandlerT:
        assert key not in HANDLERS, key
        HANDLERS[key] = handler
        return handler

    return enter


def shortcut(key: ApiKey, *, in_cluster: bool = False) -> Callable[[Shortcut], Shortcut]:
    """Decorate a function that is tried on small requests of an API before they are decoded.

    Args:
        in_cluster: only a broker of a cluster tries it.
    """
    shortcuts = SHORTCUTS_IN_CLUSTER if in_cluster else _SHORTCUTS

    def enter(answer: Shortcut) -> Shortcut:
        shortcuts[key.to_bytes(KEY_BYTES, "big")] = key, answer
        return answer

    return enter


def served() -> dict[ApiKey, Versions]:
    """Return all APIs that have handlers, with the versions that `wire` knows."""
    return {key: SUPPORTED[key] for key in sorted(HANDLERS)}


class _Served(NamedTuple):
    handler: Handler
    min_version: int
    max_version: int


def kept_task(
    tasks: set[asyncio.Task[Reply | None]], answering: Coroutine[Any, Any, Reply | None]
) -> asyncio.Task[Reply | None]:
    """Begin a task, and keep it until it is done: the event loop does not."""
    task = asyncio.get_running_loop().create_task(answering)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class Dispatcher:
    """Answers requests for one broker."""

    def __init__(self, broker: BrokerParts, authorise: Authorise = authorise) -> None:
        self._broker = broker
        self._quotas = broker.quotas.quotas
        self._authorise = authorise
        self._tasks: set[asyncio.Task[Reply | None]] = set()
        self._large_in_flight = 0
        self._codec = CodecThreads()
        self._relay = relay = broker.relay
        self._relayed = frozenset[ApiKey]() if relay is None else relay.whole
        self._served = {
            key: _Served(handler, *SUPPORTED[key])
            for key, handler in HANDLERS.items()
            if key not in self._relayed
        }
        self.shortcuts = _SHORTCUTS
        if relay is not None:
            self._refuse_to_coordinate(relay)

    def _refuse_to_coordinate(self, relay: "Relay") -> None:
        """Have the requests of coordinators refused: those of a cluster are other brokers."""
        self.shortcuts = {
            packed: known
            for packed, known in (_SHORTCUTS | SHORTCUTS_IN_CLUSTER).items()
            if known[0] not in relay.coordinated
        }
        for key in relay.coordinated:
            served = self._served[key]
            handler = partial(_refuse_to_coordinate, relay, key, served.handler)
            self._served[key] = served._replace(handler=handler)

    def __call__(
        self, frame: Buffer, peer: Peer, *, is_within_quotas: bool = False
    ) -> "Reply | asyncio.Future[Reply | None] | None":
        """Return the reply to a request, or its future if it takes time.

        With `is_within_quotas` nothing is recorded for the client's quotas.

        Raises:
            MalformedRequest: bytes that do not follow the protocol.
            TooManyFields: it takes too long for the event loop; `slowly` answers it.
            Hangup: a version that is not served, or a request that is not allowed.
        """
        if self._quotas.is_set and not is_within_quotas and peer.principal is not None:
            return self._within_quotas(frame, peer)
        if type(frame) is bytes:  # it is not large
            shortcut = self.shortcuts.get(frame[:KEY_BYTES])
            if shortcut is not None:
                key, answer = shortcut
                self._authorise(peer, key)
                reply = answer(self._broker, peer, frame)
                if type(reply) is tuple:
                    return reply
                if isinstance(reply, CoroutineType):
                    return self._begun(reply, peer)
                if reply is not None:
                    return cast("Reply | asyncio.Future[Reply | None]", reply)
        header = parse_request_header(frame)
        key, version, _, client_id, position = header
        served = self._served.get(key)
        if served is None or not served.min_version <= version <= served.max_version:
            if self._relay is not None and key in self._relayed:
                self._authorise(peer, key)
                return self._task(self._relay.answer(header, frame, peer), peer)
            return refuse_version(header)
        self._authorise(peer, key)
        body = decode_request(key, version, frame, position, FIELDS_AT_ONCE)
        request = Request(version, body, client_id or "", peer, frame)
        response = served.handler(request, self._broker)
        if not isinstance(response, CoroutineType):
            if isinstance(response, Apart):
                return self._task(self._pack(header, request, response), peer)
            return packed(header, cast("Response", response))
        try:
            awaited = response.send(None)
        except StopIteration as done:
            response = done.value
        else:
            return self._task(self._finish(header, request, resumed(response, awaited)), peer)
        if isinstance(response, Apart) or request.is_long:
            return self._task(self._pack(header, request, response), peer)
        return packed(header, response)

    def _within_quotas(
        self, frame: Buffer, peer: Peer
    ) -> "Reply | asyncio.Future[Reply | None] | None":
        """Answer a request, and let its client wait if it is over a quota."""
        is_timed = self._quotas.times_requests
        if is_timed:
            peer.begin_step()
        try:
            answer = self(frame, peer, is_within_quotas=True)
        finally:
            if is_timed:
                peer.end_step()
        header = parse_request_header(frame)
        wait_ms = self._broker.quotas.record(header, len(frame), peer)
        if not isinstance(answer, asyncio.Future):
            return self._throttled(answer, header, wait_ms, peer)
        if wait_ms or is_timed:
            return self._task(self._throttled_later(answer, header, wait_ms, peer))
        return answer

    async def _throttled_later(
        self,
        answering: "asyncio.Future[Reply | None]",
        header: RequestHeader,
        wait_ms: int,
        peer: Peer,
    ) -> Reply | None:
        return self._throttled(await answering, header, wait_ms, peer)

    def _throttled(
        self, reply: Reply | None, header: RequestHeader, wait_ms: int, peer: Peer
    ) -> Reply | None:
        """Return a response with the time to wait, that for the time it took included."""
        if self._quotas.times_requests:
            wait_ms = max(wait_ms, self._broker.quotas.record_time(header, peer, reply))
        return with_throttle_time(header, reply, wait_ms) if reply and wait_ms else reply

    @property
    def in_flight(self) -> int:
        """Number of requests that are being answered by tasks."""
        return len(self._tasks)

    @property
    def has_large(self) -> bool:
        """True if a request of very many fields is in flight."""
        return self._large_in_flight > 0

    def slowly(self, frame: Buffer, peer: Peer) -> "asyncio.Future[Reply | None]":
        """Return the future reply to a request of many fields, of which nothing is done yet."""
        self._large_in_flight += 1
        answering = self._task(self._answer_slowly(frame, peer), peer)
        answering.add_done_callback(self._on_large_done)
        return answering

    def _on_large_done(self, _: "asyncio.Future[Reply | None]") -> None:
        self._large_in_flight -= 1

    def close(self) -> None:
        """Stop decoding and encoding."""
        self._codec.close()

    def _task(
        self, answering: Coroutine[Any, Any, Reply | None], peer: Peer | None = None
    ) -> "asyncio.Future[Reply | None]":
        """Begin a task; its time is counted for a peer if it is given."""
        if peer is not None and self._quotas.times_requests:
            answering = timed(peer, answering)
        return kept_task(self._tasks, answering)

    def _begun(
        self, answering: Coroutine[Any, Any, Reply], peer: Peer
    ) -> "Reply | asyncio.Future[Reply | None]":
        """Return the reply of a shortcut's coroutine, or its future if it has to wait."""
        try:
            awaited = answering.send(None)
        except StopIteration as done:
            return cast("Reply", done.value)
        return self._task(rest_of(answering, awaited), peer)

    async def _finish(
        self, header: RequestHeader, request: Request[Any], answering: Coroutine[Any, Any, Response]
    ) -> Reply | None:
        return await self._pack(header, request, await answering)

    async def _pack(
        self, header: RequestHeader, request: Request[Any], response: Response
    ) -> Reply | None:
        """Encode a response, in a thread if making it took long."""
        if not (request.is_long or isinstance(response, Apart)):
            return packed(header, response)
        return await self._codec.run(request.peer, partial(_packed_densely, header, response))

    async def _answer_slowly(self, frame: Buffer, peer: Peer) -> Reply | None:
        header = parse_request_header(frame)
        key, version, _, client_id, position = header
        decode = partial(decode_request, key, version, frame, position, MAX_FIELDS)
        body = await self._codec.run(peer, decode)
        await next_turn()
        request = Request(version, body, client_id or "", peer, frame, is_large=True)
        response = self._served[key].handler(request, self._broker)
        if isinstance(response, CoroutineType):
            response = await response
        reply = await self._pack(header, request, cast("Response", response))
        if not self._quotas.is_set:
            return reply
        wait_ms = self._broker.quotas.record(header, len(frame), peer)
        return self._throttled(reply, header, wait_ms, peer)


def _refuse_to_coordinate(
    relay: "Relay", key: ApiKey, handler: Handler, request: Request[Any], broker: BrokerParts
) -> "Response | Coroutine[Any, Any, Response]":
    refusal = relay.refusal_to_coordinate(key, request.version, request.body)
    return handler(request, broker) if refusal is None else refusal


def _packed_densely(
    header: RequestHeader, response: Response, checkpoint: Checkpoint
) -> Reply | None:
    """Encode a response in as few parts as possible, for the event loop to send."""
    reply = packed(header, response, checkpoint)
    if reply is None:
        return None
    dense: list[ReplyPart] = []
    for is_bytes, parts in groupby(reply, lambda it: isinstance(it, _BYTES)):
        if is_bytes:
            dense.append(b"".join(cast("Iterable[Buffer]", parts)))
        else:
            dense.extend(parts)
    return dense


def packed(
    header: RequestHeader, answer: Response, checkpoint: Checkpoint | None = None
) -> Reply | None:
    """Encode a response behind its length and header; an `Apart` needs a checkpoint."""
    if answer is None:
        return None
    key, version = header.api_key, header.api_version
    made: Any = answer
    if isinstance(answer, Apart):
        assert checkpoint is not None
        made = answer.make(checkpoint)
    answer = (encode_response(key, version, made, checkpoint),) if isinstance(made, dict) else made
    if len(answer) == 1 and isinstance(body := answer[0], bytes) and len(body) <= _SMALL_BODY_BYTES:
        return (response_prefix(key, version, header.correlation_id, len(body)) + body,)
    size = sum(map(len, answer))
    return (response_prefix(key, version, header.correlation_id, size), *answer)


def refuse_version(header: RequestHeader) -> Reply:
    """Answer a request of a version that is not served.

    Raises:
        Hangup: only ApiVersions has an answer to that.
    """
    if header.api_key is not ApiKey.API_VERSIONS:
        raise Hangup(f"{header.title} is not served here")
    body = unsupported_api_versions(served())
    return (response_prefix(ApiKey.API_VERSIONS, 0, header.correlation_id, len(body)), body)
