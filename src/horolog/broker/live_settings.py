"""The settings that a broker obeys at the moment; they may change while it runs."""

from horolog.broker.adopted_settings import compacting
from horolog.config import BrokerConfig, Settings, TopicConfig
from horolog.metadata.topics import Topic


class LiveSettings:
    """`settings` as they were given, and `config` as what they mean; replaced, never changed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.config: BrokerConfig = settings.broker_config()

    def replace(self, settings: Settings) -> None:
        """Obey these from the next request on."""
        self.settings, self.config = settings, settings.broker_config()

    def of_topic(self, topic: Topic) -> TopicConfig:
        """What the logs of a topic obey."""
        config = self.settings.topic_config(topic.overrides)
        return compacting(config) if topic.compacted else config
