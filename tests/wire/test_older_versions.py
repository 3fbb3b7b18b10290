"""The layouts of versions that Kafka 4.0 removed, against bytes packed by hand.

The layouts are written down from Apache Kafka 3.9's protocol guide: field by field, in `struct`'s
letters, with `s` for a string (an int16 of its length before it) and `a` for the count of an array.
"""

from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from horolog.wire import (
    ApiKey,
    FetchedPartition,
    FetchedTopic,
    ProducedPartition,
    ProducedTopic,
    decode_request,
    decode_response,
    encode_fetch_response,
    encode_produce_response,
    encode_request,
    encode_response,
)

RECORDS = b"any bytes at all"


def packed(letters: str, *values: Any) -> bytes:
    parts: list[bytes] = []
    given: Iterator[Any] = iter(values)
    for letter in letters.replace(" ", ""):
        value = next(given)
        match letter:
            case "s" if value is None:
                parts.append(b"\xff\xff")
            case "s":
                parts.append(pack(">h", len(value)) + value.encode())
            case "r":
                parts.append(pack(">i", len(value)) + value)
            case "a":
                parts.append(pack(">i", value))
            case _:
                parts.append(pack(">" + letter, value))
    return b"".join(parts)


def partitions_of(body: Any) -> Any:
    (topic,) = next(each for each in body if isinstance(each, tuple))
    (partition,) = next(each for each in topic if isinstance(each, tuple))
    return partition


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_produce_request_before_transactions(version: int) -> None:
    body = packed("hi as a ir", 1, 1500, 1, "t", 1, 7, RECORDS)
    request = decode_request(ApiKey.PRODUCE, version, body)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 1500, None)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, bytes(partition.records)) == ("t", 7, RECORDS)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, packed("as a ihq", 1, "t", 1, 7, 0, 40)),
        (1, packed("as a ihq i", 1, "t", 1, 7, 0, 40, 9)),
        (2, packed("as a ihqq i", 1, "t", 1, 7, 0, 40, 1_479_000_000_000, 9)),
    ],
)
def test_a_produce_response_before_log_starts(version: int, body: bytes) -> None:
    produced = ProducedPartition(7, 0, 40, 1_479_000_000_000)
    topics = [ProducedTopic("t", None, [produced])]
    assert encode_produce_response(version, topics, throttle_time_ms=9) == body
    assert partitions_of(decode_response(ApiKey.PRODUCE, version, body)).base_offset == 40


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_fetch_request_before_isolation_levels(version: int) -> None:
    limit = (5_000,) if version == 3 else ()
    letters = f"iii{'i' * len(limit)} as a iqi"
    body = packed(letters, -1, 500, 1, *limit, 1, "t", 1, 7, 40, 1_000)
    request = decode_request(ApiKey.FETCH, version, body)
    assert (request.max_wait_ms, request.min_bytes, request.isolation_level) == (500, 1, 0)
    assert request.max_bytes == (5_000 if limit else 2**31 - 1)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("t", 7, 40)
    assert (partition.partition_max_bytes, partition.current_leader_epoch) == (1_000, -1)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_fetch_response_before_stable_offsets(version: int) -> None:
    throttle = b"" if version == 0 else pack(">i", 9)
    body = throttle + packed("as a ihqr", 1, "t", 1, 7, 0, 41, RECORDS)
    fetched = FetchedPartition(7, high_watermark=41, last_stable_offset=40, records=RECORDS)
    parts = encode_fetch_response(version, [FetchedTopic("t", None, [fetched])], throttle_time_ms=9)
    assert b"".join(parts) == body
    assert bytes(partitions_of(decode_response(ApiKey.FETCH, version, body)).records) == RECORDS


def test_list_offsets_with_a_number_of_offsets() -> None:
    body = packed("i as a iqi", -1, 1, "t", 1, 7, -2, 3)
    request = decode_request(ApiKey.LIST_OFFSETS, 0, body)
    partition = partitions_of(request)
    assert (partition.partition_index, partition.timestamp, partition.max_num_offsets) == (7, -2, 3)
    answer = {"partition_index": 7, "error_code": 0, "old_style_offsets": [9, 5], "offset": 1}
    response = {"topics": [{"name": "t", "partitions": [answer]}]}
    assert encode_response(ApiKey.LIST_OFFSETS, 0, response) == packed(
        "as a ih aqq", 1, "t", 1, 7, 0, 2, 9, 5
    )


