"""What AlterConfigs, IncrementalAlterConfigs and DescribeConfigs are about: topics and brokers."""

from enum import IntEnum

from horolog.broker.broker import Broker
from horolog.errors import ErrorCode, RequestRefused


class ResourceType(IntEnum):
    """Kafka's numbers for kinds of resources."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


def check_broker(broker: Broker, name: str) -> bool:
    """Refuse a broker that is not this one; whether all brokers are meant (the name is empty)."""
    if name and name != str(broker.config.node_id):
        raise RequestRefused(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.config.node_id} or empty string, "
            f"but received {name}",
        )
    return not name


_WITHOUT_SETTINGS = {16: "client metrics", 32: "groups"}


def unknown_type(number: int) -> RequestRefused:
    """The refusal of a resource that has no settings here."""
    return RequestRefused(
        ErrorCode.invalid_request,
        f"settings of {_WITHOUT_SETTINGS.get(number, 'an unknown kind')} (resource type {number}) "
        "are not served: those of topics (2) and brokers (4) are",
    )
