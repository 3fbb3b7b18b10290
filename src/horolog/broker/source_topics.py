"""A snapshot of the cluster that a broker follows: its brokers, topics and leaders."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from horolog.client.config import Address


class SourcePartition(NamedTuple):
    """One partition; `leader` is a broker's id, None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    """None from brokers before Apache Kafka 2.1."""


class TopicAtSource(NamedTuple):
    """One topic of the source."""

    name: str
    topic_id: UUID | None
    """None from brokers before Apache Kafka 2.8."""
    partitions: tuple[SourcePartition, ...]
    """All partitions, in the order of their indexes 0, 1, 2 and so on."""
    settings: Mapping[str, str] | None
    """Settings of the topic and the source's brokers, without defaults of the software. None
    until the source has given them."""


class SourceTopics(NamedTuple):
    """Snapshot of the source."""

    cluster_id: str
    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicAtSource]
    """Selected topics that exist, by name."""
    deleted: frozenset[str] = frozenset()
    """Followed topics that the source has deleted. A topic that is only absent from `topics` may
    be unknown to one broker, or this client may not describe it any more."""
    unreadable: Mapping[str, str] = {}
    """Selected topics that cannot be followed now, with the reason."""
    from_here: frozenset[str] = frozenset()
    """Topics that the source follows itself, and whose records come from this cluster."""
    upstream: tuple[str, ...] = ()
    """Ids of the clusters that its records come from: its own, and those that it follows."""
