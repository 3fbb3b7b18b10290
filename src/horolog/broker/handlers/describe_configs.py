"""DescribeConfigs: the settings of topics and brokers, with sources and synonyms.

v1  source and synonyms instead of is_default (KIP-226)
v2  throttle time semantics only
v3  type and documentation (KIP-569)
v4  flexible
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from horolog.broker.broker import Broker
from horolog.broker.control.table import describe, questions_in
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.config_resources import (
    check_broker,
    check_logger_broker,
    without_settings,
)
from horolog.broker.loggers import describe_loggers
from horolog.config import DescribedSetting, describe_broker, describe_cluster, describe_topic
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.requests import DescribeConfigsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import (
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
    )


MOST_QUESTIONS: Final = 500
"""In one request: names with a value that is looked up for the answer (docs/wire.md)."""

_KEYS_AT_ONCE: Final = 1_000

_MOST_REPEATED: Final = 100
"""Resources that one request names again: each answer is as large as the first."""

Keys: TypeAlias = tuple[str, ...] | None
"""Names of settings, in the order asked; None for all."""


@api(ApiKey.DESCRIBE_CONFIGS)
async def describe_configs(
    request: Request[DescribeConfigsRequest], broker: Broker
) -> "DescribeConfigsResponse":
    """The settings of each resource, or an error, in the order of the request."""
    descriptions, seen, repeated = _Descriptions(request, broker), set(), 0
    results: list[DescribeConfigsResult] = []
    for resource in request.body.resources:
        await request.checkpoint()
        resource_type, name = what = resource.resource_type, resource.resource_name
        error_code, message, configs = ErrorCode.none, None, []
        repeated += what in seen
        seen.add(what)
        try:
            if repeated > _MOST_REPEATED:
                raise RequestRefused(
                    ErrorCode.invalid_request,
                    f"ask for {_MOST_REPEATED} resources twice at most in a request",
                )
            keys = await _distinct(request, resource.configuration_keys)
            configs = await descriptions.of(resource_type, name, keys)
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


async def _distinct(request: Request[DescribeConfigsRequest], keys: Sequence[str] | None) -> Keys:
    """The names asked for, each once."""
    if keys is None:
        return None
    found: dict[str, None] = {}
    for first in range(0, len(keys), _KEYS_AT_ONCE):
        found |= dict.fromkeys(keys[first : first + _KEYS_AT_ONCE])
        await request.checkpoint()
    return tuple(found)


class _Descriptions:
    """Settings described once for all topics of a request that have the same."""

    def __init__(self, request: Request[DescribeConfigsRequest], broker: Broker) -> None:
        self._request = request
        self._broker = broker
        self._synonyms: bool = request.body.include_synonyms
        self._documentation: bool = request.body.include_documentation
        self._of_topics: dict[Any, list[DescribeConfigsResourceResult]] = {}
        self._questions_left = MOST_QUESTIONS

    async def of(
        self, resource_type: int, name: str, keys: Keys
    ) -> "list[DescribeConfigsResourceResult]":
        """The settings of a resource, as DescribeConfigs has them; not to be changed."""
        match resource_type:
            case ResourceType.TOPIC:
                return await self._of_topic(name, keys)
            case ResourceType.BROKER:
                return await self._of_broker(name, keys)
            case ResourceType.BROKER_LOGGER:
                check_logger_broker(self._broker, name)
                return [self._described(entry) for entry in describe_loggers(keys)]
            case number:
                if number == ResourceType.GROUP and name and questions_in(keys):
                    return await self._answers(ResourceType.GROUP, name, keys)
                raise without_settings(number)

    async def _of_topic(self, name: str, keys: Keys) -> "list[DescribeConfigsResourceResult]":
        broker = self._broker
        topic = broker.topics.named(name)
        same = (frozenset(topic.overrides.items()), keys)
        found = self._of_topics.get(same)
        if found is None:
            entries = describe_topic(broker.settings, topic.overrides, keys)
            found = self._of_topics[same] = [self._described(entry) for entry in entries]
        answers = await self._answers(ResourceType.TOPIC, name, keys)
        return found + answers if answers else found

    async def _of_broker(self, name: str, keys: Keys) -> "list[DescribeConfigsResourceResult]":
        is_of_all = check_broker(self._broker, name)
        entries = (describe_cluster if is_of_all else describe_broker)(self._broker.settings, keys)
        found = [self._described(entry) for entry in entries]
        return found + await self._answers(ResourceType.BROKER, name, keys)

    async def _answers(
        self, about: ResourceType, name: str, keys: Keys
    ) -> "list[DescribeConfigsResourceResult]":
        """What a resource has beside its settings.

        Raises:
            RequestRefused: the request has too many questions.
        """
        questions = len(questions_in(keys))
        if questions > self._questions_left:
            raise RequestRefused(
                ErrorCode.invalid_request,
                f"ask at most {MOST_QUESTIONS} questions in a request (docs/wire.md)",
            )
        self._questions_left -= questions
        found = []
        for entry in await describe(self._broker, self._request, about, name, keys):
            found.append(self._described(entry))
            await self._request.checkpoint()
        return found

    def _described(self, entry: DescribedSetting) -> "DescribeConfigsResourceResult":
        return _described(entry, synonyms=self._synonyms, documentation=self._documentation)


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
