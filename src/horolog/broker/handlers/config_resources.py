"""What AlterConfigs, IncrementalAlterConfigs and DescribeConfigs are about: topics and brokers."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from horolog.broker.broker import Broker
from horolog.broker.control.table import split_actions
from horolog.broker.dispatch import Request
from horolog.broker.loggers import alter_loggers
from horolog.config import Operation, SettingChange
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.wire.config_resources import ResourceType

if TYPE_CHECKING:
    from horolog.wire.responses import AlterConfigsResourceResponse


async def alter_each(
    request: Request[Any], broker: Broker, *, replaces: bool
) -> "list[AlterConfigsResourceResponse]":
    """Alter one resource after the other, and return the response to each.

    A resource that the request contains twice is refused, and one with a setting twice.

    Args:
        request: AlterConfigs, or IncrementalAlterConfigs.
        broker: the broker to alter.
        replaces: AlterConfigs: the changes replace all settings of a resource, but no loggers.
    """
    responses: list[AlterConfigsResourceResponse] = []
    times: Counter[tuple[int, str]] = Counter()
    for resource in request.body.resources:
        await request.checkpoint()
        times[resource.resource_type, resource.resource_name] += 1
    for resource in request.body.resources:
        await request.checkpoint()
        error_code, message = ErrorCode.none, None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise RequestRefused(
                    ErrorCode.invalid_request, "Each resource must appear at most once."
                )
            changes = []
            for config in resource.configs:
                await request.checkpoint()
                operation = Operation.SET if replaces else _operation(config.config_operation)
                changes.append(SettingChange(config.name, operation, config.value))
            await _alter(request, broker, resource, changes, replaces=replaces)
        except HorologError as error:
            error_code, message = code_for(error), str(error)
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
    broker: Broker,
    resource: Any,
    changes: list[SettingChange],
    *,
    replaces: bool,
) -> None:
    name, validate_only = resource.resource_name, request.body.validate_only
    alter: Callable[..., Awaitable[None]]
    match resource.resource_type:
        case ResourceType.TOPIC as about:
            topic = broker.topics.named(name)
            alter = partial(broker.controller.alter_topic_settings, topic)
        case ResourceType.BROKER as about:
            is_of_all = check_broker(broker, name)
            alter = partial(broker.controller.alter_broker_settings, cluster_wide=is_of_all)
        case ResourceType.BROKER_LOGGER if not replaces:
            check_logger_broker(broker, name)
            alter_loggers(changes, validate_only=validate_only)
            return
        case number:
            raise without_settings(number)
    perform, settings = split_actions(broker, request.peer, ResourceType(about), name, changes)
    if settings or perform is None:
        await alter(settings, replaces=replaces, validate_only=validate_only)
    if perform is not None and not validate_only:
        await perform()


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        raise RequestRefused(ErrorCode.invalid_request, f"there is no operation {number}") from None


def check_broker(broker: Broker, name: str) -> bool:
    """Refuse a broker that is not this one; whether all brokers are meant (the name is empty)."""
    if name and name != str(broker.config.node_id):
        raise RequestRefused(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.config.node_id} or empty string, "
            f"but received {name}",
        )
    return not name


def check_logger_broker(broker: Broker, name: str) -> None:
    """Refuse the loggers of any broker but this one."""
    if check_broker(broker, name):
        raise RequestRefused(ErrorCode.invalid_request, "Broker id must not be empty")


_WITHOUT_SETTINGS: Final[Mapping[int, str]] = {
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "groups",
}


def without_settings(number: int) -> RequestRefused:
    """The refusal to describe or change a resource that has no settings here."""
    what = _WITHOUT_SETTINGS.get(number, "an unknown kind")
    return RequestRefused(
        ErrorCode.invalid_request,
        f"there are no settings of {what} (resource type {number}) here: those of topics (2) and "
        "brokers (4) can be described and changed, and levels of loggers (8), incrementally",
    )
