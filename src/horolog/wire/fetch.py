"""Encoder of the Fetch response, written by hand around the records, which are never copied.

v0   topics[name, partitions[index i32, error_code i16, high_watermark i64, records bytes]]
v1   throttle_time_ms i32, before the topics
v4   last_stable_offset i64, aborted_transactions[producer_id i64, first_offset i64] or null, before
     the records
v5   log_start_offset i64, after last_stable_offset
v7   error_code i16, session_id i32, after throttle_time_ms
v11  preferred_read_replica i32, before the records
v12  compact lengths; tagged: diverging_epoch and current_leader of a partition
v13  topics by id
v16  tagged: node_endpoints of the response (KIP-951)

No version names a replica to be read.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from horolog.buffers import Buffer
from horolog.wire.leaders import CurrentLeader, NodeEndpoint, current_leader_field, nodes_field
from horolog.wire.other_versions import CLOCK_TAG
from horolog.wire.packing import INT32, INT64, compact_string, string, tagged, uuid_bytes, uvarint

__all__ = [
    "READ_COMMITTED",
    "DivergingEpoch",
    "FetchedAbort",
    "FetchedPartition",
    "FetchedTopic",
    "encode_fetch_response",
]

READ_COMMITTED: Final = 1
"""The isolation level of a consumer with `isolation.level=read_committed`."""

_TOP_V7: Final = Struct(">ihi")
_PARTITION_V0: Final = Struct(">ihq")
_PARTITION_V4: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_NO_REPLICA: Final = INT32.pack(-1)
_DIVERGING: Final = Struct(">iqx")
_NODES_SINCE: Final = 16


class FetchedAbort(NamedTuple):
    """An aborted transaction, whose records a `read_committed` consumer skips."""

    producer_id: int
    first_offset: int


class DivergingEpoch(NamedTuple):
    """Largest leader epoch that a replica and its leader share, and where it ends there."""

    epoch: int
    end_offset: int


class FetchedPartition(NamedTuple):
    """Result for one partition; the defaults make an error response."""

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    aborted_transactions: Sequence[FetchedAbort] | None = None  # null: read uncommitted
    diverging: DivergingEpoch | None = None
    current_leader: CurrentLeader | None = None


class FetchedTopic(NamedTuple):
    """A topic of the response; versions from 13 send `topic_id` instead of the name."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[FetchedPartition]


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
    append_clock_ms: int | None = None,
    checkpoint: Callable[[], None] | None = None,
) -> list[Buffer]:
    """Encode the body as buffers to send in order; records are passed through uncopied.

    Args:
        append_clock_ms: this broker's clock of append times, for a replica of horolog.
        checkpoint: called between partitions, and may raise.
    """
    is_flexible = version >= 12
    parts: list[Buffer] = []
    out = bytearray()
    if version >= 7:
        out += _TOP_V7.pack(throttle_time_ms, error_code, session_id)
    elif version >= 1:
        out += INT32.pack(throttle_time_ms)
    out += _count(is_flexible, len(topics))
    for topic in topics:
        if version >= 13:
            out += uuid_bytes(topic.topic_id)
        else:
            out += compact_string(topic.name) if is_flexible else string(topic.name)
        out += _count(is_flexible, len(topic.partitions))
        for partition in topic.partitions:
            if checkpoint is not None:
                checkpoint()
            _before_records(out, version, partition)
            if len(partition.records):
                parts += (out, partition.records)
                out = bytearray()
            if is_flexible:
                if partition.diverging is None and partition.current_leader is None:
                    out.append(0)
                else:
                    out += _tags(partition)
        if is_flexible:
            out.append(0)
    if is_flexible:
        nodes = node_endpoints if version >= _NODES_SINCE else ()
        clock = () if append_clock_ms is None else ((CLOCK_TAG, INT64.pack(append_clock_ms)),)
        out += nodes_field(nodes, *clock)
    if out:
        parts.append(out)
    return parts


def _before_records(out: bytearray, version: int, it: FetchedPartition) -> None:
    """Encode a partition up to and including the length of its records."""
    if version < 4:
        out += _PARTITION_V0.pack(*it[:3]) + INT32.pack(len(it.records))
        return
    is_flexible = version >= 12
    out += _PARTITION_V5.pack(*it[:5]) if version >= 5 else _PARTITION_V4.pack(*it[:4])
    if it.aborted_transactions is None:
        out += b"\x00" if is_flexible else b"\xff\xff\xff\xff"
    else:
        out += _count(is_flexible, len(it.aborted_transactions))
        for aborted in it.aborted_transactions:
            out += _ABORTED.pack(*aborted)
            if is_flexible:
                out.append(0)
    if version >= 11:
        out += _NO_REPLICA
    out += _count(is_flexible, len(it.records))


def _tags(it: FetchedPartition) -> bytes:
    """Encode the tagged fields of a partition."""
    fields = []
    if it.diverging is not None:
        fields.append((0, _DIVERGING.pack(*it.diverging)))
    if it.current_leader is not None:
        fields.append(current_leader_field(1, it.current_leader))
    return tagged(*fields)


def _count(is_flexible: bool, count: int) -> bytes:
    return uvarint(count + 1) if is_flexible else INT32.pack(count)
