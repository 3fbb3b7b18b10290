"""Records of `__consumer_offsets`: committed offsets and groups, as Kafka 4.4 has them.

key    i16 type · fields, never flexible (KIP-482)
       0, 1  string group · string topic · i32 partition      a committed offset
       2     string group                                     a classic group
       3-8, 16                                                a consumer group: group_records.py
       else  unknown here: groups of KIP-932 and KIP-1071; they are skipped, and kept

value  i16 version · fields, flexible from version 4 on; null removes what the key names

       of an offset (0 to 4)
           i64 offset · i32 leader epoch (3+) · string metadata · i64 commit time
           i64 expiry time (1 only) · tag 0: uuid topic id (4+)
       of a group (0 to 4)
           string protocol type · i32 generation · string? protocol · string? leader
           i64 time of the last change (2+) · array of members:
               string member id · string? instance id (3+) · string client id · string host
               i32 rebalance timeout (1+) · i32 session timeout · bytes subscription, assignment

Which partition has a group follows from the hash of its name (`partition_for`).
"""

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from struct import Struct
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from horolog.errors import CorruptBatch
from horolog.schemas.declared import (
    I32,
    I64,
    Bytes,
    Kind,
    NullableText,
    RecordShape,
    Since,
    Text,
    struct_of,
)
from horolog.schemas.fields import Encoder, Fields, there
from horolog.schemas.group_records import GroupRecordKey, group_key_bytes, read_group_key

_OFFSET_TYPES: Final = (0, 1)
_OFFSET_TYPE: Final = 1
_GROUP_TYPE: Final = 2
NEWEST: Final = 4
"""The version of the values that are written."""
_FLEXIBLE: Final = 4
_WITH_EXPIRY: Final = 1
_GROUP_VERSION: Final = 3
"""Version that Kafka 4.4 writes; it reads the next one after a downgrade (KIP-915)."""
_NIL: Final = UUID(int=0)
_TOPIC_ID_TAG: Final = 0
_NO_TIME: Final = -1
_MASK: Final = (1 << 32) - 1
_LOWEST: Final = 1 << 31
_POWERS: Final = tuple(pow(31, power, 1 << 32) for power in range(255, -1, -1))
_UTF_16: Final = f"utf-16-{sys.byteorder[0]}e"

_SHORT_TEXT: Final = 127
"""Bytes of a compact string whose length is one byte."""
_KEY_HEAD: Final = Struct(">hh")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_COMMITTED: Final = Struct(">hqiB")  # with the length of the metadata
_COMMITTED_MS: Final = Struct(">q")
_NO_TAGS: Final = b"\0"
_TOPIC_ID_HEAD: Final = bytes([1, _TOPIC_ID_TAG, 16])


class OffsetKey(NamedTuple):
    """Group, topic and partition of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Id of a classic group."""

    group: str


class CommittedValue(NamedTuple):
    """A committed offset; times in milliseconds."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = _NO_TIME
    expire_ms: int | None = None
    """Expiry time from clients before 2.1; records with an expiry time have no leader epoch."""
    topic_id: UUID | None = None
    """Id of the topic; None from releases that do not write it."""


class MemberValue(NamedTuple):
    """A member of a classic group."""

    member_id: Text
    instance_id: Annotated[NullableText, Since(3)]
    client_id: Text
    client_host: Text
    rebalance_timeout_ms: Annotated[int, Kind(Fields.i32, Encoder.i32, -1), Since(1)]
    session_timeout_ms: I32
    subscription: Bytes
    assignment: Bytes


class GroupValue(NamedTuple):
    """A classic group after its last rebalance, or empty."""

    protocol_type: Text
    generation: I32
    protocol: NullableText = None
    leader: NullableText = None
    changed_ms: Annotated[I64, Since(2)] = _NO_TIME
    members: Annotated[tuple[MemberValue, ...], struct_of(MemberValue)] = ()


Key = OffsetKey | GroupKey | GroupRecordKey
_GROUP: Final = RecordShape(GroupValue)


@lru_cache(maxsize=1024)
def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that has a group: its coordinator leads it.

    The hash is Java's `String.hashCode` over UTF-16, with the absolute value of Kafka's
    `Utils.abs`.
    """
    if group_id.isascii():
        units: Sequence[int] = group_id.encode()
    else:
        units = array("H", group_id.encode(_UTF_16, "surrogatepass"))
    hashed: int
    if len(units) <= len(_POWERS):
        hashed = sum(map(mul, units, _POWERS[-len(units) :])) & _MASK
    else:
        hashed = 0
        for unit in units:
            hashed = 31 * hashed + unit & _MASK
    if hashed >= _LOWEST:
        hashed = 0 if hashed == _LOWEST else (1 << 32) - hashed
    return hashed % partitions


# --- keys ---------------------------------------------------------------------------------


