"""AlterConfigs: replaces all dynamic settings of topics and brokers.

v1  as v0
v2  flexible
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.control.table import alter
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.config_resources import (
    alter_each,
    check_broker,
    unknown_type,
)
from horolog.config import Change, Operation
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
    name, about = resource.resource_name, ResourceType.TOPIC
    replace: Callable[..., Awaitable[None]]
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = broker.topics.named(name)
            replace = partial(broker.controller.replace_topic_settings, topic)
        case ResourceType.BROKER:
            about = ResourceType.BROKER
            replace = partial(
                broker.controller.replace_broker_settings, cluster_wide=check_broker(broker, name)
            )
        case number:
            raise unknown_type(number)

    async def replace_all(settings: Iterable[Change]) -> None:
        given = {change.name: change.value for change in settings}
        await replace(given, validate_only=validate_only)

    changes = (Change(key, Operation.SET, value) for key, value in values.items())
    await alter(
        *(broker, request.peer, about, name, changes, replace_all), validate_only=validate_only
    )
