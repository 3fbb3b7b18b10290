"""ListConfigResources: what has settings (KIP-1142).

v0  flexible from the start; client metrics only (as ListClientMetricsResources, KIP-1000)
v1  kinds of resources
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.requests import ListConfigResourcesRequest

if TYPE_CHECKING:
    from horolog.wire.responses import ConfigResource, ListConfigResourcesResponse


@api(ApiKey.LIST_CONFIG_RESOURCES)
async def list_config_resources(
    request: Request[ListConfigResourcesRequest], broker: Broker
) -> "ListConfigResourcesResponse":
    """The resources of the requested kinds, of all without any; an unknown kind refuses all."""
    asked = set(request.body.resource_types)
    if request.version == 0:
        asked = {ResourceType.CLIENT_METRICS}
    if asked - set(ResourceType):
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    resources: list[ConfigResource] = []
    for kind in sorted(asked or set(ResourceType)):
        for name in _names(broker, ResourceType(kind)):
            await request.checkpoint()
            resources.append({"resource_name": name, "resource_type": kind})
    return {"error_code": ErrorCode.none, "config_resources": resources}


def _names(broker: Broker, kind: ResourceType) -> Iterator[str]:
    """Groups and subscriptions of client metrics have no settings here."""
    match kind:
        case ResourceType.TOPIC:
            yield from (topic.name for topic in broker.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            yield str(broker.config.node_id)
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            pass
