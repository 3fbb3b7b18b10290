"""IncrementalAlterConfigs: sets, deletes, appends to, subtracts from settings (KIP-339).

Of loggers it sets and deletes levels (KIP-412).

v1  flexible
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.config_resources import alter_each
from horolog.wire.api import ApiKey
from horolog.wire.requests import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import IncrementalAlterConfigsResponse


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def incremental_alter_configs(
    request: Request[IncrementalAlterConfigsRequest], broker: Broker
) -> "IncrementalAlterConfigsResponse":
    """Apply the changes of each resource atomically."""
    return {"responses": await alter_each(request, broker, replaces=False)}
