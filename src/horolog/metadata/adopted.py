"""Reads the topics and settings that the metadata of an Apache Kafka has for this log directory.

A broker that is its own controller (KRaft) has them in `__cluster_metadata-0`. Other brokers have
no settings here, but `cleaner-offset-checkpoint` lists the compacted partitions.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from horolog.errors import HorologError
from horolog.metadata.forms import QUORUM_STATE, KafkaForm
from horolog.metadata.image import TOPIC
from horolog.metadata.replay import MetadataReplay
from horolog.metadata.taking_over import static_voters
from horolog.storage import names
from horolog.storage.directory.checkpoints import read_offsets
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_RESOURCES = {4: "broker", 16: "client metrics subscription", 32: "group"}

_logger = logging.getLogger(__name__)

Overrides = dict[str, dict[str, str]]


class AdoptedMetadata(NamedTuple):
    """Metadata of a Kafka. Settings are under Kafka's names."""

    topics: Overrides
    """Settings of each topic that has some of its own."""
    topic_ids: Mapping[str, UUID]
    others: Mapping[tuple[str, str], Mapping[str, str]]
    """Settings by kind and name of the resource; the name of all brokers is ""."""
    counted: Mapping[str, int]
    """Number of entries that are not settings, by kind."""
    nodes: frozenset[int] = frozenset()
    """Ids of all brokers, voters and replicas of the cluster."""


def read_cluster_metadata(files: Files, log_dir: Path, *, is_own: bool) -> AdoptedMetadata:
    """Read the metadata of the Kafka that had a log directory; empty if there is none.

    Unreadable records are skipped with a warning. In a directory that `is_own` the metadata is
    horolog's, and nothing of it is read here.
    """
    replay = MetadataReplay(str(log_dir)) if is_own else _replay(files, log_dir)
    image = replay.image
    topics: Overrides = {}
    others = {}
    for (kind, name), settings in image.configs.items():
        if kind == TOPIC:
            topics[name] = settings
        elif kind in _RESOURCES:
            others[_RESOURCES[kind], name] = settings
    for topic in _cleaned(files, log_dir):
        topics.setdefault(topic, {}).setdefault("cleanup.policy", "compact")
    ids = {name: topic.topic_id for name, topic in image.topics.items()}
    counted: dict[str, int] = {}
    if image.credentials:
        counted["SCRAM credential"] = len(image.credentials)
    if image.entries:
        counted["access control entry"] = len(image.entries)
    nodes = frozenset() if is_own else _nodes(files, log_dir, replay)
    return AdoptedMetadata(topics, ids, others, counted, nodes)


def _nodes(files: Files, log_dir: Path, replay: MetadataReplay) -> frozenset[int]:
    image = replay.image
    found = {*image.brokers, *image.controllers, *(voter.voter_id for voter in replay.voters)}
    for topic in image.topics.values():
        for its in topic.partitions.values():
            found.update(its.replicas, its.adding)
    directory = log_dir / str(TopicPartition(names.CLUSTER_METADATA, 0))
    try:
        found |= {
            static_voter.voter_id
            for static_voter in static_voters(files, str(directory / QUORUM_STATE))
        }
    except HorologError as error:
        _logger.warning("The voters of Kafka's quorum are not known: %s", error)
    return frozenset(found)


def _replay(files: Files, log_dir: Path) -> MetadataReplay:
    try:
        replay = KafkaForm(files, str(log_dir)).replay()
    except HorologError as error:
        _logger.warning("Kafka's metadata is not known: %s", error)
        return MetadataReplay(str(log_dir))
    if replay.damage:
        _logger.warning(
            "Kafka's metadata is known only in part: %s", "; ".join(map(str, replay.damage))
        )
    return replay


def _cleaned(files: Files, log_dir: Path) -> set[str]:
    """Return the topics that Kafka's cleaner has compacted."""
    try:
        return {key.topic for key in read_offsets(files, str(log_dir / names.CLEANER_OFFSETS))}
    except HorologError as error:
        _logger.warning("Which topics were compacted is not known: %s", error)
        return set()
