"""Brokers, topics and partitions of a cluster, as one of its brokers returns them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from horolog.client.config import Address
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition

__all__ = [
    "BrokerMetadata",
    "ClusterMetadata",
    "PartitionMetadata",
    "TopicMetadata",
    "by_topic",
    "error_of",
    "metadata_request",
    "read_metadata",
    "refuse",
]


class BrokerMetadata(NamedTuple):
    """One broker, where it says that it is reached."""

    node_id: int
    address: Address
    rack: str | None


class PartitionMetadata(NamedTuple):
    """One partition; `leader` is None while there is none."""

    partition_index: int
    leader: int | None
    leader_epoch: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    error: ErrorCode


class TopicMetadata(NamedTuple):
    """One topic, or why there is none; no id before Kafka 2.8."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]
    error: ErrorCode


class ClusterMetadata(NamedTuple):
    """All brokers, and the topics asked for."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerMetadata]
    topics: Mapping[str, TopicMetadata]


def error_of(code: int) -> ErrorCode:
    """The error with that number; a number from the future is an unknown error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raise what a broker answered, in its own words if it gave any; nothing on code 0.

    Raises:
        RequestRefused: `what` failed, and why.
    """
    if code == ErrorCode.none:
        return
    error = error_of(code)
    name = error.name.upper() if error == code else f"an error unknown to this client ({code})"
    raise RequestRefused(error, f"{what}: {message} ({name})" if message else f"{what}: {name}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic, as most requests list them."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return numbers


def metadata_request(topics: Sequence[str] | None, *, auto_create: bool = False) -> dict[str, Any]:
    """The request about these topics, none, or all of them."""
    requested = None
    if topics is not None:
        requested = [{"name": name, "topic_id": None} for name in topics]
    return {
        "topics": requested,
        "allow_auto_topic_creation": auto_create,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def read_metadata(body: Any) -> ClusterMetadata:
    """From a Metadata answer of any version."""
    controller = getattr(body, "controller_id", -1)
    topics = (_topic(topic) for topic in body.topics if topic.name is not None)
    return ClusterMetadata(
        cluster_id=getattr(body, "cluster_id", None),
        controller_id=None if controller < 0 else controller,
        brokers={
            broker.node_id: BrokerMetadata(
                broker.node_id, Address(broker.host, broker.port), getattr(broker, "rack", None)
            )
            for broker in body.brokers
        },
        topics={topic.name: topic for topic in topics},
    )


def _topic(topic: Any) -> TopicMetadata:
    return TopicMetadata(
        name=topic.name,
        topic_id=getattr(topic, "topic_id", None),
        is_internal=getattr(topic, "is_internal", False),
        partitions={
            partition.partition_index: _partition(partition) for partition in topic.partitions
        },
        error=error_of(topic.error_code),
    )


def _partition(partition: Any) -> PartitionMetadata:
    epoch = getattr(partition, "leader_epoch", -1)
    return PartitionMetadata(
        partition_index=partition.partition_index,
        leader=None if partition.leader_id < 0 else partition.leader_id,
        leader_epoch=None if epoch < 0 else epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        error=error_of(partition.error_code),
    )
