"""ListOffsets requests that say the same as an earlier one, but for the partition and the time.

A client that looks up one time after another sends the same bytes but for the correlation id, the
partition's index, the leader epoch and the timestamp (see `Shapes`). Such a request is neither
decoded nor is its answer encoded field by field. It is answered by the functions that answer any
other, refusals included, on the event loop or in a thread.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.dispatch import shortcut
from horolog.broker.handlers.list_offsets import Asked, Found, find, found_at_once
from horolog.broker.shapes import START_BYTES, Shapes
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.codec import encode_request
from horolog.wire.frame import RequestHeader
from horolog.wire.list_offsets import single_answers
from horolog.wire.packing import INT32
from horolog.wire.requests import ListOffsetsRequest
from horolog.wire.templates import AnswerTemplate

_FROM_VERSION: Final = 1  # one offset for a partition, not a list
_EPOCH_FROM: Final = 4
_FLEXIBLE_FROM: Final = 6
_TIMEOUT_FROM: Final = 10

_INDEX_AND_TIME: Final = Struct(">iq")
_INDEX_EPOCH_AND_TIME: Final = Struct(">iiq")
_ANY_EPOCH: Final = -1


class _Shape(NamedTuple):
    """What all requests say whose bytes are the same before the partition's index."""

    asked: Asked
    numbers: Struct
    end: bytes
    """What follows the numbers, of which the timestamp is the last."""
    fields: int
    """Of a `Found` that the version's answer has."""
    answers: AnswerTemplate


@shortcut(ApiKey.LIST_OFFSETS)
class ListOffsetsShortcut:
    """The ListOffsets requests of one client that were decoded, to recognise the next ones."""

    __slots__ = ("_authorise", "_broker", "_peer", "_shapes")

    def __init__(self, broker: Broker, authorise: Authorise, peer: Peer) -> None:
        self._broker = broker
        self._authorise = authorise
        self._peer = peer
        self._shapes: Shapes[_Shape] = Shapes()

    def learn(self, frame: bytes, header: RequestHeader, body: ListOffsetsRequest, /) -> None:
        """Remember a request, if it is for one partition."""
        version = header.api_version
        if (
            not self._shapes.may_learn(frame)
            or version < _FROM_VERSION
            or len(body.topics) != 1
            or len(body.topics[0].partitions) != 1
        ):
            return
        numbers, fields = _INDEX_AND_TIME, 3
        if version >= _EPOCH_FROM:
            numbers, fields = _INDEX_EPOCH_AND_TIME, 4
        end = _end(version, body)
        at = len(frame) - len(end) - numbers.size
        # One with tagged fields, or bytes after its end, is not what the encoder makes of it.
        if self._shapes.knows(frame, at) or frame[header.body_position :] != _body(version, body):
            return
        asked = Asked(version, body.isolation_level, body.topics[0].name)
        answers = single_answers(version, asked.topic)
        self._shapes.learn(frame, at, _Shape(asked, numbers, end, fields, answers))

    def __call__(self, frame: bytes, /) -> Reply | Coroutine[Any, Any, Reply] | None:
        """The reply to a request like an earlier one, or the lookup in a thread."""
        known = self._shapes.find(frame)
        if known is None:
            return None
        at, (asked, numbers, end, fields, answers) = known
        if len(frame) != at + numbers.size + len(end) or not frame.endswith(end):
            return None
        self._authorise(self._peer, ApiKey.LIST_OFFSETS)
        (correlation_id,) = INT32.unpack_from(frame, START_BYTES)
        index, *epoch, timestamp = numbers.unpack_from(frame, at)
        look = partial(
            find, self._broker, asked, index, epoch[0] if epoch else _ANY_EPOCH, timestamp
        )
        found = found_at_once(self._broker, asked, (timestamp,), look)
        if found is None:
            return self._in_thread(look, partial(answers.pack, correlation_id, index), fields)
        return (answers.pack(correlation_id, index, *found[:fields]),)

    async def _in_thread(
        self, look: Callable[[], Found], pack: Callable[..., bytes], fields: int
    ) -> Reply:
        found = await self._broker.searchers.run(self._peer, look)
        return (pack(*found[:fields]),)


def _end(version: int, body: ListOffsetsRequest) -> bytes:
    """How such a request ends: no tags of the partition, the topic and the request; the timeout."""
    if version < _FLEXIBLE_FROM:
        return b""
    timeout = b"" if version < _TIMEOUT_FROM else INT32.pack(body.timeout_ms)
    return b"\x00\x00" + timeout + b"\x00"


def _body(version: int, body: ListOffsetsRequest) -> bytes:
    """The body of a request for one partition as the encoder makes it."""
    (topic,) = body.topics
    (partition,) = topic.partitions
    return encode_request(
        ApiKey.LIST_OFFSETS,
        version,
        {
            "replica_id": body.replica_id,
            "isolation_level": body.isolation_level,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": partition.partition_index,
                            "current_leader_epoch": partition.current_leader_epoch,
                            "timestamp": partition.timestamp,
                        }
                    ],
                }
            ],
            "timeout_ms": body.timeout_ms,
        },
    )
