"""What a horolog broker can do beyond Kafka's protocol; `docs/wire.md` describes each feature.

A broker announces them as supported features in ApiVersions (KIP-584). A client uses one only
where it is announced, so that Apache Kafka's brokers and clients never meet it.
"""

from types import MappingProxyType
from typing import Final

from horolog.wire.api import Versions

APPEND_TIME_RESET: Final = "horolog.append.time.reset"
"""IncrementalAlterConfigs takes this name for a topic, DescribeConfigs `APPEND_TIME_AHEAD`."""

APPEND_TIME_AHEAD: Final = "horolog.append.time.ahead"

ALL_PARTITIONS: Final = "all"
"""The value of `APPEND_TIME_RESET` that means every partition; else indexes with commas."""

FEATURES: Final = MappingProxyType({APPEND_TIME_RESET: Versions(1, 1)})
