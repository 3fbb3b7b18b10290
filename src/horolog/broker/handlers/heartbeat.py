"""Heartbeat: a member is alive; told here when it has to join again.

v1  throttle time
v3  group instance id (KIP-345)
v4  flexible
"""

from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, RequestRefused, code_for
from horolog.wire.api import ApiKey


@api(ApiKey.HEARTBEAT)
def heartbeat(request: Request, broker: Broker) -> dict[str, Any]:
    """Extend the member's session."""
    body = request.body
    try:
        broker.groups.heartbeat(
            body.group_id,
            body.member_id,
            getattr(body, "group_instance_id", None),
            body.generation_id,
        )
    except RequestRefused as error:
        return {"error_code": code_for(error)}
    return {"error_code": ErrorCode.none}
