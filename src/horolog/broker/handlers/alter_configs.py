"""AlterConfigs: replaces all dynamic settings of topics and brokers.

v1  as v0
v2  flexible
"""

from functools import partial
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.clock_control import split_values
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.config_resources import (
    alter_each,
    check_broker,
    unknown_type,
)
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.requests import AlterConfigsRequest, AlterConfigsResource

if TYPE_CHECKING:
    from horolog.wire.responses import AlterConfigsResponse


@api(ApiKey.ALTER_CONFIGS)
async def alter_configs(
    request: Request[AlterConfigsRequest], broker: Broker
) -> "AlterConfigsResponse":
    """Replace the settings of each resource atomically."""
    alter = partial(_alter, request, broker)
    return {"responses": await alter_each(request, request.body.resources, alter)}


async def _alter(
    request: Request[AlterConfigsRequest],
    broker: Broker,
    resource: AlterConfigsResource,
) -> None:
    validate_only = request.body.validate_only
    values = {}
    for config in resource.configs:
        await request.checkpoint()
        values[config.name] = config.value
    match resource.resource_type:
        case ResourceType.TOPIC:
            await broker.controller.replace_topic_settings(
                broker.topics.named(resource.resource_name), values, validate_only=validate_only
            )
        case ResourceType.BROKER:
            cluster_wide = check_broker(broker, resource.resource_name)
            clock_actions, values = split_values(broker, values)
            if values or clock_actions is None:
                await broker.controller.replace_broker_settings(
                    values, cluster_wide=cluster_wide, validate_only=validate_only
                )
            if clock_actions is not None and not validate_only:
                await clock_actions.perform(broker)
        case number:
            raise unknown_type(number)
