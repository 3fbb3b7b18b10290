"""Current and stored settings of a broker, its topics and groups, and another's directory.

Invalid rows stay in the store. A setting that this version does not know is ignored: a later
version wrote it. If a value is invalid, the intended one is unknown, so records do not expire.

Topics of an Apache Kafka's directory get the settings that horolog obeys, so that the log stays
valid for that Kafka. Settings that need other brokers, and unknown ones, are ignored.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from horolog.config import BrokerConfig, Settings, TopicConfig
from horolog.config.setting import Status
from horolog.config.tables import broker_setting, group_setting, topic_setting, topic_settings
from horolog.errors import Misconfigured
from horolog.groups.consumers.values import GroupTimes
from horolog.metadata.adopted import read_cluster_metadata
from horolog.metadata.opening import read_stored, state_dir_of
from horolog.metadata.rows import BROKER_SCOPE, GROUP_SCOPE, TOPIC_SCOPE, SettingRow
from horolog.metadata.topics import Topic
from horolog.storage.files import Files

_LOG = logging.getLogger(__name__)


_OF_GROUPS: Final = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def _within(text: str | None, default: int, least: int, most: int) -> int:
    return default if text is None else min(max(int(text), least), most)


class LiveSettings:
    """Current settings as given, and the effective `config`; both are replaced, never mutated."""

    def __init__(self, settings: Settings, groups: dict[str, dict[str, str]] | None = None) -> None:
        self.settings = settings
        self.groups = {} if groups is None else groups
        """Settings of single groups; those without any are absent."""
        self.client_metrics: dict[str, Mapping[str, str]] = {}
        """Settings of subscriptions to clients' metrics, which only a cluster has."""
        self.config: BrokerConfig = settings.broker_config()

    def replace(self, settings: Settings) -> None:
        """Apply new settings from the next request on."""
        self.settings, self.config = settings, settings.broker_config()

    def of_topic(self, topic: Topic) -> TopicConfig:
        """Return the effective settings of a topic."""
        config = self.settings.topic_config(topic.overrides)
        return compacting(config) if topic.compacted else config

    def of_group(self, group: str) -> GroupTimes:
        """Return the effective settings of a group.

        A value that was set before the broker's bounds became narrower counts as the nearest
        allowed one.
        """
        config, own = self.config, self.groups.get(group, {})
        session_ms, interval_ms, assignment_ms = map(own.get, _OF_GROUPS)
        return GroupTimes(
            _within(
                session_ms,
                config.group_consumer_session_timeout_ms,
                config.group_consumer_min_session_timeout_ms,
                config.group_consumer_max_session_timeout_ms,
            ),
            _within(
                interval_ms,
                config.group_consumer_heartbeat_interval_ms,
                config.group_consumer_min_heartbeat_interval_ms,
                config.group_consumer_max_heartbeat_interval_ms,
            ),
            _within(
                assignment_ms,
                config.group_consumer_assignment_interval_ms,
                config.group_consumer_min_assignment_interval_ms,
                config.group_consumer_max_assignment_interval_ms,
            ),
        )


@dataclass(slots=True)
class StoredSettings:
    """Stored settings by resource: a topic, a group, a broker id, or "" for all brokers."""

    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    brokers: dict[str, dict[str, str]] = field(default_factory=dict)
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    """Topics with an invalid setting."""
    all_doubtful: bool = False
    """Whether a broker setting is invalid."""

    def may_expire(self, topic: str) -> bool:
        """True if the retention of a topic is known."""
        return not self.all_doubtful and topic not in self.doubtful


_WITHOUT: Final = {
    BROKER_SCOPE: ". No record expires until it is set to a value, and the broker started again",
    TOPIC_SCOPE: ". No record of the topic expires until it is given settings again",
    GROUP_SCOPE: "",
}


