"""DescribeGroups: state, protocol and members of consumer groups.

v1  throttle time
v3  authorized operations on request: all, for there is no authorizer
v4  group instance id of members (KIP-345)
v5  flexible
v6  a group that is not there is an error with a message; before, it is a dead group
"""

from typing import Any

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers import authorized
from horolog.errors import ErrorCode
from horolog.groups.values import GroupState
from horolog.wire.api import ApiKey


@api(ApiKey.DESCRIBE_GROUPS)
def describe_groups(request: Request, broker: Broker) -> dict[str, Any]:
    """Each group that was asked for."""
    wanted = getattr(request.body, "include_authorized_operations", False)
    operations = authorized.ON_GROUP if wanted else authorized.NOT_ASKED
    return {
        "groups": [
            {
                **_described(broker, group_id, request.version),
                "authorized_operations": operations,
            }
            for group_id in request.body.groups
        ]
    }


def _described(broker: Broker, group_id: str, version: int) -> dict[str, Any]:
    group = broker.groups.describe(group_id)
    if group is None:
        missing = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
        return {
            "error_code": missing,
            "error_message": f"Group {group_id} not found.",
            "group_id": group_id,
            "group_state": GroupState.DEAD.value,
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    return {
        "error_code": ErrorCode.none,
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    }
