"""The layouts of versions that kio lacks, against bytes packed by hand.

Those that Kafka 4.0 removed are written down from Apache Kafka 3.9's protocol guide: field by
field, in `struct`'s letters, with `s` for a string (an int16 of its length before it) and `a` for
the count of an array. Those that Kafka 4.4 added have compact strings (`c`) and arrays (`n`), a
length plus one before them, ids (`u`), and an empty set of tagged fields (`t`) behind each
structure. `tests/interop/test_interop_schemas.py` compares them with Kafka's own classes.
"""

from collections.abc import Iterator
from struct import pack
from typing import Any
from uuid import UUID

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
ID = UUID("5b9f1f7e-0c1a-4b9e-8f43-1d2c3b4a5968")


def packed(letters: str, *values: Any) -> bytes:
    parts: list[bytes] = []
    given: Iterator[Any] = iter(values)
    for letter in letters.replace(" ", ""):
        if letter == "t":
            parts.append(b"\0")
            continue
        value = next(given)
        match letter:
            case "s" if value is None:
                parts.append(b"\xff\xff")
            case "s":
                parts.append(pack(">h", len(value)) + value.encode())
            case "c" if value is None:
                parts.append(b"\0")
            case "c":
                parts.append(pack(">b", len(value) + 1) + value.encode())
            case "n":
                parts.append(pack(">b", value + 1))
            case "u":
                parts.append(value.bytes)
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


@pytest.mark.parametrize(("cluster_id", "node_id"), [(None, -1), ("cluster", 7)])
def test_versions_are_asked_of_a_certain_broker(cluster_id: str | None, node_id: int) -> None:
    body = packed("cc ci t", "client", "1.0", cluster_id, node_id)
    request = decode_request(ApiKey.API_VERSIONS, 5, body)
    assert (request.client_software_name, request.client_software_version) == ("client", "1.0")
    assert (request.cluster_id, request.node_id) == (cluster_id, node_id)
    fields = {"client_software_name": "client", "client_software_version": "1.0"}
    if cluster_id is not None:
        fields |= {"cluster_id": cluster_id, "node_id": node_id}
    assert encode_request(ApiKey.API_VERSIONS, 5, fields) == body
    earlier = decode_request(ApiKey.API_VERSIONS, 4, packed("cc t", "client", "1.0"))
    assert (earlier.cluster_id, earlier.node_id) == (None, -1)


def test_versions_are_answered_with_tagged_features_still() -> None:
    response = {
        "error_code": 0,
        "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 5}],
        "supported_features": [{"name": "f", "min_version": 0, "max_version": 1}],
    }
    body = encode_response(ApiKey.API_VERSIONS, 5, response)
    assert body == encode_response(ApiKey.API_VERSIONS, 4, response)
    assert decode_response(ApiKey.API_VERSIONS, 5, body).supported_features[0].name == "f"


def test_offsets_are_committed_in_a_transaction_by_topic_id() -> None:
    body = packed(
        "cc qh ic c n un iqic t t t", "x", "g", 9, 3, 5, "m", None, 1, ID, 1, 7, 40, 2, "note"
    )
    request = decode_request(ApiKey.TXN_OFFSET_COMMIT, 6, body)
    assert (request.producer_id, request.producer_epoch, request.generation_id) == (9, 3, 5)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic_id, topic.name) == (ID, "")
    assert (partition.partition_index, partition.committed_offset) == (7, 40)
    offset = {
        "partition_index": 7,
        "committed_offset": 40,
        "committed_leader_epoch": 2,
        "committed_metadata": "note",
    }
    fields = {
        "transactional_id": "x",
        "group_id": "g",
        "producer_id": 9,
        "producer_epoch": 3,
        "generation_id": 5,
        "member_id": "m",
        "topics": [{"topic_id": ID, "name": "dropped", "partitions": [offset]}],
    }
    assert encode_request(ApiKey.TXN_OFFSET_COMMIT, 6, fields) == body
    answer = {"partition_index": 7, "error_code": 100}
    response = {"topics": [{"topic_id": ID, "name": "dropped", "partitions": [answer]}]}
    expected = packed("i n un ih t t t", 0, 1, ID, 1, 7, 100)
    assert encode_response(ApiKey.TXN_OFFSET_COMMIT, 6, response) == expected
    assert decode_response(ApiKey.TXN_OFFSET_COMMIT, 6, expected).topics[0].topic_id == ID


@pytest.mark.parametrize("message", [None, "why"])
def test_groups_are_deleted_with_a_message(message: str | None) -> None:
    request = packed("n c t", 1, "g")
    assert decode_request(ApiKey.DELETE_GROUPS, 3, request).groups_names == ("g",)
    assert encode_request(ApiKey.DELETE_GROUPS, 3, {"groups_names": ["g"]}) == request
    result = {"group_id": "g", "error_code": 68, "error_message": message}
    expected = packed("i n chc t t", 9, 1, "g", 68, message)
    response = {"throttle_time_ms": 9, "results": [result]}
    assert encode_response(ApiKey.DELETE_GROUPS, 3, response) == expected
    answered = decode_response(ApiKey.DELETE_GROUPS, 3, expected).results[0]
    assert (answered.error_code, answered.error_message) == (68, message)
    dropped = packed("i n ch t t", 9, 1, "g", 68)
    assert encode_response(ApiKey.DELETE_GROUPS, 2, response) == dropped
