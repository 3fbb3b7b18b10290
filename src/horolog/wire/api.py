"""The supported APIs of Kafka and their versions.

`SUPPORTED` is the single source. It lists the versions that Apache Kafka 3.9 or 4.x serves and
horolog implements fully; `older_versions` has the layouts that kio lacks. The broker advertises all
of them but `CLIENT_ONLY`.
"""

from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["CLIENT_ONLY", "FLEXIBLE_FROM", "SUPPORTED", "ApiKey", "Versions"]


class ApiKey(IntEnum):
    """Kafka's API keys of the supported requests."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    LIST_CONFIG_RESOURCES = 74

    @property
    def title(self) -> str:
        """Kafka's spelling: `ListOffsets`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    min: int
    max: int

    def common(self, other: "Versions") -> "Versions | None":
        """The versions in both ranges."""
        both = Versions(max(self.min, other.min), min(self.max, other.max))
        return both if both.min <= both.max else None


SUPPORTED: Final = MappingProxyType(
    {
        ApiKey.PRODUCE: Versions(0, 13),
        ApiKey.FETCH: Versions(0, 18),
        ApiKey.LIST_OFFSETS: Versions(0, 11),
        ApiKey.METADATA: Versions(0, 13),
        ApiKey.OFFSET_COMMIT: Versions(0, 10),
        ApiKey.OFFSET_FETCH: Versions(0, 10),
        ApiKey.FIND_COORDINATOR: Versions(0, 6),
        ApiKey.JOIN_GROUP: Versions(0, 9),
        ApiKey.HEARTBEAT: Versions(0, 4),
        ApiKey.LEAVE_GROUP: Versions(0, 5),
        ApiKey.SYNC_GROUP: Versions(0, 5),
        ApiKey.DESCRIBE_GROUPS: Versions(0, 6),
        ApiKey.LIST_GROUPS: Versions(0, 5),
        ApiKey.SASL_HANDSHAKE: Versions(1, 1),
        ApiKey.API_VERSIONS: Versions(0, 4),
        ApiKey.CREATE_TOPICS: Versions(0, 7),
        ApiKey.DELETE_TOPICS: Versions(0, 6),
        ApiKey.DELETE_RECORDS: Versions(0, 2),
        # Version 6 only adds two-phase commit (KIP-939), which is unstable in Kafka itself.
        ApiKey.INIT_PRODUCER_ID: Versions(0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(0, 4),
        # From version 4 on AddPartitionsToTxn is for brokers among each other (KIP-890).
        ApiKey.ADD_PARTITIONS_TO_TXN: Versions(0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: Versions(0, 4),
        ApiKey.END_TXN: Versions(0, 5),
        ApiKey.WRITE_TXN_MARKERS: Versions(1, 2),
        ApiKey.TXN_OFFSET_COMMIT: Versions(0, 5),
        ApiKey.DESCRIBE_CONFIGS: Versions(0, 4),
        ApiKey.ALTER_CONFIGS: Versions(0, 2),
        ApiKey.DESCRIBE_LOG_DIRS: Versions(0, 5),
        ApiKey.SASL_AUTHENTICATE: Versions(0, 2),
        ApiKey.CREATE_PARTITIONS: Versions(0, 3),
        ApiKey.DELETE_GROUPS: Versions(0, 2),
        ApiKey.ELECT_LEADERS: Versions(0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0),
        ApiKey.OFFSET_DELETE: Versions(0, 0),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0),
        ApiKey.DESCRIBE_QUORUM: Versions(0, 2),
        ApiKey.DESCRIBE_CLUSTER: Versions(0, 2),
        ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: Versions(0, 0),
        ApiKey.LIST_TRANSACTIONS: Versions(0, 2),
        ApiKey.LIST_CONFIG_RESOURCES: Versions(0, 1),
    }
)

CLIENT_ONLY: Final = frozenset(
    {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
)
"""Requests that `horolog.client` sends to secured brokers; this broker does not serve them."""

# The first version with compact strings, tagged fields and the longer headers (KIP-482).
# Listed here so that headers are read without loading a schema. OffsetDelete and SaslHandshake
# have no such version.
FLEXIBLE_FROM: Final = MappingProxyType(
    {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 9,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 6,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.JOIN_GROUP: 6,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.SYNC_GROUP: 4,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.LIST_GROUPS: 3,
        ApiKey.SASL_HANDSHAKE: 0x7FFF,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 5,
        ApiKey.DELETE_TOPICS: 4,
        ApiKey.DELETE_RECORDS: 2,
        ApiKey.INIT_PRODUCER_ID: 2,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.WRITE_TXN_MARKERS: 1,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 2,
        ApiKey.DESCRIBE_LOG_DIRS: 2,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.CREATE_PARTITIONS: 2,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.ELECT_LEADERS: 2,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
        ApiKey.OFFSET_DELETE: 0x7FFF,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.DESCRIBE_QUORUM: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.DESCRIBE_PRODUCERS: 0,
        ApiKey.DESCRIBE_TRANSACTIONS: 0,
        ApiKey.LIST_TRANSACTIONS: 0,
        ApiKey.LIST_CONFIG_RESOURCES: 0,
    }
)


def is_flexible(api_key: ApiKey, version: int) -> bool:
    """Whether this version has compact strings, tagged fields and the longer headers."""
    return version >= FLEXIBLE_FROM[api_key]
