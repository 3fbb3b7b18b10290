"""IncrementalAlterConfigs: sets, deletes, appends to, subtracts from settings (KIP-339).

Of loggers it sets and deletes levels (KIP-412).

v1  flexible
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from horolog.broker.append_time_control import split_resets
from horolog.broker.broker import Broker
from horolog.broker.clock_control import split_changes
from horolog.broker.dispatch import Request, api
from horolog.broker.exactly_once_control import split_queries
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
    changes: Sequence[Change] = asked
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = broker.topics.named(resource.resource_name)
            reset, changes = split_resets(broker, topic, changes)
            if reset is None:
                await broker.controller.alter_topic_settings(
                    topic, changes, validate_only=validate_only
                )
            elif not validate_only:
                await reset.perform(broker)
        case ResourceType.BROKER:
            cluster_wide = check_broker(broker, resource.resource_name)
            call, changes = split_queries(changes)
            if call is not None:
                if not validate_only:
                    await call.perform(broker)
                return
            clock_actions, changes = split_changes(broker, changes)
            if changes or clock_actions is None:
                await broker.controller.alter_broker_settings(
                    changes, cluster_wide=cluster_wide, validate_only=validate_only
                )
            if clock_actions is not None and not validate_only:
                await clock_actions.perform(broker)
        case ResourceType.BROKER_LOGGER:
            check_logger_broker(broker, resource.resource_name)
            alter_loggers(changes, validate_only=validate_only)
        case number:
            raise unknown_type(number)


def _change(config: IncrementalAlterConfigsAlterableConfig) -> Change:
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        raise RequestRefused(
            ErrorCode.invalid_request, f"there is no operation {config.config_operation}"
        ) from None
    return Change(config.name, operation, config.value)
