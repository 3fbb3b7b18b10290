"""Requests of transactions that are decoded by hand say what their schemas say, or are left."""

import struct
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded

from horolog.wire import (
    SUPPORTED,
    ApiKey,
    MalformedRequest,
    added_answers,
    decode_request,
    encode_response,
    ended_answers,
    parse_request_header,
    read_add,
    read_end,
    request_prefix,
    response_prefix,
)

END, ADD = ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN
_LONG = "\N{GREEK SMALL LETTER ALPHA}" * 63
ids = st.sampled_from(["", "x", "x" * 126, "x" * 127, _LONG, _LONG + "x", "y" * 300])
names = st.sampled_from(["t", "n" * 249, "n" * 250, ""])
numbers = st.sampled_from([0, 7, -1, (1 << 63) - 1])
epochs = st.integers(-1, 3)


@st.composite
def frames(draw: st.DrawFn, key: ApiKey) -> bytes:
    """A frame, of which a byte may be changed or the end cut."""
    producer = draw(numbers), draw(epochs)
    if key is END:
        fields: dict[str, Any] = {
            "transactional_id": draw(ids),
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": draw(st.booleans()),
        }
        version = draw(st.integers(0, key.versions.max))
    else:
        partitions = list(range(draw(st.sampled_from([1, 1, 1, 0, 2]))))
        topic = {"name": draw(names), "partitions": partitions}
        fields = {
            "v3_and_below_transactional_id": draw(ids),
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [topic] * draw(st.sampled_from([1, 1, 1, 0, 2])),
        }
        version = draw(st.integers(0, 3))
    body = encoded(key, version, fields)
    client = draw(st.sampled_from(["me", "", None]))
    data = bytearray(request_prefix(key, version, -7, client, len(body))[4:] + body)
    if draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    data = data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 5]))]
    data += draw(st.sampled_from([b"", b"", b"", b"\0", b"\0\0\0"]))
    data[:2] = struct.pack(">h", key)
    return bytes(data)


@given(frame=frames(END))
def test_an_end_says_what_its_schema_says(frame: bytes) -> None:
    found = read_end(frame)
    if found is None:
        return
    header = parse_request_header(frame)
    body = decode_request(*header[:2], frame, header.body_position)
    assert found == (
        *(header.api_version, header.correlation_id, body.transactional_id),
        *(body.producer_id, body.producer_epoch, body.committed),
    )


@examples(1)
@given(frame=frames(ADD))
def test_an_addition_says_what_its_schema_says(frame: bytes) -> None:
    found = read_add(frame)
    if found is None:
        return
    header = parse_request_header(frame)
    body = decode_request(*header[:2], frame, header.body_position)
    (topic,) = body.v3_and_below_topics
    (partition,) = topic.partitions
    assert found == (
        *(header.api_version, header.correlation_id, body.v3_and_below_transactional_id),
        *(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
        *(topic.name, partition),
    )


@given(data=st.binary(max_size=60))
def test_any_bytes_are_left_to_the_schema_or_are_what_it_reads(data: bytes) -> None:
    for read, key in ((read_end, END), (read_add, ADD)):
        frame = struct.pack(">hhih", key, 0, 5, 0) + data
        if read(frame) is not None:
            header = parse_request_header(frame)
            try:
                decode_request(*header[:2], frame, header.body_position)
            except MalformedRequest as error:
                pytest.fail(f"{error}")


@pytest.mark.parametrize("version", range(SUPPORTED[END].max + 1))
def test_the_answer_to_an_end_is_packed_as_by_its_schema(version: int) -> None:
    fields = {"error_code": 47, "producer_id": -1, "producer_epoch": 32767}
    body = encode_response(END, version, fields)
    numbers = tuple(fields.values()) if version >= 5 else (47,)
    packed = ended_answers(version).pack(9, *numbers)
    assert packed == response_prefix(END, version, 9, len(body)) + body


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("name", ["t", "n" * 249, "\1\2\3\4\0\5"])
def test_the_answer_to_an_addition_is_packed_as_by_its_schema(version: int, name: str) -> None:
    partition = {"partition_index": 7, "partition_error_code": 51}
    topics = [{"name": name, "results_by_partition": [partition]}]
    body = encode_response(ADD, version, {"results_by_topic_v3_and_below": topics})
    packed = added_answers(version, name).pack(9, 7, 51)
    assert packed == response_prefix(ADD, version, 9, len(body)) + body


def test_what_clients_send_is_read() -> None:
    for version in range(SUPPORTED[END].max + 1):
        fields = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 1, "committed": True}
        body = encoded(END, version, fields)
        frame = request_prefix(END, version, 5, "me", len(body))[4:] + body
        assert read_end(frame) == (version, 5, "x", 7, 1, True)
    for version in range(3):
        fields = {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 1,
            "v3_and_below_topics": [{"name": "t", "partitions": [3]}],
        }
        body = encoded(ADD, version, fields)
        frame = request_prefix(ADD, version, 5, "me", len(body))[4:] + body
        assert read_add(frame) == (version, 5, "x", 7, 1, "t", 3)
