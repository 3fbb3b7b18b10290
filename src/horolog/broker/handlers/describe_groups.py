"""DescribeGroups: state, protocol and members of consumer groups.

v1  throttle time
v3  authorized operations on request: all, for there is no authorizer
v4  group instance id of members (KIP-345)
v5  flexible
v6  a group that is not there is an error with a message; before, it is a dead group

A group that is asked for several times is described once.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers import authorized
from horolog.errors import ErrorCode, RequestRefused, code_for, printable
from horolog.groups.values import GroupDescription, GroupState
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeGroupsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import DescribedGroup, DescribeGroupsResponse

_MANY: Final = 200  # groups and members
_LARGE_BYTES: Final = 64 << 10


@api(ApiKey.DESCRIBE_GROUPS)
async def describe_groups(
    request: Request[DescribeGroupsRequest], broker: Broker
) -> "DescribeGroupsResponse | Apart":
    """Describe each requested group."""
    with_operations = request.body.include_authorized_operations
    operations = authorized.ON_GROUP if with_operations else authorized.NOT_ASKED
    groups: dict[str, GroupDescription | ErrorCode | None] = {}
    for group_id in request.body.groups:
        if group_id not in groups:
            try:
                groups[group_id] = broker.groups.describe(group_id)
            except RequestRefused as error:
                groups[group_id] = code_for(error)
            await request.checkpoint()
    make = partial(_answer, groups, request.version, operations)
    if _takes_long(groups):
        return Apart(make)
    return make()


def _takes_long(groups: dict[str, GroupDescription | ErrorCode | None]) -> bool:
    if len(groups) > _MANY:
        return True
    described = [each for each in groups.values() if isinstance(each, GroupDescription)]
    members = [member for group in described for member in group.members]
    return (
        len(members) > _MANY
        or sum(len(member.metadata) + len(member.assignment) for member in members) > _LARGE_BYTES
    )


def _answer(
    groups: dict[str, GroupDescription | ErrorCode | None], version: int, operations: int
) -> "DescribeGroupsResponse":
    return {
        "groups": [
            {**_described(group_id, group, version), "authorized_operations": operations}
            for group_id, group in groups.items()
        ]
    }


def _described(
    group_id: str, group: GroupDescription | ErrorCode | None, version: int
) -> "DescribedGroup":
    if isinstance(group, ErrorCode):
        return {
            "error_code": group,
            "group_id": group_id,
            "group_state": "",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    if group is None:
        missing = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
        return {
            "error_code": missing,
            "error_message": printable(f"Group {group_id} not found."),
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
