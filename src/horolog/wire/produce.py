"""Encoder of the Produce response, written by hand because it is on the hot path.

v0   topics[name, partitions[index i32, error_code i16, base_offset i64]]
v1   throttle_time_ms i32, after the topics
v2   log_append_time_ms i64: the append time, or -1 where the topic keeps create time (KIP-32)
v5   log_start_offset i64
v8   record_errors[batch_index i32, message], error_message (KIP-467)
v9   compact lengths, tagged fields
v10  tagged: current_leader of a partition, node_endpoints of the response (KIP-951)
v13  topics by id
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from horolog.errors import RecordError
from horolog.wire.api import ApiKey
from horolog.wire.leaders import CurrentLeader, NodeEndpoint, current_leader_field, nodes_field
from horolog.wire.packing import INT32, compact_string, string, tagged, uuid_bytes, uvarint
from horolog.wire.templates import AnswerTemplate

__all__ = ["ProducedPartition", "ProducedTopic", "encode_produce_response", "single_answers"]

_PARTITION_V0: Final = Struct(">ihq")
_PARTITION_V2: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
_NOTHING_MORE: Final = {8: b"\x00\x00\x00\x00\xff\xff", 9: b"\x01\x00\x00"}


class ProducedPartition(NamedTuple):
    """Result for one partition's batch; times in milliseconds, -1 if absent."""

    partition_index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


_SAMPLE: Final = ProducedPartition(0x0102_0304, 0, 0x0102_0304_0506_0708, -2, -3)


class ProducedTopic(NamedTuple):
    """A topic of the response; versions from 13 send `topic_id` instead of the name."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[ProducedPartition]


def encode_produce_response(
    version: int,
    topics: Sequence[ProducedTopic],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
    checkpoint: Callable[[], None] | None = None,
) -> bytes:
    """Encode the body; `checkpoint` is called between partitions, and may raise."""
    is_flexible = version >= 9
    out = bytearray()
    out += uvarint(len(topics) + 1) if is_flexible else INT32.pack(len(topics))
    for topic in topics:
        if version >= 13:
            out += uuid_bytes(topic.topic_id)
        else:
            out += compact_string(topic.name) if is_flexible else string(topic.name)
        count = len(topic.partitions)
        out += uvarint(count + 1) if is_flexible else INT32.pack(count)
        for partition in topic.partitions:
            if checkpoint is not None:
                checkpoint()
            _partition(out, version, partition)
        if is_flexible:
            out.append(0)
    if version >= 1:
        out += INT32.pack(throttle_time_ms)
    if is_flexible:
        out += nodes_field(node_endpoints) if version >= 10 else b"\x00"
    return bytes(out)


@lru_cache(maxsize=1024)
def single_answers(version: int, name: str, topic_id: UUID | None) -> AnswerTemplate:
    """Return the template of answers for one partition that was appended to, from version 5.

    The numbers are the partition's index, 0 for no error, the base offset, the append time in
    milliseconds, and the log start offset.
    """
    body = encode_produce_response(version, [ProducedTopic(name, topic_id, [_SAMPLE])])
    return AnswerTemplate(ApiKey.PRODUCE, version, body, _PARTITION_V5, _SAMPLE[:5])


def _partition(out: bytearray, version: int, it: ProducedPartition) -> None:
    if version >= 5:
        out += _PARTITION_V5.pack(*it[:5])
    elif version >= 2:
        out += _PARTITION_V2.pack(*it[:4])
    else:
        out += _PARTITION_V0.pack(*it[:3])
    if version < 8:
        return
    if not it.record_errors and it.error_message is None and it.current_leader is None:
        out += _NOTHING_MORE[9 if version >= 9 else 8]
        return
    is_flexible = version >= 9
    count = len(it.record_errors)
    out += uvarint(count + 1) if is_flexible else INT32.pack(count)
    for batch_index, message in it.record_errors:
        out += INT32.pack(batch_index)
        out += compact_string(message) + b"\x00" if is_flexible else string(message)
    out += compact_string(it.error_message) if is_flexible else string(it.error_message)
    if version >= 10 and it.current_leader is not None:
        out += tagged(current_leader_field(0, it.current_leader))
    elif is_flexible:
        out.append(0)
