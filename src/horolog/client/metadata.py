"""Brokers, topics and partitions of a cluster, from Metadata responses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from horolog.client.config import Address
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition


class BrokerMetadata(NamedTuple):
    """Broker with its advertised address."""

    node_id: int
    address: Address
    rack: str | None


class PartitionMetadata(NamedTuple):
    """Partition; `leader` is None while there is none."""

    partition_index: int
    leader: int | None
    leader_epoch: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    error: ErrorCode


class TopicMetadata(NamedTuple):
    """Topic with its partitions, or its error. Brokers before Kafka 2.8 have no topic ids."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]
    error: ErrorCode


class ClusterMetadata(NamedTuple):
    """All brokers, and the requested topics."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerMetadata]
    topics: Mapping[str, TopicMetadata]


def error_of(code: int) -> ErrorCode:
    """Return the error with that number; an unknown number is an unknown error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raise a broker's error, in its own words if it gave any.

    Code 0 raises nothing.

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
    """Return the request about these topics; None stands for all topics."""
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
    """Return the content of a Metadata response of any version."""
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
