"""Broker and topic settings under Kafka's own names: type, default, bounds, synonyms.

`Settings` holds what was given where; `TopicConfig` and `BrokerConfig` are what follows.
Every setting of Kafka 4, and what comes of it here, stands in `topic_settings.txt` and
`broker_settings.txt`, from which `docs/settings.md` is made.
"""

from horolog.config.alter import (
    Change,
    Operation,
    alter_broker,
    alter_topic,
    check_topic,
    replace_broker,
)
from horolog.config.broker import BrokerConfig
from horolog.config.describe import (
    ConfigEntry,
    Synonym,
    describe_broker,
    describe_cluster,
    describe_topic,
)
from horolog.config.listeners import Endpoint, host_port
from horolog.config.properties import parse_properties
from horolog.config.setting import Setting, Status, UpdateMode
from horolog.config.settings import Settings, Source
from horolog.config.tables import broker_settings, topic_settings
from horolog.config.topic import LONG_MAX, TopicConfig
from horolog.config.values import Kind

__all__ = [
    "LONG_MAX",
    "BrokerConfig",
    "Change",
    "ConfigEntry",
    "Endpoint",
    "Kind",
    "Operation",
    "Setting",
    "Settings",
    "Source",
    "Status",
    "Synonym",
    "TopicConfig",
    "UpdateMode",
    "alter_broker",
    "alter_topic",
    "broker_settings",
    "check_topic",
    "describe_broker",
    "describe_cluster",
    "describe_topic",
    "host_port",
    "parse_properties",
    "replace_broker",
    "topic_settings",
]
