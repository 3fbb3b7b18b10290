"""Requests about settings of topics, groups and brokers, and levels of loggers."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from horolog.broker.authorisation import CLUSTER
from horolog.broker.broker import BrokerParts
from horolog.broker.control.table import (
    check_rights,
    describe,
    needs_of_changes,
    needs_of_questions,
    questions_in,
    split_actions,
)
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.changes import note_changes, setting_lines
from horolog.broker.handlers.results import each, outcome_of
from horolog.broker.loggers import alter_loggers, describe_loggers
from horolog.config import (
    DescribedSetting,
    Operation,
    SettingChange,
    describe_broker,
    describe_client_metrics,
    describe_cluster,
    describe_group,
    describe_topic,
)
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.metadata.topics import check_name
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.rights.entries import CLUSTER_NAME
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.requests import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from horolog.broker.cluster.relaying import Relay
    from horolog.wire.responses import (
        AlterConfigsResourceResponse,
        AlterConfigsResponse,
        ConfigResource,
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
        IncrementalAlterConfigsResponse,
        ListConfigResourcesResponse,
    )

# --- What AlterConfigs, IncrementalAlterConfigs and DescribeConfigs are about


async def alter_each(
    request: Request[Any], broker: BrokerParts, *, replaces: bool
) -> "list[AlterConfigsResourceResponse]":
    """Alter one resource after the other, and return the response about each.

    A resource that the request contains twice is refused, and one with a setting twice.

    Args:
        replaces: the changes replace all settings of a resource (AlterConfigs), but no loggers.
    """
    times = Counter(
        [
            (resource.resource_type, resource.resource_name)
            async for resource in each(request, request.body.resources)
        ]
    )
    responses: list[AlterConfigsResourceResponse] = []
    async for resource in each(request, request.body.resources):
        is_repeated = times[resource.resource_type, resource.resource_name] > 1
        altering = _alter(request, broker, resource, is_repeated=is_repeated, replaces=replaces)
        error_code, message = await outcome_of(altering)
        responses.append(
            {
                "error_code": error_code,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    return responses


async def _alter(
    request: Request[Any],
    broker: BrokerParts,
    resource: Any,
    *,
    is_repeated: bool,
    replaces: bool,
) -> None:
    refuse_repeated(is_repeated=is_repeated)
    changes = await changes_of(request, resource.configs, replaces=replaces)
    name, validate_only = resource.resource_name, request.body.validate_only
    about = resource.resource_type
    api_key = ApiKey.ALTER_CONFIGS if replaces else ApiKey.INCREMENTAL_ALTER_CONFIGS
    if about in set(ResourceType):
        needs = needs_of_changes(about, [change.name for change in changes])
        check_rights(broker, request.peer, api_key, about, name, needs)
    alter: Callable[..., Awaitable[None]]
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = broker.topics.named(name)
            alter = partial(broker.controller.alter_topic_settings, topic)
        case ResourceType.BROKER:
            is_of_all = check_broker(broker, name)
            alter = partial(broker.controller.alter_broker_settings, cluster_wide=is_of_all)
        case ResourceType.GROUP:
            if not name:
                raise RequestRefused(
                    ErrorCode.invalid_request, "Default group resources are not allowed."
                )
            alter = partial(broker.controller.alter_group_settings, name)
        case ResourceType.BROKER_LOGGER if not replaces:
            check_logger_broker(broker, name)
            alter_loggers(changes, validate_only=validate_only)
            if not validate_only:
                await note_changes(request, setting_lines(about, name, changes))
            return
        case number:
            raise without_settings(number)
    perform, settings = split_actions(broker, ResourceType(about), name, changes)
    if settings or perform is None:
        await alter(settings, replaces=replaces, validate_only=validate_only)
        if not validate_only:
            await note_changes(request, setting_lines(about, name, settings))
    if perform is not None and not validate_only:
        await perform()
        others = set(settings)
        actions = [change for change in changes if change not in others]
        await note_changes(request, setting_lines(about, name, actions))


def refuse_repeated(*, is_repeated: bool) -> None:
    """Refuse a resource that a request contains twice."""
    if is_repeated:
        raise RequestRefused(ErrorCode.invalid_request, "Each resource must appear at most once.")


async def changes_of(
    request: Request[Any], configs: Iterable[Any], *, replaces: bool
) -> list[SettingChange]:
    """Return the changes of a resource.

    Raises:
        RequestRefused: an operation does not exist.
    """
    return [
        SettingChange(
            config.name,
            Operation.SET if replaces else _operation(config.config_operation),
            config.value,
        )
        async for config in each(request, configs)
    ]


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        raise RequestRefused(ErrorCode.invalid_request, f"there is no operation {number}") from None


def check_broker(broker: BrokerParts, name: str) -> bool:
    """Refuse the id of another broker.

    Return True if the name is empty, which means all brokers.
    """
    if name and name != str(broker.config.node_id):
        raise RequestRefused(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.config.node_id} or empty string, "
            f"but received {name}",
        )
    return not name


def check_logger_broker(broker: BrokerParts, name: str) -> None:
    """Refuse loggers of another broker."""
    if check_broker(broker, name):
        raise RequestRefused(ErrorCode.invalid_request, "Broker id must not be empty")


def without_settings(number: int) -> RequestRefused:
    """Return the error for a kind of resource that has no settings here."""
    what = "client metrics" if number == ResourceType.CLIENT_METRICS else "an unknown kind"
    return RequestRefused(
        ErrorCode.invalid_request,
        f"there are no settings of {what} (resource type {number}) here: those of topics (2), "
        "brokers (4) and groups (32) can be described and changed, and levels of loggers (8), "
        "incrementally",
    )


# --- DescribeConfigs: the settings of each resource, with sources and synonyms -----
#
# v1  source and synonyms instead of is_default (KIP-226)
# v2  throttle time semantics only
# v3  type and documentation (KIP-569)
# v4  flexible


MOST_QUESTIONS: Final = 500
"""Most questions in one request (docs/wire.md)."""

_KEYS_AT_ONCE: Final = 1_000

_MOST_REPEATED: Final = 100
"""Most repeated resources in one request; each response is as large as the first."""

Keys: TypeAlias = tuple[str, ...] | None
"""Names of settings, in the order of the request; None for all."""


@api(ApiKey.DESCRIBE_CONFIGS)
async def describe_configs(
    request: Request[DescribeConfigsRequest], broker: BrokerParts
) -> "DescribeConfigsResponse":
    """Describe the settings of each resource, in the order of the request."""
    descriptions = _Descriptions(request, broker)
    results: list[DescribeConfigsResult] = []
    async for resource in each(request, request.body.resources):
        error_code, message, configs = ErrorCode.none, None, []
        try:
            configs = await descriptions.of(
                resource.resource_type, resource.resource_name, resource.configuration_keys
            )
        except HorologError as error:
            error_code, message = code_for(error), str(error)
        results.append(
            {
                "error_code": error_code,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "configs": configs,
            }
        )
    return {"results": results}


async def _distinct(request: Request[DescribeConfigsRequest], keys: Sequence[str] | None) -> Keys:
    """Return the requested names without repetitions; None stands for all names."""
    if keys is None:
        return None
    found: dict[str, None] = {}
    for first in range(0, len(keys), _KEYS_AT_ONCE):
        found |= dict.fromkeys(keys[first : first + _KEYS_AT_ONCE])
        await request.checkpoint()
    return tuple(found)


class _Descriptions:
    """Descriptions for one request. Topics with equal settings share one."""

    def __init__(self, request: Request[DescribeConfigsRequest], broker: BrokerParts) -> None:
        self._request = request
        self._broker = broker
        self._synonyms: bool = request.body.include_synonyms
        self._documentation: bool = request.body.include_documentation
        self._of_topics: dict[Any, list[DescribeConfigsResourceResult]] = {}
        self._questions_left = MOST_QUESTIONS
        self._seen: set[tuple[int, str]] = set()
        self._repeated = 0

    async def of(
        self, resource_type: int, name: str, asked: Sequence[str] | None
    ) -> "list[DescribeConfigsResourceResult]":
        """Return the settings of a resource, which the caller must not change.

        Raises:
            RequestRefused: the resource does not exist, or the request is too expensive.
        """
        self._repeated += (resource_type, name) in self._seen
        self._seen.add((resource_type, name))
        if self._repeated > _MOST_REPEATED:
            raise RequestRefused(
                ErrorCode.invalid_request,
                f"ask for {_MOST_REPEATED} resources twice at most in a request",
            )
        broker, keys = self._broker, await _distinct(self._request, asked)
        settings = broker.settings
        if resource_type in set(ResourceType):
            needs, api_key = needs_of_questions(resource_type, keys), ApiKey.DESCRIBE_CONFIGS
            check_rights(broker, self._request.peer, api_key, resource_type, name, needs)
        match resource_type:
            case ResourceType.TOPIC:
                return await self._of_topic(name, keys)
            case ResourceType.BROKER:
                describe_all = describe_cluster if check_broker(broker, name) else describe_broker
                found = [self._described(entry) for entry in describe_all(settings, keys)]
                return found + await self._answers(ResourceType.BROKER, name, keys)
            case ResourceType.BROKER_LOGGER:
                check_logger_broker(broker, name)
                return [self._described(entry) for entry in describe_loggers(keys)]
            case ResourceType.GROUP:
                if not name:
                    raise RequestRefused(ErrorCode.invalid_request, "Group name must not be empty")
                own = broker.group_settings.get(name, {})
                found = [self._described(entry) for entry in describe_group(settings, own, keys)]
                return found + await self._answers(ResourceType.GROUP, name, keys)
            case ResourceType.CLIENT_METRICS if broker.cluster is not None:
                if not name:
                    raise RequestRefused(
                        ErrorCode.invalid_request,
                        "Client metrics subscription name must not be empty",
                    )
                own = broker.client_metrics.get(name, {})
                return [self._described(entry) for entry in describe_client_metrics(own, keys)]
            case number:
                raise without_settings(number)

    async def _of_topic(self, name: str, keys: Keys) -> "list[DescribeConfigsResourceResult]":
        broker = self._broker
        check_name(name)
        topic = broker.topics.named(name)
        same = (frozenset(topic.overrides.items()), keys)
        found = self._of_topics.get(same)
        if found is None:
            entries = describe_topic(broker.settings, topic.overrides, keys)
            found = self._of_topics[same] = [self._described(entry) for entry in entries]
        answers = await self._answers(ResourceType.TOPIC, name, keys)
        return found + answers if answers else found

    async def _answers(
        self, about: ResourceType, name: str, keys: Keys
    ) -> "list[DescribeConfigsResourceResult]":
        """Return the answers to horolog's questions about a resource.

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
        entries = await describe(self._broker, self._request, about, name, keys)
        return [self._described(entry) async for entry in each(self._request, entries)]

    def _described(self, entry: DescribedSetting) -> "DescribeConfigsResourceResult":
        return {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_default": entry.is_default,
            "is_sensitive": entry.sensitive,
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": synonym.source}
                for synonym in (entry.synonyms if self._synonyms else ())
            ],
            "config_type": entry.kind,
            "documentation": entry.documentation if self._documentation else None,
        }


