"""What settings belong to: the kinds of resources of DescribeConfigs and AlterConfigs."""

from enum import IntEnum


class ResourceType(IntEnum):
    """Kafka's numbers for kinds of resources."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
