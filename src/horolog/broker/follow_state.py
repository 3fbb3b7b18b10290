"""The cluster that this broker follows, and topics that are or were followed.

A topic that another cluster leads has `Topic.followed`. `Controller` changes its row in the same
step as the topic, after it is stored. Handlers ask `placement`.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

from horolog.broker.source_topics import SourceTopics
from horolog.client.config import Address, ClientConfig, parse_bootstrap_servers
from horolog.client.properties import config_of_properties
from horolog.config import BrokerConfig, parse_properties, with_provided
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.metadata.rows import FollowedRow, SourceRow, Stored, promoted_once
from horolog.metadata.topics import MAX_NAME_LENGTH, Topic
from horolog.patterns import given_pattern, name_pattern
from horolog.storage.names import FOLLOWED_INTERNAL, INTERNAL_TOPICS

_LOG = logging.getLogger(__name__)

StoreSource: TypeAlias = Callable[[SourceRow, Collection[str]], Awaitable[object]]


class FollowState:
    """State of following. For the event loop's thread; any thread may call `wants`."""

    def __init__(self, stored: Stored, store_source: StoreSource | None = None) -> None:
        """Continue as stored.

        Args:
            store_source: stores a source, and forgets topics; None in a cluster, which follows
                no other one.
        """
        self.source = stored.source
        """Cluster that is or was followed. Its id is empty until it was reached once."""
        self.rows = {row.topic: row for row in stored.followed}
        """Rows of topics that are followed, or were promoted."""
        self.seen: SourceTopics | None = None
        """Last snapshot of the source."""
        self._held: set[str] = set()
        self._store_source = store_source

    @property
    def is_following(self) -> bool:
        """True if a cluster is followed."""
        return self.source is not None and not self.source.ended

    def wants(self, name: str) -> bool:
        """True if a topic of this name is followed when the source has it."""
        row = self.rows.get(name)
        is_led = name in self._held or (row is not None and row.led)
        return not is_led and is_selected(self.source, name)

    def follows(self, topic: Topic, source_id: UUID | None) -> bool:
        """True if the source's topic of this id is the one here, and is followed now."""
        row = self.rows.get(topic.name)
        if row is None or not topic.followed or not self.wants(topic.name):
            return False
        return row.source_id in (None, source_id) or source_id is None

    def is_interrupted(self, topic: Topic) -> bool:
        """True if a promotion of a topic was interrupted and has to be continued by another one."""
        row = self.rows.get(topic.name)
        return topic.followed and row is not None and row.led

    @contextmanager
    def promoting(self, *names: str) -> Iterator[None]:
        """Exclude topics from following while they are being promoted."""
        self._held.update(names)
        try:
            yield
        finally:
            self._held.difference_update(names)

    def is_promoting(self, name: str) -> bool:
        """True if a topic is being promoted."""
        return name in self._held

    def takes_commits(self, topic: Topic) -> bool:
        """True if offsets that groups commit at the source are committed here for a topic."""
        return topic.followed and topic.name not in self._held

    def source_epoch(self, name: str) -> int:
        """Return the highest leader epoch that the source had for a topic; -1 if unknown."""
        found = None if self.seen is None else self.seen.topics.get(name)
        its = () if found is None else found.partitions
        return max((part.leader_epoch or 0 for part in its), default=-1)

    def awaits(self, name: str, topics: Iterable[Topic]) -> bool:
        """True if an internal topic that does not exist here will come from the source.

        A topic created here earlier would keep out the source's, with its decisions. A broker that
        leads topics, as after a promotion, does not follow it.
        """
        return self.wants(name) and not leads_some(topics)

    def refuse_new(self, name: str) -> None:
        """Refuse to create a topic whose name belongs to the source."""
        if self.wants(name):
            assert self.source is not None
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"{name} cannot be created here: this broker follows the topics of "
                f"{self.source.servers} that match {self.source.topics}. Create it there",
            )

    # --- changes ----------------------------------------------------------------------

    async def put_source(self, source: SourceRow, forgotten: Collection[str] = ()) -> None:
        """Follow a cluster from now on, also after a restart.

        Args:
            forgotten: topics that were promoted and do not exist any more, to be followed again.

        Raises:
            StorageFailed: a write failed; the source is as it was.
        """
        assert self._store_source is not None
        await self._store_source(source, forgotten)
        self.source, self.seen = source, self.seen if source.ended else None
        for name in forgotten:
            self.rows.pop(name, None)

    def put(self, row: FollowedRow) -> None:
        """Remember the stored row of a topic."""
        self.rows[row.topic] = row

    def forget(self, topic: str) -> None:
        """Forget a deleted topic, except that it was promoted."""
        row = self.rows.pop(topic, None)
        if row is not None and row.led:
            self.rows[topic] = promoted_once(topic)

    def compacts(self, topic: str) -> bool:
        """True if the source compacts a topic, or did at its promotion."""
        row = self.rows.get(topic)
        return row is not None and row.is_compacted


