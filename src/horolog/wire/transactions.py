"""Decoders of EndTxn and of AddPartitionsToTxn for one partition, written by hand.

A transaction has one request of each. Requests of another form are left to the reader of their
schema, as in `single_partition`.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from horolog.wire.api import ApiKey
from horolog.wire.codec import encode_response
from horolog.wire.single_partition import (
    LONGEST_COMPACT,
    LONGEST_NAME,
    REQUEST_HEAD,
    TEXT_LENGTH,
    WRONG,
)
from horolog.wire.templates import AnswerTemplate

__all__ = ["SingleAdd", "SingleEnd", "added_answers", "ended_answers", "read_add", "read_end"]

_ENDED: Final = Struct(">qhB")  # producer id, epoch, outcome
_FLEXIBLE_ENDED: Final = Struct(">qhBB")  # and tags
_ADDED: Final = Struct(">qhih")  # producer id, epoch, topics, length of the name
_PARTITIONS: Final = Struct(">ii")
_FLEXIBLE_END: Final = 3
_PRODUCER_IN_ANSWER: Final = 5
_SAMPLE: Final = 0x0102, 0x0304_0506_0708_090A, 0x0B0C
_SAMPLE_ADDED: Final = 0x0102_0304, 5


class SingleEnd(NamedTuple):
    """An EndTxn request."""

    version: int
    correlation_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class SingleAdd(NamedTuple):
    """An AddPartitionsToTxn request of one partition, up to version 2."""

    version: int
    correlation_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    name: str
    partition: int


def read_end(frame: bytes) -> SingleEnd | None:
    """Decode an EndTxn request; None if it needs the reader of its schema."""
    try:
        version, correlation_id, size = REQUEST_HEAD.unpack_from(frame)
        if not 0 <= version <= _PRODUCER_IN_ANSWER or size < 0:
            return None
        at, tags = REQUEST_HEAD.size + size, 0
        if version < _FLEXIBLE_END:
            (size,) = TEXT_LENGTH.unpack_from(frame, at)
            start, shape = at + 2, _ENDED
        else:
            tags, size = frame[at], frame[at + 1] - 1
            start, shape = at + 2, _FLEXIBLE_ENDED
            if size > LONGEST_COMPACT:
                return None
        at = start + size
        if tags or size < 0 or len(frame) != at + shape.size:
            return None
        transactional_id = frame[start:at].decode()
        producer_id, epoch, committed, *trailing = shape.unpack_from(frame, at)
    except WRONG:
        return None
    if committed > 1 or any(trailing):
        return None
    return SingleEnd(version, correlation_id, transactional_id, producer_id, epoch, committed == 1)


def read_add(frame: bytes) -> SingleAdd | None:
    """Decode an AddPartitionsToTxn request; None if it needs the reader of its schema."""
    try:
        version, correlation_id, size = REQUEST_HEAD.unpack_from(frame)
        if not 0 <= version < _FLEXIBLE_END or size < 0:
            return None
        at = REQUEST_HEAD.size + size
        (size,) = TEXT_LENGTH.unpack_from(frame, at)
        start = at + 2
        at = start + size
        if size < 0:
            return None
        transactional_id = frame[start:at].decode()
        producer_id, epoch, topics, size = _ADDED.unpack_from(frame, at)
        start = at + _ADDED.size
        at = start + size
        if topics != 1 or not 0 < size <= LONGEST_NAME:
            return None
        name = frame[start:at].decode()
        partitions, index = _PARTITIONS.unpack_from(frame, at)
    except WRONG:
        return None
    if partitions != 1 or len(frame) != at + _PARTITIONS.size:
        return None
    return SingleAdd(version, correlation_id, transactional_id, producer_id, epoch, name, index)


@lru_cache(maxsize=8)
def ended_answers(version: int) -> AnswerTemplate:
    """Return the template of EndTxn's answers: error code, then producer id and epoch (5)."""
    names = ("error_code", "producer_id", "producer_epoch")
    body = encode_response(ApiKey.END_TXN, version, dict(zip(names, _SAMPLE, strict=True)))
    if version < _PRODUCER_IN_ANSWER:
        return AnswerTemplate(ApiKey.END_TXN, version, body, Struct(">h"), _SAMPLE[:1])
    return AnswerTemplate(ApiKey.END_TXN, version, body, Struct(">hqh"), _SAMPLE)


@lru_cache(maxsize=1024)
def added_answers(version: int, name: str) -> AnswerTemplate:
    """Return the template of AddPartitionsToTxn's answers for one partition: index, error code."""
    index, error_code = _SAMPLE_ADDED
    partition = {"partition_index": index, "partition_error_code": error_code}
    topic = {"name": name, "results_by_partition": [partition]}
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    body = encode_response(key, version, {"results_by_topic_v3_and_below": [topic]})
    return AnswerTemplate(key, version, body, Struct(">ih"), _SAMPLE_ADDED)
