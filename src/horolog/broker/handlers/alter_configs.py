"""AlterConfigs: replaces all dynamic settings of topics and brokers.

v1  as v0
v2  flexible
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.config_resources import alter_each
from horolog.wire.api import ApiKey
from horolog.wire.requests import AlterConfigsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import AlterConfigsResponse


@api(ApiKey.ALTER_CONFIGS)
async def alter_configs(
    request: Request[AlterConfigsRequest], broker: Broker
) -> "AlterConfigsResponse":
    """Replace the settings of each resource atomically."""
    return {"responses": await alter_each(request, broker, replaces=True)}
