"""Numbers of Kafka's access control entries: operations, kinds of resources, patterns, effects."""

from enum import IntEnum


class AclOperation(IntEnum):
    """Operations on a resource."""

    UNKNOWN = 0
    ANY = 1
    """Every operation, in filters alone."""
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResource(IntEnum):
    """Kinds of resources that entries are about."""

    UNKNOWN = 0
    ANY = 1
    """Every kind, in filters alone."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """Ways in which the name of an entry stands for names of resources."""

    UNKNOWN = 0
    ANY = 1
    """Entries of either pattern with this very name, in filters alone."""
    MATCH = 2
    """Entries that would apply to this name, in filters alone."""
    LITERAL = 3
    """This name; `*` is every name."""
    PREFIXED = 4
    """All names that begin so."""


class AclPermission(IntEnum):
    """Effects of an entry."""

    UNKNOWN = 0
    ANY = 1
    """Either, in filters alone."""
    DENY = 2
    ALLOW = 3
