"""Applies the image to the broker: topics, settings, rights, users and quotas.

Settings that controllers accept and this broker refuses are ignored, and logged; records of a topic
with such a setting do not expire, because the intended value is unknown.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from horolog.broker.partitions import Partitions
from horolog.broker.scheduling.turns import TimeSlice
from horolog.broker.settings import LiveSettings, read_stored_settings
from horolog.config import BrokerConfig, Settings, TopicConfig
from horolog.errors import Misconfigured, StorageFailed
from horolog.metadata import state
from horolog.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, Image, TopicImage
from horolog.metadata.image_changes import Changes
from horolog.metadata.rows import (
    AS_FOUND,
    BROKER_SCOPE,
    GROUP_SCOPE,
    TOPIC_SCOPE,
    SettingRow,
    TopicRow,
)
from horolog.metadata.topics import Topic, TopicRegistry
from horolog.quotas.model import Quotas
from horolog.rights.entries import AclEntry
from horolog.rights.model import Rights
from horolog.security.scram import Credential

_ALL: Final = ""
_MOST_READ: Final = 1_000
_logger = logging.getLogger(__name__)


async def _load_nothing(_: BrokerConfig) -> Callable[[], None]:
    return lambda: None


@dataclass(kw_only=True)
class ObeyingParts:
    """Parts of a broker to which the image is applied."""

    topics: TopicRegistry
    live: LiveSettings
    partitions: Partitions
    rights: Rights | None
    """None if no rights are checked."""
    credentials: dict[tuple[str, int], Credential]
    quotas: Quotas
    load_tls: Callable[[BrokerConfig], Awaitable[Callable[[], None]]] = _load_nothing
    """Loads the certificates of the listeners; what it returns takes them over."""
    on_altered: Callable[[], object] = bool
    """Called after the broker's settings have changed."""


class TopicSettings:
    """Settings of topics, by an image and the broker's own settings."""

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        self.node_id = node_id
        self._static = static
        self.settings = Settings(static, is_of_cluster=True)
        """Settings of this broker, with those of the image."""
        self.is_doubtful = False
        """Whether a setting of the broker is refused, so that no record expires."""
        self._read: dict[frozenset[tuple[str, str]], tuple[Mapping[str, str], bool]] = {}
        self.held: frozenset[str] = frozenset()
        """Topics with settings that Kafka refuses on a topic; all brokers' resource has them."""

    def look(self, image: Image) -> None:
        """Take the settings of brokers from an image."""
        self._read.clear()
        shared = image.settings_of(BROKER, _ALL)
        self.held = frozenset(state.topics_in(shared))
        stored = read_stored_settings(
            SettingRow(BROKER_SCOPE, resource, name, value)
            for resource in (_ALL, str(self.node_id))
            for name, value in image.settings_of(BROKER, resource).items()
            if not state.is_hidden(name)
        )
        default, own = stored.brokers.get(_ALL, {}), stored.brokers.get(str(self.node_id), {})
        self.is_doubtful = stored.all_doubtful
        try:
            settings = Settings(self._static, default, own, is_of_cluster=True)
            settings.broker_config()
        except Misconfigured as error:
            self.is_doubtful = True
            _logger.error("the settings of brokers in the metadata are not obeyed: %s", error)
        else:
            self.settings = settings

    def topic(self, image: Image, its: TopicImage) -> Topic:
        """Return a topic as this broker has it, with the settings that it obeys."""
        given: Mapping[str, str] = image.settings_of(TOPIC, its.name)
        if its.name in self.held:
            row = TopicRow(its.name, its.topic_id, AS_FOUND)
            _, given = state.joined(row, given, image.settings_of(BROKER, _ALL))
        overrides, is_doubtful = self._obeyed(its.name, given) if given else ({}, False)
        return Topic(
            name=its.name,
            topic_id=its.topic_id,
            partitions=tuple(sorted(its.partitions)),
            overrides=overrides,
            unsettled=is_doubtful or self.is_doubtful,
        )

    async def topics(self, image: Image) -> list[Topic]:
        """Return all topics that have partitions, with pauses for other tasks."""
        turns, found = TimeSlice(), []
        for its in list(image.topics.values()):
            await turns.pause()
            if its.partitions:
                found.append(self.topic(image, its))
        return found

    def _obeyed(self, topic: str, given: Mapping[str, str]) -> tuple[Mapping[str, str], bool]:
        """Return the settings of a topic that are obeyed, and whether one is refused.

        Many topics have the same settings: each set of them is read once.
        """
        key = frozenset(given.items())
        read = self._read.get(key)
        if read is not None:
            return read
        stored = read_stored_settings(SettingRow(TOPIC_SCOPE, topic, *it) for it in given.items())
        overrides: Mapping[str, str] = stored.topics.get(topic, {})
        is_doubtful = topic in stored.doubtful
        try:
            self.settings.topic_config(overrides)
        except ValueError as error:
            _logger.error("the settings of topic %s are not obeyed: %s", topic, error)
            overrides, is_doubtful = {}, True
        if len(self._read) >= _MOST_READ:
            self._read.clear()
        self._read[key] = overrides, is_doubtful
        return overrides, is_doubtful

    def config(self, image: Image, name: str) -> TopicConfig:
        """Return the settings of a topic's logs; the broker's if the image has no such topic."""
        its = image.topics.get(name)
        overrides = None if its is None else self.topic(image, its).overrides
        return self.settings.topic_config(overrides)


