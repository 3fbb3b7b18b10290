"""Topics to create: those that clients ask for, and the internal ones of the coordinators.

__consumer_offsets   groups and committed offsets    offsets.topic.*
__transaction_state  transactions                    transaction.state.log.*
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from horolog.config import BrokerConfig
from horolog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE

_LAG: Final = "min.compaction.lag.ms"
_WEEK_MS: Final = "604800000"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create, as in CreateTopics; -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    repeated: int | None = None
    overrides: Mapping[str, str | None] = field(default_factory=dict)


def _consumer_offsets(config: BrokerConfig) -> NewTopic:
    """Describe the topic of groups and committed offsets, with the settings of Kafka 4.4."""
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return NewTopic(
        name=CONSUMER_OFFSETS,
        partitions=config.offsets_topic_num_partitions,
        overrides=with_history(overrides, 0, config.horolog_history_ms),
    )


def _transaction_state(config: BrokerConfig) -> NewTopic:
    """Describe the topic of transactions, with the settings of Kafka 4.4 for one replica."""
    return NewTopic(
        name=TRANSACTION_STATE,
        partitions=config.transaction_state_log_num_partitions,
        overrides={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


INTERNAL: Final[Mapping[str, Callable[[BrokerConfig], NewTopic]]] = {
    CONSUMER_OFFSETS: _consumer_offsets,
    TRANSACTION_STATE: _transaction_state,
}
"""Topics of the coordinators, by name, made by the settings of the broker."""


def with_history(overrides: Mapping[str, str], before_ms: int, after_ms: int) -> Mapping[str, str]:
    """Return the settings of `__consumer_offsets` after `horolog.history.ms` was altered.

    A lag that was set by hand stays. A week is what development versions gave to every new topic.
    """
    if before_ms == after_ms or overrides.get(_LAG) not in (None, str(before_ms), _WEEK_MS):
        return overrides
    others = {name: value for name, value in overrides.items() if name != _LAG}
    return {**others, _LAG: str(after_ms)} if after_ms else others
