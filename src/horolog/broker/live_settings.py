"""The broker's current settings, which may change while it runs."""

from horolog.broker.adopted_settings import compacting
from horolog.config import BrokerConfig, Settings, TopicConfig
from horolog.metadata.topics import Topic


class LiveSettings:
    """The given `settings` and the effective `config`; both are replaced, never mutated."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.config: BrokerConfig = settings.broker_config()

    def replace(self, settings: Settings) -> None:
        """Apply new settings from the next request on."""
        self.settings, self.config = settings, settings.broker_config()

    def of_topic(self, topic: Topic) -> TopicConfig:
        """The effective settings of a topic."""
        config = self.settings.topic_config(topic.overrides)
        return compacting(config) if topic.compacted else config
