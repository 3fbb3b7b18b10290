"""Placement on a broker that may follow topics of another cluster (docs/following.md).

Clients read here what is followed; they write it where it is led.
"""

from typing import Final

from horolog.broker.follow_state import FollowState
from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.placement.alone import AlonePlacement
from horolog.broker.placement.placement import LeaderHint
from horolog.broker.settings import LiveSettings
from horolog.config import Endpoint
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.wire.leaders import CurrentLeader, NodeEndpoint

_MOST_NODE_ID: Final = (1 << 31) - 1


class ShadowPlacement(AlonePlacement):
    """Topics that are followed are led by the source for producers, and here for readers."""

    def __init__(
        self,
        live: LiveSettings,
        topics: TopicRegistry,
        partitions: Partitions,
        follow_state: FollowState,
    ) -> None:
        super().__init__(live, topics, partitions)
        self._follow_state = follow_state

    def writable(self, topic: Topic, index: int) -> Partition:
        """Return a partition, unless another cluster leads it.

        Raises:
            RequestRefused: as `led`; NOT_LEADER_OR_FOLLOWER if it is followed.
            StorageFailed: as `led`.
        """
        partition = self.led(topic.name, index)
        if topic.followed:
            raise RequestRefused(
                ErrorCode.not_leader_or_follower,
                f"{topic.name} is followed from another cluster, which leads it: write there, or "
                f"end that with `horolog promote {topic.name}`",
            )
        return partition

    def leader_hint(self, topic: str, index: int, listener: Endpoint) -> LeaderHint | None:
        """Return the leader of a followed partition, as the source last reported it."""
        seen = self._follow_state.seen
        found = None if seen is None else seen.topics.get(topic)
        if seen is None or found is None or index >= len(found.partitions):
            return None
        partition = found.partitions[index]
        address = None if partition.leader is None else seen.brokers.get(partition.leader)
        if address is None or partition.leader is None or partition.leader_epoch is None:
            return None
        # A client keeps one connection for each node id.
        is_ours = partition.leader == self._live.config.node_id
        node_id = _MOST_NODE_ID - partition.leader if is_ours else partition.leader
        current = CurrentLeader(node_id, partition.leader_epoch)
        return LeaderHint(current, NodeEndpoint(node_id, *address))
