"""LeaveGroup: removes members before their sessions expire.

v1  throttle time
v3  several members, by member id or group instance id, each with its own error (KIP-345)
v4  flexible
v5  reason
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import ErrorCode, RequestRefused, code_for
from horolog.wire.api import ApiKey
from horolog.wire.requests import LeaveGroupRequest

if TYPE_CHECKING:
    from horolog.wire.responses import LeaveGroupResponse


@api(ApiKey.LEAVE_GROUP)
async def leave_group(request: Request[LeaveGroupRequest], broker: Broker) -> "LeaveGroupResponse":
    """Remove the members."""
    body = request.body
    if not body.group_id:
        return {"error_code": ErrorCode.invalid_group_id, "members": []}
    try:
        broker.groups.check_loaded(body.group_id)
    except RequestRefused as refused:
        return {"error_code": code_for(refused), "members": []}
    if request.version < 3:
        (error,) = await broker.groups.leave(body.group_id, [(body.member_id, None)])
        return {"error_code": error}
    members = []
    for member in body.members:
        await request.checkpoint()
        members.append((member.member_id, member.group_instance_id))
    errors = await broker.groups.leave(body.group_id, members)
    return {
        "error_code": ErrorCode.none,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(members, errors, strict=True)
        ],
    }