def source_of(config: BrokerConfig, stored: SourceRow | None) -> SourceRow | None:
    """Return the cluster to follow by the settings and the stored row of the last run.

    A broker whose topics were all promoted follows nothing, whatever its settings are.

    Raises:
        Misconfigured: a setting is invalid.
    """
    servers = config.horolog_follow
    demote_servers(config)
    if servers is None:
        if config.horolog_follow_topics != ".*":
            raise Misconfigured("horolog.follow.topics says what of horolog.follow: give both")
        return stored
    topics = given_pattern(config.horolog_follow_topics, "horolog.follow.topics").expression
    given = SourceRow("", servers, topics, config.horolog_follow_config)
    connection_to(given)
    if stored is None:
        return given
    if stored.ended:
        _LOG.warning(
            "horolog.follow=%s is without effect: the topics that were followed are promoted. "
            "`horolog follow --demote` makes this broker follow again",
            servers,
        )
        return stored
    return given._replace(cluster_id=stored.cluster_id)


def demote_servers(config: BrokerConfig) -> Collection[Address]:
    """Return the brokers of clusters that a request may have this one follow.

    Raises:
        Misconfigured: one is no address.
    """
    its = config.horolog_demote_servers
    return _addresses(",".join(its), "horolog.demote.servers") if its else ()


def allowed_servers(config: BrokerConfig, servers: str) -> str:
    """Return the bootstrap servers of a request, if the settings allow all of them.

    Raises:
        RequestRefused: POLICY_VIOLATION.
        Misconfigured: they are no addresses.
    """
    allowed = demote_servers(config)
    asked = dict.fromkeys(_addresses(servers, "servers"))
    for address in asked:
        if address not in allowed:
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"{address} is not followed, as horolog.demote.servers of this broker does not "
                "have it: start the broker with that setting, the addresses of clusters that may "
                "lead its topics and are given the credentials of horolog.follow.config",
            )
    return ",".join(map(str, asked))


def _addresses(text: str, name: str) -> list[Address]:
    try:
        found = parse_bootstrap_servers(text)
    except Misconfigured as error:
        raise Misconfigured(f"{name}: {error}") from None
    return [Address(address.host.lower(), address.port) for address in found]


def connection_to(source: SourceRow) -> ClientConfig:
    """Return the connection settings of a source, read from its properties file.

    Raises:
        Misconfigured: the servers are none, or the file of properties cannot be used.
    """
    given: dict[str, str] = {}
    if source.config:
        try:
            text = Path(source.config).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise Misconfigured(f"horolog.follow.config={source.config}: {error}") from None
        given = with_provided(parse_properties(text, source.config))
    return config_of_properties(source.servers, given, "horolog-follower")


def is_selected(source: SourceRow | None, name: str) -> bool:
    """Return True if a topic of this name is among the followed ones."""
    if source is None or source.ended:
        return False
    if name in INTERNAL_TOPICS:
        return name in FOLLOWED_INTERNAL
    if len(name) > MAX_NAME_LENGTH:
        return False
    return _matches(source.topics, name)


@lru_cache(maxsize=1 << 15)  # the event loop asks for all topics again and again
def _matches(expression: str, name: str) -> bool:
    return name_pattern(expression).matches(name)


def match_all(source: SourceRow, names: Collection[str]) -> None:
    """Match names in a thread, so that the event loop finds the results in a cache.

    Raises:
        RequestRefused: that may take seconds, also at every start to come.
    """
    if name_pattern(source.topics).is_slow_for(names):
        raise RequestRefused(
            ErrorCode.policy_violation,
            f"the pattern {source.topics:.80} takes too long to match {len(names)} names: give one "
            "with fewer and smaller repetitions",
        )
    for name in names:
        is_selected(source, name)


def leads_some(topics: Iterable[Topic]) -> bool:
    """Return True if this broker leads a topic of clients, which may have transactions."""
    return any(not topic.followed and not topic.is_internal for topic in topics)


def undecided(
    source: SourceRow | None, known: Iterable[FollowedRow], names: Iterable[str]
) -> set[str]:
    """Return the topics without a row of their own that may belong to the source.

    They were found on disk, by a broker that follows: another's copy, or all that is left of a
    followed topic where the store was lost. They are not led here until the source was asked.
    """
    rows = {row.topic for row in known}
    return {name for name in names if name not in rows and is_selected(source, name)}


def widened(before: SourceRow | None, source: SourceRow) -> SourceRow:
    """Return a source with the topics that are already followed from it, and others.

    Raises:
        Misconfigured: they are too many for one pattern.
    """
    if before is None or before.ended or before.cluster_id != source.cluster_id:
        return source
    if not before.topics:
        return source
    if before.topics in (source.topics, ".*"):
        return source._replace(topics=before.topics)
    both = f"(?:{before.topics})|(?:{source.topics})"
    try:
        name_pattern(both)
    except ValueError as error:
        raise Misconfigured(
            f"topics that match {before.topics:.80} are followed already, and with "
            f"{source.topics:.80} that is too much for one pattern: {error}. Give a shorter one of "
            "both with `serve --follow`"
        ) from None
    return source._replace(topics=both)
