"""Decides whether horolog may continue as the Kafka node that wrote a log directory.

It may where that node was alone: the only voter of its quorum, the only replica of each partition,
the only broker that is not fenced, with all its records in this directory. Then nobody else can
have a newer state than the directory has. docs/moving-in-and-out.md is the user's side.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from horolog.errors import CorruptFile
from horolog.json_text import from_json
from horolog.metadata.image import TOPIC, Image
from horolog.schemas.control import Voter
from horolog.schemas.metadata import (
    CONSUMER_GROUPS,
    GROUP_VERSION,
    METADATA_VERSION,
    NEWEST_LEVEL,
    OLDEST_LEVEL,
    TRANSACTION_VERSION,
    Supported,
    ZkMigrationState,
)
from horolog.schemas.transactions import FIRST_FLOW, SECOND_FLOW
from horolog.storage.files import Files

UNASSIGNED: Final = UUID(int=1)
"""Directory id of a replica that has not reported its directory yet (KIP-858)."""

SUPPORTED: Final = (
    Supported(METADATA_VERSION, OLDEST_LEVEL, NEWEST_LEVEL),
    Supported(TRANSACTION_VERSION, FIRST_FLOW, SECOND_FLOW),
    Supported(GROUP_VERSION, 0, CONSUMER_GROUPS),
)
"""Features that a horolog registers."""
_OURS: Final = (
    {feature.name for feature in SUPPORTED},
    {METADATA_VERSION, TRANSACTION_VERSION},  # of releases without consumer groups
)
"""Kafka 3.8 and 3.9 may have the same names, with older levels of `metadata.version`; each Kafka 4
has more names."""

_REMOTE: Final = "remote.storage.enable"
_MAX_QUORUM_BYTES: Final = 1 << 20


class FormerNode(NamedTuple):
    """Identity of this broker, and of the node that wrote the directory."""

    node_id: int
    """Node id of this broker."""
    found_id: int | None
    """`node.id` in `meta.properties`."""
    directory_id: UUID | None
    """`directory.id` in `meta.properties`."""


def why_not(
    image: Image, node: FormerNode, voters: Collection[Voter], damage: Collection[str] = ()
) -> str | None:
    """Return the reason why horolog cannot continue as the node; None if it can.

    Args:
        image: what its metadata log says.
        node: this broker, and what `meta.properties` says.
        voters: of the quorum, static or dynamic, as far as they are known.
    """
    return next(_reasons(image, node, voters, damage), None)


def was_led_by_another(image: Image, node_id: int) -> bool:
    """Return True if the last registration of this node was not by a horolog."""
    its = image.brokers.get(node_id)
    if its is None:
        return False
    levels = {feature.name: feature.min_level for feature in its.features}
    return set(levels) not in _OURS or levels[METADATA_VERSION] != OLDEST_LEVEL


def _reasons(
    image: Image, node: FormerNode, voters: Collection[Voter], damage: Collection[str]
) -> Iterator[str]:
    if METADATA_VERSION not in image.features:
        yield (
            "there is no metadata of a Kafka in it: its controllers were elsewhere, or it ran under"
            " ZooKeeper"
        )
    level = image.metadata_version
    if not OLDEST_LEVEL <= level <= NEWEST_LEVEL:
        yield (
            f"its metadata.version is {level}, and {OLDEST_LEVEL} to {NEWEST_LEVEL} are known: "
            "upgrade it with its Kafka, or use a newer horolog"
        )
    if damage:
        yield f"its metadata log is damaged ({next(iter(damage))}): start its Kafka once before"
    if node.found_id != node.node_id:
        yield (
            f"it is of node {node.found_id}, and this broker is node {node.node_id}: "
            f"set node.id={node.found_id}"
        )
    others = image.others.values()
    if any(isinstance(other, ZkMigrationState) and other.state != 0 for other in others):
        yield "its migration from ZooKeeper has not ended"
    yield from _other_nodes(image, node, voters)
    yield from _elsewhere(image, node)


def _other_nodes(image: Image, node: FormerNode, voters: Collection[Voter]) -> Iterator[str]:
    others = {voter.voter_id for voter in voters} | image.controllers.keys()
    others.discard(node.node_id)
    if others:
        yield f"node {min(others)} is a voter of its quorum, too"
    for voter in voters:
        if voter.directory not in (None, node.directory_id):
            yield f"the voter of its quorum has another directory, {voter.directory}"
    for broker in image.brokers.values():
        if broker.broker_id != node.node_id and not broker.fenced:
            yield f"broker {broker.broker_id} of its cluster is not fenced: it may be running"


def _elsewhere(image: Image, node: FormerNode) -> Iterator[str]:
    alone, here = {node.node_id}, {node.directory_id, UNASSIGNED}
    for topic in image.topics.values():
        for index, its in topic.partitions.items():
            if {*its.replicas, *its.adding, *its.removing} != alone:
                yield f"{topic.name}-{index} has the replicas {[*its.replicas]}"
            if not here.issuperset(its.directories):
                yield f"{topic.name}-{index} is in another log directory"
        if image.settings_of(TOPIC, topic.name).get(_REMOTE) == "true":
            yield f"records of {topic.name} are in remote storage, which is not read here"


def static_voters(files: Files, path: str) -> tuple[Voter, ...]:
    """Read the voters from Kafka's `quorum-state`; empty for a dynamic quorum, or without the file.

    Raises:
        CorruptFile: it does not say who they are.
        StorageFailed: it cannot be read.
    """
    text = files.read_whole(path, _MAX_QUORUM_BYTES)
    if text is None:
        return ()
    try:
        voters = [voter["voterId"] for voter in from_json(text).get("currentVoters", ())]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"{path} does not say who the voters are: {error!r}") from None
    if not all(type(voter) is int for voter in voters):
        raise CorruptFile(f"{path} names voters without a number")
    return tuple(map(Voter, voters))
