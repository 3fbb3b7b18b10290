"""Records of Apache Kafka's metadata log, `__cluster_metadata`, of all versions up to 4.4.

A record is the value of a log record without a key (KIP-631):

    uvarint frame version (1) · uvarint type · uvarint version · fields, all flexible (KIP-482)

Each class below declares one type: its fields in the order of the wire, with their types. `Since`
gives the first version of a field, if it is not 0, and `Tag` its tag. A field that a version lacks
has its default. The `metadata.version` of the cluster determines the versions that are written
(`encode`).

A record of an unknown type is an `Unknown`, and is encoded as it was read. Unknown tagged fields
are dropped, as Kafka's own image drops them.
"""

from functools import lru_cache
from struct import Struct, error
from typing import Annotated, Any, Final, NamedTuple, cast

from horolog.errors import CorruptBatch
from horolog.schemas.declared import (
    F64,
    I8,
    I16,
    I32,
    I64,
    U16,
    Bool,
    Bytes,
    Id,
    Ids,
    Int32s,
    NullableIds,
    NullableInt32s,
    NullableText,
    RecordShape,
    Since,
    Tag,
    Text,
    Texts,
    struct_of,
)
from horolog.schemas.fields import Encoder, Fields, uuid_of

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
"""The feature whose level says which versions of records are written."""
GROUP_VERSION: Final = "group.version"
"""The feature whose level says whether groups may use the consumer protocol (KIP-848)."""
CONSUMER_GROUPS: Final = 1
"""Level of `group.version` with consumer groups."""
NEW_LOG_LEVEL: Final = 30
"""Level of `metadata.version` of a new log, 4.3-IV0: Kafka 4.3 and 4.4 open it."""
NEWEST_LEVEL: Final = 33
"""Newest known level, 4.4-IV2, with which a new cluster of Kafka 4.4 begins."""
OLDEST_LEVEL: Final = 7
"""Oldest level that Kafka 4 opens, 3.3-IV3."""
NO_CHANGE: Final = -2
"""Leader of a `PartitionChange` that does not change the leader."""

_FRAME: Final = 1


class BrokerEndpoint(NamedTuple):
    """Address on which a broker or a controller listens."""

    name: Text
    host: Text
    port: U16
    security_protocol: I16 = 0


class Supported(NamedTuple):
    """The levels of a feature that a node supports."""

    name: Text
    min_level: I16
    max_level: I16


class QuotaEntity(NamedTuple):
    """A part of the entity of a quota: `user`, `client-id` or `ip`; name None is the default."""

    type: Text
    name: NullableText


Endpoints = Annotated[tuple[BrokerEndpoint, ...], struct_of(BrokerEndpoint)]
AllSupported = Annotated[tuple[Supported, ...], struct_of(Supported)]
Entities = Annotated[tuple[QuotaEntity, ...], struct_of(QuotaEntity)]


class RegisterBroker(NamedTuple):
    """Registration of a broker's process."""

    broker_id: I32
    is_migrating: Annotated[Bool, Since(2)]
    incarnation_id: Id
    broker_epoch: I64
    endpoints: Endpoints
    features: AllSupported
    rack: NullableText = None
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, Since(1)] = False
    log_dirs: Annotated[Ids, Tag(0, 3)] = ()
    cordoned: Annotated[NullableIds, Tag(1, 4)] = None


class UnregisterBroker(NamedTuple):
    """Removal of a broker's registration."""

    broker_id: I32
    broker_epoch: I64


class TopicRecord(NamedTuple):
    """Creation of a topic; its partitions follow."""

    name: Text
    topic_id: Id


class PartitionRecord(NamedTuple):
    """All fields of a partition."""

    partition: I32
    topic_id: Id
    replicas: Int32s
    isr: Int32s
    removing: Int32s
    adding: Int32s
    leader: I32
    recovery_state: Annotated[I8, Tag(0)] = 0
    leader_epoch: I32 = -1
    partition_epoch: I32 = -1
    directories: Annotated[Ids, Since(1)] = ()
    elr: Annotated[NullableInt32s, Tag(1, 2)] = None
    last_known_elr: Annotated[NullableInt32s, Tag(2, 2)] = None


class Config(NamedTuple):
    """A setting of a topic (2), a broker (4; "" for all), client metrics (16), a group (32)."""

    resource_type: I8
    resource: Text
    name: Text
    value: NullableText
    """None removes it."""


