"""Every API and version: written and read back, against kio's writer, and under hostile bytes."""

import io
import subprocess
import sys
from typing import Any, cast
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from memory import measured_peak
from overrides import override
from wire_messages import messages

from horolog.errors import ErrorCode, RequestRefused
from horolog.wire import (
    APART_BYTES,
    FIELDS_AT_A_TIME,
    LARGE_BYTES,
    MAX_FIELDS,
    NEWER,
    OLDER,
    OWN_TAGS,
    ApiKey,
    FetchedPartition,
    FetchedTopic,
    Kind,
    MalformedRequest,
    MalformedResponse,
    Unwritable,
    decode_request,
    decode_response,
    encode_fetch_response,
    encode_request,
    encode_response,
    load,
    read_carefully,
    request_pieces,
    uvarint,
)

ENCODE = {"request": encode_request, "response": encode_response}
DECODE = {"request": decode_request, "response": decode_response}
KIO = {"request": load_request_schema, "response": load_response_schema}
MESSAGES = [(kind, api_key) for kind in ("request", "response") for api_key in ApiKey]
KIOS = [message for message in MESSAGES if 0 not in NEWER.get(message, ())]
every_message = pytest.mark.parametrize(
    ("kind", "api_key"), MESSAGES, ids=[f"{key.title}-{kind}" for kind, key in MESSAGES]
)
HEARTBEAT_V4 = b"\x02g\x00\x00\x00\x05\x02m\x00\x00"


def versions(api_key: ApiKey) -> st.SearchStrategy[int]:
    return st.integers(*api_key.versions)


def careful(kind: Kind, api_key: ApiKey, version: int, body: bytes | bytearray) -> Any:
    shape = load(kind, api_key, version)
    return read_carefully(shape, body, may_trail=kind == "request")


def plain(message: Any) -> Any:
    """A read message as dictionaries, to be compared with what was written."""
    if hasattr(message, "_asdict"):
        return {name: plain(value) for name, value in message._asdict().items()}
    if isinstance(message, tuple):
        return tuple(map(plain, message))
    return message


@every_message
@examples(0.25)
@given(data=st.data())
def test_a_message_is_read_as_it_was_written_by_both_readers(
    kind: Kind, api_key: ApiKey, data: st.DataObject
) -> None:
    version = data.draw(versions(api_key))
    message = data.draw(messages(load(kind, api_key, version)))
    body = ENCODE[kind](api_key, version, message)
    assert plain(DECODE[kind](api_key, version, b"head" + body, 4)) == message
    assert plain(DECODE[kind](api_key, version, bytearray(body))) == message
    assert plain(careful(kind, api_key, version, body)) == message


@pytest.mark.parametrize(
    ("kind", "api_key"), KIOS, ids=[f"{key.title}-{kind}" for kind, key in KIOS]
)
@examples(0.25)
@given(data=st.data())
def test_a_message_has_the_bytes_that_kio_writes(
    kind: Kind, api_key: ApiKey, data: st.DataObject
) -> None:
    older = len(OLDER.get((kind, api_key), ()))  # see test_other_versions
    newer = len(NEWER.get((kind, api_key), ()))
    first = max(older, api_key.versions.min)
    version = data.draw(st.integers(first, api_key.versions.max - newer))
    message = data.draw(messages(load(kind, api_key, version)))
    if (own := OWN_TAGS.get((kind, api_key))) is not None:
        message.pop(own.name, None)
    body = ENCODE[kind](api_key, version, message)
    entity = cast(Any, KIO[kind](api_key, version))
    kios, end = entity_reader(entity)(body, 0)
    again = io.BytesIO()
    entity_writer(entity)(again, kios)
    assert end == len(body)
    assert again.getvalue() == body


