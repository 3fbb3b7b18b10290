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
    """None from brokers that do not say it (before Apache Kafka 2.1)."""


class TopicAtSource(NamedTuple):
    """One topic of the source."""

    name: str
    topic_id: UUID | None
    """None from brokers without topic ids (before Apache Kafka 2.8)."""
    partitions: tuple[SourcePartition, ...]
    """All of them: index 0, 1, 2 and so on."""
    settings: Mapping[str, str] | None
    """What is set for the topic or by the source's brokers, without defaults of the software.
    None as long as the source has not given them."""


class SourceTopics(NamedTuple):
    """Snapshot of the source."""

    cluster_id: str
    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicAtSource]
    """The selected ones that exist, by name."""
    deleted: frozenset[str] = frozenset()
    """Followed topics that the source has no more. A topic that is merely absent from `topics` may
    be unknown to one broker, or this client may not describe it any more."""
    unreadable: Mapping[str, str] = {}
    """Topics to follow that cannot be followed now, with the reason."""
    from_here: frozenset[str] = frozenset()
    """Topics that the source follows itself, and whose records come from this cluster."""
    upstream: tuple[str, ...] = ()
    """The ids of the clusters that its records come from: its own, and those that it follows."""
