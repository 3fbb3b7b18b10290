"""DescribeConfigs: the settings of topics and brokers, where each comes from, what stood behind.

v1  source and synonyms instead of is_default (KIP-226)
v2  throttle time semantics only
v3  type and documentation (KIP-569)
v4  flexible
"""

from typing import Any

from horolog.broker.append_time_control import describe_append_times
from horolog.broker.broker import Broker
from horolog.broker.clock_control import describe_clock
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.config_resources import ResourceType, check_broker, unknown_type
from horolog.config import ConfigEntry, describe_broker, describe_cluster, describe_topic
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.wire.api import ApiKey


@api(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(request: Request, broker: Broker) -> dict[str, Any]:
    """Each resource's settings, or why not."""
    body = request.body
    results = []
    for resource in body.resources:
        answer: dict[str, Any] = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [],
        }
        try:
            answer["configs"] = [
                _described(
                    entry,
                    synonyms=body.include_synonyms,
                    documentation=getattr(body, "include_documentation", False),
                )
                for entry in _entries(broker, resource)
            ]
        except HorologError as error:
            answer["error_code"], answer["error_message"] = code_for(error), str(error)
        results.append(answer)
    return {"results": results}


def _entries(broker: Broker, resource: Any) -> list[ConfigEntry]:
    names = resource.configuration_keys
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = broker.topics.named(resource.resource_name)
            described = describe_topic(broker.settings, topic.overrides, names)
            return described + describe_append_times(broker, topic, names)
        case ResourceType.BROKER:
            if check_broker(broker, resource.resource_name):
                return describe_cluster(broker.settings, names)
            return describe_broker(broker.settings, names) + describe_clock(broker, names)
        case ResourceType.BROKER_LOGGER:
            return []
        case number:
            raise unknown_type(number)


def _described(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in (entry.synonyms if synonyms else ())
        ],
        "config_type": entry.kind,
        "documentation": entry.documentation if documentation else None,
    }
