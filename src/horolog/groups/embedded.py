"""Messages of the classic protocol that consumers send each other through the broker.

A JoinGroup carries a subscription for each assignor, a SyncGroup an assignment. Each begins with
its version; fields of later versions than are known here are left out.

    subscription    i16 version · topics · user data · partitions owned (1+) · i32 generation (2+)
                    · string? rack (3+)
    assignment      i16 version · partitions by topic · user data

Source: KIP-429, KIP-792, KIP-881; ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from typing import Annotated, Final, NamedTuple

from horolog.errors import CorruptBatch
from horolog.schemas.declared import (
    I32,
    Int32s,
    Kind,
    NullableText,
    RecordShape,
    Since,
    Text,
    Texts,
    struct_of,
)
from horolog.schemas.fields import Encoder, Fields

_NEWEST: Final = 3

NullableBytes = Annotated[bytes | None, Kind(Fields.data, Encoder.data, None)]


class NamedPartitions(NamedTuple):
    """Partitions of a topic."""

    topic: Text
    partitions: Int32s = ()


class Subscription(NamedTuple):
    """Topics that a member wants, and the partitions that it has."""

    topics: Texts = ()
    user_data: NullableBytes = None
    owned: Annotated[tuple[NamedPartitions, ...], struct_of(NamedPartitions), Since(1)] = ()
    generation: Annotated[I32, Since(2)] = -1
    rack_id: Annotated[NullableText, Since(3)] = None


class ClassicAssignment(NamedTuple):
    """Partitions that the leader gave a member."""

    topics: Annotated[tuple[NamedPartitions, ...], struct_of(NamedPartitions)] = ()
    user_data: NullableBytes = None


_SUBSCRIPTION: Final = RecordShape(Subscription)
_ASSIGNMENT: Final = RecordShape(ClassicAssignment)


def version_of(metadata: bytes) -> int:
    """Return the version of a subscription or an assignment.

    Raises:
        CorruptBatch: it is too short, or has none.
    """
    version = Fields(metadata, is_flexible=False).i16()
    if version < 0:
        raise CorruptBatch(f"a subscription of version {version}")
    return min(version, _NEWEST)


def read_subscription(metadata: bytes) -> Subscription:
    """Read a subscription.

    Raises:
        CorruptBatch: it is none.
    """
    fields = Fields(metadata, is_flexible=False)
    fields.i16()
    value: Subscription = _SUBSCRIPTION.read(version_of(metadata), fields)
    return value


def read_assignment(data: bytes) -> ClassicAssignment:
    """Read an assignment; empty bytes, of a member that has none, are an empty one.

    Raises:
        CorruptBatch: it is none.
    """
    if not data:
        return ClassicAssignment()
    fields = Fields(data, is_flexible=False)
    fields.i16()
    value: ClassicAssignment = _ASSIGNMENT.read(version_of(data), fields)
    return value


def assignment_bytes(value: ClassicAssignment, version: int) -> bytes:
    """Return an assignment in a version."""
    to = Encoder(is_flexible=False).i16(version)
    _ASSIGNMENT.write(version, value, to)
    return bytes(to)