@pytest.mark.parametrize("version", [0, 1])
def test_offset_commits_before_retention_times(version: int) -> None:
    if version == 0:
        body = packed("s as a iqs", "g", 1, "t", 1, 7, 40, None)
    else:
        body = packed("sis as a iqqs", "g", 3, "m", 1, "t", 1, 7, 40, 1_234, "note")
    request = decode_request(ApiKey.OFFSET_COMMIT, version, body)
    member = (request.generation_id_or_member_epoch, request.member_id)
    assert (request.group_id, member, request.retention_time_ms) == (
        "g",
        (3, "m") if version else (-1, ""),
        -1,
    )
    offset = partitions_of(request)
    assert (offset.committed_offset, offset.committed_metadata, offset.commit_timestamp) == (
        (40, "note", 1_234) if version else (40, None, -1)
    )
    response = {"topics": [{"name": "t", "partitions": [{"partition_index": 7, "error_code": 3}]}]}
    assert encode_response(ApiKey.OFFSET_COMMIT, version, response) == packed(
        "as a ih", 1, "t", 1, 7, 3
    )


def test_offset_fetch_of_the_first_version() -> None:
    request = decode_request(ApiKey.OFFSET_FETCH, 0, packed("s as ai", "g", 1, "t", 1, 7))
    assert (request.group_id, request.topics[0].partition_indexes) == ("g", (7,))
    partition = {"partition_index": 7, "committed_offset": 40, "metadata": "", "error_code": 0}
    response = {"topics": [{"name": "t", "partitions": [partition]}], "error_code": 0}
    assert encode_response(ApiKey.OFFSET_FETCH, 0, response) == packed(
        "as a iqsh", 1, "t", 1, 7, 40, "", 0
    )


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_created_before_throttle_times(version: int) -> None:
    letters, values = "a sih a iaii a ss i", (1, "t", -1, -1, 1, 0, 2, 5, 6, 1, "k", None, 9)
    body = packed(letters, *values) + (b"\x01" if version else b"")
    request = decode_request(ApiKey.CREATE_TOPICS, version, body)
    (topic,) = request.topics
    assert (topic.name, topic.assignments[0].broker_ids) == ("t", (5, 6))
    assert (topic.configs[0].value, request.timeout_ms) == (None, 9)
    assert request.validate_only is bool(version)
    result = {"name": "t", "error_code": 36, "error_message": "there"}
    expected = packed("ash", 1, "t", 36) + (packed("s", "there") if version else b"")
    assert encode_response(ApiKey.CREATE_TOPICS, version, {"topics": [result]}) == expected


def test_topics_are_deleted_before_throttle_times() -> None:
    request = decode_request(ApiKey.DELETE_TOPICS, 0, packed("as i", 1, "t", 9))
    assert (request.topic_names, request.timeout_ms) == (("t",), 9)
    response = {"responses": [{"name": "t", "error_code": 3}], "throttle_time_ms": 1}
    assert encode_response(ApiKey.DELETE_TOPICS, 0, response) == packed("ash", 1, "t", 3)


@pytest.mark.parametrize("version", [0, 1])
def test_leader_epochs_before_those_of_clients(version: int) -> None:
    body = packed("as a ii", 1, "t", 1, 7, 4)
    partition = partitions_of(decode_request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body))
    assert (partition.partition, partition.leader_epoch, partition.current_leader_epoch) == (
        7,
        4,
        -1,
    )
    end = {"error_code": 0, "partition": 7, "leader_epoch": 4, "end_offset": 40}
    expected = packed(
        "as a hi iq" if version else "as a hi q", 1, "t", 1, 0, 7, *(4,) * version, 40
    )
    response = {"topics": [{"topic": "t", "partitions": [end]}]}
    assert encode_response(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, response) == expected


def test_settings_with_is_default_instead_of_a_source() -> None:
    request = decode_request(ApiKey.DESCRIBE_CONFIGS, 0, packed("a bs as", 1, 2, "t", 1, "k"))
    (resource,) = request.resources
    assert (resource.resource_type, resource.configuration_keys) == (2, ("k",))
    assert request.include_synonyms is False
    config = {
        "name": "k",
        "value": "v",
        "read_only": False,
        "config_source": 1,
        "is_default": True,
        "is_sensitive": False,
        "synonyms": [],
    }
    result = {
        "error_code": 0,
        "error_message": None,
        "resource_type": 2,
        "resource_name": "t",
        "configs": [config],
    }
    assert encode_response(ApiKey.DESCRIBE_CONFIGS, 0, {"results": [result]}) == packed(
        "i a hsbs a ss???", 0, 1, 0, None, 2, "t", 1, "k", "v", False, True, False
    )


def test_log_directories_of_the_first_version() -> None:
    body = packed("a sai", 1, "t", 1, 7)
    request = decode_request(ApiKey.DESCRIBE_LOG_DIRS, 0, body)
    assert request.topics[0].partitions == (7,)
    assert (
        encode_request(ApiKey.DESCRIBE_LOG_DIRS, 0, {"topics": [{"topic": "t", "partitions": [7]}]})
        == body
    )
