"""Produce requests that say the same as an earlier one, but for the partition and the batch.

A producer sends the same bytes again and again: what differs is the correlation id, the partition's
index and the batch (see `Shapes`). Such a request is neither decoded nor is its answer encoded
field by field; its topic, partition and batch go through the same functions as those of any other.
Whatever is not answered by an append on the event loop (a refusal, an append that may block) is
left to `produce`, which begins anew.
"""

from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.dispatch import shortcut
from horolog.broker.handlers.produce import find_partition, find_topic
from horolog.broker.shapes import START_BYTES, Shapes
from horolog.buffers import Buffer
from horolog.errors import HorologError
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.codec import encode_request
from horolog.wire.frame import RequestHeader
from horolog.wire.packing import INT32, uvarint
from horolog.wire.produce import single_answers
from horolog.wire.reader import LARGE_BYTES
from horolog.wire.requests import ProduceRequest
from horolog.wire.templates import AnswerTemplate

_FROM_VERSION: Final = 5  # the answer's numbers are the same since
_FLEXIBLE_FROM: Final = 9

# What follows the head where lengths are fixed.
_INDEX_AND_SIZE: Final = Struct(">ii")
_NO_TAGS: Final = b"\x00\x00\x00"  # of the partition, the topic and the request


class _Shape(NamedTuple):
    """What all requests say whose bytes are the same before the partition's index."""

    version: int
    acks: int
    name: str
    topic_id: UUID | None
    client_id: str
    answers: AnswerTemplate


@shortcut(ApiKey.PRODUCE)
class ProduceShortcut:
    """The Produce requests of one client that were decoded, to recognise the next ones."""

    __slots__ = ("_authorise", "_broker", "_peer", "_shapes")

    def __init__(self, broker: Broker, authorise: Authorise, peer: Peer) -> None:
        self._broker = broker
        self._authorise = authorise
        self._peer = peer
        self._shapes: Shapes[_Shape] = Shapes()

    def learn(self, frame: bytes, header: RequestHeader, body: ProduceRequest, /) -> None:
        """Remember a request, if it is for one partition."""
        version = header.api_version
        if (
            not self._shapes.may_learn(frame)
            or version < _FROM_VERSION
            or body.acks == 0
            or len(body.topic_data) != 1
            or len(body.topic_data[0].partition_data) != 1
        ):
            return
        (topic,) = body.topic_data
        (partition,) = topic.partition_data
        if not partition.records:
            return
        end = len(frame) - len(_after_head(version, partition.index, partition.records))
        # One with tagged fields, or bytes after its end, is not what the encoder makes of it.
        if self._shapes.knows(frame, end) or frame[header.body_position :] != _body(version, body):
            return
        answers = single_answers(version, topic.name, topic.topic_id)
        shape = _Shape(
            version, body.acks, topic.name, topic.topic_id, header.client_id or "", answers
        )
        self._shapes.learn(frame, end, shape)

    def __call__(self, frame: bytes, /) -> Reply | None:
        """The reply to a request like an earlier one, if its batch can be appended at once."""
        known = self._shapes.find(frame) if len(frame) <= LARGE_BYTES else None
        if known is None:
            return None
        end, (version, acks, name, topic_id, client_id, answers) = known
        found = _index_and_records(frame, end, version)
        if found is None:
            return None
        index, records = found
        broker, peer = self._broker, self._peer
        self._authorise(peer, ApiKey.PRODUCE)
        try:
            topic = find_topic(broker, version, name, topic_id)
            partition = find_partition(broker, version, acks, topic, index)
            appended = partition.append_nowait(records, broker.clock.now_ms(), version, peer)
        except HorologError:
            self._shapes.pause(frame, end)  # what is refused is not to be checked twice each time
            return None
        if appended is None:
            return None
        broker.note_appended(partition, appended, client_id, peer.host)
        (correlation_id,) = INT32.unpack_from(frame, START_BYTES)
        base_offset, _, time_ms, start_offset = appended[:4]
        return (answers.pack(correlation_id, index, 0, base_offset, time_ms, start_offset),)


def _body(version: int, body: ProduceRequest) -> bytes:
    """The body of a request for one partition as the encoder makes it."""
    (topic,) = body.topic_data
    (partition,) = topic.partition_data
    data = [{"index": partition.index, "records": partition.records}]
    topics = [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": data}]
    fields = {
        "transactional_id": body.transactional_id,
        "acks": body.acks,
        "timeout_ms": body.timeout_ms,
        "topic_data": topics,
    }
    return encode_request(ApiKey.PRODUCE, version, fields)


def _after_head(version: int, index: int, records: Buffer) -> bytes:
    """How such a request ends."""
    if version < _FLEXIBLE_FROM:
        return _INDEX_AND_SIZE.pack(index, len(records)) + records
    return INT32.pack(index) + uvarint(len(records) + 1) + records + _NO_TAGS


def _index_and_records(frame: bytes, at: int, version: int) -> tuple[int, bytes] | None:
    """The reverse of `_after_head`; None unless the whole rest of the frame is like that."""
    end = len(frame)
    if end - at < _INDEX_AND_SIZE.size:
        return None
    if version < _FLEXIBLE_FROM:
        index, size = _INDEX_AND_SIZE.unpack_from(frame, at)
        at += _INDEX_AND_SIZE.size
    else:
        (index,) = INT32.unpack_from(frame, at)
        size, shift, at = 0, 0, at + INT32.size
        while True:
            byte = frame[at]
            at += 1
            size |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 14 or at == end:  # LARGE_BYTES take three bytes
                return None
        size -= 1
        end -= len(_NO_TAGS)
        if not frame.endswith(_NO_TAGS):
            return None
    if size <= 0 or at + size != end:
        return None
    return index, frame[at:end]