class PartitionChange(NamedTuple):
    """Change of a partition; fields that are None stay as they are."""

    partition: I32
    topic_id: Id
    isr: Annotated[NullableInt32s, Tag(0)] = None
    leader: Annotated[I32, Tag(1)] = NO_CHANGE
    replicas: Annotated[NullableInt32s, Tag(2)] = None
    removing: Annotated[NullableInt32s, Tag(3)] = None
    adding: Annotated[NullableInt32s, Tag(4)] = None
    recovery_state: Annotated[I8, Tag(5)] = -1
    directories: Annotated[NullableIds, Tag(8, 1)] = None
    elr: Annotated[NullableInt32s, Tag(6, 2)] = None
    last_known_elr: Annotated[NullableInt32s, Tag(7, 2)] = None


class FenceBroker(NamedTuple):
    """Fencing of a broker; written by early releases only."""

    broker_id: I32
    broker_epoch: I64


class UnfenceBroker(NamedTuple):
    """End of the fencing of a broker; written by early releases only."""

    broker_id: I32
    broker_epoch: I64


class RemoveTopic(NamedTuple):
    """Deletion of a topic, with its partitions and settings."""

    topic_id: Id


class DelegationToken(NamedTuple):
    """A delegation token, without its secret part."""

    owner: Text
    requester: Text
    renewers: Texts
    issued_ms: I64
    max_ms: I64
    expires_ms: I64
    token_id: Text


class ScramCredential(NamedTuple):
    """Data with which a user's password is verified (SCRAM)."""

    name: Text
    mechanism: I8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: I32


class FeatureLevel(NamedTuple):
    """Finalised level of a feature; 0 removes it."""

    name: Text
    level: I16


class ClientQuota(NamedTuple):
    """Setting or removal of a quota."""

    entity: Entities
    key: Text
    value: F64
    remove: Bool = False


class ProducerIdsRecord(NamedTuple):
    """Allocation of producer ids: all below `next_producer_id` are allocated."""

    broker_id: I32
    broker_epoch: I64
    next_producer_id: I64


class BrokerChange(NamedTuple):
    """Change of a broker's registration; fields with their defaults stay as they are."""

    broker_id: I32
    broker_epoch: I64
    fenced: Annotated[I8, Tag(0)] = 0
    """1 fenced, -1 unfenced."""
    in_controlled_shutdown: Annotated[I8, Tag(1, 1)] = 0
    log_dirs: Annotated[Ids, Tag(2, 2)] = ()
    cordoned: Annotated[NullableIds, Tag(3, 3)] = None


class AccessControlEntry(NamedTuple):
    """An access control entry."""

    entry_id: Id
    resource_type: I8
    resource: Text
    pattern_type: I8
    principal: Text
    host: Text
    operation: I8
    permission: I8


class RemoveAccessControlEntry(NamedTuple):
    """Removal of an access control entry."""

    entry_id: Id


class NoOp(NamedTuple):
    """Sign of life of an idle controller."""


class ZkMigrationState(NamedTuple):
    """State of a migration from ZooKeeper; 0 is none."""

    state: I8


class RemoveScramCredential(NamedTuple):
    """Removal of a credential."""

    name: Text
    mechanism: I8


class BeginTransaction(NamedTuple):
    """Begin of records that count once `EndTransaction` follows (KIP-868)."""

    name: Annotated[NullableText, Tag(0)] = None


class EndTransaction(NamedTuple):
    """Commit of the records since `BeginTransaction`."""


class AbortTransaction(NamedTuple):
    """Abort of the records since `BeginTransaction`."""

    reason: Annotated[NullableText, Tag(0)] = None


class RemoveDelegationToken(NamedTuple):
    """Removal of a delegation token."""

    token_id: Text


class RegisterController(NamedTuple):
    """Registration of a controller's process."""

    controller_id: I32
    incarnation_id: Id
    is_migration_ready: Bool
    endpoints: Endpoints
    features: AllSupported


class UnregisterController(NamedTuple):
    """Removal of a controller's registration; written from level 33 on."""

    controller_id: I32


class ClearElr(NamedTuple):
    """Reset of the eligible leader replicas of a topic, or of all topics ("") (KIP-966)."""

    topic: Text


class Unknown(NamedTuple):
    """A record of an unknown type."""

    type: int
    data: bytes
    """The whole record, frame included."""


Record = (
    RegisterBroker
    | UnregisterBroker
    | TopicRecord
    | PartitionRecord
    | Config
    | PartitionChange
    | FenceBroker
    | UnfenceBroker
    | RemoveTopic
    | DelegationToken
    | ScramCredential
    | FeatureLevel
    | ClientQuota
    | ProducerIdsRecord
    | BrokerChange
    | AccessControlEntry
    | RemoveAccessControlEntry
    | NoOp
    | ZkMigrationState
    | RemoveScramCredential
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
    | RemoveDelegationToken
    | RegisterController
    | ClearElr
    | UnregisterController
    | Unknown
)

