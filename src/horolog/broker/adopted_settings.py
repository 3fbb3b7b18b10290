"""The settings of a topic that was adopted: those its Kafka had, as far as they are obeyed here.

They say what may be appended and how (whose time a record carries, the codec, the
bounds), so that the Kafka finds its log as if it had been away. What would need other
brokers is left out, and what is not understood; nothing expires anyway.
"""

from collections.abc import Mapping
from dataclasses import replace

from horolog.config import Settings, TopicConfig
from horolog.config.setting import Status
from horolog.config.tables import topic_setting

_OF_REPLICAS = {"min.insync.replicas"}


def obeyed_settings(settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """Those of the settings given that a topic here can have."""
    kept: dict[str, str] = {}
    for name, text in given.items():
        try:
            if name not in _OF_REPLICAS and topic_setting(name).status is Status.OBEYED:
                settings.topic_config({**kept, name: text})
                kept[name] = text
        except ValueError:
            continue  # of another release, or one that is refused here
    return kept


def compacting(config: TopicConfig) -> TopicConfig:
    """The same for a topic whose Kafka compacts it: nothing is taken without a key."""
    return replace(config, cleanup_policy=frozenset({"compact"}))
