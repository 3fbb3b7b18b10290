"""What is decoded by hand says what its schema says, or is left to the schema."""

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded, lookup_fields, produce_fields

from horolog.wire import (
    ApiKey,
    MalformedRequest,
    RequestHeader,
    decode_request,
    parse_request_header,
    read_lookup,
    read_produce,
    request_prefix,
)

VERSIONS = {key: range(key.versions.max + 1) for key in (ApiKey.PRODUCE, ApiKey.LIST_OFFSETS)}
TOPIC_ID = UUID(int=77)
names = st.sampled_from(["t", "clicks.of-the_day", "n" * 126, "n" * 127, "n" * 249, "n" * 250, ""])
clients = st.sampled_from(["me", "", None, "\N{GREEK SMALL LETTER ALPHA}" * 300])


def frame_of(key: ApiKey, version: int, client_id: str | None, body: bytes) -> bytes:
    return request_prefix(key, version, -7, client_id, len(body))[4:] + body


@st.composite
def frames(draw: st.DrawFn, key: ApiKey) -> bytes:
    """A frame for one partition or two, of which a byte may be changed or the end cut."""
    name, count = draw(names), draw(st.sampled_from([1, 1, 1, 2, 0]))
    if key is ApiKey.PRODUCE:
        sizes = st.sampled_from([0, 1, 100, 126, 127, 128, 16_382, 16_383, 20_000, 60_000])
        batches = {index: b"r" * draw(sizes) for index in range(count)}
        transactional = st.sampled_from([None, "x", "", "x" * 126, "x" * 127, "y" * 300])
        fields: dict[str, Any] = produce_fields(
            name,
            batches,
            acks=draw(st.sampled_from([-1, 0, 1])),
            transactional_id=draw(st.none() | transactional),
        )
        fields["topic_data"][0]["topic_id"] = draw(st.sampled_from([TOPIC_ID, None]))
    else:
        times = {index: draw(st.integers(-(1 << 63), (1 << 63) - 1)) for index in range(count)}
        fields = lookup_fields(name, times, isolation_level=draw(st.integers(-1, 2)))
    version = draw(st.sampled_from(VERSIONS[key]))
    data = bytearray(frame_of(key, version, draw(clients), encoded(key, version, fields)))
    if draw(st.booleans()):
        data[draw(st.integers(0, min(len(data), 90) - 1))] ^= draw(st.integers(1, 255))
    data = data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 5]))]
    data += draw(st.sampled_from([b"", b"", b"", b"\0", b"\0\0\0"]))
    data[:2] = struct.pack(">h", key)
    return bytes(data)


def decoded(frame: bytes) -> tuple[RequestHeader, Any]:
    """What the schema of a request says."""
    header = parse_request_header(frame)
    return header, decode_request(*header[:2], frame, header.body_position)


@given(frame=frames(ApiKey.PRODUCE))
def test_a_produce_request_says_what_its_schema_says(frame: bytes) -> None:
    found = read_produce(frame)
    if found is None:
        return
    header, body = decoded(frame)
    (topic,) = body.topic_data
    (partition,) = topic.partition_data
    assert found == (
        *(header.api_version, header.correlation_id, header.client_id),
        *(body.acks, topic.name, topic.topic_id, partition.index, partition.records),
        *(body.transactional_id, body.timeout_ms),
    )


@given(frame=frames(ApiKey.LIST_OFFSETS))
def test_a_lookup_says_what_its_schema_says(frame: bytes) -> None:
    found = read_lookup(frame)
    if found is None:
        return
    header, body = decoded(frame)
    (topic,) = body.topics
    (partition,) = topic.partitions
    assert found == (
        *(header.api_version, header.correlation_id, body.isolation_level, topic.name),
        *(partition.partition_index, partition.current_leader_epoch, partition.timestamp),
    )


@pytest.mark.parametrize("version", VERSIONS[ApiKey.PRODUCE])
@pytest.mark.parametrize("size", [1, 126, 127, 16_382, 16_383, 65_000])
def test_a_produce_request_for_one_partition_is_decoded_by_hand(version: int, size: int) -> None:
    fields = produce_fields("clicks", {3: b"r" * size}, acks=1)
    fields["topic_data"][0]["topic_id"] = TOPIC_ID
    frame = frame_of(ApiKey.PRODUCE, version, "me", encoded(ApiKey.PRODUCE, version, fields))
    found = read_produce(frame)
    assert (found is not None) == (version >= 5)
    assert found is None or (found.partition, len(found.records)) == (3, size)


@pytest.mark.parametrize("version", VERSIONS[ApiKey.LIST_OFFSETS])
def test_a_lookup_of_one_partition_is_decoded_by_hand(version: int) -> None:
    body = encoded(ApiKey.LIST_OFFSETS, version, lookup_fields("clicks", {3: -1}))
    found = read_lookup(frame_of(ApiKey.LIST_OFFSETS, version, "me", body))
    assert (found is not None) == (version >= 1)
    assert found is None or (found.partition, found.timestamp) == (3, -1)


def test_a_lookup_of_a_replica_is_left_to_the_schema() -> None:
    for version in VERSIONS[ApiKey.LIST_OFFSETS]:
        for replica_id in (2, -2):
            fields = {**lookup_fields("clicks", {3: -1}), "replica_id": replica_id}
            body = encoded(ApiKey.LIST_OFFSETS, version, fields)
            assert read_lookup(frame_of(ApiKey.LIST_OFFSETS, version, "me", body)) is None


def test_what_ends_early_is_left_to_the_schema() -> None:
    for key, version, fields in (
        (ApiKey.PRODUCE, 7, produce_fields("t", {0: b"r" * 9}, acks=1)),
        (ApiKey.PRODUCE, 12, produce_fields("t", {0: b"r" * 9}, acks=1)),
        (ApiKey.LIST_OFFSETS, 11, lookup_fields("t", {0: 1})),
    ):
        frame = frame_of(key, version, "me", encoded(key, version, fields))
        for end in range(4, len(frame)):
            assert (read_produce if key is ApiKey.PRODUCE else read_lookup)(frame[:end]) is None
            if end > 12:
                header = parse_request_header(frame)
                with pytest.raises(MalformedRequest):
                    decode_request(key, version, frame[:end], header.body_position)
