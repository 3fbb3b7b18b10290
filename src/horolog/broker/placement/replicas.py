"""The protocol that notes how far the replicas of led partitions are, in a cluster."""

from typing import Protocol

from horolog.broker.partition import Partition


class LedReplicas(Protocol):
    """Notes how far the replicas of led partitions are."""

    def check_replica(self, partition: Partition, replica_id: int) -> None:
        """Check that a replica is assigned to a partition.

        Raises:
            RequestRefused: it is not (75), or this broker does not lead the partition (6).
        """
        ...

    def fetched(
        self,
        partition: Partition,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        log_start: int,
        leader_end: int,
    ) -> None:
        """Note a fetch: the high watermark and the in-sync replicas may change.

        Args:
            broker_epoch: epoch of the replica's registration; -1 if it does not say.
            offset: end of the replica's log.
            log_start: start of the replica's log.
            leader_end: end of the leader's log when it was read.

        Raises:
            RequestRefused: as `check_replica`, or the replica is registered anew since (6).
        """
        ...
