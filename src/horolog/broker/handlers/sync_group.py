"""SyncGroup: a member gets its assignment; the leader sends those of all.

v1  throttle time
v3  group instance id (KIP-345)
v4  flexible
v5  the member's protocol type and name are checked, and returned (KIP-559)
"""

from typing import TYPE_CHECKING

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.errors import RequestRefused, code_for
from horolog.groups.values import Sync, Synced
from horolog.wire.api import ApiKey
from horolog.wire.requests import SyncGroupRequest

if TYPE_CHECKING:
    from horolog.wire.responses import SyncGroupResponse


@api(ApiKey.SYNC_GROUP)
async def sync_group(request: Request[SyncGroupRequest], broker: Broker) -> "SyncGroupResponse":
    """Wait for the leader's assignment."""
    body = request.body
    assignments = []
    for assigned in body.assignments:
        await request.checkpoint()
        assignments.append((assigned.member_id, assigned.assignment))
    sync = Sync(
        member_id=body.member_id,
        generation=body.generation_id,
        instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        assignments=tuple(assignments),
    )
    try:
        synced = await broker.groups.sync(body.group_id, sync)
    except RequestRefused as error:
        synced = Synced(code_for(error))
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol_name,
        "assignment": synced.assignment,
    }
