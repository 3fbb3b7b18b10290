"""ListGroups: the consumer groups there are.

v1  throttle time
v3  flexible
v4  state, and a filter on it (KIP-518)
v5  type, and a filter on it (KIP-848): all groups here are classic
"""

from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode
from horolog.wire.api import ApiKey

GROUP_TYPE = "classic"


@api(ApiKey.LIST_GROUPS)
def list_groups(request: Request, broker: Broker) -> dict[str, Any]:
    """All groups that pass the filters; names compare without regard to case, as in Kafka."""
    states = {state.lower() for state in getattr(request.body, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request.body, "types_filter", ())}
    groups = broker.groups.descriptions()
    if types and GROUP_TYPE not in types:
        groups = []
    return {
        "error_code": ErrorCode.none,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state.value,
                "group_type": GROUP_TYPE,
            }
            for group in groups
            if not states or group.state.value.lower() in states
        ],
    }
