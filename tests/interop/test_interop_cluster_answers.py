"""What a horolog answers in a cluster about the cluster, as its Apache Kafka does."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from mixed_cluster import MixedCluster
from patience import eventually
from raw_connection import RawConnection
from tools.cluster import running_cluster
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST

from horolog.wire import ApiKey

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OF_ONE = {"controller_id", "documentation", "error_message", "throttle_time_ms"}
"""Fields that each broker fills with its own id, words or time."""
OF_NEWEST = {
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.FIND_COORDINATOR,
}
"""Answers that know settings, kinds of resources and share groups, which 3.9 lacks."""
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NO_ID = UUID(int=0)
OTHER_ID = UUID(int=5)
Fields = dict[str, Any]


@pytest.fixture(scope="module", params=[NEWEST, LAST_WITH_OLD_FORMATS])
def mixed(request: pytest.FixtureRequest) -> Iterator[MixedCluster]:
    with running_cluster(
        "kh", 1, peer=request.param, settings=AUTHORIZER, of_controllers=AUTHORIZER
    ) as cluster:
        yield MixedCluster(cluster)


def plain(value: Any) -> Any:
    """A decoded answer as mappings and lists, without the order of lists."""
    if value is None or isinstance(value, str | bytes | int | float | UUID | Enum):
        return value
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return sorted(map(plain, value), key=repr)
    names = getattr(value, "_fields", None) or getattr(value, "__slots__", None) or vars(value)
    fields = {name: plain(getattr(value, name)) for name in names if name not in OF_ONE}
    if "num_partitions" in fields:
        fields.pop("topic_id", None)  # of a topic that is only validated: at random
    if "configs" in fields:
        fields["configs"] = [
            it for it in fields["configs"] if not it["name"].startswith("horolog.")
        ]
    return fields


def about_topics(topic: str, topic_id: UUID) -> Iterator[tuple[ApiKey, Fields]]:
    named = [{"name": it} for it in (topic, "no-such", "bad name", "")]
    more = {"include_topic_authorized_operations": True}
    for asked in (None, [], named, [{"name": None, "topic_id": topic_id}]):
        yield ApiKey.METADATA, {"topics": asked, "allow_auto_topic_creation": False, **more}
    unknown = [{"name": None, "topic_id": OTHER_ID}]
    yield ApiKey.METADATA, {"topics": unknown, "allow_auto_topic_creation": False}
    for names in ([topic], ["no-such"], [topic, "no-such"], []):
        for limit in (2000, 2):
            fields = {"topics": [{"name": it} for it in names], "response_partition_limit": limit}
            yield ApiKey.DESCRIBE_TOPIC_PARTITIONS, fields | {"cursor": None}
    cursor = {"topic_name": topic, "partition_index": 1}
    fields = {"topics": [{"name": topic}], "response_partition_limit": 9, "cursor": cursor}
    yield ApiKey.DESCRIBE_TOPIC_PARTITIONS, fields
    made = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    bad = [{"name": "retention.ms", "value": "x"}]
    for topics in (
        [{"name": "new", **made, "num_partitions": -1, "replication_factor": -1}],
        [{"name": topic, **made}, {"name": "new", **made, "replication_factor": 9}],
        [{"name": "new", **made, "configs": bad}, {"name": "n", **made}, {"name": "n", **made}],
    ):
        fields = {"topics": topics, "timeout_ms": 60_000, "validate_only": True}
        yield ApiKey.CREATE_TOPICS, fields
    counts = [{"name": it, "count": 2, "assignments": None} for it in (topic, "no-such")]
    yield ApiKey.CREATE_PARTITIONS, {"topics": counts, "timeout_ms": 9_000, "validate_only": True}
    gone = {"topics": [{"name": "no-such", "topic_id": NO_ID}], "topic_names": ["no-such"]}
    yield ApiKey.DELETE_TOPICS, gone | {"timeout_ms": 9_000}
    producers = [{"name": "no-such", "partition_indexes": [0]}]
    yield ApiKey.DESCRIBE_PRODUCERS, {"topics": producers}


def about_settings(topic: str) -> Iterator[tuple[ApiKey, Fields]]:
    for kind, name in (
        *((TOPIC, it) for it in (topic, "no-such", "bad name", "")),
        *((BROKER, it) for it in ("", "x", "99")),
        *((METRICS, it) for it in ("m", "no-such", "")),
        *((GROUP, it) for it in ("g", "no-such", "")),
        (LOGGER, "99"),
        (77, "x"),
    ):
        for keys in (None, ["retention.ms", "no.such"]):
            row = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for is_more in (True, False):
                yield ApiKey.DESCRIBE_CONFIGS, {"resources": [row], "include_synonyms": is_more}
    for kinds in ([], [TOPIC], [BROKER], [LOGGER], [METRICS], [GROUP], [TOPIC, GROUP], [77]):
        yield ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": kinds}
    for kind, name, setting, value in (
        (TOPIC, topic, "retention.ms", "x"),
        (TOPIC, topic, "no.such", "1"),
        (TOPIC, "no-such", "retention.ms", "1"),
        (BROKER, "", "log.retention.ms", "x"),
        (METRICS, "m", "interval.ms", "x"),
        (GROUP, "g", "consumer.session.timeout.ms", "1"),
        (77, "x", "y", "1"),
    ):
        change = {"name": setting, "config_operation": 0, "value": value}
        row = {"resource_type": kind, "resource_name": name, "configs": [change]}
        fields = {"resources": [row], "validate_only": True}
        yield ApiKey.INCREMENTAL_ALTER_CONFIGS, fields


def about_clients() -> Iterator[tuple[ApiKey, Fields]]:
    every = {"pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    for kind in (0, 1, 2):
        yield ApiKey.DESCRIBE_ACLS, {"resource_type_filter": kind, **every}
    matching = {"resource_type_filter": 2, "resource_name_filter": "prefixed"}
    yield ApiKey.DESCRIBE_ACLS, {**matching, **every, "pattern_type_filter": 2}
    for components in (
        [],
        [("user", 0, "u")],
        [("user", 1, None)],
        [("user", 2, None), ("client-id", 2, None)],
        [("ip", 2, None)],
        [("user", 2, None), ("ip", 2, None)],
        [("user", 2, None), ("user", 2, None)],
        [("other", 2, None)],
    ):
        names = ("entity_type", "match_type", "match")
        rows = [dict(zip(names, it, strict=True)) for it in components]
        for is_strict in (True, False):
            yield ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": rows, "strict": is_strict}
    for users in (None, [], ["s"], ["no-such"], ["s", "s"], [""]):
        named = None if users is None else [{"name": it} for it in users]
        yield ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": named}
    for kind, key in ((0, "g"), (1, "t"), (2, "g"), (3, "g"), (2, "g:AAAAAAAAAAAAAAAAAAAAAQ:1")):
        fields = {"key": key, "key_type": kind, "coordinator_keys": [key]}
        yield ApiKey.FIND_COORDINATOR, fields


def about_the_cluster(topic: str) -> Iterator[tuple[ApiKey, Fields]]:
    for kind in (1, 2, 3):
        fields = {"endpoint_type": kind, "include_cluster_authorized_operations": True}
        yield ApiKey.DESCRIBE_CLUSTER, {**fields, "include_fenced_brokers": True}
    yield ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout_ms": 9_000}
    yield ApiKey.UNREGISTER_BROKER, {"broker_id": 99}
    elected = [{"topic": it, "partitions": [0, 77]} for it in (topic, "no-such")]
    fields = {"election_type": 0, "topic_partitions": elected, "timeout_ms": 9_000}
    yield ApiKey.ELECT_LEADERS, fields
    moved = [{"name": it, "partitions": [{"partition_index": 0, "replicas": [9]}]}
             for it in (topic, "no-such")]  # fmt: skip
    yield ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": moved, "timeout_ms": 9_000}


def set_up(mixed: MixedCluster) -> tuple[str, UUID]:
    """A topic, rights, quotas, users and settings, which both brokers know."""
    topic = mixed.topic("described", [[1, 2], [2, 1], [1, 2]], retention_ms="1234567")
    entry = {"resource_pattern_type": 3, "host": "*", "permission_type": 3}
    right = {"resource_type": 2, "resource_name": "pre", "principal": "User:x", "operation": 3}
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "u"}],
        "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
    }
    user = {"name": "s", "mechanism": 1, "iterations": 4096, "salt": b"1", "salted_password": b"2"}
    changes = [
        (METRICS, "m", "interval.ms", "5000"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (BROKER, "", "log.retention.ms", "7777777"),
    ]
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": setting, "config_operation": 0, "value": value}],
        }
        for kind, name, setting, value in changes
    ]
    with RawConnection(mixed.cluster.nodes[1].address) as connection:
        connection.ask(ApiKey.CREATE_ACLS, 2, creations=[{**entry, **right}])
        connection.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota], validate_only=False)
        connection.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[user])
        connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
        (found,) = connection.ask(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics
    mixed.await_whole(topic)
    return topic, found.topic_id


def answers(address: str, asked: Iterable[tuple[ApiKey, int, Fields]]) -> Iterator[Any]:
    """The answers of one broker; "closed" where it hangs up."""
    connection = RawConnection(address)
    try:
        for key, version, fields in asked:
            try:
                yield plain(connection.ask(key, version, **fields))
            except ConnectionError:
                connection.socket.close()
                connection = RawConnection(address)
                yield "closed"
    finally:
        connection.socket.close()


def test_all_versions_of_answers_are_those_of_kafka(mixed: MixedCluster) -> None:
    kafka, horolog = (it.address for it in mixed.cluster.nodes)
    topic, topic_id = set_up(mixed)
    with RawConnection(kafka) as connection:
        offered = connection.ask(ApiKey.API_VERSIONS, 3, client_software_name="t").api_keys
    versions: Mapping[int, range] = {
        it.api_key: range(it.min_version, it.max_version + 1) for it in offered
    }
    asked = [
        (key, version, fields)
        for key, fields in (
            *about_topics(topic, topic_id),
            *about_settings(topic),
            *about_clients(),
            *about_the_cluster(topic),
        )
        for version in versions.get(key, ())
        if version >= key.versions.min
        if mixed.cluster.peer == NEWEST or key not in OF_NEWEST
        # Before version 4 each topic that is asked for is created; ids are asked for from 12 on.
        if key != ApiKey.METADATA or version >= (12 if fields["topics"] else 4)
    ]

    def differing() -> list[str]:
        both = zip(asked, answers(kafka, asked), answers(horolog, asked), strict=True)
        return [
            f"{key.name} v{version} {fields}\n    Kafka {theirs}\n    ours  {ours}"
            for (key, version, fields), theirs, ours in both
            if theirs != ours
        ]

    assert len(asked) > 100
    # What was changed a moment ago may be known to one of them.
    if not eventually(lambda: not differing(), 20):
        pytest.fail("\n".join(differing()))
