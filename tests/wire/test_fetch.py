"""The hand-packed fetch answer, against the packing from kio's schemas."""

from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode
from horolog.wire import (
    ApiKey,
    CurrentLeader,
    DivergingEpoch,
    FetchedAbort,
    FetchedPartition,
    FetchedTopic,
    NodeEndpoint,
    decode_response,
    encode_fetch_response,
    encode_response,
)

VERSIONS = range(19)

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=8)
partitions = st.builds(
    FetchedPartition,
    partition_index=i32,
    error_code=st.sampled_from(list(ErrorCode)),
    high_watermark=i64,
    last_stable_offset=i64,
    log_start_offset=i64,
    records=st.binary(max_size=200),
    aborted_transactions=st.none() | st.lists(st.builds(FetchedAbort, i64, i64), max_size=2),
    diverging=st.none() | st.builds(DivergingEpoch, st.integers(0, 9), i64),
    current_leader=st.none() | st.builds(CurrentLeader, st.integers(0, 9), i32),
)
topics = st.builds(
    FetchedTopic,
    name=texts,
    topic_id=st.none() | st.uuids(),
    partitions=st.lists(partitions, max_size=3),
)


def as_fields(it: FetchedPartition) -> dict[str, Any]:
    fields: dict[str, Any] = it._asdict()
    if it.aborted_transactions is not None:
        fields["aborted_transactions"] = [each._asdict() for each in it.aborted_transactions]
    diverging, leader = fields.pop("diverging"), fields.pop("current_leader")
    if diverging is not None:
        fields["diverging_epoch"] = diverging._asdict()
    if leader is not None:
        fields["current_leader"] = leader._asdict()
    return fields


@pytest.mark.parametrize("version", VERSIONS)
@examples(0.25)
@given(
    topics=st.lists(topics, max_size=3),
    throttle=i32,
    session=i32,
    nodes=st.lists(st.builds(NodeEndpoint, i32, texts, i32, st.none() | texts), max_size=2),
    clock=st.none() | st.integers(0, 2**63 - 1),
)
def test_every_fetch_answer_equals_the_one_packed_from_the_schema(
    version: int,
    topics: list[FetchedTopic],
    throttle: int,
    session: int,
    nodes: list[NodeEndpoint],
    clock: int | None,
) -> None:
    by_schema = encode_response(
        ApiKey.FETCH,
        version,
        {
            "throttle_time_ms": throttle,
            "error_code": ErrorCode.fetch_session_id_not_found,
            "session_id": session,
            "responses": [
                {
                    "topic": topic.name,
                    "topic_id": topic.topic_id,
                    "partitions": [as_fields(each) for each in topic.partitions],
                }
                for topic in topics
            ],
            "node_endpoints": [node._asdict() for node in nodes],
            **({} if clock is None else {"append_clock_ms": clock}),
        },
    )
    by_hand = encode_fetch_response(
        version,
        topics,
        throttle_time_ms=throttle,
        error_code=ErrorCode.fetch_session_id_not_found,
        session_id=session,
        node_endpoints=nodes,
        append_clock_ms=clock,
    )
    assert b"".join(by_hand) == by_schema


def test_records_go_out_as_the_very_buffer_that_came_in() -> None:
    records = memoryview(bytes(range(256)) * 4)
    partition = FetchedPartition(5, high_watermark=40, records=records)
    for version in VERSIONS:
        parts = encode_fetch_response(version, [FetchedTopic("clicks", None, [partition])])
        assert sum(part is records for part in parts) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_has_no_records_and_no_offsets(version: int) -> None:
    refused = FetchedPartition(2, ErrorCode.offset_out_of_range)
    body = b"".join(encode_fetch_response(version, [FetchedTopic("clicks", None, [refused])]))
    (got,) = decode_response(ApiKey.FETCH, version, body).responses[0].partitions
    assert (got.error_code, got.high_watermark, got.records) == (1, -1, b"")
    if version >= 4:
        assert got.aborted_transactions is None
