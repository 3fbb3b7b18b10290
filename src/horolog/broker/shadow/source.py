"""Asks the followed cluster for its brokers, topics, leaders with their epochs, and settings.

`Source.look` asks with a blocking client in a thread of the caller, and returns a snapshot. Brokers
of a cluster do not learn changes at the same moment, so each look asks another broker. A deleted or
re-created topic must be seen in several looks before a snapshot reports it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from horolog.broker.source_topics import SourcePartition, SourceTopics, TopicAtSource
from horolog.client.client import Client
from horolog.client.config import ClientConfig
from horolog.client.connection import NoAnswer
from horolog.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.topics import check_name
from horolog.storage.directory.identity import is_cluster_id
from horolog.storage.names import (
    FOLLOWED_INTERNAL,
    FOLLOWED_OFFSETS,
    INTERNAL_TOPICS,
    NAMES_HERE,
    name_at_source,
)
from horolog.wire.questions import FOLLOWING

MOST_UPSTREAM: Final = 50
"""Limit of clusters that a source may follow, one after the other."""
CONFIRMATIONS: Final = 3
"""Looks in a row, each at another broker, that must find a topic deleted or re-created."""

LOOKS_FOR_SETTINGS: Final = 30
"""The settings of every topic are read again within this number of looks."""

LEAST_SETTINGS: Final = 20
"""Topics whose settings each look reads at least."""

_OF_INTERNAL: Final = MappingProxyType({"cleanup.policy": "compact", "segment.bytes": "104857600"})
"""Settings of an internal topic in Kafka 4.4, without those of replicas."""

_WITHOUT_LEADER: Final = frozenset({ErrorCode.none, ErrorCode.leader_not_available})
_GONE: Final = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})


class Source:
    """The followed cluster.

    For one thread at a time.

    Args:
        is_selected: whether a topic of this name is followed.
        cluster_id: of the cluster that was followed so far, if any.
    """

    def __init__(
        self,
        config: ClientConfig,
        is_selected: Callable[[str], bool],
        cluster_id: str | None = None,
        *,
        own_cluster_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id
        """Id of the followed cluster, once it is known. Another cluster is refused."""
        self._client = Client.of(config)
        self._is_selected = is_selected
        self._settings: dict[str, Mapping[str, str]] = {}
        self._oldest: list[str] = []  # topics in the order in which their settings were read
        self._doubts: dict[str, int] = {}  # looks in a row that found a topic gone or another one
        self._own_cluster_id = own_cluster_id
        self._upstream: tuple[str, ...] = ()
        self._from_here: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()  # topics that were not followed at that look
        self._looks_until_asked = 0
        self._turn: int | None = None  # the broker that is asked next; None: any

    def look(self, followed: Mapping[str, UUID | None]) -> SourceTopics:
        """Ask the source for a snapshot.

        Args:
            followed: the topics that are followed, with their ids here.

        Raises:
            NoAnswer: no broker answers.
            RequestRefused: it is another cluster, or does not describe itself.
            MalformedResponse, AuthenticationFailed: as of each request.
        """
        # There is another look soon: one at a source that is gone ends as a first contact does.
        self._client.brokers.was_reached = False
        found = self._ask(None)
        self._check_cluster(found)
        topics: dict[str, TopicAtSource] = {}
        unreadable: dict[str, str] = {}
        for named in found.topics.values():
            topic = named._replace(name=NAMES_HERE.get(named.name, named.name))
            is_internal = topic.is_internal or named.name in INTERNAL_TOPICS
            is_followed = named.name in NAMES_HERE if is_internal else True
            if not is_followed or not self._is_selected(topic.name):
                continue
            try:
                topics[topic.name] = self._read(topic, followed)
            except RequestRefused as error:
                unreadable[topic.name] = str(error)
        missing = [n for n in followed if n not in topics and n not in unreadable]
        deleted = self._deleted(missing, unreadable)
        for name in self._doubts.keys() - followed.keys():
            del self._doubts[name]
        self._read_settings({n: each for n, each in topics.items() if n not in FOLLOWED_INTERNAL})
        self._ask_who_leads(frozenset(topics.keys() - followed.keys()))
        if len(self._upstream) > 1:  # the groups of its own source's transactions are elsewhere
            topics.pop(FOLLOWED_OFFSETS, None)
        later = [n for n in sorted(found.brokers) if self._turn is None or n > self._turn]
        self._turn = later[0] if later else None
        return SourceTopics(
            str(found.cluster_id),
            {node_id: broker.address for node_id, broker in found.brokers.items()},
            {
                n: topic._replace(
                    settings=_OF_INTERNAL if n in FOLLOWED_INTERNAL else self._settings.get(n)
                )
                for n, topic in topics.items()
            },
            deleted,
            unreadable,
            self._from_here,
            self._upstream,
        )

    def interrupt(self) -> None:
        """Make a look in another thread fail soon; any thread may call it."""
        self._client.brokers.interrupt()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self, topics: list[str] | None) -> ClusterMetadata:
        """Ask the broker whose turn it is for metadata, or another one if it does not answer."""
        if self._turn is not None:
            try:
                return self._client.metadata(topics, node=self._turn)
            except NoAnswer:
                self._turn = None
        return self._client.metadata(topics)

    def _check_cluster(self, found: ClusterMetadata) -> None:
        if found.cluster_id is None:
            raise RequestRefused(
                ErrorCode.unsupported_version,
                "the source has no cluster id, so that another cluster could take its place "
                "unseen: Apache Kafka 2.1 or later can be followed",
            )
        if not is_cluster_id(found.cluster_id):
            raise RequestRefused(
                ErrorCode.invalid_config,
                f"{found.cluster_id[:60]!r}, which the source gives as the id of its cluster, is "
                "none: it has up to 200 printable ASCII characters",
            )
        if self.cluster_id is None:
            self.cluster_id = found.cluster_id
        elif found.cluster_id != self.cluster_id:
            raise RequestRefused(
                ErrorCode.inconsistent_cluster_id,
                f"the source is cluster {found.cluster_id} and not {self.cluster_id}, which was "
                "followed so far: nothing is followed from it. Give the address of the old "
                "cluster, or follow the new one with another log directory",
            )

    def _ask_who_leads(self, new: frozenset[str]) -> None:
        """Ask the source which clusters it follows itself, before its topics are followed.

        A topic that it follows from here has no leader if it is followed here too.
        """
        self._looks_until_asked -= 1
        is_known = new <= self._asked and self._looks_until_asked > 0
        if self._upstream and is_known:
            return
        answer = self._client.ask(FOLLOWING)
        self._asked, self._looks_until_asked = new, LOOKS_FOR_SETTINGS
        self._upstream, self._from_here = (str(self.cluster_id),), frozenset()
        if answer is None or not answer.cluster_id or answer.is_ended:
            return
        if len(answer.upstream) > MOST_UPSTREAM or not all(map(is_cluster_id, answer.upstream)):
            raise RequestRefused(
                ErrorCode.invalid_config,
                f"the source names {len(answer.upstream)} clusters that its records come from: at "
                f"most {MOST_UPSTREAM} are followed one after the other, under ids of clusters",
            )
        self._upstream += answer.upstream
        if self._own_cluster_id in answer.upstream:
            its = (entry for entry in answer.entries if entry.partition is not None)
            self._from_here = frozenset(entry.topic for entry in its)

    def _read(self, topic: TopicMetadata, followed: Mapping[str, UUID | None]) -> TopicAtSource:
        if topic.error not in _WITHOUT_LEADER:
            raise RequestRefused(
                topic.error, f"the source does not describe it: {topic.error.name.upper()}"
            )
        check_name(topic.name)
        indexes = sorted(topic.partitions)
        if not indexes or indexes != [*range(len(indexes))]:
            raise RequestRefused(
                ErrorCode.invalid_partitions,
                "the source does not name its partitions from 0 on without gaps",
            )
        known_id = followed.get(topic.name)
        if known_id is not None and topic.topic_id not in (None, known_id):
            if not self._is_confirmed(topic.name):
                raise RequestRefused(
                    ErrorCode.inconsistent_topic_id,
                    "the source has made it again with another id; waiting for other brokers "
                    "to say so too",
                )
        else:
            self._doubts.pop(topic.name, None)
        return TopicAtSource(
            topic.name,
            topic.topic_id,
            tuple(_partition(topic.partitions[index]) for index in indexes),
            None,
        )

    def _deleted(self, missing: list[str], unreadable: dict[str, str]) -> frozenset[str]:
        """Return the missing topics that do not exist; others are added to the unreadable ones."""
        if not missing:
            return frozenset()
        found = self._ask([name_at_source(name) for name in missing]).topics
        deleted = set()
        for name in missing:
            theirs = found.get(name_at_source(name))
            code = ErrorCode.unknown_server_error if theirs is None else theirs.error
            if code in _GONE:
                if self._is_confirmed(name):
                    deleted.add(name)
                continue
            self._doubts.pop(name, None)
            if code not in _WITHOUT_LEADER:
                unreadable[name] = f"the source does not describe it: {code.name.upper()}"
        return frozenset(deleted)

    def _is_confirmed(self, name: str) -> bool:
        """Count a look that found a topic gone or replaced; return True after enough of them."""
        self._doubts[name] = min(self._doubts.get(name, 0) + 1, CONFIRMATIONS)
        return self._doubts[name] == CONFIRMATIONS

    def _read_settings(self, topics: Mapping[str, TopicAtSource]) -> None:
        """Read the settings of new topics, and of the topics that were read longest ago."""
        for name in self._settings.keys() - topics.keys():
            del self._settings[name]
        known = [name for name in self._oldest if name in topics]
        new = [name for name in topics if name not in set(known)]
        some = known[: max(LEAST_SETTINGS, -(-len(known) // LOOKS_FOR_SETTINGS))]
        self._oldest = [*known[len(some) :], *some, *new]
        self._settings.update(self._client.topics.settings([*new, *some]))


def _partition(partition: PartitionMetadata) -> SourcePartition:
    return SourcePartition(partition.partition_index, partition.leader, partition.leader_epoch)
