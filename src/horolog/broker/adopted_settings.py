"""The settings of an adopted topic: those of its Kafka that horolog obeys.

They control appends (timestamp type, codec, bounds), so that the log stays valid for that Kafka.
Settings that need other brokers, and unknown ones, are ignored; records do not expire anyway.
"""

from collections.abc import Mapping
from dataclasses import replace

from horolog.config import Settings, TopicConfig
from horolog.config.setting import Status
from horolog.config.tables import topic_setting


def obeyed_settings(settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """The given settings that a topic can have here."""
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
    """The same settings for a compacted topic: records without a key are refused."""
    return replace(config, cleanup_policy=frozenset({"compact"}))
