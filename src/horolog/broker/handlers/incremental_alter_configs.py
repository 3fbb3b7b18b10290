"""IncrementalAlterConfigs: sets, deletes, appends to, subtracts from settings (KIP-339).

Of loggers it sets and deletes levels (KIP-412).

v1  flexible
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.control.table import alter
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.config_resources import (
    alter_each,
    check_broker,
    check_logger_broker,
    unknown_type,
)
from horolog.broker.loggers import alter_loggers
from horolog.config import Change, Operation
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.requests import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from horolog.wire.responses import IncrementalAlterConfigsResponse


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def incremental_alter_configs(
    request: Request[IncrementalAlterConfigsRequest], broker: Broker
) -> "IncrementalAlterConfigsResponse":
    """Apply the changes of each resource atomically."""
    alter = partial(_alter, request, broker)
    return {"responses": await alter_each(request, request.body.resources, alter)}


async def _alter(
    request: Request[IncrementalAlterConfigsRequest],
    broker: Broker,
    resource: IncrementalAlterConfigsAlterConfigsResource,
) -> None:
    validate_only = request.body.validate_only
    asked = []
    for config in resource.configs:
        await request.checkpoint()
        asked.append(_change(config))
    name, about = resource.resource_name, ResourceType.TOPIC
    change: Callable[..., Awaitable[None]]
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = broker.topics.named(name)
            change = partial(broker.controller.alter_topic_settings, topic)
        case ResourceType.BROKER:
            about = ResourceType.BROKER
            change = partial(
                broker.controller.alter_broker_settings, cluster_wide=check_broker(broker, name)
            )
        case ResourceType.BROKER_LOGGER:
            check_logger_broker(broker, name)
            alter_loggers(asked, validate_only=validate_only)
            return
        case number:
            raise unknown_type(number)
    change = partial(change, validate_only=validate_only)
    await alter(*(broker, request.peer, about, name, asked, change), validate_only=validate_only)


def _change(config: IncrementalAlterConfigsAlterableConfig) -> Change:
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        raise RequestRefused(
            ErrorCode.invalid_request, f"there is no operation {config.config_operation}"
        ) from None
    return Change(config.name, operation, config.value)
