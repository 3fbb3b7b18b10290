"""JoinGroup: join a consumer group; completed with the rebalance.

v1  rebalance timeout; before, the session timeout serves for it
v2  throttle time
v4  a newcomer is first refused with its member id, and asks again with it (KIP-394)
v5  static members by group instance id (KIP-345)
v6  flexible
v7  protocol type in the answer
v8  reason
v9  the leader may be told to skip the assignment (KIP-814)
"""

from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.errors import RequestRefused, code_for
from horolog.groups.values import Join, Joined, Protocol
from horolog.wire.api import ApiKey
from horolog.wire.requests import JoinGroupRequest

if TYPE_CHECKING:
    from horolog.wire.responses import JoinGroupResponse

_LARGE: Final = 64 << 10


@api(ApiKey.JOIN_GROUP)
async def join_group(
    request: Request[JoinGroupRequest], broker: Broker
) -> "JoinGroupResponse | Apart":
    """Join, and wait for the new generation."""
    body = request.body
    rebalance_timeout_ms = body.session_timeout_ms
    if request.version >= 1:
        rebalance_timeout_ms = body.rebalance_timeout_ms
    protocols = []
    for protocol in body.protocols:
        await request.checkpoint()
        protocols.append(Protocol(protocol.name, protocol.metadata))
    join = Join(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocols=tuple(protocols),
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
        client_id=request.client_id,
        client_host=f"/{request.peer.host}",
        expects_member_id=request.version >= 4,
        may_skip_assignment=request.version >= 9,
    )
    try:
        joined = await broker.groups.join(body.group_id, join)
    except RequestRefused as error:
        joined = Joined(code_for(error), body.member_id)
    answer: JoinGroupResponse = {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        # Null since v7 only.
        "protocol_name": joined.protocol_name or ("" if request.version < 7 else None),
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in joined.members
        ],
    }
    if sum(len(member.metadata) for member in joined.members) + len(joined.members) > _LARGE:
        return Apart(lambda _: answer)
    return answer
