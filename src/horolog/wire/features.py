"""Names and bits of horolog's extensions of Kafka's protocol; `docs/wire.md` describes each.

The broker advertises them as supported features in ApiVersions (KIP-584). A client uses an
extension only if the broker advertises it, so that extensions never reach Apache Kafka's brokers or
clients.
"""

from types import MappingProxyType
from typing import Final

from horolog.wire.api import Versions
from horolog.wire.questions import ACTIONS, QUESTIONS

APPEND_TIME: Final = "horolog.append.time"
"""Lookups by append time and before 1970 in ListOffsets, append times of records in Fetch."""

SEEN_TIME: Final = "horolog.append.time.seen"
"""Times when a follower saw fetched records whose append times are unknown."""

BY_APPEND_TIME: Final = 16
"""Added to the isolation level of ListOffsets: timestamps are append times."""

BY_CREATE_TIME: Final = 32
"""Added to the isolation level of ListOffsets: no timestamp has a special meaning."""

WITH_APPEND_TIMES: Final = 16
"""Added to the isolation level of Fetch: the aborted transactions are followed by append times."""

WITH_SEEN_TIMES: Final = 64
"""Added to that: where append times are unknown, also when a follower saw the records."""

UNKNOWN_TIME: Final = -(1 << 63)
"""The timestamp of a record whose append time is unknown."""

REPLICATION: Final = "horolog.replication"
"""Announced, 0 to 1, in the registration of a broker of a cluster: it is one of horolog."""

FEATURES: Final = MappingProxyType(
    dict.fromkeys(
        sorted(
            [APPEND_TIME, SEEN_TIME]
            + [question.name for question in QUESTIONS]
            + [action.name for action in ACTIONS if action.is_announced]
        ),
        Versions(1, 1),
    )
)
