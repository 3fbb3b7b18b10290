"""Heartbeat: extends a member's session; the response says when it must rejoin.

v1  throttle time
v3  group instance id (KIP-345)
v4  flexible
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, RequestRefused, code_for
from horolog.wire.api import ApiKey
from horolog.wire.requests import HeartbeatRequest

if TYPE_CHECKING:
    from horolog.wire.responses import HeartbeatResponse


@api(ApiKey.HEARTBEAT)
def heartbeat(request: Request[HeartbeatRequest], broker: Broker) -> "HeartbeatResponse":
    """Extend the member's session."""
    body = request.body
    try:
        broker.groups.heartbeat(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id,
        )
    except RequestRefused as error:
        return {"error_code": code_for(error)}
    return {"error_code": ErrorCode.none}
