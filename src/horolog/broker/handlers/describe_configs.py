"""DescribeConfigs: the settings of topics and brokers, with sources and synonyms.

v1  source and synonyms instead of is_default (KIP-226)
v2  throttle time semantics only
v3  type and documentation (KIP-569)
v4  flexible
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from horolog.broker.append_time_control import describe_append_times
from horolog.broker.broker import Broker
from horolog.broker.clock_control import describe_clock
from horolog.broker.dispatch import Request, api
from horolog.broker.exactly_once_control import describe_queries
from horolog.broker.handlers.config_resources import check_broker, unknown_type
from horolog.broker.retention_control import describe_retention
from horolog.broker.time_ranges_control import describe_time_ranges
from horolog.config import DescribedSetting, describe_broker, describe_cluster, describe_topic
from horolog.errors import ErrorCode, HorologError, code_for
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.requests import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
    )


@api(ApiKey.DESCRIBE_CONFIGS)
async def describe_configs(
    request: Request[DescribeConfigsRequest], broker: Broker
) -> "DescribeConfigsResponse":
    """The settings of each resource, or an error; repeated resources get one result."""
    descriptions = _Descriptions(request, broker)
    results: list[DescribeConfigsResult] = []
    for resource, keys in _distinct(request.body.resources).items():
        await request.checkpoint()
        resource_type, name = resource
        error_code, message, configs = ErrorCode.none, None, []
        try:
            configs = descriptions.of(resource_type, name, keys)
            if resource_type == ResourceType.TOPIC:
                answers = await describe_time_ranges(broker, request.peer, name, keys)
                answers += await describe_retention(broker, request.peer, name, keys)
                configs = configs + descriptions.described(answers) if answers else configs
        except HorologError as error:
            error_code, message = code_for(error), str(error)
        results.append(
            {
                "error_code": error_code,
                "error_message": message,
                "resource_type": resource_type,
                "resource_name": name,
                "configs": configs,
            }
        )
    return {"results": results}


def _distinct(
    resources: Sequence[DescribeConfigsResource],
) -> dict[tuple[int, str], frozenset[str] | None]:
    """The requested keys of each resource; None for all."""
    asked: dict[tuple[int, str], frozenset[str] | None] = {}
    for resource in resources:
        what = (resource.resource_type, resource.resource_name)
        keys = resource.configuration_keys
        before = asked.get(what, frozenset())
        asked[what] = None if keys is None or before is None else before | frozenset(keys)
    return asked


class _Descriptions:
    """Settings described once for all topics of a request that have the same."""

    def __init__(self, request: Request[DescribeConfigsRequest], broker: Broker) -> None:
        self._broker = broker
        self._synonyms: bool = request.body.include_synonyms
        self._documentation: bool = request.body.include_documentation
        self._of_topics: dict[Any, list[DescribeConfigsResourceResult]] = {}

    def of(
        self, resource_type: int, name: str, keys: frozenset[str] | None
    ) -> "list[DescribeConfigsResourceResult]":
        """The settings of a resource, as DescribeConfigs has them; not to be changed."""
        broker = self._broker
        match resource_type:
            case ResourceType.TOPIC:
                topic = broker.topics.named(name)
                same = (frozenset(topic.overrides.items()), keys)
                found = self._of_topics.get(same)
                if found is None:
                    entries = describe_topic(broker.settings, topic.overrides, keys)
                    found = self._of_topics[same] = self.described(entries)
                of_times = describe_append_times(broker, topic, keys)
                return found + self.described(of_times) if of_times else found
            case ResourceType.BROKER:
                queries = describe_queries(broker, keys)
                if check_broker(broker, name):
                    return self.described(describe_cluster(broker.settings, keys) + queries)
                of_broker = describe_broker(broker.settings, keys) + describe_clock(broker, keys)
                return self.described(of_broker + queries)
            case ResourceType.BROKER_LOGGER:
                return []
            case number:
                raise unknown_type(number)

    def described(
        self, entries: Sequence[DescribedSetting]
    ) -> "list[DescribeConfigsResourceResult]":
        """Settings as the response has them."""
        return [
            _described(entry, synonyms=self._synonyms, documentation=self._documentation)
            for entry in entries
        ]


def _described(
    entry: DescribedSetting, *, synonyms: bool, documentation: bool
) -> "DescribeConfigsResourceResult":
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_default": entry.is_default,
        "is_sensitive": entry.sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in (entry.synonyms if synonyms else ())
        ],
        "config_type": entry.kind,
        "documentation": entry.documentation if documentation else None,
    }