# --- AlterConfigs: replaces all dynamic settings of a resource -------------------------
#
# v1  as v0
# v2  flexible


@api(ApiKey.ALTER_CONFIGS)
async def alter_configs(
    request: Request[AlterConfigsRequest], broker: BrokerParts
) -> "AlterConfigsResponse | Reply":
    """Replace the settings of each resource atomically."""
    if broker.relay is not None:
        relayed = await _relayed(request, broker, broker.relay, replaces=True)
        return cast("AlterConfigsResponse | Reply", relayed)
    return {"responses": await alter_each(request, broker, replaces=True)}


# --- IncrementalAlterConfigs: sets, deletes, appends to, subtracts from settings (KIP-339)
#
# Of loggers it sets and deletes levels (KIP-412).
#
# v1  flexible


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def incremental_alter_configs(
    request: Request[IncrementalAlterConfigsRequest], broker: BrokerParts
) -> "IncrementalAlterConfigsResponse | Reply":
    """Apply the changes of each resource atomically."""
    if broker.relay is not None:
        relayed = await _relayed(request, broker, broker.relay, replaces=False)
        return cast("IncrementalAlterConfigsResponse | Reply", relayed)
    return {"responses": await alter_each(request, broker, replaces=False)}


async def _relayed(
    request: Request[Any], broker: BrokerParts, relay: "Relay", *, replaces: bool
) -> Mapping[str, Any] | Reply:
    from horolog.broker.handlers.relayed_settings import (  # noqa: PLC0415 - only in a cluster
        alter_in_cluster,
    )

    return await alter_in_cluster(request, broker, relay, replaces=replaces)


