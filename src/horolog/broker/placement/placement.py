"""The protocol that answers who leads a partition, and the values of its answers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from horolog.broker.partition import Partition
from horolog.config import Endpoint
from horolog.errors import ErrorCode
from horolog.metadata.topics import Topic
from horolog.wire.leaders import CurrentLeader, NodeEndpoint

NO_LEADER = -1


class LeaderHint(NamedTuple):
    """Leader of a partition with its address, for a client that asked another broker (KIP-951)."""

    current: CurrentLeader
    node: NodeEndpoint


class PlacedPartition(NamedTuple):
    """Replicas of a partition, as clients that use one listener see them."""

    error: ErrorCode
    """LEADER_NOT_AVAILABLE, or LISTENER_NOT_FOUND: its leader does not have that listener."""
    leader: int
    """-1 with an error."""
    leader_epoch: int
    """-1 if it is unknown."""
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]
    """Replicas that are fenced or in a failed directory, or do not have that listener."""
    elr: Sequence[int] = ()
    """Replicas out of the ISR that have all that is committed (KIP-966)."""
    last_known_elr: Sequence[int] = ()


class BrokerNode(NamedTuple):
    """A broker, with its endpoint on one listener."""

    node: NodeEndpoint
    is_fenced: bool = False


class Placement(Protocol):
    """Leaders, brokers and coordinators. For the event loop's thread, but for `led`."""

    @property
    def controller_id(self) -> int:
        """The broker that clients send changes of the cluster to; -1 if none is alive."""
        ...

    def led(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        """Return a partition that is led here, for readers. Any thread may call it.

        Args:
            leader_epoch: the epoch that the client knows; -1 if it knows none.

        Raises:
            RequestRefused: it does not exist (3), another broker leads it (6), or its epoch is
                newer (74) or older (75) than the client's.
            StorageFailed: it is led here, and its log cannot be read.
        """
        ...

    def writable(self, topic: Topic, index: int) -> Partition:
        """Return a partition that is led here, for producers.

        Raises:
            RequestRefused, StorageFailed: as `led`.
        """
        ...

    def leader_hint(self, topic: str, index: int, listener: Endpoint) -> LeaderHint | None:
        """Return the leader of a partition that is led elsewhere; None if it is unknown."""
        ...

    def partition(self, topic: Topic, index: int, listener: Endpoint) -> PlacedPartition:
        """Return the replicas of an existing partition."""
        ...

    def brokers(self, listener: Endpoint, *, fenced: bool = False) -> Sequence[BrokerNode]:
        """Return brokers that have a listener of this name, in the order of their ids.

        Args:
            fenced: return those as well that no client should connect to.
        """
        ...

    def coordinator(self, topic: str, key: str, listener: Endpoint) -> NodeEndpoint:
        """Return the broker that coordinates a group or a transactional id.

        Args:
            topic: the internal topic of that kind of coordinator.

        Raises:
            RequestRefused: COORDINATOR_NOT_AVAILABLE.
        """
        ...
