"""Followed partitions, and the requests to their leader."""

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from horolog.broker.partition import Partition
from horolog.client.fetch_session import FetchAnswer, FetchLimits, FetchPosition
from horolog.client.leader import EpochEnd, LogBounds
from horolog.config import BrokerConfig
from horolog.offsets import TopicPartition
from horolog.replication.asked import AskedPartition

__all__ = ["Followed", "LeaderAsker", "fetch_limits"]

StateT_co = TypeVar("StateT_co", bound=AskedPartition, covariant=True)


class Followed(Generic[StateT_co]):
    """A followed partition: the partition here, and the state of following it."""

    __slots__ = (
        "arrived_ms",
        "is_busy",
        "key",
        "partition",
        "position",
        "reading_since_ms",
        "state",
        "topic_id",
    )

    def __init__(
        self, partition: Partition, topic_id: UUID | None, state: StateT_co, now_ms: int
    ) -> None:
        self.key: TopicPartition = (partition.topic, partition.index)
        self.partition = partition
        self.topic_id = topic_id
        """Topic id at the leader."""
        self.state = state
        self.is_busy = False
        """Whether its log is being changed. The next question depends on the outcome."""
        self.position: FetchPosition | None = None
        """Position that the leader knows, or is told with the next fetch."""
        self.reading_since_ms = 0
        """Time from which on requests ask for its records."""
        self.arrived_ms = now_ms
        """Latest time at which its last record can have arrived."""


class LeaderAsker(Protocol):
    """Requests to one leader. Each may raise a HorologError, and is repeated later."""

    async def fetch(
        self,
        positions: Mapping[TopicPartition, FetchPosition],
        forgotten: Mapping[TopicPartition, None],
        max_wait_ms: int,
    ) -> Mapping[TopicPartition, FetchAnswer]:
        """Fetch, given the changed positions and the forgotten partitions.

        The records are valid until the next fetch.
        """

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, EpochEnd]:
        """Return ends of epochs, given the leader's epoch and the one to look up of each."""

    async def bounds(
        self, asked: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, LogBounds]:
        """Return the first and last offsets of logs, given the leader's epoch of each."""

    async def close(self) -> None:
        """End the connection; a request in flight fails."""


def fetch_limits(config: BrokerConfig) -> FetchLimits:
    """Return the limits of fetches from a leader, by `replica.fetch.*`."""
    return FetchLimits(
        max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        min_bytes=config.replica_fetch_min_bytes,
        kept_bytes=2 * config.replica_fetch_response_max_bytes,
    )
