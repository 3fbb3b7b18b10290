"""A request for each API that any of its versions can carry."""

from typing import Any
from uuid import UUID

from raw_connection import fetch_fields, produce_fields

from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

BATCH = build_batch([LogRecord(1_700_000_000_000, b"k", b"v")])


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
        ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda v: {
            "group_id": f"of-heartbeats-{v}",
            "member_id": "m",
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        },
        ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": ["g"]},
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
        ApiKey.ALTER_CLIENT_QUOTAS: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "none"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
            "topics": [{"name": "t"}],
            "response_partition_limit": 2000,
        },
        ApiKey.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True},
    }
