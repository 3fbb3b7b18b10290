"""Placement on a broker that is alone: it leads, coordinates and controls everything."""

from collections.abc import Sequence

from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.placement.placement import NO_LEADER, BrokerNode, LeaderHint, PlacedPartition
from horolog.broker.settings import LiveSettings
from horolog.config import BrokerConfig, Endpoint
from horolog.errors import ErrorCode, StorageFailed
from horolog.metadata.topics import Topic, TopicRegistry, unknown_topic
from horolog.wire.leaders import NodeEndpoint


class AlonePlacement:
    """The only broker is the leader of every partition that it can read."""

    def __init__(self, live: LiveSettings, topics: TopicRegistry, partitions: Partitions) -> None:
        self._live = live
        self._topics = topics
        self._partitions = partitions

    @property
    def controller_id(self) -> int:
        """This broker."""
        return self._live.config.node_id

    def led(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        """Return a partition.

        Raises:
            RequestRefused: it does not exist, or the client's leader epoch is another one.
            StorageFailed: it exists, and is offline.
        """
        partition = self._partitions.find(topic, index)
        if partition is None:
            known = self._topics.find(topic)
            if known is not None and known.has_partition(index):
                raise StorageFailed(f"{topic}-{index} is offline: its log could not be read")
            raise unknown_topic(topic)
        if leader_epoch != -1:
            partition.log.check_epoch(leader_epoch)
        return partition

    def writable(self, topic: Topic, index: int) -> Partition:
        """Return a partition, as `led` does."""
        return self.led(topic.name, index)

    def leader_hint(self, topic: str, index: int, listener: Endpoint) -> LeaderHint | None:
        """Return None: no other broker leads."""
        return None

    def partition(self, topic: Topic, index: int, listener: Endpoint) -> PlacedPartition:
        """Return this broker as the leader, or no leader if the partition is offline, as Kafka."""
        here = (self._live.config.node_id,)
        partition = self._partitions.find(topic.name, index)
        if partition is None:
            error = ErrorCode.leader_not_available
            return PlacedPartition(error, NO_LEADER, -1, here, (), here)
        epoch = partition.log.leader_epoch
        return PlacedPartition(ErrorCode.none, here[0], epoch, here, here, ())

    def brokers(self, listener: Endpoint, *, fenced: bool = False) -> Sequence[BrokerNode]:
        """Return this broker."""
        return (BrokerNode(self._here(listener)),)

    def coordinator(self, topic: str, key: str, listener: Endpoint) -> NodeEndpoint:
        """Return this broker."""
        return self._here(listener)

    def _here(self, listener: Endpoint) -> NodeEndpoint:
        config = self._live.config
        _, host, port = advertised(config, listener)[:3]
        return NodeEndpoint(config.node_id, host, port, config.broker_rack)


def advertised(config: BrokerConfig, listener: Endpoint) -> Endpoint:
    """Return the advertised endpoint of a listener of this broker."""
    named = [endpoint for endpoint in config.advertised_listeners if endpoint.name == listener.name]
    for endpoint in named:
        if (":" in endpoint.host) == (":" in listener.host):
            named = [endpoint]
            break
    announced = named[0]
    return announced if announced.port else announced._replace(port=listener.port)