@every_message
@examples(0.25)
@given(data=st.data())
def test_no_bytes_escape_as_another_error(kind: Kind, api_key: ApiKey, data: st.DataObject) -> None:
    version = data.draw(versions(api_key))
    if data.draw(st.booleans()):
        body = bytearray(data.draw(st.binary(max_size=60)))
    else:
        valid = data.draw(messages(load(kind, api_key, version)))
        body = bytearray(ENCODE[kind](api_key, version, valid))
        for _ in range(data.draw(st.integers(0, 3))):
            if body:
                place = data.draw(st.integers(0, len(body) - 1))
                body[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        del body[data.draw(st.integers(0, len(body))) :]
    malformed = MalformedRequest if kind == "request" else MalformedResponse
    try:
        read = DECODE[kind](api_key, version, body)
    except malformed:
        return
    assert plain(read) == plain(careful(kind, api_key, version, body))
    ENCODE[kind](api_key, version, plain(read))  # so every null is where one may be


def test_fields_that_a_version_lacks_are_dropped_and_missing_ones_take_their_default() -> None:
    newest = {
        "brokers": [{"node_id": 1, "host": "localhost", "port": 9092}],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [],
        "error_code": ErrorCode.none,
    }
    for version in range(14):
        body = encode_response(ApiKey.METADATA, version, newest)
        read = decode_response(ApiKey.METADATA, version, body)
        assert read.brokers[0].port == 9092
    assert (read.throttle_time_ms, read.cluster_id, read.brokers[0].rack) == (0, "c", None)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"eror_code": 0}, "no version of Heartbeat response has a field 'eror_code'"),
        ({"error_code": 40_000}, "HeartbeatResponse.error_code cannot hold 40000"),
        ({"error_code": "none"}, "HeartbeatResponse.error_code cannot hold 'none'"),
        ({"throttle_time_ms": None}, "HeartbeatResponse.throttle_time_ms cannot hold None"),
    ],
)
def test_a_slip_in_an_answer_is_named(answer: dict[str, Any], why: str) -> None:
    with pytest.raises(Unwritable, match=why):
        encode_response(ApiKey.HEARTBEAT, 4, answer)


def test_a_field_that_has_no_default_must_be_given() -> None:
    with pytest.raises(Unwritable, match=r"HeartbeatRequest.member_id has no default"):
        encode_request(ApiKey.HEARTBEAT, 4, {"group_id": "g", "generation_id": 3})
    with pytest.raises(Unwritable, match=r"HeartbeatRequest.member_id cannot hold None"):
        encode_request(
            ApiKey.HEARTBEAT, 4, {"group_id": "g", "generation_id": 3, "member_id": None}
        )


@pytest.mark.parametrize("retention_ms", [-(2**63), -1, 2**53 + 1, 2**63 - 1])
def test_times_at_the_ends_of_their_range_are_plain_milliseconds(retention_ms: int) -> None:
    request = {
        "group_id": "g",
        "generation_id_or_member_epoch": 7,
        "member_id": "m",
        "retention_time_ms": retention_ms,
        "topics": [],
    }
    body = encode_request(ApiKey.OFFSET_COMMIT, 2, request)
    assert decode_request(ApiKey.OFFSET_COMMIT, 2, body).retention_time_ms == retention_ms


def test_an_error_code_that_we_do_not_know_is_a_plain_number() -> None:
    body = encode_response(ApiKey.HEARTBEAT, 4, {"error_code": 30_000})
    assert decode_response(ApiKey.HEARTBEAT, 4, body).error_code == 30_000


def test_unknown_tagged_fields_are_skipped() -> None:
    body = HEARTBEAT_V4[:-1] + bytes.fromhex("02 05 03 616263 8101 00")
    assert decode_request(ApiKey.HEARTBEAT, 4, body) == decode_request(
        ApiKey.HEARTBEAT, 4, HEARTBEAT_V4
    )


def test_what_follows_a_request_is_ignored_as_apache_kafka_does() -> None:
    assert decode_request(ApiKey.HEARTBEAT, 4, HEARTBEAT_V4 + b"!").member_id == "m"


@pytest.mark.parametrize("records_bytes", [1, 2 * LARGE_BYTES])
def test_what_follows_an_answer_shows_that_it_was_misread(records_bytes: int) -> None:
    partition = FetchedPartition(0, records=bytes(records_bytes))
    body = b"".join(encode_fetch_response(4, [FetchedTopic("c", None, [partition])]))
    with pytest.raises(MalformedResponse, match=f"message at byte {len(body)}: 1 bytes too many"):
        decode_response(ApiKey.FETCH, 4, body + b"!")


def test_text_that_is_no_utf8_is_read_as_apache_kafka_does() -> None:
    body = HEARTBEAT_V4.replace(b"g", b"\xff")
    assert decode_request(ApiKey.HEARTBEAT, 4, body).group_id == "\ufffd"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "group_id at byte 0: 1 bytes needed where 0 are left"),
        (b"\x00" + HEARTBEAT_V4[2:], "group_id at byte 1: a value that must not be null is null"),
        (
            HEARTBEAT_V4[:-1] + b"\x01\x05\x7f",
            "message at byte 12: tagged field 5 ends at byte 139",
        ),
        (b"\xff\xff\xff\xff\xff\xff", "group_id at byte 5: a varint of more than five bytes"),
    ],
)
def test_a_broken_request_is_refused_with_field_byte_and_reason(body: bytes, why: str) -> None:
    with pytest.raises(MalformedRequest) as refused:
        decode_request(ApiKey.HEARTBEAT, 4, body)
    assert str(refused.value) == f"Heartbeat v4 request: {why}"
    assert refused.value.code is ErrorCode.invalid_request


