"""Placement in a cluster, by the image of the controllers' metadata.

A partition is led here if the image says so *and* its log has taken the role. Between the two,
clients are answered NOT_LEADER_OR_FOLLOWER, and ask again.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.placement.placement import (
    NO_LEADER,
    BrokerNode,
    LeaderHint,
    PlacedPartition,
)
from horolog.config import Endpoint
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.image import Image
from horolog.metadata.topics import Topic, unknown_topic
from horolog.schemas.metadata import BrokerEndpoint, PartitionRecord, RegisterBroker
from horolog.schemas.offsets import partition_for
from horolog.wire.features import REPLICATION
from horolog.wire.leaders import CurrentLeader, NodeEndpoint

_LOST_DIRECTORY: Final = UUID(int=2)
_RESERVED_DIRECTORIES: Final = 100
"""Ids of directories below this mean no directory: unassigned, or migrating."""


class ObservedImage(Protocol):
    """Has the metadata that were applied last."""

    @property
    def image(self) -> Image:
        """State of the cluster; it changes on the event loop only."""
        ...


class ClusterPlacement:
    """The image's leaders, brokers and coordinators."""

    def __init__(
        self,
        node_id: int,
        view: ObservedImage,
        partitions: Partitions,
        may_lead: Callable[[], bool] = lambda: True,
    ) -> None:
        self._node_id = node_id
        self._may_lead = may_lead
        self._view = view
        self._partitions = partitions

    @property
    def controller_id(self) -> int:
        """This broker if it is alive, otherwise any that is: each relays to the controllers."""
        brokers = self._view.image.brokers
        here = brokers.get(self._node_id)
        if here is not None and not here.fenced:
            return self._node_id
        return min((node for node, broker in brokers.items() if not broker.fenced), default=-1)

    def led(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        """Return a partition that this broker leads.

        Raises:
            RequestRefused: it does not exist (3), another broker leads it or the log has not taken
                its role yet (6), or its leader epoch is not the client's (74, 75).
        """
        its = self._view.image.topics.get(topic)
        placed = None if its is None else its.partitions.get(index)
        if its is None or placed is None:
            raise unknown_topic(topic)
        partition = self._partitions.find(topic, index)
        if placed.leader == self._node_id and partition is not None:
            log = partition.log
            is_its = log.topic_id == its.topic_id
            if partition.has_role and not log.is_following and is_its and self._may_lead():
                if leader_epoch != -1:
                    log.check_epoch(leader_epoch)
                return partition
        _check_epoch(placed, topic, leader_epoch)
        raise RequestRefused(
            ErrorCode.not_leader_or_follower,
            f"{topic}-{index} is led by broker {placed.leader} in epoch {placed.leader_epoch}",
        )

    def writable(self, topic: Topic, index: int) -> Partition:
        """Return a partition that this broker leads, as `led` does."""
        return self.led(topic.name, index)

    def leader_hint(self, topic: str, index: int, listener: Endpoint) -> LeaderHint | None:
        """Return the leader of a partition; None without one, or without that listener."""
        its = self._view.image.topics.get(topic)
        placed = None if its is None else its.partitions.get(index)
        node = None if placed is None else self._alive(placed.leader, listener)
        if placed is None or node is None:
            return None
        return LeaderHint(CurrentLeader(placed.leader, placed.leader_epoch), node)

    def partition(self, topic: Topic, index: int, listener: Endpoint) -> PlacedPartition:
        """Return the replicas of a partition, with an error if clients cannot reach its leader."""
        image = self._view.image
        its = image.by_id.get(topic.topic_id)
        placed = None if its is None else its.partitions.get(index)
        if placed is None:
            return PlacedPartition(ErrorCode.unknown_topic_or_partition, NO_LEADER, -1, (), (), ())
        error, leader = ErrorCode.none, placed.leader
        if self._alive(leader, listener) is None:
            known = image.brokers.get(leader)
            is_alive = known is not None and not known.fenced
            error = ErrorCode.listener_not_found if is_alive else ErrorCode.leader_not_available
            leader = NO_LEADER
        return PlacedPartition(
            error,
            leader,
            placed.leader_epoch,
            placed.replicas,
            placed.isr,
            tuple(self._offline(placed, listener)),
            placed.elr or (),
            placed.last_known_elr or (),
        )

    def brokers(self, listener: Endpoint, *, fenced: bool = False) -> Sequence[BrokerNode]:
        """Return registered brokers that have a listener of this name."""
        return [
            BrokerNode(_node(broker, endpoint), broker.fenced)
            for _, broker in sorted(self._view.image.brokers.items())
            if fenced or not broker.fenced
            for endpoint in (_endpoint(broker, listener),)
            if endpoint is not None
        ]

    def coordinator(self, topic: str, key: str, listener: Endpoint) -> NodeEndpoint:
        """Return the leader of the internal topic's partition that has the key.

        Raises:
            RequestRefused: COORDINATOR_NOT_AVAILABLE: there is no such topic, or no leader that is
                alive, or the leader is a horolog, which coordinates nothing in a cluster yet.
        """
        its = self._view.image.topics.get(topic)
        if its is None or not its.partitions:
            raise _no_coordinator(f"{topic} does not exist")
        index = partition_for(key, len(its.partitions))
        placed = its.partitions.get(index)
        leader = NO_LEADER if placed is None else placed.leader
        node = self._alive(leader, listener)
        if node is None:
            raise _no_coordinator(f"{topic}-{index} has no leader that is alive")
        if is_horolog(self._view.image.brokers[leader]):
            raise _no_coordinator(
                f"{topic}-{index} is led by broker {leader}, a horolog, which does not coordinate "
                "groups and transactions in a cluster: move it to a broker of Apache Kafka"
            )
        return node

    def _alive(self, node_id: int, listener: Endpoint) -> NodeEndpoint | None:
        broker = self._view.image.brokers.get(node_id)
        if broker is None or broker.fenced:
            return None
        endpoint = _endpoint(broker, listener)
        return None if endpoint is None else _node(broker, endpoint)

    def _offline(self, placed: PartitionRecord, listener: Endpoint) -> list[int]:
        """Return replicas that are not alive for clients of a listener, or in no directory."""
        return [
            replica
            for place, replica in enumerate(placed.replicas)
            if self._alive(replica, listener) is None
            or not _has_directory(self._view.image.brokers[replica], placed, place)
        ]


def is_horolog(broker: RegisterBroker) -> bool:
    """Return True if a registered broker is one of horolog."""
    return any(name == REPLICATION for name, *_ in broker.features)


def _has_directory(broker: RegisterBroker, placed: PartitionRecord, place: int) -> bool:
    if not broker.log_dirs or place >= len(placed.directories):
        return True
    directory = placed.directories[place]
    if directory == _LOST_DIRECTORY:
        return False
    return directory.int < _RESERVED_DIRECTORIES or directory in broker.log_dirs


def _check_epoch(placed: PartitionRecord, topic: str, leader_epoch: int) -> None:
    """Refuse a client that knows another leader epoch than the image."""
    if leader_epoch in (-1, placed.leader_epoch):
        return
    code = ErrorCode.unknown_leader_epoch
    if leader_epoch < placed.leader_epoch:
        code = ErrorCode.fenced_leader_epoch
    where = f"{topic}-{placed.partition}"
    raise RequestRefused(code, f"{where} is in leader epoch {placed.leader_epoch}")


def _endpoint(broker: RegisterBroker, listener: Endpoint) -> BrokerEndpoint | None:
    for endpoint in broker.endpoints:
        if endpoint.name == listener.name:
            return endpoint
    return None


def _node(broker: RegisterBroker, endpoint: BrokerEndpoint) -> NodeEndpoint:
    return NodeEndpoint(broker.broker_id, endpoint.host, endpoint.port, broker.rack)


def _no_coordinator(why: str) -> RequestRefused:
    return RequestRefused(
        ErrorCode.coordinator_not_available, f"The coordinator is not available: {why}"
    )
