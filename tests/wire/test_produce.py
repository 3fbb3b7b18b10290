"""The hand-packed produce answer, against the packing from kio's schemas."""

from typing import Any
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, RecordError
from horolog.wire import (
    ApiKey,
    CurrentLeader,
    NodeEndpoint,
    ProducedPartition,
    ProducedTopic,
    decode_response,
    encode_produce_response,
    encode_response,
)

VERSIONS = range(14)
TOPIC_ID = UUID("5f2b1c4e-9b1c-4c8e-8a57-000000000007")

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=8)
partitions = st.builds(
    ProducedPartition,
    partition_index=i32,
    error_code=st.sampled_from(list(ErrorCode)),
    base_offset=i64,
    log_append_time_ms=i64,
    log_start_offset=i64,
    record_errors=st.lists(st.builds(RecordError, batch_index=i32, message=texts), max_size=3),
    error_message=st.none() | texts,
    current_leader=st.none() | st.builds(CurrentLeader, st.integers(0, 9), i32),
)
topics = st.builds(
    ProducedTopic,
    name=texts,
    topic_id=st.none() | st.uuids(),
    partitions=st.lists(partitions, max_size=3),
)
nodes = st.lists(st.builds(NodeEndpoint, i32, texts, i32, st.none() | texts), max_size=2)


def as_fields(it: ProducedPartition) -> dict[str, Any]:
    return {
        "index": it.partition_index,
        "error_code": it.error_code,
        "base_offset": it.base_offset,
        "log_append_time_ms": it.log_append_time_ms,
        "log_start_offset": it.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message}
            for index, message in it.record_errors
        ],
        "error_message": it.error_message,
        "current_leader": it.current_leader and it.current_leader._asdict(),
    }


@pytest.mark.parametrize("version", VERSIONS)
@examples(0.25)
@given(topics=st.lists(topics, max_size=3), throttle=i32, nodes=nodes)
def test_every_produce_answer_equals_the_one_packed_from_the_schema(
    version: int, topics: list[ProducedTopic], throttle: int, nodes: list[NodeEndpoint]
) -> None:
    by_schema = encode_response(
        ApiKey.PRODUCE,
        version,
        {
            "responses": [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id,
                    "partition_responses": [as_fields(each) for each in topic.partitions],
                }
                for topic in topics
            ],
            "throttle_time_ms": throttle,
            "node_endpoints": [node._asdict() for node in nodes],
        },
    )
    by_hand = encode_produce_response(
        version, topics, throttle_time_ms=throttle, node_endpoints=nodes
    )
    assert by_hand == by_schema


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_the_append_time_reaches_the_client_to_the_millisecond(version: int) -> None:
    partition = ProducedPartition(3, base_offset=17, log_append_time_ms=1_700_000_000_123)
    body = encode_produce_response(version, [ProducedTopic("clicks", TOPIC_ID, [partition])])
    answer = decode_response(ApiKey.PRODUCE, version, body)
    (got,) = answer.responses[0].partition_responses
    assert (got.index, got.base_offset, got.log_append_time_ms) == (3, 17, 1_700_000_000_123)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "00000001 0003 666f6f 00000001 00000007 0023 ffffffffffffffff"),
        (1, "00000001 0003 666f6f 00000001 00000007 0023 ffffffffffffffff 00000000"),
        (
            2,
            "00000001 0003 666f6f 00000001 00000007 0023" + " ffffffffffffffff" * 2 + " 00000000",
        ),
    ],
)
def test_a_refused_old_version_is_answered_in_its_own_shape(version: int, expected: str) -> None:
    refused = ProducedPartition(7, ErrorCode.unsupported_version)
    body = encode_produce_response(version, [ProducedTopic("foo", None, [refused])])
    assert body == bytes.fromhex(expected)
