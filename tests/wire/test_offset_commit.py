"""What is decoded of commits by hand says what their schema says, or is left to the schema."""

import struct
from typing import Any
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded

from horolog.wire import (
    MOST_PARTITIONS,
    SUPPORTED,
    ApiKey,
    MalformedRequest,
    committed,
    decode_request,
    encode_response,
    parse_request_header,
    read_commit,
    request_prefix,
    response_prefix,
)

KEY = ApiKey.OFFSET_COMMIT
VERSIONS = range(SUPPORTED[KEY].max + 1)
ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
names = st.sampled_from(["t", "clicks.of-the_day", "n" * 126, "n" * 127, "n" * 249, "n" * 250, ""])
texts = st.sampled_from(["", "g", "x" * 126, "x" * 127, ALPHA * 63, ALPHA * 63 + "x", "y" * 300])
numbers = st.integers(-(1 << 63), (1 << 63) - 1)


def partition(index: int, metadata: str | None = "", offset: int = 7) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": index % 3 - 1,
        "committed_metadata": metadata,
    }


def topic(name: str, partitions: list[dict[str, Any]], number: int = 77) -> dict[str, Any]:
    return {"name": name, "topic_id": UUID(int=number), "partitions": partitions}


def fields_of(*topics: dict[str, Any]) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": 3,
        "member_id": "m",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": list(topics),
    }


def frame_of(version: int, fields: dict[str, Any], client_id: str | None = "me") -> bytes:
    body = encoded(KEY, version, fields)
    return request_prefix(KEY, version, -7, client_id, len(body))[4:] + body


@st.composite
def topics(draw: st.DrawFn) -> dict[str, Any]:
    metadata = draw(st.sampled_from([st.just(""), st.sampled_from(["", None]), st.none() | texts]))
    count = draw(st.sampled_from([1, 1, 2, 5, 70, 126, 127, 128, 0]))
    partitions = [partition(index, draw(metadata), draw(numbers)) for index in range(count)]
    return topic(draw(names), partitions, draw(st.sampled_from([77, 78, 0])))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame of which a byte may be changed or the end cut."""
    fields = {
        "group_id": draw(texts),
        "generation_id_or_member_epoch": draw(st.integers(-1, 3)),
        "member_id": draw(texts),
        "group_instance_id": draw(st.none() | texts),
        "retention_time_ms": draw(numbers),
        "topics": draw(st.lists(topics(), max_size=3)),
    }
    client_id = draw(st.sampled_from(["me", "", None, ALPHA * 300]))
    data = bytearray(frame_of(draw(st.sampled_from(VERSIONS)), fields, client_id))
    if draw(st.booleans()):
        data[draw(st.integers(0, min(len(data), 200) - 1))] ^= draw(st.integers(1, 255))
    data = data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 5]))]
    data += draw(st.sampled_from([b"", b"", b"", b"\0", b"\0\0\0"]))
    data[:2] = struct.pack(">h", KEY)
    return bytes(data)


@examples(1)
@given(frame=frames(), code=st.sampled_from([0, 3, 22]))
def test_a_commit_says_what_its_schema_says(frame: bytes, code: int) -> None:
    found = read_commit(frame)
    if found is None:
        return
    header = parse_request_header(frame)
    version, body = header.api_version, decode_request(*header[:2], frame, header.body_position)
    assert found[:-1] == (
        *(version, header.correlation_id, body.group_id),
        *(body.generation_id_or_member_epoch, body.member_id, body.group_instance_id),
        body.retention_time_ms,
    )
    for mine, its in zip(found.topics, body.topics, strict=True):
        assert (mine.name, mine.topic_id) == (its.name, its.topic_id)
        assert list(zip(*mine[3:], strict=True)) == [
            (
                *(each.partition_index, each.committed_offset, each.committed_leader_epoch),
                each.committed_metadata or "",
            )
            for each in its.partitions
        ]
    codes = [code, *([0] * (len(body.topics) - 1))]
    answer = {
        "topics": [
            {
                "name": its.name,
                "topic_id": its.topic_id,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": error_code}
                    for each in its.partitions
                ],
            }
            for its, error_code in zip(body.topics, codes, strict=True)
        ]
    }
    packed = encode_response(KEY, version, answer)
    prefix = response_prefix(KEY, version, header.correlation_id, len(packed))
    assert committed(found, codes) == prefix + packed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", [None, "", "m"])
@pytest.mark.parametrize("counts", [(1,), (2,), (100,), (126, 1, 200), (1,) * 126])
def test_commits_are_decoded_by_hand(
    version: int, metadata: str | None, counts: tuple[int, ...]
) -> None:
    asked = [
        topic(f"t{number}", [partition(index, metadata) for index in range(count)])
        for number, count in enumerate(counts)
    ]
    found = read_commit(frame_of(version, fields_of(*asked)))
    assert (found is not None) == (version >= 2)
    assert found is None or tuple(len(each.partitions) for each in found.topics) == counts


@pytest.mark.parametrize("version", [2, 7, 10])
def test_very_many_partitions_are_left_to_the_schema(version: int) -> None:
    partitions = [partition(index) for index in range(MOST_PARTITIONS)]
    most = fields_of(topic("t", partitions))
    assert read_commit(frame_of(version, most)) is not None
    more = fields_of(topic("t", partitions), topic("u", [partition(0)]))
    assert read_commit(frame_of(version, more)) is None


@pytest.mark.parametrize("version", VERSIONS[2:])
@pytest.mark.parametrize("metadata", ["", "m"])
def test_what_ends_early_is_left_to_the_schema(version: int, metadata: str) -> None:
    partitions = [partition(index, metadata) for index in range(6)]
    frame = frame_of(version, fields_of(topic("t", partitions), topic("u", partitions[:2])))
    for end in range(4, len(frame)):
        assert read_commit(frame[:end]) is None
        if end > 12:
            header = parse_request_header(frame)
            with pytest.raises(MalformedRequest):
                decode_request(KEY, version, frame[:end], header.body_position)
