"""Records of `__transaction_state`: one per transactional id, as Kafka 4.4 has them.

key    i16 version (0) · string transactional id; a key of a higher version is skipped, and kept

value  i16 version · fields, flexible in version 1 (KIP-482); null removes the transactional id
       i64 producer id · i16 producer epoch · i32 timeout · i8 status
       array? of topics: string topic · array of i32 partition
       i64 time of the last change · i64 start of the transaction
       tags of version 1 (KIP-890):
           0 i64 previous producer id · 1 i64 next producer id
           2 i16 client's transaction version · 3 i16 next producer epoch

Times are wall-clock milliseconds. Kafka writes version 0 while `transaction.version` is 0, and
version 1 from level 1 on. Which partition has an id follows as for groups (`partition_for`).
"""

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct, pack
from types import MappingProxyType
from typing import Final, NamedTuple

from horolog.errors import CorruptBatch
from horolog.schemas.fields import Encoder, Fields, there

FIRST_FLOW: Final = 0
"""Stored for a client whose transactions keep their epoch when they end."""
SECOND_FLOW: Final = 2
"""The level of `transaction.version` from which on each end bumps the epoch (KIP-890)."""

_NEWEST: Final = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)
_I16, _I64 = Struct(">h"), Struct(">q")
_KEY: Final = Struct(">hh")  # version, length of the id
_HEAD: Final = Struct(">hqhib")  # version, producer id, epoch, timeout, status
_TIMES: Final = Struct(">qq")
_MOST_SHORT: Final = 126  # whose length, and one more, takes one byte
_SHORT: Final = tuple(bytes([length]) for length in range(128))
_INDEXES: Final = tuple(Struct(f">B{count}iB") for count in range(_MOST_SHORT + 1))
"""Layouts of a topic's partitions by their number: number and one more, partitions, no tags."""


class TransactionStatus(IntEnum):
    """State of a transactional id; the numbers are Kafka's."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class TransactionValue(NamedTuple):
    """State of a transactional id; times in milliseconds, -1 for none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    partitions: Mapping[str, tuple[int, ...]] | None = MappingProxyType({})
    """Partitions of an open transaction, by topic; None where the id has no transaction."""
    updated_ms: int = -1
    started_ms: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_version: int = 0
    """The transaction version that the client of this transaction uses."""
    next_producer_epoch: int = -1


def read_transaction_key(data: bytes) -> str | None:
    """Return the transactional id of a record; None if the key is of an unknown version.

    Raises:
        CorruptBatch: the key ends too early or too late.
    """
    fields = Fields(data, is_flexible=False)
    if fields.i16() != 0:
        return None
    transactional_id = there(fields.text())
    fields.check_end("a key of __transaction_state")
    return transactional_id


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id.

    Raises:
        struct.error: the id is longer than 32,767 bytes.
    """
    data = transactional_id.encode()
    return _KEY.pack(0, len(data)) + data


def read_transaction(data: bytes) -> TransactionValue:
    """Read the state of a transactional id, of any version.

    Raises:
        CorruptBatch: the value is no such state, or of an unknown version or status.
    """
    fields = Fields(data)
    version = fields.i16()
    if not 0 <= version <= _NEWEST:
        raise CorruptBatch(
            f"a value of __transaction_state has version {version}; known are 0 and {_NEWEST}"
        )
    fields.is_flexible = version >= 1
    producer_id, epoch, timeout_ms = fields.i64(), fields.i16(), fields.i32()
    status = _status(fields.i8())

    def topic() -> tuple[str, tuple[int, ...]]:
        name, indexes = there(fields.text()), there(fields.array(fields.i32))
        fields.tagged()
        return name, tuple(indexes)

    topics = fields.array(topic)
    updated_ms, started_ms = fields.i64(), fields.i64()
    tagged = fields.tagged()
    fields.check_end("a value of __transaction_state")
    return TransactionValue(
        producer_id,
        epoch,
        timeout_ms,
        status,
        None if topics is None else _by_topic(topics),
        updated_ms,
        started_ms,
        _number(tagged, _PREVIOUS_ID, _I64, -1),
        _number(tagged, _NEXT_ID, _I64, -1),
        _number(tagged, _CLIENT_VERSION, _I16, 0),
        _number(tagged, _NEXT_EPOCH, _I16, -1),
    )


def transaction_bytes(value: TransactionValue) -> bytes:
    """Return the state of a transactional id in version 1.

    Raises:
        struct.error: a number or a text does not fit its field.
    """
    partitions = value.partitions
    parts = [_HEAD.pack(_NEWEST, *value[:4])]
    if partitions is None:
        parts.append(b"\0")
    else:
        parts.append(_length(len(partitions)))
        for name, indexes in partitions.items():
            data, count = name.encode(), len(indexes)
            parts += _length(len(data)), data
            if count <= _MOST_SHORT:
                parts.append(_INDEXES[count].pack(count + 1, *indexes, 0))
            else:
                parts += _length(count), pack(f">{count}iB", *indexes, 0)
    parts.append(_TIMES.pack(value.updated_ms, value.started_ms))
    tagged = _tagged(value)
    parts.append(_SHORT[len(tagged)])
    for tag, number in tagged.items():
        parts += _SHORT[tag], _SHORT[len(number)], number
    return b"".join(parts)


def _length(count: int) -> bytes:
    """Return the length of a text or an array as a varint, increased by one."""
    return _SHORT[count + 1] if count <= _MOST_SHORT else bytes(Encoder().unsigned(count + 1))


def _tagged(value: TransactionValue) -> dict[int, bytes]:
    tagged = {}
    if value.previous_producer_id != -1:
        tagged[_PREVIOUS_ID] = _I64.pack(value.previous_producer_id)
    if value.next_producer_id != -1:
        tagged[_NEXT_ID] = _I64.pack(value.next_producer_id)
    if value.client_version != 0:
        tagged[_CLIENT_VERSION] = _I16.pack(value.client_version)
    if value.next_producer_epoch != -1:
        tagged[_NEXT_EPOCH] = _I16.pack(value.next_producer_epoch)
    return tagged


def _by_topic(topics: list[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    """Return partitions by topic; a topic that is named twice has the partitions of both."""
    partitions: dict[str, tuple[int, ...]] = {}
    for topic, indexes in topics:
        partitions[topic] = partitions.get(topic, ()) + indexes
    return partitions


def _status(number: int) -> TransactionStatus:
    try:
        return TransactionStatus(number)
    except ValueError:
        raise CorruptBatch(f"a value of __transaction_state has status {number}") from None


def _number(tagged: dict[int, bytes], tag: int, shape: Struct, default: int) -> int:
    data = tagged.get(tag)
    if data is None:
        return default
    if len(data) != shape.size:
        raise CorruptBatch(f"tag {tag} of a value of __transaction_state has {len(data)} bytes")
    (value,) = shape.unpack(data)
    return int(value)
