"""Kinds of resources that have settings, in DescribeConfigs and AlterConfigs."""

from enum import IntEnum


class ResourceType(IntEnum):
    """Kinds of resources, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
