"""Records of `__consumer_offsets` that are a consumer group of KIP-848, as Kafka 4.4 has them.

Keys are not flexible: an INT16 type, then strings. Values are flexible, of version 0.

    type  key                       value
    3     GroupEpochKey             epoch of the group, hash of its topics
    4     PartitionMetadataKey      of releases before KIP-1101: kept as bytes, never written
    5     MemberKey                 what a member has subscribed to, and how it is reached
    6     TargetEpochKey            epoch of the target assignment
    7     TargetKey                 target assignment of a member
    8     CurrentKey                what a member has now, and has to give up
    16    PatternKey                topics that a regular expression of the group has found

The order of topics and partitions in a record says nothing; they are sets. Keys of two types with
the same texts are equal, as tuples are: tell them apart by their class.
"""

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias, get_args

from horolog.errors import CorruptBatch
from horolog.schemas.declared import (
    I8,
    I32,
    I64,
    Bytes,
    Id,
    Int32s,
    NullableInt32s,
    NullableText,
    RecordShape,
    Tag,
    Text,
    Texts,
    nullable_struct_of,
    struct_of,
)
from horolog.schemas.fields import Encoder, Fields, there

_VERSION: Final = 0

# --- keys ---------------------------------------------------------------------------------


class GroupEpochKey(NamedTuple):
    """Id of a consumer group."""

    group: str


class PartitionMetadataKey(NamedTuple):
    """Group whose topics an earlier release has described; a tombstone of it is owed."""

    group: str


class MemberKey(NamedTuple):
    """Member of a consumer group."""

    group: str
    member: str


class TargetEpochKey(NamedTuple):
    """Group that has a target assignment."""

    group: str


class TargetKey(NamedTuple):
    """Member that has a target assignment."""

    group: str
    member: str


class CurrentKey(NamedTuple):
    """Member that has a current assignment."""

    group: str
    member: str


class PatternKey(NamedTuple):
    """Regular expression to which members of a group are subscribed."""

    group: str
    regex: str


# --- values -------------------------------------------------------------------------------


class GroupEpochValue(NamedTuple):
    """Epoch of a consumer group."""

    epoch: I32
    metadata_hash: Annotated[I64, Tag(0)] = 0


class ClassicProtocol(NamedTuple):
    """Assignor of a classic member, with its subscription."""

    name: Text
    metadata: Bytes


class ClassicMetadata(NamedTuple):
    """Session timeout and protocols of a member of the classic protocol."""

    session_timeout_ms: I32 = 0
    protocols: Annotated[tuple[ClassicProtocol, ...], struct_of(ClassicProtocol)] = ()


class MemberMetadataValue(NamedTuple):
    """Subscription and client of a member."""

    instance_id: NullableText
    rack_id: NullableText
    client_id: Text
    client_host: Text
    topics: Texts
    regex: NullableText
    rebalance_timeout_ms: I32
    assignor: NullableText
    classic: Annotated[ClassicMetadata | None, nullable_struct_of(ClassicMetadata), Tag(0)]
    """None of a member of the consumer protocol, which is written: Kafka takes a record that lacks
    the field for one of a classic member without protocols."""


class TargetEpochValue(NamedTuple):
    """Epoch of the target assignment, and the time when it was computed."""

    epoch: I32
    timestamp_ms: Annotated[I64, Tag(0)] = 0


class TargetPartitions(NamedTuple):
    """Partitions of a topic."""

    topic_id: Id
    partitions: Int32s = ()


class TargetValue(NamedTuple):
    """Partitions that a member is to have."""

    topics: Annotated[tuple[TargetPartitions, ...], struct_of(TargetPartitions)] = ()


class AssignedTopic(NamedTuple):
    """Partitions of a topic that a member has."""

    topic_id: Id
    partitions: Int32s = ()
    epochs: Annotated[NullableInt32s, Tag(0)] = None
    """Epoch in which the member got each; None from releases before 4.3 (KIP-1251)."""


