"""The supported APIs of Kafka and their versions.

`ApiKey` is the single source. It lists the versions that Apache Kafka 3.9 or 4.x serves and
horolog implements fully; `other_versions` has the layouts that kio lacks. `SUPPORTED` are those
that the broker answers and advertises. Requests of brokers to the controllers of their cluster
are asked, or relayed, but never answered here.
"""

from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Self

__all__ = ["ASKED_VERSIONS", "OF_CONTROLLERS", "SUPPORTED", "ApiKey", "Versions"]


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    min: int
    max: int

    def common(self, other: "Versions") -> "Versions | None":
        """Return the versions in both ranges; None if there are none."""
        both = Versions(max(self.min, other.min), min(self.max, other.max))
        return both if both.min <= both.max else None


NEVER_FLEXIBLE: Final = 0x7FFF
"""First flexible version of APIs that have none."""


class ApiKey(IntEnum):
    """Kafka's API keys of the supported requests, each with its versions.

    A row has the key, the first and the last supported version, and the first flexible version:
    that with compact strings, tagged fields and the longer headers (KIP-482). The last is listed
    here so that headers are read without loading a schema.
    """

    _value_: int
    versions: Versions
    flexible_from: int

    def __new__(cls, key: int, first: int, last: int, flexible_from: int) -> Self:
        """Make the member of a row."""
        member = int.__new__(cls, key)
        member._value_ = key
        member.versions = Versions(first, last)
        member.flexible_from = flexible_from
        return member

    PRODUCE = 0, 0, 13, 9
    FETCH = 1, 0, 18, 12
    LIST_OFFSETS = 2, 0, 11, 6
    METADATA = 3, 0, 13, 9
    OFFSET_COMMIT = 8, 0, 10, 8
    OFFSET_FETCH = 9, 0, 10, 6
    FIND_COORDINATOR = 10, 0, 6, 3
    JOIN_GROUP = 11, 0, 9, 6
    HEARTBEAT = 12, 0, 4, 4
    LEAVE_GROUP = 13, 0, 5, 4
    SYNC_GROUP = 14, 0, 5, 4
    DESCRIBE_GROUPS = 15, 0, 6, 5
    LIST_GROUPS = 16, 0, 5, 3
    SASL_HANDSHAKE = 17, 0, 1, NEVER_FLEXIBLE
    API_VERSIONS = 18, 0, 5, 3
    CREATE_TOPICS = 19, 0, 7, 5
    DELETE_TOPICS = 20, 0, 6, 4
    DELETE_RECORDS = 21, 0, 2, 2
    # Version 6 only adds two-phase commit (KIP-939), which is unstable in Kafka itself.
    INIT_PRODUCER_ID = 22, 0, 5, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 0, 4, 4
    # From version 4 on for brokers among each other (KIP-890).
    ADD_PARTITIONS_TO_TXN = 24, 0, 5, 3
    ADD_OFFSETS_TO_TXN = 25, 0, 4, 3
    END_TXN = 26, 0, 5, 3
    WRITE_TXN_MARKERS = 27, 1, 2, 1
    TXN_OFFSET_COMMIT = 28, 0, 6, 3
    DESCRIBE_ACLS = 29, 1, 3, 2
    CREATE_ACLS = 30, 1, 3, 2
    DELETE_ACLS = 31, 1, 3, 2
    DESCRIBE_CONFIGS = 32, 0, 4, 4
    ALTER_CONFIGS = 33, 0, 2, 2
    DESCRIBE_LOG_DIRS = 35, 0, 5, 2
    SASL_AUTHENTICATE = 36, 0, 2, 2
    CREATE_PARTITIONS = 37, 0, 3, 2
    CREATE_DELEGATION_TOKEN = 38, 1, 3, 2
    RENEW_DELEGATION_TOKEN = 39, 1, 2, 2
    EXPIRE_DELEGATION_TOKEN = 40, 1, 2, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 1, 3, 2
    DELETE_GROUPS = 42, 0, 3, 2
    ELECT_LEADERS = 43, 0, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0
    OFFSET_DELETE = 47, 0, 0, NEVER_FLEXIBLE
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, 1
    ALTER_CLIENT_QUOTAS = 49, 0, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0
    DESCRIBE_QUORUM = 55, 0, 2, 0
    ALTER_PARTITION = 56, 2, 3, 0
    UPDATE_FEATURES = 57, 0, 2, 0
    ENVELOPE = 58, 0, 0, 0
    FETCH_SNAPSHOT = 59, 0, 1, 0
    DESCRIBE_CLUSTER = 60, 0, 2, 0
    DESCRIBE_PRODUCERS = 61, 0, 0, 0
    BROKER_REGISTRATION = 62, 0, 4, 0
    BROKER_HEARTBEAT = 63, 0, 2, 0
    UNREGISTER_BROKER = 64, 0, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0
    LIST_TRANSACTIONS = 66, 0, 2, 0
    ALLOCATE_PRODUCER_IDS = 67, 0, 0, 0
    CONSUMER_GROUP_HEARTBEAT = 68, 0, 1, 0
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1, 0
    ASSIGN_REPLICAS_TO_DIRS = 73, 0, 0, 0
    LIST_CONFIG_RESOURCES = 74, 0, 1, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0
    ADD_RAFT_VOTER = 80, 0, 1, 0
    REMOVE_RAFT_VOTER = 81, 0, 0, 0
    UNREGISTER_CONTROLLER = 94, 0, 0, 0

    @property
    def title(self) -> str:
        """Kafka's spelling: `ListOffsets`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


OF_CONTROLLERS: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ALTER_PARTITION,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UNREGISTER_CONTROLLER,
    }
)
"""APIs that a broker asks of controllers, or relays for its clients, and those of tokens."""

SUPPORTED: Final = MappingProxyType(
    {key: key.versions for key in ApiKey if key not in OF_CONTROLLERS}
)

ASKED_VERSIONS: Final = 4
"""The version of ApiVersions that `horolog.client` asks first.

Brokers before Kafka 4.4 refuse version 5, which would cost a round trip for each connection.
"""


def is_flexible(api_key: ApiKey, version: int) -> bool:
    """Return True if a version has compact strings, tagged fields and the longer headers."""
    return version >= api_key.flexible_from