def read_stored_settings(rows: Iterable[SettingRow]) -> StoredSettings:
    """Validate the stored settings; invalid ones are logged."""
    found = StoredSettings()
    scopes = {
        BROKER_SCOPE: (broker_setting, found.brokers),
        TOPIC_SCOPE: (topic_setting, found.topics),
        GROUP_SCOPE: (group_setting, found.groups),
    }
    for row in rows:
        whose = f"{row.scope} {row.resource or '(all)'}"
        find, scope = scopes[row.scope]
        try:
            setting = find(row.name)
        except ValueError as error:
            _LOG.warning("A stored setting of %s is ignored: %s", whose, error)
            continue
        try:
            setting.read(row.value, row.name)
        except ValueError as error:
            _LOG.error("A stored setting of %s is ignored: %s%s", whose, error, _WITHOUT[row.scope])
            if row.scope == BROKER_SCOPE:
                found.all_doubtful = True
            elif row.scope == TOPIC_SCOPE:
                found.doubtful.add(row.resource)
            continue
        scope.setdefault(row.resource, {})[row.name] = row.value
    return found


def obeyed_settings(settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """Return the given settings that a topic can have here."""
    kept: dict[str, str] = {}
    for name, text in given.items():
        try:
            if topic_setting(name).status is Status.OBEYED:
                settings.topic_config({**kept, name: text})
                kept[name] = text
        except ValueError:
            continue  # of another release, or one that is refused here
    return kept


def compacting(config: TopicConfig) -> TopicConfig:
    """Return the settings of a compacted topic, which refuses records without a key."""
    return replace(config, cleanup_policy=frozenset({"compact"}))


class OfflineTopic(NamedTuple):
    """Settings of one topic."""

    config: TopicConfig
    overrides: Mapping[str, str]
    """Settings of its own under Kafka's names, without the tried ones."""
    is_exempt: bool
    """Whether retention deletes nothing: the topic is adopted, or a setting is invalid."""
    source: str
    """Origin of its settings, in words."""
    is_adopted: bool = False
    """Like `is_exempt` without tried settings. Open transactions count as ended."""


class OfflineSettings:
    """The settings that the topics of a log directory have, read without a broker.

    Those of a broker's command line or `server.properties` are in no file of the directory: the
    defaults count unless they are given again.
    """

    def __init__(self, log_dir: Path, tried: Mapping[str, str]) -> None:
        """Read all that is stored.

        Args:
            log_dir: the directory of the partitions.
            tried: settings in the place of a topic's, or of the broker's by their names.

        Raises:
            Misconfigured: a tried setting is unknown or invalid.
            StorageFailed: the metadata cannot be read.
        """
        topics_names = {
            name
            for setting in topic_settings().values()
            for name in (setting.name, *setting.aliases)
        }
        of_topics = {name: text for name, text in tried.items() if name in topics_names}
        static = {name: text for name, text in tried.items() if name not in of_topics}
        stored = read_stored(log_dir)
        found = StoredSettings() if stored is None else read_stored_settings(stored.settings)
        node = Settings(static)
        self._tried = of_topics
        self._settings = Settings(
            static,
            dynamic_default=found.brokers.get("", {}),
            dynamic_broker=found.brokers.get(str(node.broker_config().node_id), {}),
        )
        self._found = found
        self._rows = {row.name: row for row in stored.topics} if stored is not None else {}
        self._has_store = stored is not None
        self._of_kafka = read_cluster_metadata(
            Files(read_only=True), log_dir, is_own=state_dir_of(log_dir) == log_dir
        ).topics
        self._log_dir = log_dir
        self._configured(of_topics)

    def of(self, topic: str) -> OfflineTopic:
        """Return the settings of a topic."""
        row = self._rows.get(topic)
        if row is not None and not row.adopted:
            overrides, source = self._found.topics.get(topic, {}), "the metadata of the directory"
            is_exempt = not self._found.may_expire(topic)
        else:
            overrides = obeyed_settings(self._settings, self._of_kafka.get(topic, {}))
            source = "Kafka's metadata in the directory" if overrides else "the defaults"
            is_exempt = self._has_store
        return OfflineTopic(
            self._configured({**overrides, **self._tried}),
            overrides,
            is_exempt and not self._tried,
            source,
            is_exempt,
        )

    def _configured(self, overrides: Mapping[str, str]) -> TopicConfig:
        try:
            return self._settings.topic_config(overrides)
        except ValueError as error:
            raise Misconfigured(str(error)) from None
