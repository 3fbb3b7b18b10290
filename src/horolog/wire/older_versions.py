"""Layouts of the versions that Apache Kafka 4.0 removed (KIP-896), without those of groups.

A version is described by its difference to the next one: fields that it lacks, and fields that
later versions lack. The layouts are from Apache Kafka 3.9's protocol guide.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from horolog.wire.api import ApiKey

__all__ = ["OLDER", "Extra", "Older"]


class Extra(NamedTuple):
    """A field that later versions lack: a primitive, or an array of one."""

    structure: str
    before: str | None  # the field behind it, or None at the end of its structure
    name: str
    type: str
    is_array: bool = False
    default: int | None = None  # what later versions mean


class Older(NamedTuple):
    """Difference between a version and the next one."""

    lacks: frozenset[str] = frozenset()  # names of fields, each of one structure of the message
    extra: tuple[Extra, ...] = ()


_SAME: Final = Older()


def _lacks(*names: str) -> Older:
    return Older(frozenset(names))


OLDER: Final[Mapping[tuple[str, ApiKey], Mapping[int, Older]]] = MappingProxyType(
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
            0: Older(
                extra=(Extra("ListOffsetsPartition", None, "max_num_offsets", "int32", default=1),)
            )
        },
        ("response", ApiKey.LIST_OFFSETS): {
            0: Older(
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
            1: Older(
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
            0: Older(
                frozenset({"config_source", "synonyms"}),
                (Extra("DescribeConfigsResourceResult", "is_sensitive", "is_default", "bool"),),
            )
        },
        ("request", ApiKey.DESCRIBE_LOG_DIRS): {0: _SAME},
        ("response", ApiKey.DESCRIBE_LOG_DIRS): {0: _SAME},
    }
)
