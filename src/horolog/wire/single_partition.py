"""Decoders of hot requests about one partition, written by hand: Produce and ListOffsets.

A client that sends one record after another, or looks up one time after another, asks about one
partition in each request. To decode the request by hand takes a third of the time of the reader of
its schema. Requests of another form, malformed or not, are left to that reader: more partitions,
tagged fields, a name that no topic may have, bytes at the end.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Final, NamedTuple
from uuid import UUID

from horolog.wire.reader import LARGE_BYTES

__all__ = [
    "LONGEST_COMPACT",
    "LONGEST_NAME",
    "REQUEST_HEAD",
    "TEXT_LENGTH",
    "WRONG",
    "SingleLookup",
    "SingleProduce",
    "read_lookup",
    "read_produce",
    "read_topic_id",
]

REQUEST_HEAD: Final = Struct(">xxhih")  # version, correlation id, length of the client id
_NO_TAGS: Final = b"\x00\x00\x00"  # of the partition, the topic and the request
LONGEST_NAME: Final = 249  # of a topic; longer names are not cached
LONGEST_COMPACT: Final = 126  # bytes of a compact string whose length takes one byte
WRONG: Final = (ValueError, IndexError, StructError)

# Transactional id (null), acks, timeout, topics, length of the name; then partitions, index, size.
_PRODUCE: Final = Struct(">hhiih")
_PRODUCED: Final = Struct(">iii")
_FLEXIBLE_PRODUCE: Final = Struct(">BBhiB")  # the header's tags first, without the name
_FLEXIBLE_PRODUCED: Final = Struct(">Bi")

# Replica, isolation level, topics, length of the name; then partitions, index, epoch, timestamp.
_LOOKUP_V1: Final = Struct(">iih")
_LOOKUP: Final = Struct(">ibih")
_LOOKED_UP_V1: Final = Struct(">iiq")
_LOOKED_UP: Final = Struct(">iiiq")
_FLEXIBLE_LOOKUP: Final = Struct(">BibBB")  # the header's tags first
_FLEXIBLE_LOOKED_UP: Final = Struct(">Biiq")
_ANY_EPOCH: Final = -1
_CONSUMER: Final = -1  # replica id

TEXT_LENGTH: Final = Struct(">h")


class SingleProduce(NamedTuple):
    """A Produce request for one partition, from version 5, that asks for an answer."""

    version: int
    correlation_id: int
    client_id: str
    acks: int
    name: str
    """Empty from version 13 on, where the topic is named by its id."""
    topic_id: UUID | None
    partition: int
    records: bytes
    transactional_id: str | None
    timeout_ms: int


class SingleLookup(NamedTuple):
    """A ListOffsets request for one partition, from version 1."""

    version: int
    correlation_id: int
    isolation_level: int
    name: str
    partition: int
    leader_epoch: int
    timestamp: int


def read_produce(frame: bytes) -> SingleProduce | None:
    """Decode a Produce request; None if it needs the reader of its schema."""
    try:
        version, correlation_id, size = REQUEST_HEAD.unpack_from(frame)
        if not 5 <= version <= 13 or size < 0 or len(frame) > LARGE_BYTES:
            return None
        at = REQUEST_HEAD.size + size
        client_id = frame[REQUEST_HEAD.size : at].decode("utf-8", "replace")
        name, topic_id, end, transactional_id = "", None, len(frame), None
        if version < 9:
            transactional, acks, timeout_ms, topics, size = _PRODUCE.unpack_from(frame, at)
            if transactional > 0:
                start, at = at + 2, at + transactional  # so that the fields before the next are it
                transactional_id = frame[start : start + transactional].decode()
                _, acks, timeout_ms, topics, size = _PRODUCE.unpack_from(frame, at)
            elif transactional != -1:
                return None
            if topics != 1 or not 0 < size <= LONGEST_NAME:
                return None
            start = at + _PRODUCE.size
            at = start + size
            name = frame[start:at].decode()
            partitions, index, size = _PRODUCED.unpack_from(frame, at)
            at += _PRODUCED.size
            is_single = partitions == 1
        else:
            tags, transactional, acks, timeout_ms, topics = _FLEXIBLE_PRODUCE.unpack_from(frame, at)
            if transactional:
                transactional -= 1
                if not 0 < transactional <= LONGEST_COMPACT:
                    return None
                start, at = at + 2, at + transactional
                transactional_id = frame[start : start + transactional].decode()
                _, _, acks, timeout_ms, topics = _FLEXIBLE_PRODUCE.unpack_from(frame, at)
            at += _FLEXIBLE_PRODUCE.size
            if tags or topics != 2 or not frame.endswith(_NO_TAGS):
                return None
            if version < 13:
                size = frame[at] - 1
                start, at = at + 1, at + 1 + size
                if not 0 < size <= LONGEST_COMPACT:
                    return None
                name = frame[start:at].decode()
            else:
                topic_id = read_topic_id(frame[at : at + 16])
                at += 16
            partitions, index = _FLEXIBLE_PRODUCED.unpack_from(frame, at)
            at += _FLEXIBLE_PRODUCED.size
            is_single = partitions == 2
            size, at = frame[at], at + 1
            if size > 127:
                size, at = size & 127 | frame[at] << 7, at + 1
                if size > 16383:  # three bytes, the most that LARGE_BYTES take
                    size, at = size & 16383 | frame[at] << 14, at + 1
            size -= 1
            end -= len(_NO_TAGS)
    except WRONG:
        return None
    if not is_single or size <= 0 or at + size != end or acks == 0:
        return None
    records = frame[at:end]
    return _new(
        SingleProduce,
        (
            *(version, correlation_id, client_id, acks),
            *(name, topic_id, index, records, transactional_id, timeout_ms),
        ),
    )


def read_lookup(frame: bytes) -> SingleLookup | None:
    """Decode a ListOffsets request; None if it needs the reader of its schema."""
    try:
        version, correlation_id, size = REQUEST_HEAD.unpack_from(frame)
        if not 1 <= version <= 11 or size < 0:
            return None
        at, isolation_level, leader_epoch = REQUEST_HEAD.size + size, 0, _ANY_EPOCH
        if version >= 6:
            tags, replica, isolation_level, topics, size = _FLEXIBLE_LOOKUP.unpack_from(frame, at)
            start, size = at + _FLEXIBLE_LOOKUP.size, size - 1
            if tags or topics != 2 or not 0 < size <= LONGEST_COMPACT:
                return None
        else:
            if version == 1:
                replica, topics, size = _LOOKUP_V1.unpack_from(frame, at)
                start = at + _LOOKUP_V1.size
            else:
                replica, isolation_level, topics, size = _LOOKUP.unpack_from(frame, at)
                start = at + _LOOKUP.size
            if topics != 1 or not 0 < size <= LONGEST_NAME:
                return None
        at = start + size
        name = frame[start:at].decode()
        if version >= 6:
            partitions, index, leader_epoch, timestamp = _FLEXIBLE_LOOKED_UP.unpack_from(frame, at)
            at += _FLEXIBLE_LOOKED_UP.size
            rest = len(frame) - at - (4 if version >= 10 else 0)  # the timeout is not needed
            is_single = partitions == 2 and rest == 3 and not frame[at] | frame[at + 1] | frame[-1]
        elif version >= 4:
            partitions, index, leader_epoch, timestamp = _LOOKED_UP.unpack_from(frame, at)
            is_single = partitions == 1 and len(frame) == at + _LOOKED_UP.size
        else:
            partitions, index, timestamp = _LOOKED_UP_V1.unpack_from(frame, at)
            is_single = partitions == 1 and len(frame) == at + _LOOKED_UP_V1.size
    except WRONG:
        return None
    if not is_single or replica != _CONSUMER:  # others may see the log end
        return None
    return _new(
        SingleLookup,
        (version, correlation_id, isolation_level, name, index, leader_epoch, timestamp),
    )


_new = tuple.__new__  # a named tuple's own takes three times as long


@lru_cache(maxsize=1024)
def read_topic_id(raw: bytes) -> UUID | None:
    """Return the id of a topic; None for zeros."""
    return UUID(bytes=raw) if any(raw) else None