class ObeyedMetadata:
    """Topics, settings, rights and quotas of the broker, kept as the image has them.

    For the event loop's thread.
    """

    def __init__(self, parts: ObeyingParts, image: Image, settings: TopicSettings) -> None:
        self._parts = parts
        self._image = image
        self._settings = settings

    async def fill(self) -> None:
        """Take everything from the image; topics and logs may be those of an earlier one."""
        image, parts = self._image, self._parts
        await self._obey_broker_settings()
        for known in list(parts.topics):
            if known.topic_id not in image.by_id:
                parts.topics.remove(known.name)
        turns = TimeSlice()
        for topic in await self._settings.topics(image):
            await turns.pause()
            if parts.topics.find(topic.name) != topic:
                parts.topics.put(topic)
            parts.partitions.obey_settings(topic)
        self._obey_groups(name for kind, name in image.configs if kind == GROUP)
        self._obey_client_metrics(name for kind, name in image.configs if kind == CLIENT_METRICS)
        self._obey_access(
            Changes(
                offset=0,
                entries=image.entries,
                credentials=image.credentials,
                quotas=image.quotas,
            )
        )

    async def obey(self, changes: Changes) -> None:
        """Take what changed; the image has it."""
        image, topics = self._image, self._parts.topics
        for name, topic_id in changes.topics_deleted:
            if topics.id_of(name) == topic_id:
                topics.remove(name)
        touched = {key.topic_id for key in changes.partitions}
        touched |= {topic_id for _, topic_id in changes.topics_created}
        named = {name for kind, name in changes.configs if kind == TOPIC}
        if (BROKER, _ALL) in changes.configs:
            named |= self._settings.held
        if changes.configs.keys() & {(BROKER, _ALL), (BROKER, str(self._settings.node_id))}:
            await self._obey_broker_settings()
            named |= self._settings.held
        touched |= {image.topics[name].topic_id for name in named if name in image.topics}
        await self._put(image.by_id[topic_id] for topic_id in touched)
        self._obey_groups(name for kind, name in changes.configs if kind == GROUP)
        self._obey_client_metrics(name for kind, name in changes.configs if kind == CLIENT_METRICS)
        self._obey_access(changes)

    async def _put(self, changed: Iterable[TopicImage]) -> None:
        """Put topics, and apply their settings to their logs."""
        parts, turns = self._parts, TimeSlice()
        altered: list[tuple[Topic, Topic]] = []
        for its in changed:
            await turns.pause()
            if not its.partitions:
                continue  # they come with the next changes
            topic = self._settings.topic(self._image, its)
            before = parts.topics.find(topic.name)
            if before is None or before.topic_id != topic.topic_id:
                parts.topics.put(topic)
            elif (before.overrides, before.unsettled) != (topic.overrides, topic.unsettled):
                altered.append((before, topic))
            elif before.partitions != topic.partitions:
                parts.topics.put(topic)
        if not altered:
            return
        with parts.partitions.complete.changing():
            await self._withdraw((before, parts.live.of_topic(topic)) for before, topic in altered)
            for _, topic in altered:
                parts.topics.put(topic)
                parts.partitions.obey_settings(topic)

    async def _withdraw(
        self, changes: Iterable[tuple[Topic, TopicConfig]], settings: Settings | None = None
    ) -> None:
        """Withdraw complete times before bounds of time are raised.

        The controllers have decided; where the disk refuses, the failure is met by the next write.
        """
        try:
            await self._parts.partitions.change_bounds(changes, settings)
        except StorageFailed as error:
            _logger.error("complete times are not withdrawn on disk: %s", error)

    async def _obey_broker_settings(self) -> None:
        """Replace the broker's settings, and apply them to the logs of all topics."""
        parts, was_doubtful = self._parts, self._settings.is_doubtful
        before = self._settings.settings
        self._settings.look(self._image)
        after = self._settings.settings
        if after == before == parts.live.settings and was_doubtful == self._settings.is_doubtful:
            return
        config = after.broker_config()
        try:
            take_tls = await parts.load_tls(config)
        except Misconfigured as error:
            _logger.error("certificates are not loaded again: %s", error)
            take_tls = _nothing
        turns = TimeSlice()
        with parts.partitions.complete.changing():
            topics = list(parts.topics)
            configs = ((topic, _config(after, topic)) for topic in topics)
            await self._withdraw(configs, after)
            parts.live.replace(after)
            take_tls()
            parts.on_altered()
            for topic in topics:
                await turns.pause()
                its = self._image.by_id.get(topic.topic_id)
                if its is not None:
                    topic = self._settings.topic(self._image, its)
                    parts.topics.put(topic)
                    parts.partitions.obey_settings(topic)

    def _obey_groups(self, groups: Iterable[str]) -> None:
        rows = []
        for group in groups:
            self._parts.live.groups.pop(group, None)
            its = self._image.settings_of(GROUP, group)
            rows += [SettingRow(GROUP_SCOPE, group, *setting) for setting in its.items()]
        self._parts.live.groups.update(read_stored_settings(rows).groups)

    def _obey_client_metrics(self, names: Iterable[str]) -> None:
        for name in names:
            self._parts.live.client_metrics.pop(name, None)
            if its := self._image.settings_of(CLIENT_METRICS, name):
                self._parts.live.client_metrics[name] = dict(its)

    def _obey_access(self, changes: Changes) -> None:
        parts = self._parts
        if parts.rights is not None:
            for entry_id, entry in changes.entries.items():
                if entry is not None:
                    parts.rights.add(entry_id, AclEntry(*entry[1:]))
                elif parts.rights.get(entry_id) is not None:
                    parts.rights.remove(entry_id)
        for key, credential in changes.credentials.items():
            if credential is None:
                parts.credentials.pop(key, None)
            else:
                parts.credentials[key] = Credential(*credential[2:])
        for (entity, quota_key), quota in changes.quotas.items():
            parts.quotas.put(entity, quota_key, None if quota is None else quota.value)


def _nothing() -> None:
    """Take no certificates."""


def _config(settings: Settings, topic: Topic) -> TopicConfig:
    """Return the settings of a topic; the broker's alone if both contradict each other."""
    try:
        return settings.topic_config(topic.overrides)
    except ValueError:
        return settings.topic_config()