def read_key(data: bytes) -> Key | None:
    """Return the subject of a record; None if its key is of an unknown type.

    Raises:
        CorruptBatch: the key is of a known type, and ends too early or too late.
    """
    fields = Fields(data, is_flexible=False)
    kind = fields.i16()
    key: Key | None
    if kind in _OFFSET_TYPES:
        key = OffsetKey(there(fields.text()), there(fields.text()), fields.i32())
    elif kind == _GROUP_TYPE:
        key = GroupKey(there(fields.text()))
    elif (key := read_group_key(kind, fields)) is None:
        return None
    fields.check_end("a key of __consumer_offsets")
    return key


def key_bytes(key: Key) -> bytes:
    """Return a key as Kafka 4.4 writes it.

    Raises:
        struct.error: a text is longer than 32,767 bytes, or the partition does not fit its field.
    """
    if isinstance(key, OffsetKey):
        group, topic = key.group.encode(), key.topic.encode()
        head = _KEY_HEAD.pack(_OFFSET_TYPE, len(group))
        return head + group + _I16.pack(len(topic)) + topic + _I32.pack(key.partition)
    if isinstance(key, GroupKey):
        group = key.group.encode()
        return _KEY_HEAD.pack(_GROUP_TYPE, len(group)) + group
    return group_key_bytes(key)


# --- values -------------------------------------------------------------------------------


def read_committed(data: bytes) -> CommittedValue:
    """Read a committed offset, of any version.

    Raises:
        CorruptBatch: the value is no committed offset, or of an unknown version.
    """
    fields = Fields(data)
    version = _version(fields)
    offset = fields.i64()
    leader_epoch = fields.i32() if version >= 3 else -1
    metadata = there(fields.text())
    commit_ms = fields.i64()
    expire_ms = fields.i64() if version == _WITH_EXPIRY else _NO_TIME
    topic_id, tagged = None, fields.tagged().get(_TOPIC_ID_TAG)
    if tagged is not None:
        within = Fields(tagged)
        topic_id = within.uuid()
        within.check_end("a topic id of __consumer_offsets")
    fields.check_end("a committed offset")
    return CommittedValue(
        offset,
        leader_epoch,
        metadata,
        commit_ms,
        None if expire_ms == _NO_TIME else expire_ms,
        None if topic_id == _NIL else topic_id,
    )


def committed_bytes(value: CommittedValue) -> bytes:
    """Return a committed offset as Kafka 4.4 writes it: version 1 with an expiry time, otherwise 4.

    Raises:
        struct.error: a number does not fit its field.
    """
    if value.expire_ms is not None:
        to = Encoder(is_flexible=False).i16(_WITH_EXPIRY).i64(value.offset).text(value.metadata)
        return bytes(to.i64(value.commit_ms).i64(value.expire_ms))
    metadata = value.metadata.encode()
    if len(metadata) < _SHORT_TEXT:
        head = _COMMITTED.pack(NEWEST, value.offset, value.leader_epoch, len(metadata) + 1)
    else:
        to = Encoder().i16(NEWEST).i64(value.offset).i32(value.leader_epoch)
        head = bytes(to.unsigned(len(metadata) + 1))
    tail = value_tail(None if value.topic_id is None else value.topic_id.int)
    return head + metadata + _COMMITTED_MS.pack(value.commit_ms) + tail


def value_tail(topic_id: int | None) -> bytes:
    """Return the tagged fields, which follow the commit time of a committed offset."""
    return _NO_TAGS if topic_id is None else _TOPIC_ID_HEAD + topic_id.to_bytes(16, "big")


def read_group(data: bytes) -> GroupValue:
    """Read a classic group, of any version.

    Raises:
        CorruptBatch: the value is no group, or of an unknown version.
    """
    fields = Fields(data)
    value: GroupValue = _GROUP.read(_version(fields), fields)
    fields.check_end("a group of __consumer_offsets")
    # As Kafka takes it: version 0 has no rebalance timeout.
    members = [
        member._replace(rebalance_timeout_ms=member.session_timeout_ms)
        if member.rebalance_timeout_ms < 0
        else member
        for member in value.members
    ]
    return value._replace(members=tuple(members))


def group_bytes(value: GroupValue) -> bytes:
    """Return a classic group as Kafka 4.4 writes it: version 3.

    Raises:
        struct.error: a number or a text does not fit its field.
    """
    to = Encoder(is_flexible=False).i16(_GROUP_VERSION)
    _GROUP.write(_GROUP_VERSION, value, to)
    return bytes(to)


# --- fields -------------------------------------------------------------------------------


def _version(fields: Fields) -> int:
    version = fields.i16()
    if not 0 <= version <= NEWEST:
        raise CorruptBatch(
            f"a value of __consumer_offsets has version {version}; known are 0 to {NEWEST}"
        )
    fields.is_flexible = version >= _FLEXIBLE
    return version
