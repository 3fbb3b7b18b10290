"""DescribeGroups: state, protocol and members of consumer groups.

v1  throttle time
v3  authorized operations on request: all, for there is no authorizer
v4  group instance id of members (KIP-345)
v5  flexible
v6  a group that is not there is an error with a message; before, it is a dead group

A group that is named several times is described each time, as by Apache Kafka. But once
`MOST_AGAIN_BYTES` were repeated, it gets INVALID_REQUEST: the answer to a small request would have
no bounds.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Apart, Request, api
from horolog.broker.handlers import authorized
from horolog.broker.scheduling.codec_threads import Checkpoint, no_checkpoint
from horolog.errors import ErrorCode, RequestRefused, code_for, printable
from horolog.groups.values import GroupDescription, GroupState
from horolog.wire.api import ApiKey
from horolog.wire.requests import DescribeGroupsRequest

if TYPE_CHECKING:
    from horolog.wire.responses import DescribedGroup, DescribeGroupsResponse

MOST_AGAIN_BYTES: Final = 16 << 20
"""Of members in an answer that has them already."""
_MANY: Final = 200  # groups
_LARGE_BYTES: Final = 64 << 10  # of members
_MEMBER_BYTES: Final = 64  # for what making the answer of one costs


class _Found(NamedTuple):
    """A description of a group, and its size."""

    group: GroupDescription | ErrorCode | None
    size: int


@api(ApiKey.DESCRIBE_GROUPS)
async def describe_groups(
    request: Request[DescribeGroupsRequest], broker: Broker
) -> "DescribeGroupsResponse | Apart":
    """Describe each requested group."""
    asked = request.body.groups
    found: dict[str, _Found] = {}
    size = 0
    for group_id in asked:
        if group_id not in found:
            found[group_id] = _find(group_id, broker)
        size += found[group_id].size
        await request.checkpoint()
    with_operations = request.body.include_authorized_operations
    make = partial(_answer, asked, found, request.version, with_operations)
    return Apart(make) if len(asked) > _MANY or size > _LARGE_BYTES else make()


def _find(group_id: str, broker: Broker) -> _Found:
    try:
        group = broker.groups.describe(group_id)
    except RequestRefused as error:
        return _Found(code_for(error), 0)
    if group is None:
        return _Found(None, 0)
    size = len(group.protocol_type) + len(group.protocol_name)
    for member in group.members:
        size += _MEMBER_BYTES + sum(len(field or "") for field in member)
    return _Found(group, size)


def _answer(
    asked: Sequence[str],
    found: Mapping[str, _Found],
    version: int,
    with_operations: bool,
    checkpoint: Checkpoint = no_checkpoint,
) -> "DescribeGroupsResponse":
    described: dict[str, DescribedGroup] = {}
    answers: list[DescribedGroup] = []
    again_bytes = 0
    for group_id in asked:
        checkpoint()
        group, size = found[group_id]
        if group_id in described:
            again_bytes += size
        else:
            described[group_id] = _described(group_id, group, version)
            is_told = with_operations and not described[group_id]["error_code"]
            operations = authorized.ON_GROUP if is_told else authorized.NOT_ASKED
            described[group_id]["authorized_operations"] = operations
        if again_bytes > MOST_AGAIN_BYTES and size:
            described[group_id] = _described(group_id, ErrorCode.invalid_request, version)
        answers.append(described[group_id])
    return {"groups": answers}


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
