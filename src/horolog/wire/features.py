"""horolog's extensions of Kafka's protocol; `docs/wire.md` describes each.

The broker advertises them as supported features in ApiVersions (KIP-584). A client uses one only
if the broker advertises it, so extensions never reach Apache Kafka's brokers or clients.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from horolog.wire.api import Versions

APPEND_TIME_RESET: Final = "horolog.append.time.reset"
"""A topic setting that IncrementalAlterConfigs accepts; DescribeConfigs has `APPEND_TIME_AHEAD`."""

APPEND_TIME_AHEAD: Final = "horolog.append.time.ahead"

ALL_PARTITIONS: Final = "all"
"""The value of `APPEND_TIME_RESET` for all partitions; otherwise a comma-separated list."""

EXACTLY_ONCE: Final = "horolog.exactly.once"
"""A broker setting that IncrementalAlterConfigs accepts: begins, commits and forgets batches of
queries. DescribeConfigs has all queries under it, and one under `EXACTLY_ONCE/name`."""

APPEND_TIME: Final = "horolog.append.time"
"""Lookups by append time and before 1970 in ListOffsets, append times of records in Fetch."""

BY_APPEND_TIME: Final = 16
"""Added to the isolation level of ListOffsets: timestamps are append times."""

BY_CREATE_TIME: Final = 32
"""Added to the isolation level of ListOffsets: no timestamp has a special meaning."""

WITH_APPEND_TIMES: Final = 16
"""Added to the isolation level of Fetch: the aborted transactions are followed by append times."""

UNKNOWN_TIME: Final = -(1 << 63)
"""The timestamp of a record whose append time is unknown."""

TIME_RANGES: Final = "horolog.time.ranges"
"""DescribeConfigs of a topic has the offsets that may hold a time, under
`TIME_RANGES/partition/clock/first/last/offset`."""


LOOKUP_WAY: Final = "horolog.lookup.way"
"""DescribeConfigs of a topic has how an offset by timestamp is found, under
`LOOKUP_WAY/partition/timestamp`."""


RETENTION: Final = "horolog.retention.explain"
"""DescribeConfigs of a topic has what retention does about each segment of a partition, under
`RETENTION/` and a JSON object."""


LEFT_BEHIND: Final = "horolog.left.behind"
"""DescribeConfigs of a topic has what a Kafka knows of it that is not carried over, under
`LEFT_BEHIND/FROM`."""


class RangeClock(StrEnum):
    """Whose time it is, in requests of `TIME_RANGES`."""

    RECORD = "record"
    """The timestamps of records."""
    RECORD_OR_NONE = "record-or-none"
    """The same, and records without one."""
    APPEND = "append"
    """When records were appended."""


FEATURES: Final = MappingProxyType(
    dict.fromkeys(
        (
            APPEND_TIME,
            APPEND_TIME_RESET,
            EXACTLY_ONCE,
            LEFT_BEHIND,
            LOOKUP_WAY,
            RETENTION,
            TIME_RANGES,
        ),
        Versions(1, 1),
    )
)
