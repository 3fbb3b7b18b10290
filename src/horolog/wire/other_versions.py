"""Layouts of the versions that kio lacks.

- `OLDER`: versions that Apache Kafka 4.0 removed (KIP-896), without those of groups. The layouts
  are from Apache Kafka 3.9's protocol guide. Each is described by its difference to the next one.
- `NEWER`: versions that Apache Kafka 4.4 added. Each is described by its difference to the
  previous one.
- `OWN_TAGS`: fields of horolog's own, in flexible versions. Others skip their tags (KIP-482).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from horolog.wire.api import ApiKey

__all__ = ["NEWER", "OLDER", "OWN_TAGS", "Extra", "OwnTag", "VersionChange"]


CLOCK_TAG: Final = 10_000
"""Tag of a broker's clock of append times in a Fetch of a replica, and in its answer."""

NO_CLOCK: Final = -(1 << 63)


class Extra(NamedTuple):
    """A field that the other version lacks: a primitive, or an array of one."""

    structure: str
    before: str | None  # the field behind it, or None at the end of its structure
    name: str
    type: str
    is_array: bool = False
    is_nullable: bool = False  # null is the default then
    default: int | None = None  # what the other version means


class VersionChange(NamedTuple):
    """Fields by which a version differs from its neighbour."""

    lacks: frozenset[str] = frozenset()  # names of fields, each of one structure of the message
    extra: tuple[Extra, ...] = ()
    like: ApiKey | None = None  # an API that kio lacks: another one with nearly the same messages
    name: str | None = None  # of its message


class OwnTag(NamedTuple):
    """A tagged field of a whole message."""

    tag: int
    name: str
    type: str
    default: int


OWN_TAGS: Final[Mapping[tuple[str, ApiKey], OwnTag]] = MappingProxyType(
    {
        (kind, ApiKey.FETCH): OwnTag(CLOCK_TAG, "append_clock_ms", "int64", NO_CLOCK)
        for kind in ("request", "response")
    }
)

_SAME: Final = VersionChange()


def _lacks(*names: str) -> VersionChange:
    return VersionChange(frozenset(names))


def _adds(*extra: Extra) -> VersionChange:
    return VersionChange(extra=extra)


def _by_id(structure: str) -> VersionChange:
    """Return the change of a topic's name to its id."""
    return VersionChange(
        frozenset({"name"}),
        (Extra(structure, "partitions", "topic_id", "uuid", is_nullable=True),),
    )


OLDER: Final[Mapping[tuple[str, ApiKey], Mapping[int, VersionChange]]] = MappingProxyType(
    {
        ("request", ApiKey.PRODUCE): {2: _lacks("transactional_id"), 1: _SAME, 0: _SAME},
        ("response", ApiKey.PRODUCE): {
            2: _SAME,
            1: _lacks("log_append_time_ms"),
            0: _lacks("throttle_time_ms"),
        },
        ("request", ApiKey.FETCH): {
            3: _lacks("isolation_level"),
            2: _lacks("max_bytes"),
            1: _SAME,
            0: _SAME,
        },
        ("response", ApiKey.FETCH): {
            3: _lacks("last_stable_offset", "aborted_transactions"),
            2: _SAME,
            1: _SAME,
            0: _lacks("throttle_time_ms"),
        },
        ("request", ApiKey.LIST_OFFSETS): {
            0: VersionChange(
                extra=(Extra("ListOffsetsPartition", None, "max_num_offsets", "int32", default=1),)
            )
        },
        ("response", ApiKey.LIST_OFFSETS): {
            0: VersionChange(
                frozenset({"timestamp", "offset"}),
                (
                    Extra(
                        "ListOffsetsPartitionResponse",
                        None,
                        "old_style_offsets",
                        "int64",
                        is_array=True,
                    ),
                ),
            )
        },
        ("request", ApiKey.OFFSET_COMMIT): {
            1: VersionChange(
                frozenset({"retention_time_ms"}),
                (
                    Extra(
                        "OffsetCommitRequestPartition",
                        "committed_metadata",
                        "commit_timestamp",
                        "int64",
                        default=-1,
                    ),
                ),
            ),
            0: _lacks("generation_id_or_member_epoch", "member_id", "commit_timestamp"),
        },
        ("response", ApiKey.OFFSET_COMMIT): {1: _SAME, 0: _SAME},
        ("request", ApiKey.OFFSET_FETCH): {0: _SAME},
        ("response", ApiKey.OFFSET_FETCH): {0: _SAME},
        ("request", ApiKey.CREATE_TOPICS): {1: _SAME, 0: _lacks("validate_only")},
        ("response", ApiKey.CREATE_TOPICS): {
            1: _lacks("throttle_time_ms"),
            0: _lacks("error_message"),
        },
        ("request", ApiKey.DELETE_TOPICS): {0: _SAME},
        ("response", ApiKey.DELETE_TOPICS): {0: _lacks("throttle_time_ms")},
        ("request", ApiKey.OFFSET_FOR_LEADER_EPOCH): {
            1: _lacks("current_leader_epoch"),
            0: _SAME,
        },
        ("response", ApiKey.OFFSET_FOR_LEADER_EPOCH): {
            1: _lacks("throttle_time_ms"),
            0: _lacks("leader_epoch"),
        },
        ("request", ApiKey.DESCRIBE_CONFIGS): {0: _lacks("include_synonyms")},
        ("response", ApiKey.DESCRIBE_CONFIGS): {
            0: VersionChange(
                frozenset({"config_source", "synonyms"}),
                (Extra("DescribeConfigsResourceResult", "is_sensitive", "is_default", "bool"),),
            )
        },
        ("request", ApiKey.DESCRIBE_LOG_DIRS): {0: _SAME},
        ("response", ApiKey.DESCRIBE_LOG_DIRS): {0: _SAME},
    }
)

NEWER: Final[Mapping[tuple[str, ApiKey], Mapping[int, VersionChange]]] = MappingProxyType(
    {
        # KIP-1242: the cluster and the broker that the client means to talk to.
        ("request", ApiKey.API_VERSIONS): {
            5: _adds(
                Extra("ApiVersionsRequest", None, "cluster_id", "string", is_nullable=True),
                Extra("ApiVersionsRequest", None, "node_id", "int32", default=-1),
            )
        },
        ("response", ApiKey.API_VERSIONS): {5: _SAME},
        # KIP-1319: topics by id.
        ("request", ApiKey.TXN_OFFSET_COMMIT): {
            6: _by_id("TxnOffsetCommitRequestTopic"),
        },
        ("response", ApiKey.TXN_OFFSET_COMMIT): {
            6: _by_id("TxnOffsetCommitResponseTopic"),
        },
        # The removal of a controller's registration: the same as of a broker's.
        ("request", ApiKey.UNREGISTER_CONTROLLER): {
            0: VersionChange(
                frozenset({"broker_id"}),
                (Extra("UnregisterBrokerRequest", None, "controller_id", "int32"),),
                ApiKey.UNREGISTER_BROKER,
                "UnregisterControllerRequest",
            )
        },
        ("response", ApiKey.UNREGISTER_CONTROLLER): {
            0: VersionChange(like=ApiKey.UNREGISTER_BROKER, name="UnregisterControllerResponse")
        },
        # KIP-1331: why a group was not deleted.
        ("request", ApiKey.DELETE_GROUPS): {3: _SAME},
        ("response", ApiKey.DELETE_GROUPS): {
            3: _adds(
                Extra("DeletableGroupResult", None, "error_message", "string", is_nullable=True)
            )
        },
    }
)