# Number, class, and from which level of `metadata.version` on each version above 0 is written.
_WITH_SHUTDOWN, _WITH_MIGRATION, _WITH_DIRECTORIES, _WITH_ELR, _WITH_CORDONED = 7, 8, 17, 23, 30
_TYPES: Final[dict[int, tuple[type[Any], tuple[int, ...]]]] = {
    0: (RegisterBroker, (_WITH_SHUTDOWN, _WITH_MIGRATION, _WITH_DIRECTORIES, _WITH_CORDONED)),
    1: (UnregisterBroker, ()),
    2: (TopicRecord, ()),
    3: (PartitionRecord, (_WITH_DIRECTORIES, _WITH_ELR)),
    4: (Config, ()),
    5: (PartitionChange, (_WITH_DIRECTORIES, _WITH_ELR)),
    7: (FenceBroker, ()),
    8: (UnfenceBroker, ()),
    9: (RemoveTopic, ()),
    10: (DelegationToken, ()),
    11: (ScramCredential, ()),
    12: (FeatureLevel, ()),
    14: (ClientQuota, ()),
    15: (ProducerIdsRecord, ()),
    17: (BrokerChange, (_WITH_SHUTDOWN, _WITH_DIRECTORIES, _WITH_CORDONED)),
    18: (AccessControlEntry, ()),
    19: (RemoveAccessControlEntry, ()),
    20: (NoOp, ()),
    21: (ZkMigrationState, ()),
    22: (RemoveScramCredential, ()),
    23: (BeginTransaction, ()),
    24: (EndTransaction, ()),
    25: (AbortTransaction, ()),
    26: (RemoveDelegationToken, ()),
    27: (RegisterController, ()),
    28: (ClearElr, ()),
    29: (UnregisterController, ()),
}
_SHAPES = {
    number: (RecordShape(record), len(levels)) for number, (record, levels) in _TYPES.items()
}
_NUMBERS = {record: (number, levels) for number, (record, levels) in _TYPES.items()}

# A partition with one replica and no tagged fields: most of what a single node reads.
_ONE_REPLICA = Struct(">BBBi16sBiBiBBiiiB16sB")
_OF_ONE_REPLICA = (2, 2, 1, 1, 2, 0)
_one_number = lru_cache(1024)(lambda number: (number,))
_one_uuid = lru_cache(1024)(lambda data: (uuid_of(data),))


def decode(value: bytes) -> Record:
    """Read one record.

    Raises:
        CorruptBatch: the value is no such record, or of an unknown version of a known type.
    """
    if len(value) == _ONE_REPLICA.size and value[1] == 3:
        partition = _partition(value)
        if partition is not None:
            return partition
    fields = Fields(value)
    frame, number, version = fields.unsigned(), fields.unsigned(), fields.unsigned()
    if frame != _FRAME:
        raise CorruptBatch(f"a metadata record has a frame of version {frame}; known is {_FRAME}")
    known = _SHAPES.get(number)
    if known is None:
        return Unknown(number, value)
    shape, newest = known
    if version > newest:
        raise CorruptBatch(
            f"a metadata record of type {number} has version {version}; known are 0 to {newest}"
        )
    record: Record = shape.read(version, fields)
    fields.check_end(f"a metadata record of type {number}")
    return record


def _partition(value: bytes) -> PartitionRecord | None:
    """Read a `PartitionRecord` of one replica; None if it has another shape."""
    (
        frame, _, version, number, topic_id, replica_count, replica, isr_count, in_sync, removing,
        adding, leader, leader_epoch, epoch, directory_count, directory, tags,
    ) = _ONE_REPLICA.unpack(value)  # fmt: skip
    if (
        (replica_count, isr_count, removing, adding, directory_count, tags) != _OF_ONE_REPLICA
        or frame != _FRAME
        or version not in (1, 2)
    ):
        return None
    return PartitionRecord(
        number, uuid_of(topic_id), _one_number(replica), _one_number(in_sync), (), (), leader, 0,
        leader_epoch, epoch, _one_uuid(directory),
    )  # fmt: skip


def encode(record: Record, metadata_version: int = NEWEST_LEVEL) -> bytes:
    """Return the bytes of a record, in the version of this level of `metadata.version`.

    Fields that the version lacks are dropped.

    Raises:
        ValueError: a number does not fit its field.
    """
    if isinstance(record, Unknown):
        return record.data
    number, levels = _NUMBERS[cast("type[Any]", type(record))]
    version = sum(metadata_version >= level for level in levels)
    to = Encoder().unsigned(_FRAME).unsigned(number).unsigned(version)
    try:
        _SHAPES[number][0].write(version, record, to)
    except error as what:
        raise ValueError(f"{record!r:.200} cannot be encoded: {what}") from None
    return bytes(to)