def test_a_broken_field_deep_in_a_request_is_named_by_its_path() -> None:
    partition = {"partition_index": 0, "committed_offset": 40, "committed_metadata": "m"}
    request = {
        "group_id": "g",
        "generation_id_or_member_epoch": 7,
        "member_id": "m",
        "topics": [{"name": "clicks", "partitions": [partition, partition]}],
    }
    body = encode_request(ApiKey.OFFSET_COMMIT, 5, request)
    with pytest.raises(
        MalformedRequest, match=r"topics\[0\]\.partitions\[1\]\.committed_metadata at byte"
    ):
        decode_request(ApiKey.OFFSET_COMMIT, 5, body[:-1])


def test_a_null_array_where_none_may_be_is_refused() -> None:
    null_topics = (
        b"\x00\x01g\x00\x00\x00\x07\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x00" + b"\xff" * 4
    )
    with pytest.raises(MalformedRequest, match="topics at byte 22: an array that must not be null"):
        decode_request(ApiKey.OFFSET_COMMIT, 2, null_topics)
    null_inside = null_topics[:-4] + b"\x00\x00\x00\x01\x00\x01t" + b"\xff" * 4
    with pytest.raises(MalformedRequest, match=r"topics\[0\].partitions at byte 29"):
        decode_request(ApiKey.OFFSET_COMMIT, 2, null_inside)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.DESCRIBE_GROUPS, 5, "ffffff807f7f03"),
        (ApiKey.METADATA, 9, "ff80ffff7fff7fff0380ffe801d5008001ff"),
        (
            ApiKey.PRODUCE,
            11,
            "0200ffe07f0001ffffffb1ff7f030202020201ff01ff0100ff01060300000001ff00",
        ),
    ],
)
def test_bytes_that_would_have_reserved_more_memory_than_there_is(
    api_key: ApiKey, version: int, body: str
) -> None:
    with pytest.raises(MalformedRequest, match="a length of 34"):
        decode_request(api_key, version, bytes.fromhex(body))


@pytest.mark.parametrize("count", [2**20, 2**28, 2**31 - 1])
def test_a_huge_length_allocates_nothing(count: int) -> None:
    flexible = b"\x02g\x00\x00\x00\x05\x02m\x00" + uvarint(count + 1) + b"\x01"
    older = b"\x00\x01g\x00\x00\x00\x07\x00\x01m" + bytes(8) + count.to_bytes(4, "big")
    for version, body in ((8, flexible), (2, older)):
        refused = pytest.raises(MalformedRequest, match=f"a length of {count} where")
        with measured_peak() as peak, refused:
            decode_request(ApiKey.OFFSET_COMMIT, version, body)
        assert peak() < 1 << 20


def test_a_large_request_of_nothing_but_empty_topics_is_given_up_on() -> None:
    count = 200_000
    body = bytes(7) + uvarint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    with pytest.raises(MalformedRequest, match=f"not readable in {MAX_FIELDS} fields"):
        decode_request(ApiKey.PRODUCE, 9, body)


def metadata_of_topics(count: int) -> bytes:
    """A Metadata v4 request of so many topics."""
    return count.to_bytes(4, "big") + b"\x00\x01a" * count + b"\x00"


def test_an_array_that_is_too_long_is_refused_before_its_elements_are_read() -> None:
    checkpoints: list[None] = []
    with pytest.raises(MalformedRequest, match=f"topics at byte 4: not readable in {MAX_FIELDS}"):
        decode_request(
            ApiKey.METADATA,
            4,
            metadata_of_topics(MAX_FIELDS),
            checkpoint=lambda: checkpoints.append(None),
        )
    assert len(checkpoints) == 1


@pytest.mark.parametrize("name", ["y" * 32_767, "\N{GRINNING FACE}" * 8_191])
def test_a_message_that_quotes_a_long_name_fits(name: str) -> None:
    result = {"error_code": 91, "error_message": f"there is no {name}"}
    for key, version, kind, named in (
        (ApiKey.CREATE_TOPICS, 4, "topics", "name"),
        (ApiKey.CREATE_PARTITIONS, 2, "results", "name"),
    ):
        body = encode_response(key, version, {kind: [{**result, named: name}]})
        (found,) = getattr(decode_response(key, version, body), kind)
        assert found.error_message.startswith("there is no ")
        assert found.error_message.endswith("...")


class Enough(Exception):
    pass


