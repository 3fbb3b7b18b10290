"""Produce requests that say the same as an earlier one, but for the partition and the batch.

A producer sends the same bytes again and again: what differs is the correlation id, the partition's
index and the batch. A decoder goes through a request in order, so bytes that are the same up to the
index say the same. Such a request is neither decoded nor is its answer encoded field by field; its
topic, partition and batch go through the same functions as those of any other. Whatever is not
answered by an append on the event loop (a refusal, an append that may block) is left to `produce`,
which begins anew.
"""

from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.dispatch import shortcut
from horolog.broker.handlers.produce import find_partition, find_topic
from horolog.buffers import Buffer
from horolog.errors import HorologError
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.frame import RequestHeader
from horolog.wire.packing import INT32, uvarint
from horolog.wire.produce import SingleAnswers
from horolog.wire.reader import LARGE_BYTES
from horolog.wire.requests import ProduceRequest

_FROM_VERSION: Final = 5  # the answer's numbers are the same since
_FLEXIBLE_FROM: Final = 9
_MOST_SHAPES: Final = 16  # of one client: as many topics as it may send to in turn
_MOST_HEAD_BYTES: Final = 512  # of each: no budget counts them
_FORGET_AFTER: Final = 100  # requests that had to be decoded

# What surrounds the correlation id, and what follows the index where lengths are fixed.
_START_BYTES: Final = 4
_HEAD_AT: Final = 8
_INDEX_AND_SIZE: Final = Struct(">ii")
_NO_TAGS: Final = b"\x00\x00\x00"  # of the partition, the topic and the request


class _Shape(NamedTuple):
    """What all requests say whose bytes are the same before the partition's index."""

    start: bytes
    """Before the correlation id: API and version."""
    version: int
    acks: int
    name: str
    topic_id: UUID | None
    client_id: str
    answers: SingleAnswers


@shortcut(ApiKey.PRODUCE)
class ProduceShortcut:
    """The requests of one client that were decoded, to recognise the next ones."""

    __slots__ = ("_authorise", "_broker", "_decoded", "_peer", "_shapes", "_sizes")

    def __init__(self, broker: Broker, authorise: Authorise, peer: Peer) -> None:
        self._broker = broker
        self._authorise = authorise
        self._peer = peer
        # By the bytes from _HEAD_AT up to the index; None: not to be tried for some time.
        self._shapes: dict[bytes, _Shape | None] = {}
        self._decoded = 0  # requests since everything was forgotten
        self._sizes: tuple[int, ...] = ()  # the positions where these end

    def learn(self, frame: Buffer, header: RequestHeader, body: ProduceRequest, /) -> None:
        """Remember a request, if it is for one partition."""
        self._decoded += 1
        if self._decoded > _FORGET_AFTER:
            self._decoded, self._shapes, self._sizes = 0, {}, ()
        version = header.api_version
        if (
            len(self._shapes) >= _MOST_SHAPES
            or type(frame) is not bytes
            or len(frame) > LARGE_BYTES
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
        rest = _after_head(version, partition.index, partition.records)
        head_end = len(frame) - len(rest)
        if not _HEAD_AT < head_end <= _MOST_HEAD_BYTES or not frame.endswith(rest):
            return  # it has tagged fields, or bytes after its end
        head = frame[_HEAD_AT:head_end]
        if head in self._shapes:
            return
        self._shapes[head] = _Shape(
            frame[:_START_BYTES],
            version,
            body.acks,
            topic.name,
            topic.topic_id,
            header.client_id or "",
            SingleAnswers(version, topic.name, topic.topic_id),
        )
        self._sizes = tuple({_HEAD_AT + len(each): None for each in self._shapes})

    def __call__(self, frame: Buffer, /) -> Reply | None:
        """The reply to a request like an earlier one, if its batch can be appended at once."""
        if type(frame) is not bytes or len(frame) > LARGE_BYTES:
            return None
        for at in self._sizes:
            head = frame[_HEAD_AT:at]
            if head in self._shapes:
                break
        else:
            return None
        shape = self._shapes[head]
        if shape is None:
            return None
        start, version, acks, name, topic_id, client_id, answers = shape
        if not frame.startswith(start):
            return None
        found = _index_and_records(frame, at, version)
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
            self._shapes[head] = None  # what is refused is not to be checked twice each time
            return None
        if appended is None:
            return None
        broker.note_appended(partition, appended, client_id, peer.host)
        (correlation_id,) = INT32.unpack_from(frame, _START_BYTES)
        base_offset, _, time_ms, start_offset = appended[:4]
        return (answers.pack(correlation_id, index, base_offset, time_ms, start_offset),)


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