class CurrentValue(NamedTuple):
    """Epochs of a member, partitions that it has, and those that it has to give up."""

    epoch: I32
    previous_epoch: I32
    state: I8
    assigned: Annotated[tuple[AssignedTopic, ...], struct_of(AssignedTopic)] = ()
    pending: Annotated[tuple[AssignedTopic, ...], struct_of(AssignedTopic)] = ()


class PatternValue(NamedTuple):
    """Topics that a regular expression has found, at an offset of the metadata log."""

    topics: Texts
    version: I64
    timestamp_ms: I64


GroupRecordKey: TypeAlias = (
    GroupEpochKey
    | PartitionMetadataKey
    | MemberKey
    | TargetEpochKey
    | TargetKey
    | CurrentKey
    | PatternKey
)
GroupRecordValue: TypeAlias = (
    GroupEpochValue
    | bytes
    | MemberMetadataValue
    | TargetEpochValue
    | TargetValue
    | CurrentValue
    | PatternValue
)

_KEYS: Final[Mapping[int, type[GroupRecordKey]]] = {
    **dict(enumerate(get_args(GroupRecordKey)[:-1], 3)),
    16: PatternKey,
}
_TYPES: Final = {key: number for number, key in _KEYS.items()}
_SHAPES: Final[Mapping[type[GroupRecordKey], RecordShape]] = {
    GroupEpochKey: RecordShape(GroupEpochValue),
    MemberKey: RecordShape(MemberMetadataValue),
    TargetEpochKey: RecordShape(TargetEpochValue),
    TargetKey: RecordShape(TargetValue),
    CurrentKey: RecordShape(CurrentValue),
    PatternKey: RecordShape(PatternValue),
}


def read_group_key(number: int, fields: Fields) -> GroupRecordKey | None:
    """Read the texts of a key of a type; return None if the type is not one of these.

    Raises:
        CorruptBatch: the key ends too early, or a text is null.
    """
    kind = _KEYS.get(number)
    return None if kind is None else kind(*(there(fields.text()) for _ in kind._fields))


def group_key_bytes(key: GroupRecordKey) -> bytes:
    """Return a key as Kafka 4.4 writes it.

    Raises:
        struct.error: a text is longer than 32,767 bytes.
    """
    to = Encoder(is_flexible=False).i16(_TYPES[type(key)])
    for text in key:
        to.text(text)
    return bytes(to)


def read_value(key: GroupRecordKey, data: bytes) -> GroupRecordValue:
    """Read the value of a key.

    Raises:
        CorruptBatch: the value is none of this key, or of an unknown version.
    """
    shape = _SHAPES.get(type(key))
    if shape is None:
        return data
    fields = Fields(data)
    if (version := fields.i16()) != _VERSION:
        raise CorruptBatch(f"a record of a consumer group has version {version}; known is 0")
    value: GroupRecordValue = shape.read(_VERSION, fields)
    fields.check_end("a record of a consumer group")
    if isinstance(value, CurrentValue):
        for topic in (*value.assigned, *value.pending):
            if topic.epochs is not None and len(topic.epochs) != len(topic.partitions):
                raise CorruptBatch("a record of a consumer group lacks epochs of partitions")
    return value


def value_bytes(key: GroupRecordKey, value: GroupRecordValue) -> bytes:
    """Return the value of a key as Kafka 4.4 writes it.

    Raises:
        struct.error: a number does not fit its field.
    """
    if isinstance(value, bytes):
        return value
    shape = _SHAPES[type(key)]
    assert isinstance(value, shape.record), f"{type(value).__name__} is no value of {key}"
    to = Encoder().i16(_VERSION)
    shape.write(_VERSION, value, to)
    return bytes(to)


def weight(value: GroupRecordValue | None) -> int:
    """Return how many times as long as a small value this takes to encode, roughly."""
    topics: tuple[TargetPartitions | AssignedTopic, ...] = ()
    if isinstance(value, TargetValue):
        topics = value.topics
    elif isinstance(value, CurrentValue):
        topics = value.assigned + value.pending
    return 1 + len(topics) // 2 + sum(len(topic.partitions) for topic in topics) // 64
