"""Kafka's operations on a resource (AclOperation), for which a principal may have the right."""

from enum import IntEnum


class AclOperation(IntEnum):
    """Operations on a resource, with Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
