"""The settings that the topics of a log directory have, read without a broker.

In a directory of horolog's they are in its metadata. In one of an Apache Kafka, which
horolog would adopt, they are in Kafka's metadata, where that is a controller, too. What was given
on the command line of a broker or in its `server.properties` is in no file here: the defaults count
unless it is given again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from horolog.broker.adopted_settings import obeyed_settings
from horolog.broker.stored_settings import StoredSettings, read_stored_settings
from horolog.config import Settings, TopicConfig
from horolog.config.tables import topic_settings
from horolog.errors import Misconfigured
from horolog.metadata.adopted import read_cluster_metadata
from horolog.metadata.opening import read_stored, state_dir_of
from horolog.storage.files import Files


class OfflineTopic(NamedTuple):
    """The settings of one topic."""

    config: TopicConfig
    overrides: Mapping[str, str]
    """Its own, under Kafka's names, without the tried ones."""
    is_exempt: bool
    """A broker that starts here deletes nothing of it: it is adopted, or a setting is invalid."""
    source: str
    """Where its settings are from."""
    is_adopted: bool = False
    """The same whatever is tried: what is open there counts as ended."""


class OfflineSettings:
    """The settings of all topics of a log directory."""

    def __init__(self, log_dir: Path, tried: Mapping[str, str]) -> None:
        """Read all that is stored.

        Args:
            log_dir: the directory of the partitions.
            tried: settings in the place of a topic's, or of the broker's by their names.

        Raises:
            Misconfigured: a tried setting is unknown or invalid.
            StorageFailed: the metadata cannot be read.
        """
        of_topics = {name: text for name, text in tried.items() if _is_of_topics(name)}
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
        """The settings of a topic."""
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


def _is_of_topics(name: str) -> bool:
    return any(
        name == topic_setting.name or name in topic_setting.aliases
        for topic_setting in topic_settings().values()
    )