def test_a_large_message_is_read_and_written_with_checkpoints_which_may_end_it() -> None:
    count = MAX_FIELDS // 4
    checkpoints = 0

    def checkpoint() -> None:
        nonlocal checkpoints
        checkpoints += 1
        if checkpoints == at_most:
            raise Enough

    at_most = 1_000_000
    body = metadata_of_topics(count)
    request = decode_request(ApiKey.METADATA, 4, body, checkpoint=checkpoint)
    assert len(request.topics) == count
    assert checkpoints >= 2 * count // FIELDS_AT_A_TIME
    answer = {"groups": [{"group_id": "g", "protocol_type": ""}] * count}
    written = checkpoints
    packed = encode_response(ApiKey.LIST_GROUPS, 0, answer, checkpoint)
    assert packed == encode_response(ApiKey.LIST_GROUPS, 0, answer)
    assert checkpoints >= written + count
    for call in (
        lambda: decode_request(ApiKey.METADATA, 4, body, checkpoint=checkpoint),
        lambda: encode_response(ApiKey.LIST_GROUPS, 0, answer, checkpoint),
    ):
        checkpoints, at_most = 0, 3
        with pytest.raises(Enough):
            call()


def test_an_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.wire", MOST_ANSWER_BYTES=1_000)
    answer = {"groups": [{"group_id": "g" * 100, "protocol_type": ""}] * 1_000}
    with pytest.raises(RequestRefused, match="more than 1000 bytes: ask for less"):
        encode_response(ApiKey.LIST_GROUPS, 0, answer, lambda: None)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_large_records_are_a_view_of_the_request_and_small_ones_bytes(version: int) -> None:
    for size, kind in ((LARGE_BYTES, memoryview), (LARGE_BYTES // 2, bytes)):
        records = bytes(range(256)) * (size // 256)
        partition = {"index": 5, "records": records}
        body = encode_request(
            ApiKey.PRODUCE,
            version,
            {
                "transactional_id": None,
                "acks": -1,
                "timeout_ms": 1500,
                "topic_data": [{"name": "c", "topic_id": None, "partition_data": [partition]}],
            },
        )
        (got,) = decode_request(ApiKey.PRODUCE, version, body).topic_data[0].partition_data
        assert isinstance(got.records, kind)
        assert got.records == records


@pytest.mark.parametrize(
    ("group_id", "is_read"),
    [
        (b"g" * 32_767, True),
        (b"g" * 32_768, False),
        (b"g" * 100_000, False),
        (b"\xff" * 10_922, True),
        (b"\xff" * 10_923, False),  # each is replaced by three bytes
        (b"\xff" * 32_767, False),
    ],
)
@pytest.mark.parametrize("trailing", [0, LARGE_BYTES])
def test_a_string_that_could_not_be_written_again_is_not_read(
    group_id: bytes, is_read: bool, trailing: int
) -> None:
    body = uvarint(len(group_id) + 1) + group_id + bytes(4) + b"\2m\0\0" + bytes(trailing)
    if not is_read:
        with pytest.raises(MalformedRequest, match="group_id"):
            decode_request(ApiKey.HEARTBEAT, 4, body)
        return
    request = decode_request(ApiKey.HEARTBEAT, 4, body)
    answer = {"error_code": 0, "groups": [{"group_id": request.group_id, "protocol_type": ""}]}
    assert encode_response(ApiKey.LIST_GROUPS, 1, answer)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize(
    "sizes", [(), (0,), (65_535,), (65_536,), (70_000, 1, 80_000), (1, 65_536, 65_536)]
)
def test_large_records_are_sent_as_they_are_given(version: int, sizes: tuple[int, ...]) -> None:
    """The pieces are the message, and none is a copy of large records."""
    records = [memoryview(bytes([size % 251]) * size) for size in sizes]
    partitions = [{"index": at, "records": each} for at, each in enumerate(records)]
    topic = {"name": "t", "topic_id": UUID(int=1), "partition_data": partitions}
    request = {"acks": -1, "timeout_ms": 5, "topic_data": [topic]}
    pieces = request_pieces(ApiKey.PRODUCE, version, request)
    large = [each for each in records if len(each) >= APART_BYTES]
    apart = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert [*map(id, apart)] == [*map(id, large)]
    (read,) = decode_request(ApiKey.PRODUCE, version, b"".join(pieces)).topic_data
    assert [bytes(each.records) for each in read.partition_data] == list(map(bytes, records))


def test_no_schema_is_loaded_by_import_and_none_imports_what_kio_makes_of_it() -> None:
    """To make dataclasses of a version takes up to 30 ms, in which a broker answers nothing."""
    script = (
        "import sys\n"
        "from horolog.wire import codec, schema\n"
        "print(schema.load.cache_info().currsize)\n"
        "for key in codec.ApiKey:\n"
        "    for version in range(key.versions.min, key.versions.max + 1):\n"
        "        codec.preload(key, version)\n"
        "print(schema.load.cache_info().currsize)\n"
        "print([m for m in sys.modules if '.schema.' in m or m == 'kio.index'])\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    messages = 2 * sum(key.versions.max + 1 - key.versions.min for key in ApiKey)
    assert said.split("\n")[:3] == ["0", f"{messages}", "[]"]
