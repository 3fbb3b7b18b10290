"""From a request's bytes to the handler that answers it, and back to bytes.

A handler gets a `Request` and the broker, and returns one of

- a dict in Kafka's field names, newest first, which is shaped for the version asked;
- a list of buffers, for the two APIs that pack their own answers;
- None, where the protocol has no answer (acks=0);

or a coroutine of such, which is never cancelled: what it began it finishes. What a client
got wrong about one topic, partition or group is answered there by the handler; an error
that reaches this module ends the connection.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import SUPPORTED, ApiKey, Versions, advertised
from horolog.wire.codec import decode_request, encode_response
from horolog.wire.frame import (
    RequestHeader,
    parse_request_header,
    response_prefix,
    unsupported_api_versions,
)
from horolog.wire.packing import Bytes

if TYPE_CHECKING:
    from horolog.broker.broker import Broker


class Request(NamedTuple):
    """One request: who asks, in which version, and the decoded body in kio's names."""

    version: int
    body: Any
    client_id: str
    peer: Peer


Answer: TypeAlias = "dict[str, Any] | Reply | None"
Handler: TypeAlias = "Callable[[Request, Broker], Answer | Coroutine[Any, Any, Answer]]"
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

_HANDLERS: dict[ApiKey, Handler] = {}

# A request of more fields is decoded, and its answer packed, in a thread: some 20 ms of work.
FIELDS_AT_ONCE: Final = 10_000
_SMALL_BODY_BYTES: Final = 4096  # copying it costs less than handling two parts


def api(key: ApiKey) -> Callable[[HandlerT], HandlerT]:
    """Enter a handler into the table; what is in it is what the broker advertises."""

    def enter(handler: HandlerT) -> HandlerT:
        assert key not in _HANDLERS, key
        _HANDLERS[key] = handler
        return handler

    return enter


def served() -> dict[ApiKey, Versions]:
    """What ApiVersions tells: the handlers there are, in the versions that `wire` knows."""
    return {key: advertised(key) for key in sorted(_HANDLERS)}


class _Served(NamedTuple):
    handler: Handler
    min_version: int
    max_version: int


class Dispatcher:
    """Answers requests for one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Reply | None]] = set()
        self._served = {
            key: _Served(handler, *SUPPORTED[key]) for key, handler in _HANDLERS.items()
        }

    def __call__(self, frame: Bytes, peer: Peer) -> "Reply | asyncio.Future[Reply | None] | None":
        """The reply to a request, or its future where it takes time.

        Raises:
            MalformedRequest: bytes that do not follow the protocol.
            TooManyFields: it takes too long for the event loop; `slowly` answers it.
            Hangup: a version that is not served.
        """
        header = parse_request_header(frame)
        key, version, _, client_id, position = header
        served = self._served.get(key)
        if served is None or not served.min_version <= version <= served.max_version:
            return _refuse_version(header)
        body = decode_request(key, version, frame, position, FIELDS_AT_ONCE)
        answer = served.handler(Request(version, body, client_id or "", peer), self._broker)
        if isinstance(answer, CoroutineType):
            return self._begin(_finish(answer, header))
        return _packed(header, cast("Answer", answer))

    def slowly(self, frame: Bytes, peer: Peer) -> "asyncio.Future[Reply | None]":
        """The reply to a request of many fields; nothing of it has been done when this returns."""
        return self._begin(self._answer_slowly(frame, peer))

    def _begin(
        self, answering: Coroutine[Any, Any, Reply | None]
    ) -> "asyncio.Future[Reply | None]":
        task = self._loop.create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answer_slowly(self, frame: Bytes, peer: Peer) -> Reply | None:
        header = parse_request_header(frame)
        key, version, _, client_id, position = header
        decode = partial(decode_request, key, version, frame, position)
        body = await self._loop.run_in_executor(self._broker.readers, decode)
        request = Request(version, body, client_id or "", peer)
        answer = self._served[key].handler(request, self._broker)
        if isinstance(answer, CoroutineType):
            answer = await answer
        packed = partial(_packed, header, cast("Answer", answer))
        return await self._loop.run_in_executor(self._broker.readers, packed)


async def _finish(answer: Coroutine[Any, Any, Answer], header: RequestHeader) -> Reply | None:
    return _packed(header, await answer)


def _packed(header: RequestHeader, answer: Answer) -> Reply | None:
    """The answer in bytes, behind its length and header."""
    if answer is None:
        return None
    key, version = header.api_key, header.api_version
    if isinstance(answer, dict):
        answer = (encode_response(key, version, answer),)
    size = sum(map(len, answer))
    prefix = response_prefix(key, version, header.correlation_id, size)
    if len(answer) == 1 and size <= _SMALL_BODY_BYTES and isinstance(answer[0], bytes):
        return (prefix + answer[0],)
    return (prefix, *answer)


def _refuse_version(header: RequestHeader) -> Reply:
    if header.api_key is not ApiKey.API_VERSIONS:
        raise Hangup(f"{header.title} is not served here")
    body = unsupported_api_versions(served())
    return (response_prefix(ApiKey.API_VERSIONS, 0, header.correlation_id, len(body)), body)
