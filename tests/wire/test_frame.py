"""Lengths and headers, from hand-made bytes and from kio's header schemas."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer

from horolog.errors import ErrorCode
from horolog.wire import (
    ApiKey,
    MalformedRequest,
    MalformedResponse,
    Versions,
    decode_response,
    frame_length,
    is_flexible,
    parse_request_header,
    parse_response_header,
    request_prefix,
    response_prefix,
    unsupported_api_versions,
)

api_keys = st.sampled_from(list(ApiKey))
client_ids = st.none() | st.text(max_size=20)
METADATA_V12 = bytes.fromhex("0003 000c 00000007 0002 6b74 00")


@given(api_keys, st.integers(0, 20), st.integers(0, 2**31 - 1), client_ids)
def test_a_header_is_read_as_kio_writes_it(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None
) -> None:
    header = HeaderV2 if is_flexible(api_key, version) else HeaderV1
    buffer = io.BytesIO()
    entity_writer(header)(
        buffer,
        header(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    written = buffer.getvalue()
    parsed = parse_request_header(written + b"body")
    assert parsed[:4] == (api_key, version, correlation_id, client_id)
    if api_key is not ApiKey.API_VERSIONS or version <= api_key.versions.max:
        assert parsed.body_position == len(written)
    prefix = request_prefix(api_key, version, correlation_id, client_id, 4)
    assert prefix == (len(written) + 4).to_bytes(4, "big") + written


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    header = parse_request_header(
        METADATA_V12[:-1] + bytes.fromhex("02 01 03 616263 8101 00") + b"!"
    )
    assert header.client_id == "kt"
    assert header.body_position == len(METADATA_V12) + 8


def test_a_client_id_that_is_no_text_is_read_as_apache_kafka_does() -> None:
    assert parse_request_header(METADATA_V12.replace(b"kt", b"k\xff")).client_id == "k\ufffd"


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (METADATA_V12[:9], "too short"),
        (METADATA_V12[:11], "cut short"),
        (METADATA_V12[:-1], "tagged fields"),
        (METADATA_V12[:-1] + b"\x01", "tagged fields"),
        (METADATA_V12[:-1] + b"\x01\x05\x09ab", "tagged fields"),
        (METADATA_V12[:-1] + b"\xff\xff\xff\xff\xff\xff", "varint"),
        (METADATA_V12[:8] + b"\xff\xfe" + b"\x00", "client id of -2"),
        (b"\x03\xe7" + METADATA_V12[2:], "API key 999"),
        (b"\xff\xff" + METADATA_V12[2:], "API key -1"),
    ],
)
def test_a_broken_header_is_refused_with_its_reason(frame: bytes, why: str) -> None:
    with pytest.raises(MalformedRequest, match=why) as refused:
        parse_request_header(frame)
    assert refused.value.code is ErrorCode.invalid_request


@given(frame=st.binary(max_size=40))
def test_no_bytes_escape_as_another_error(frame: bytes) -> None:
    try:
        header = parse_request_header(frame)
    except MalformedRequest:
        return
    assert 10 <= header.body_position <= len(frame)


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        (b"\xff\xff\xff\xff", "-1 bytes"),
        (b"\x00\x00\x00\x09", "too short"),
        (b"\x00\x00\x10\x01", "socket.request.max.bytes=4096"),
        (b"GET ", "larger"),
    ],
)
def test_a_length_that_no_request_has_is_refused(prefix: bytes, why: str) -> None:
    with pytest.raises(MalformedRequest, match=why):
        frame_length(prefix, max_bytes=4096)
    assert frame_length(b"\x00\x00\x10\x00", max_bytes=4096) == 4096


def test_an_api_versions_request_from_the_future_is_read_as_far_as_it_never_changes() -> None:
    frame = bytes.fromhex("0012 7fff 00000007 ffff") + b"\xff\xff\xff\xff\xff"
    header = parse_request_header(frame)
    assert (header.api_version, header.correlation_id, header.body_position) == (0x7FFF, 7, 10)


def test_the_answer_to_a_version_from_the_future_is_version_0_with_our_ranges() -> None:
    body = unsupported_api_versions({ApiKey.API_VERSIONS: Versions(0, 4)})
    answer = decode_response(ApiKey.API_VERSIONS, 0, body)
    assert answer.error_code == ErrorCode.unsupported_version
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]


@given(api_key=api_keys, version=st.integers(0, 20), correlation_id=st.integers(0, 2**31 - 1))
def test_an_answers_header_is_read_as_it_was_written(
    api_key: ApiKey, version: int, correlation_id: int
) -> None:
    prefix = response_prefix(api_key, version, correlation_id, body_size=4)
    frame = prefix[4:] + b"body"
    assert int.from_bytes(prefix[:4], "big") == len(frame)
    assert parse_response_header(frame, api_key, version) == (correlation_id, len(prefix) - 4)
    is_longer = is_flexible(api_key, version) and api_key is not ApiKey.API_VERSIONS
    assert len(prefix) == (9 if is_longer else 8)


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x07\x01"])
def test_a_broken_answers_header_is_no_request_error(frame: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parse_response_header(frame, ApiKey.METADATA, 12)
