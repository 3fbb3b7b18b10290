"""Whatever ApiVersions advertises is answered, every version of it, in that version's shape."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from raw_connection import RawConnection, fetch_fields, produce_fields
from running_broker import RunningBroker, a_broker

from horolog.broker import served
from horolog.record import LogRecord, build_batch
from horolog.testing import Broker
from horolog.wire import SUPPORTED, ApiKey

BATCH = build_batch([LogRecord(1_700_000_000_000, b"k", b"v")])
broker = a_broker(now_ms=None, scope="module")


def requests(topic_id: UUID) -> dict[ApiKey, Any]:
    """For each API a request that any version can carry."""
    member = {"group_id": "g", "member_id": "m", "generation_id": 1}
    return {
        ApiKey.PRODUCE: lambda v: produce_fields(topic_id if v >= 13 else "t", {0: BATCH}),
        ApiKey.FETCH: lambda v: fetch_fields(topic_id if v >= 13 else "t", {0: 0}),
        ApiKey.LIST_OFFSETS: {
            "topics": [
                {"name": "t", "partitions": [{"partition_index": 0, "timestamp": 5}]},
            ],
        },
        ApiKey.METADATA: {"topics": [{"name": "t"}]},
        ApiKey.OFFSET_COMMIT: {
            "group_id": "simple",
            "topics": [
                {
                    "name": "t",
                    "topic_id": topic_id,
                    "partitions": [{"partition_index": 0, "committed_offset": 45}],
                }
            ],
        },
        ApiKey.TXN_OFFSET_COMMIT: {
            "transactional_id": "none",
            "group_id": "simple",
            "producer_id": 7,
            "producer_epoch": 0,
            "topics": [
                {
                    "name": "t",
                    "topic_id": topic_id,
                    "partitions": [{"partition_index": 0, "committed_offset": 45}],
                }
            ],
        },
        ApiKey.OFFSET_FETCH: {
            "group_id": "simple",
            "topics": [{"name": "t", "partition_indexes": [0]}],
            "groups": [
                {
                    "group_id": "simple",
                    "topics": [{"name": "t", "topic_id": topic_id, "partition_indexes": [0]}],
                }
            ],
        },
        ApiKey.FIND_COORDINATOR: {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
        ApiKey.JOIN_GROUP: lambda v: {
            "group_id": f"of-{v}",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        ApiKey.HEARTBEAT: member,
        ApiKey.LEAVE_GROUP: {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]},
        ApiKey.SYNC_GROUP: {**member},
        ApiKey.DESCRIBE_GROUPS: {"groups": ["g"]},
        ApiKey.LIST_GROUPS: {},
        ApiKey.API_VERSIONS: {},
        ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
        ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b"x"},
        ApiKey.DESCRIBE_ACLS: {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        },
        ApiKey.CREATE_ACLS: {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "t",
                    "resource_pattern_type": 3,
                    "principal": "User:a",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        ApiKey.DELETE_ACLS: {
            "filters": [
                {
                    "resource_type_filter": 1,
                    "pattern_type_filter": 1,
                    "operation": 1,
                    "permission_type": 1,
                }
            ]
        },
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "none", "mechanism": 1}]},
        ApiKey.CREATE_TOPICS: lambda v: {
            "topics": [
                {
                    "name": f"new-{v}",  # v0 cannot only validate
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout_ms": 1000,
            "validate_only": True,
        },
        ApiKey.DELETE_TOPICS: {
            "topic_names": ["none"],
            "topics": [{"name": "none", "topic_id": None}],
        },
        ApiKey.DELETE_RECORDS: {
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]
        },
        ApiKey.INIT_PRODUCER_ID: {},
        ApiKey.ADD_PARTITIONS_TO_TXN: lambda v: (
            {"v3_and_below_transactional_id": "x", "v3_and_below_topics": []}
            if v < 4
            else {"transactions": [{"transactional_id": "x", "topics": []}]}
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "x", "group_id": "g"},
        ApiKey.END_TXN: {"transactional_id": "x"},
        ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["x"]},
        ApiKey.LIST_TRANSACTIONS: {"transactional_id_pattern": ".*"},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "topics": [
                {
                    "topic": "t",
                    "partitions": [{"partition": 0, "leader_epoch": 0}],
                }
            ]
        },
        ApiKey.DESCRIBE_CONFIGS: {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configuration_keys": None},
                {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
            ]
        },
        ApiKey.ALTER_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": "t"}],
            "validate_only": True,
        },
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
        ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "t", "count": 7}], "validate_only": True},
        ApiKey.DELETE_GROUPS: {"groups_names": ["none"]},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [
                        {"name": "retention.ms", "config_operation": 0, "value": "5"},
                    ],
                }
            ],
            "validate_only": True,
        },
        ApiKey.WRITE_TXN_MARKERS: {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "topics": [{"name": "t", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                    "transaction_version": 0,
                }
            ]
        },
        ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": "t", "partition_indexes": [0]}]},
        ApiKey.OFFSET_DELETE: {
            "group_id": "none",
            "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
        },
        ApiKey.DESCRIBE_QUORUM: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
        ApiKey.ELECT_LEADERS: {
            "election_type": 0,
            "topic_partitions": [{"topic": "t", "partitions": [0]}],
        },
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            "topics": [
                {"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]},
            ]
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": None},
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {
            "components": [{"entity_type": "user", "match_type": 2, "match": None}],
            "strict": False,
        },
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
        ApiKey.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True},
    }


# What these ask for is not there, or is not theirs: an error is the right answer.
EXPECTED_ERRORS = {
    ApiKey.SASL_HANDSHAKE: {34},
    ApiKey.SASL_AUTHENTICATE: {34},
    ApiKey.DESCRIBE_ACLS: {54},
    ApiKey.CREATE_ACLS: {54},
    ApiKey.DELETE_ACLS: {54},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {91},
    ApiKey.TXN_OFFSET_COMMIT: {48, 49},
    ApiKey.OFFSET_FETCH: {0, 3},  # v0 has an error for what was never committed
    ApiKey.HEARTBEAT: {25},
    ApiKey.LEAVE_GROUP: {0, 25},
    ApiKey.SYNC_GROUP: {25},
    ApiKey.JOIN_GROUP: {0, 79},
    ApiKey.DESCRIBE_GROUPS: {0, 69},
    ApiKey.DELETE_TOPICS: {3},
    ApiKey.DELETE_GROUPS: {69},
    ApiKey.OFFSET_DELETE: {69},
    ApiKey.ELECT_LEADERS: {84},
    ApiKey.ADD_OFFSETS_TO_TXN: {49},
    ApiKey.END_TXN: {49},
    ApiKey.DESCRIBE_TRANSACTIONS: {105},
}


def errors_in(value: Any) -> set[int]:
    """Every error code in an answer."""
    if not isinstance(value, (list, tuple)):
        return set()
    names = ("error_code", "partition_error_code")
    own = {int(getattr(value, name)) for name in names if hasattr(value, name)}
    return own.union(*map(errors_in, value))


def test_every_api_in_wire_has_a_handler() -> None:
    assert set(served()) == SUPPORTED.keys()


@pytest.mark.parametrize("key", list(served()), ids=lambda key: key.title)
def test_every_advertised_version_is_answered(key: ApiKey, broker: RunningBroker) -> None:
    with broker.connect() as connection:
        for _ in range(2):  # the first makes it, and is answered that there is none
            created = connection.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics[0]
        fields = requests(created.topic_id)[key]
        for version in range(SUPPORTED[key].min, SUPPORTED[key].max + 1):
            given = fields(version) if callable(fields) else fields
            connection.socket.sendall(connection.packed(key, version, given))
            _, answer = connection.receive()
            errors = errors_in(answer) - {0}
            assert errors <= EXPECTED_ERRORS.get(key, set()), (version, answer)


@pytest.fixture(scope="module")
def failing_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("key", list(served()), ids=lambda key: key.title)
def test_every_advertised_version_can_be_failed_on_purpose(
    key: ApiKey, failing_broker: Broker
) -> None:
    with RawConnection(failing_broker.bootstrap_servers) as connection:
        for _ in range(2):
            created = connection.ask(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics[0]
        fields = requests(created.topic_id)[key]
        for version in range(SUPPORTED[key].min, SUPPORTED[key].max + 1):
            given = fields(version) if callable(fields) else fields
            if key is ApiKey.ADD_PARTITIONS_TO_TXN and version < 4:
                given = {**given, "v3_and_below_topics": [{"name": "t", "partitions": [0, 1]}]}
            failing_broker.fail(key.title, "THROTTLING_QUOTA_EXCEEDED")
            connection.socket.sendall(connection.packed(key, version, given))
            _, answer = connection.receive()
            if key is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
                assert answer.results == ()  # the only way: there is no field for it
            else:
                assert errors_in(answer) - {0} == {89}, (version, answer)