# --- ListConfigResources: what has settings (KIP-1142) ----------------------------------
#
# v0  flexible from the start; client metrics only (as ListClientMetricsResources, KIP-1000)
# v1  kinds of resources


@api(ApiKey.LIST_CONFIG_RESOURCES)
async def list_config_resources(
    request: Request[ListConfigResourcesRequest], broker: BrokerParts
) -> "ListConfigResourcesResponse":
    """List resources of the requested kinds; of all kinds if none is given."""
    asked = set(request.body.resource_types)
    if not broker.access.allows(request.peer, ApiKey.LIST_CONFIG_RESOURCES, CLUSTER, CLUSTER_NAME):
        return {"error_code": ErrorCode.cluster_authorization_failed, "config_resources": []}
    if request.version == 0:
        asked = {ResourceType.CLIENT_METRICS}
    if asked - set(ResourceType):
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    resources: list[ConfigResource] = [
        {"resource_name": name, "resource_type": kind}
        for kind in sorted(asked or set(ResourceType))
        async for name in each(request, _names(broker, request.peer, ResourceType(kind)))
    ]
    return {"error_code": ErrorCode.none, "config_resources": resources}


def _names(broker: BrokerParts, peer: Peer, kind: ResourceType) -> Iterator[str]:
    """Yield the names of one kind: of groups those that have settings."""
    match kind:
        case ResourceType.TOPIC:
            yield from (topic.name for topic in broker.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            yield from (str(node.node_id) for node, _ in broker.placement.brokers(peer.listener))
        case ResourceType.GROUP:
            yield from list(broker.group_settings)
        case ResourceType.CLIENT_METRICS:
            yield from list(broker.client_metrics)
