"""The form of repeated commits agrees with their schema."""

import struct
from typing import Any
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded

from horolog.wire import (
    SUPPORTED,
    ApiKey,
    CommitForm,
    MalformedRequest,
    decode_request,
    encode_response,
    parse_request_header,
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


def form_of(frame: bytes) -> CommitForm | None:
    header = parse_request_header(frame)
    body = decode_request(*header[:2], frame, header.body_position)
    return CommitForm.of(header.api_version, body, frame)


@examples(1)
@given(frame=frames(), changes=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255))))
def test_requests_of_a_form_differ_in_offsets_and_epochs_alone(
    frame: bytes, changes: list[tuple[int, int]]
) -> None:
    try:
        form = form_of(frame) if parse_request_header(frame).api_version in VERSIONS else None
    except MalformedRequest:
        return
    if form is None:
        return
    assert form.fits(frame)
    other = bytearray(frame)
    for at, bits in changes:
        other[at % len(other)] ^= bits
    again = bytes(other)
    if not form.fits(again):
        return
    header = parse_request_header(again)
    version, body = header.api_version, decode_request(*header[:2], again, header.body_position)
    before = decode_request(*header[:2], frame, header.body_position)
    assert with_numbers_of(before, body) == body
    numbers = [
        (it.committed_offset, it.committed_leader_epoch)
        for asked in body.topics
        for it in asked.partitions
    ]
    assert list(form.numbers_of(again)) == numbers
    answer = {
        "topics": [
            {
                "name": its.name,
                "topic_id": its.topic_id,
                "partitions": [{"partition_index": it.partition_index} for it in its.partitions],
            }
            for its in body.topics
        ]
    }
    packed = encode_response(KEY, version, answer)
    prefix = response_prefix(KEY, version, header.correlation_id, len(packed))
    assert form.committed(again) == prefix + packed


def with_numbers_of(body: Any, other: Any) -> Any:
    """A request with the offsets and leader epochs of another one."""
    topics = []
    for mine, its in zip(body.topics, other.topics, strict=True):
        partitions = []
        for one, another in zip(mine.partitions, its.partitions, strict=True):
            changed = one._replace(committed_offset=another.committed_offset)
            if hasattr(changed, "_fields") and "committed_leader_epoch" in changed._fields:
                changed = changed._replace(committed_leader_epoch=another.committed_leader_epoch)
            partitions.append(changed)
        topics.append(mine._replace(partitions=tuple(partitions)))
    return body._replace(topics=tuple(topics))


@pytest.mark.parametrize("version", VERSIONS[2:])
@pytest.mark.parametrize("metadata", [None, ""])
@pytest.mark.parametrize("counts", [(1,), (2,), (100,), (126, 1, 200), (1,) * 126])
def test_commits_of_clients_have_a_form(
    version: int, metadata: str | None, counts: tuple[int, ...]
) -> None:
    asked = [
        topic(f"t{number}", [partition(index, metadata) for index in range(count)])
        for number, count in enumerate(counts)
    ]
    form = form_of(frame_of(version, fields_of(*asked)))
    assert form is not None
    assert len(form.places) == sum(counts)
    assert form.width == (12 if version >= 6 else 8)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_a_request_with_unusual_bytes_has_no_form(version: int) -> None:
    frame = frame_of(version, fields_of(topic("t", [partition(0)])))
    assert form_of(frame) is not None
    assert form_of(frame + b"\0") is None
    if version >= 8:  # an unknown tagged field at its end
        assert form_of(frame[:-1] + b"\1\7\1x") is None
